"""For a refusal: the smallest change that would help."""

from __future__ import annotations

import msgspec

from kilonova.scheduler.surroundings import Surroundings
from tests.unit.scheduler.worlds import FLAVOR, Shelf, aggregate, asked, big, choose, settings, sized, with_specs


def test_room_that_is_missing() -> None:
    hosts = {"h1": sized(memory_mb=100), "h7": sized(memory_mb=4092)}
    changes = choose(hosts).changes
    assert changes[0] == "4 MB more memory free on h7"
    assert changes[1] == "a flavor with at most 4092 MB"
    assert changes[2] == "3996 MB more memory free on h1"


def test_several_things_missing_are_told_together() -> None:
    assert choose({"a": sized(vcpus=1, memory_mb=4000)}).changes == (
        "1 more VCPU and 96 MB more memory free on a",
        "a flavor with at most 1 VCPU and 4000 MB",
    )


def test_of_many_that_lack_the_same_the_first_are_named() -> None:
    changes = choose({f"h{n:03}": sized(memory_mb=4092) for n in range(200)}).changes
    assert changes == (
        "4 MB more memory free on h000",
        "a flavor with at most 4092 MB",
        "4 MB more memory free on h001",
    )


def test_a_host_that_only_has_to_be_enabled_comes_first() -> None:
    hosts = {"a": sized(memory_mb=4092), "h3": big(state="disabled", accepting=False)}
    assert choose(hosts).changes[0] == "enable h3"


def test_a_hint_that_is_in_the_way() -> None:
    request = asked(hints={"different_host": ["s1"]})
    around = Surroundings(hosts={"s1": "a"})
    by = settings("ComputeFilter", "DifferentHostFilter")
    assert choose({"a": big()}, request, around=around, by=by).changes == ("drop the hint different_host",)


def test_what_two_filters_ask_is_said_together() -> None:
    changes = choose({"a": sized(memory_mb=4092, state="disabled")}).changes
    assert changes == ("enable a, and 4 MB more memory free on a",)


def test_a_zone() -> None:
    hosts = {"a": sized(memory_mb=1), "b": big()}
    changes = choose(hosts, asked(zone="east"), aggregates=[aggregate(1, "a", availability_zone="east")]).changes
    assert "b in availability zone east, or a request without it" in changes


def test_nothing_can_be_done_about_an_excluded_host() -> None:
    assert choose({"a": big()}, asked().without("a", "it is the dead source")).changes == ()
    assert choose({}).changes == ("a host",)


def test_traits_that_are_missing_or_in_the_way() -> None:
    gold = with_specs(trait__CUSTOM_GOLD="required", trait__CUSTOM_RUST="forbidden")
    hosts = {"a": sized(memory_mb=4092, traits=("CUSTOM_RUST",))}
    room, with_gold, no_rust = "4 MB more memory free on a", "a with trait CUSTOM_GOLD", "a without trait CUSTOM_RUST"
    assert choose(hosts, gold).changes == (f"{room}, and {with_gold}, and {no_rust}",)
    assert choose({"a": big()}, gold).changes == (with_gold,), "no smaller flavor would help"


def test_no_smaller_flavor_where_something_else_is_missing() -> None:
    flavor = msgspec.structs.replace(FLAVOR, extra_specs={"resources:CUSTOM_GOLD": "1"})
    assert choose({"a": big()}, asked(flavor=flavor)).changes == ("1 more CUSTOM_GOLD free on a",)
    coarse = {"VCPU": Shelf(64, step_size=7), "MEMORY_MB": Shelf(8192), "DISK_GB": Shelf(100)}
    assert choose({"a": big(shelves=coarse)}).changes == ()


def test_a_choice_needs_no_change() -> None:
    assert choose({"a": big()}).changes == ()
