"""The planner chooses what the scheduler would choose for one server after the other."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.domain.server import Flavor
from kilonova.domain.whole_hosts import FIRST, LAST
from kilonova.placement.groups import GroupRule
from kilonova.scheduler.planner import Planner, Scope, ServerPlacement, in_order, scope_of
from kilonova.scheduler.promises import Promise, fill, take_hardware
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.select import Selector
from kilonova.scheduler.surroundings import NOBODY, Surroundings
from kilonova.scheduler.verdict import Choice
from kilonova.services.compute.aggregates import Aggregate
from kilonova.settings import Settings
from tests.unit.scheduler.test_hardware import SMALL, pinned
from tests.unit.scheduler.test_reference import members, names, some_aggregates, some_host, specs
from tests.unit.scheduler.worlds import Host, Shelf, aggregate, asked, big, hosts_of, settings, sized, snapshot_of

MANY = 1000  # moves at once: every planned server keeps its host busy, as in decisions one after the other

shapes = st.builds(
    ResourceRequest,
    flavor=st.builds(
        Flavor,
        name=st.just("f"),
        vcpus=st.integers(0, 2),
        memory_mb=st.integers(0, 3),
        disk_gb=st.integers(0, 2),
        extra_specs=specs,
    ),
    zone=st.sampled_from(["", "", "", "east"]),
    rescue=st.booleans(),
    excluded=st.dictionaries(names, st.just("it is dead"), max_size=1),
    group=st.one_of(
        st.none(),
        st.builds(
            GroupRule,
            st.sampled_from(["g", "k"]),
            st.sampled_from(["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]),
            st.integers(1, 2),
        ),
    ),
)
some_requests = st.lists(st.tuples(shapes, st.integers(1, 6)), min_size=1, max_size=4).map(
    lambda found: [
        msgspec.structs.replace(shape, server=f"s{number}-{copy}")
        for number, (shape, count) in enumerate(found)
        for copy in range(count)
    ]
)


def planned(
    hosts: Mapping[str, Host],
    requests: Sequence[ResourceRequest],
    *,
    aggregates: Sequence[Aggregate] = (),
    around: Mapping[Scope, Surroundings] | None = None,
    by: Settings | None = None,
    ranks: Mapping[str, int] | None = None,
    promises: Sequence[Promise] = (),
    at_once: int = MANY,
) -> list[ServerPlacement]:
    planner = Planner(
        Selector(by or Settings()),
        snapshot_of(hosts, aggregates).copied(),
        hosts_of(hosts, aggregates).copied(),
        random.Random(1),
        around=around,
        at_once=at_once,
        promises=promises,
    )
    return list(planner.seats(in_order(requests, ranks or {})))


def one_by_one(
    hosts: Mapping[str, Host],
    requests: Sequence[ResourceRequest],
    aggregates: Sequence[Aggregate],
    groups: Mapping[Scope, Surroundings],
    by: Settings,
) -> list[Choice | None]:
    """The scheduler asked for each server, which then is there."""
    selector, draw, around = Selector(by), random.Random(1), dict(groups)
    snapshot, known = snapshot_of(hosts, aggregates), hosts_of(hosts, aggregates)
    found: list[Choice | None] = []
    for request in requests:
        scope = scope_of(request)
        there = around.get(scope, NOBODY)
        decision = selector.select(snapshot, known, request, draw, around=there, alternates=0)
        found.append(decision.chosen)
        if decision.chosen is not None:
            fill(snapshot, known, [decision.chosen])
            take_hardware(known, decision.chosen, request)
            if request.group is not None:
                around[scope] = there.joined_by(decision.chosen.provider, request.server)
    return found


@pytest.mark.slow
@given(
    st.dictionaries(names, some_host, min_size=1),
    some_requests,
    some_aggregates,
    members,
    st.integers(1, 3),
    st.sampled_from([1.0, -1.0]),
)
def test_agrees_with_one_decision_after_the_other(
    hosts: dict[str, Host],
    requests: list[ResourceRequest],
    aggregates: list[Aggregate],
    there: dict[str, frozenset[str]],
    subset: int,
    spread: float,
) -> None:
    by = settings(host_subset_size=subset, ram_weight_multiplier=spread)
    around = {scope_of(request): Surroundings(there) for request in requests if request.group is not None}
    ordered = in_order(requests, {})
    if subset > 1:
        ordered = [one for one in ordered if one.group is None]  # both draw once for each server that fits
    seats = planned(hosts, ordered, aggregates=aggregates, around=around, by=by)
    assert [seat.request for seat in seats] == ordered
    assert [seat.choice for seat in seats] == one_by_one(hosts, ordered, aggregates, around, by)
    for seat in seats:
        assert (seat.choice is None) == (seat.decision is not None)


def test_nested_providers_are_taken_as_in_single_decisions() -> None:
    numa = {f"numa{n}": {"VCPU": Shelf(4), "MEMORY_MB": Shelf(8192)} for n in range(2)}
    hosts = {
        name: Host(shelves={"DISK_GB": Shelf(100)}, below={f"{name}-{n}": s for n, s in numa.items()}) for name in "ab"
    }
    requests = [asked(server=f"s{n}") for n in range(9)]
    seats = planned(hosts, requests)
    chosen = [seat.choice for seat in seats]
    assert chosen == one_by_one(hosts, [seat.request for seat in seats], (), {}, Settings())
    assert sum(choice is not None for choice in chosen) == 8


def test_pinned_servers_are_placed_by_what_the_host_would_fit_and_come_one_after_the_other() -> None:
    shelves = {"PCPU": Shelf(8), "VCPU": Shelf(8), "MEMORY_MB": Shelf(4096), "DISK_GB": Shelf(100)}
    hosts = {name: Host(shelves=shelves) for name in "ab"}
    known = hosts_of(hosts)
    for name in hosts:
        known.hardware._facts[name] = known.hardware._facts_of(SMALL, ())
    wish = pinned(2)
    requests = [asked(server=f"s{n}", flavor=Flavor("f", 2, 64, 1, hardware=wish)) for n in range(5)]
    planner = Planner(Selector(Settings()), snapshot_of(hosts), known.copied(), random.Random(1), at_once=4)
    seats = list(planner.seats(in_order(requests, {})))
    by_host: dict[str, list[ServerPlacement]] = {}
    for seat in seats:
        by_host.setdefault(seat.choice.host if seat.choice else "", []).append(seat)
    assert {host: len(found) for host, found in by_host.items()} == {"a": 2, "b": 2, "": 1}
    for host in "ab":
        first, second = by_host[host]
        assert (first.after, second.after) == ((), (first.request.server,))
    assert known.hardware.facts("a") == known.hardware.facts("b"), "only on trial"


def test_promises_to_others_count() -> None:
    hosts = {"a": sized(memory_mb=5000), "b": sized(memory_mb=5000)}
    (other,) = [seat for seat in planned(hosts, [asked(server="other")])]
    assert other.choice is not None
    promise = Promise(other.request, other.choice, 1e9)
    seats = planned(hosts, [asked(server=f"s{n}") for n in range(2)], promises=[promise])
    assert [seat.choice.host if seat.choice else None for seat in seats] == ["b", None]


def test_a_misfit_has_numbers_and_the_smallest_change() -> None:
    seats = planned({"a": sized(memory_mb=5000)}, [asked(server=f"s{n}") for n in range(3)])
    assert [seat.choice is None for seat in seats] == [False, True, True]
    decision = seats[1].decision
    assert decision is not None and decision is seats[2].decision
    assert decision.changes[0] == "3192 MB more memory free on a"
    assert [verdict.sentence for verdict in decision.verdicts] == ["needs 4096 MB, 904 free of 5000"]


def test_more_moves_than_run_at_once_keep_a_host_no_busier() -> None:
    by = settings("ComputeFilter", "IoOpsFilter", max_io_ops_per_host=3)
    requests = [asked(server=f"s{n}") for n in range(6)]
    assert [seat.choice is not None for seat in planned({"a": big()}, requests, by=by, at_once=2)] == [True] * 6
    counted = planned({"a": big()}, requests, by=by)
    assert sum(seat.choice is not None for seat in counted) == 3


def test_rank_then_difficulty_then_size() -> None:
    small, large = asked(server="a-small"), asked(server="b-large", flavor=Flavor("l", 8, 16384, 80))
    grouped = asked(server="c-grouped", group=GroupRule("g", "anti-affinity", 1))
    first, last = asked(server="d-first"), asked(server="e-last", flavor=Flavor("l", 8, 16384, 80))
    ordered = in_order([small, large, grouped, first, last], {"d-first": FIRST, "e-last": LAST})
    assert [one.server for one in ordered] == ["d-first", "c-grouped", "b-large", "a-small", "e-last"]


def test_a_server_goes_after_those_that_its_hint_names() -> None:
    hosts = {name: big() for name in ("a", "b")} | {"dead": big(state="down")}
    together = asked(server="a-with", hints={"same_host": ["z-named"]})
    apart = asked(server="b-without", hints={"different_host": ["z-named"]})
    named = asked(server="z-named")
    by = settings("ComputeFilter", "SameHostFilter", "DifferentHostFilter")
    around = {scope_of(one): Surroundings(hosts={"z-named": "dead"}) for one in (together, apart)}
    seats = {seat.request.server: seat for seat in planned(hosts, [together, apart, named], by=by, around=around)}
    went = {server: seat.choice.host for server, seat in seats.items() if seat.choice is not None}
    assert went["a-with"] == went["z-named"] != went["b-without"]
    assert seats["a-with"].after == seats["b-without"].after == ("z-named",)


def test_reserved_hosts_take_servers_of_dead_hosts_alone() -> None:
    hosts = {"a": sized(memory_mb=5000), "spare": big()}
    reserved = [aggregate(1, "spare", **{"kilonova:reserved_for": "evacuation"})]
    rescued = planned(hosts, [asked(server=f"s{n}", rescue=True) for n in range(2)], aggregates=reserved)
    assert [seat.choice.host if seat.choice else "" for seat in rescued] == ["spare", "a"]
    others = planned(hosts, [asked(server=f"s{n}") for n in range(2)], aggregates=reserved)
    assert [seat.choice.host if seat.choice else "" for seat in others] == ["a", ""]
    decision = others[1].decision
    assert decision is not None
    sentences = {verdict.host: verdict.sentence for verdict in decision.verdicts}
    assert sentences["spare"] == "it is reserved for evacuations"
    assert "take spare out of the aggregate with kilonova:reserved_for=evacuation" in decision.changes


def test_a_copy_stays_as_it_was() -> None:
    hosts = {"a": big(), "b": big(state="disabled")}
    snapshot, known = snapshot_of(hosts), hosts_of(hosts)
    copied, same = snapshot.copied(), known.copied()
    snapshot.classes["VCPU"].table[:] = 0
    snapshot.names[0] = "other"
    snapshot.with_trait.add("CUSTOM_NEW", [0])
    known.set_odd("cell1", {})
    known.busy[:] = 7
    assert copied.classes["VCPU"].table[0, 0] == 64 and copied.names[0] == "a"
    assert "CUSTOM_NEW" not in copied.with_trait
    assert list(same.odd) == [1] and not same.up[1] and not same.busy.any()
