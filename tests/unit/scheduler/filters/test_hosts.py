"""Filters by name and state of hosts."""

from __future__ import annotations

import pytest

from kilonova.scheduler.filters.hosts import AllHostsFilter, ComputeFilter, IsolatedHostsFilter
from kilonova.scheduler.request import Image
from tests.unit.scheduler.worlds import REQUEST, asked, big, field_of, passing, said, settings

TWO = {"a": big(), "b": big()}


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
    assert passing(IsolatedHostsFilter, TWO, asked(image=Image(image)), by=by) == expected
    words = said(IsolatedHostsFilter, TWO, asked(image=Image("other")), "a", by=by)
    assert words == "the host is isolated, the image is not isolated"


def test_without_lists_it_does_not_matter() -> None:
    assert passing(IsolatedHostsFilter, TWO, asked()) == ["a", "b"]


def test_every_host() -> None:
    assert passing(AllHostsFilter, {"a": big(), "b": big(state="down")}, REQUEST) == ["a", "b"]
    assert said(AllHostsFilter, {"a": big()}, REQUEST, "a") == "every host passes"


HOSTS = {"a": big(), "b": big(state="down"), "c": big(state="disabled")}


def test_only_hosts_that_are_up() -> None:
    assert passing(ComputeFilter, HOSTS, REQUEST) == ["a"]
    assert said(ComputeFilter, HOSTS, REQUEST, "a") == "the host is up"
    assert said(ComputeFilter, HOSTS, REQUEST, "b") == "the host is down: b is down"


def test_what_would_help() -> None:
    field = field_of(HOSTS)
    filter_ = ComputeFilter(None)  # type: ignore[arg-type]
    assert [filter_.remedy(field, REQUEST, at) for at in range(3)] == [None, "bring b back", "enable c"]
