"""Filters by name and state of hosts."""

from __future__ import annotations

import pytest

from kilonova.scheduler.filters.hosts import (
    Accepting,
    AllHostsFilter,
    ComputeFilter,
    Excluded,
    IsolatedHostsFilter,
    WantedHost,
)
from kilonova.scheduler.request import ImageFacts
from tests.unit.scheduler.worlds import REQUEST, asked, big, field_of, passing, said, settings

TWO = {"a": big(), "b": big()}


def test_the_host_that_is_asked_for() -> None:
    assert passing(WantedHost, TWO, asked(wanted_host="b")) == passing(WantedHost, TWO, asked(forced_host="b")) == ["b"]
    assert passing(WantedHost, TWO, asked(wanted_host="gone")) == []
    assert passing(WantedHost, TWO, asked()) == ["a", "b"]
    assert said(WantedHost, TWO, asked(wanted_host="b"), "a") == "host b was asked for"


def test_hosts_that_are_excluded() -> None:
    request = asked(excluded={"a": "it failed before", "gone": "it died"})
    assert passing(Excluded, TWO, request) == ["b"]
    assert [said(Excluded, TWO, request, host) for host in TWO] == ["it failed before", "not excluded"]


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
    assert passing(IsolatedHostsFilter, TWO, asked(image=ImageFacts(image)), by=by) == expected
    words = said(IsolatedHostsFilter, TWO, asked(image=ImageFacts("other")), "a", by=by)
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


def test_hosts_that_accept_claims() -> None:
    hosts = {"a": big(), "b": big(accepting=False), "c": big(known=False), "d": big(accepting=False, state="down")}
    assert passing(Accepting, hosts, REQUEST) == ["a"]
    assert [said(Accepting, hosts, REQUEST, host) for host in "abc"] == [
        "it accepts claims",
        "it accepts no new claims",
        "placement does not know this host",
    ]
    unknown = Accepting(settings()).unknown(field_of(hosts), REQUEST)
    assert unknown is not None and unknown.tolist() == [True, True, False, False], "b may accept in a moment"
