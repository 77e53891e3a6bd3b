"""IsolatedHostsFilter."""

from __future__ import annotations

import pytest

from kilonova.scheduler.filters.isolated_hosts import IsolatedHostsFilter
from kilonova.scheduler.request import Image
from tests.unit.scheduler.worlds import asked, big, passing, said, settings

HOSTS = {"a": big(), "b": big()}


@pytest.mark.parametrize(
    ("image", "restricted", "expected"),
    [("secret", True, ["a"]), ("secret", False, ["a"]), ("other", True, ["b"]), ("other", False, ["a", "b"])],
)
def test_images_and_hosts_agree(image: str, restricted: bool, expected: list[str]) -> None:
    by = settings(
        isolated_images=("secret",),
        isolated_hosts=("a", "gone"),
        restrict_isolated_hosts_to_isolated_images=restricted,
    )
    assert passing(IsolatedHostsFilter, HOSTS, asked(image=Image(image)), by=by) == expected
    words = said(IsolatedHostsFilter, HOSTS, asked(image=Image("other")), "a", by=by)
    assert words == "the host is isolated, the image is not isolated"


def test_without_lists_it_does_not_matter() -> None:
    assert passing(IsolatedHostsFilter, HOSTS, asked()) == ["a", "b"]
