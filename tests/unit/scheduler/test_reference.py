"""The vectorised choice equals the plain one on random worlds."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.domain.server import Flavor
from kilonova.placement.groups import GroupRule
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.surroundings import Surroundings
from kilonova.scheduler.verdict import Decision
from kilonova.services.compute.aggregates import Aggregate
from tests.unit.scheduler.reference import fits, weights
from tests.unit.scheduler.worlds import Host, Shelf, choose, settings

NAMES = [f"h{number}" for number in range(10)]
CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB")
STATES = ("disabled", "unknown", "down", "draining", "returning")
TRAITS = ("CUSTOM_GOLD", "CUSTOM_FAST", "COMPUTE_STATUS_DISABLED")

names = st.sampled_from(NAMES)
shelves = st.builds(
    Shelf,
    capacity=st.integers(0, 12),
    used=st.integers(0, 14),
    min_unit=st.integers(1, 3),
    max_unit=st.integers(3, 12),
    step_size=st.integers(1, 3),
)
plenty = st.builds(Shelf, capacity=st.integers(6, 40), used=st.integers(0, 3))
some_host = st.builds(
    Host,
    shelves=st.one_of(
        st.fixed_dictionaries(dict.fromkeys(CLASSES, plenty)), st.dictionaries(st.sampled_from(CLASSES), shelves)
    ),
    accepting=st.sampled_from([True, True, True, False]),
    state=st.sampled_from(("up",) * 8 + STATES),
    known=st.sampled_from([True, True, True, False]),
    traits=st.lists(st.sampled_from(TRAITS[:2]), unique=True).map(tuple) | st.just(TRAITS),
    busy=st.integers(0, 3),
    failed=st.sampled_from([0, 0, 0, 1]),
    cell=st.sampled_from(["one", "one", "one", "two"]),
)
some_hosts = st.dictionaries(names, some_host)
metadata = st.fixed_dictionaries(
    {},
    optional={
        "availability_zone": st.sampled_from(["east", "west"]),
        "ram_weight_multiplier": st.sampled_from(["-1", "2.5", "0"]),
        "io_ops_weight_multiplier": st.sampled_from(["3"]),
    },
)
some_aggregates = st.lists(st.tuples(st.lists(names, unique=True), metadata), max_size=3).map(
    lambda found: [
        Aggregate(id=n, uuid=f"a-{n}", name=f"agg{n}", metadata=data, hosts=tuple(hosts))
        for n, (hosts, data) in enumerate(found, 1)
    ]
)
specs = st.fixed_dictionaries(
    {}, optional={f"trait:{t}": st.sampled_from(["required", "forbidden"]) for t in TRAITS[:2]}
)
some_request = st.builds(
    ResourceRequest,
    flavor=st.builds(
        Flavor,
        name=st.just("f"),
        vcpus=st.integers(0, 4),
        memory_mb=st.integers(0, 4),
        disk_gb=st.integers(0, 4),
        extra_specs=specs,
    ),
    server=st.just("me"),
    zone=st.sampled_from(["", "", "east", "north"]),
    excluded=st.dictionaries(names, st.just("not here"), max_size=2),
    wanted_host=st.one_of(st.none(), st.none(), st.none(), names),
    forced_host=st.one_of(st.none(), st.none(), st.none(), names),
    group=st.one_of(
        st.none(), st.builds(GroupRule, st.just("g"), st.sampled_from(["affinity", "anti-affinity"]), st.integers(1, 2))
    ),
)
members = st.dictionaries(
    names.map(lambda name: f"p-{name}"),
    st.sets(st.sampled_from(["me", "s1", "s2"]), min_size=1).map(frozenset),
    max_size=3,
)


@pytest.mark.slow
@given(some_hosts, some_request, some_aggregates, members, st.integers(1, 4), st.integers(0, 3), st.integers(0, 9))
def test_agrees_with_the_plain_one(
    hosts: dict[str, Host],
    request: ResourceRequest,
    aggregates: list[Aggregate],
    around: dict[str, frozenset[str]],
    subset: int,
    alternates: int,
    seed: int,
) -> None:
    surroundings = Surroundings(around if request.group else {})
    decision = choose(
        hosts,
        request,
        aggregates=aggregates,
        around=surroundings,
        by=settings(host_subset_size=subset),
        seed=seed,
        alternates=alternates,
    )
    fitting = {name: host for name, host in hosts.items() if fits(name, host, request, aggregates, surroundings)}
    weighed = weights(fitting, aggregates)
    assert (decision.considered, decision.fitting) == (len(hosts), len(fitting))
    _check_choice(decision, fitting, weighed, subset, alternates)
    _check_verdicts(decision, hosts, fitting)
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision


def _check_choice(
    decision: Decision, fitting: dict[str, Host], weighed: dict[str, float], subset: int, alternates: int
) -> None:
    assert (decision.chosen is None) == (not fitting)
    for choice in decision.taken:
        assert choice.provider == f"p-{choice.host}" and choice.cell == fitting[choice.host].cell
        assert choice.weight == pytest.approx(weighed[choice.host], abs=1e-5)
    if decision.chosen is None:
        return
    chosen = decision.chosen.host
    better = sum(other > weighed[chosen] + 1e-6 for other in weighed.values())
    assert better < subset, "one of the best `subset`"
    rest = [weighed[n] for n, host in fitting.items() if n != chosen and host.cell == fitting[chosen].cell]
    best = sorted(rest, reverse=True)[:alternates]
    assert [choice.weight for choice in decision.alternates] == pytest.approx(best, abs=1e-5)


def _check_verdicts(decision: Decision, hosts: dict[str, Host], fitting: dict[str, Host]) -> None:
    against = {verdict.host for verdict in decision.verdicts if not verdict.passed}
    assert against.isdisjoint(fitting)
    taken = {choice.host for choice in decision.taken}
    assert against | taken == {verdict.host for verdict in decision.verdicts}
    if decision.complete:
        assert against | taken == set(hosts)
    else:
        assert len(fitting) > len(taken), "all who do not fit are told here, there are few"
    if not fitting and hosts and any(hosts[name].known for name in hosts):
        assert all(decision.changes)
