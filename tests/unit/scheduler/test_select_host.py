"""select against a brute-force oracle, and the words it finds."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilonova.placement.claims import Candidate
from kilonova.placement.snapshot import FIRST_ROWS, Snapshot
from kilonova.placement.snapshot_reading import Changes
from kilonova.scheduler.hosts import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.select import HostView, select
from kilonova.scheduler.verdict import Decision

CLASSES = ("VCPU", "MEMORY_MB", "DISK_GB")
STATES = ("up", "disabled", "unknown", "down", "draining", "returning")


class Shelf(msgspec.Struct):
    capacity: int
    used: int = 0
    min_unit: int = 1
    max_unit: int = 1_000_000
    step_size: int = 1


class Host(msgspec.Struct):
    shelves: dict[str, Shelf]
    accepting: bool = True
    state: str = "up"
    known: bool = True  # by placement


def big(**changes: Any) -> Host:
    host = Host({"VCPU": Shelf(64), "MEMORY_MB": Shelf(262144), "DISK_GB": Shelf(4000)})
    return msgspec.structs.replace(host, **changes)


def snapshot_of(hosts: dict[str, Host]) -> Snapshot:
    snapshot, providers, offers = Snapshot(), [], []
    for number, (name, host) in enumerate(hosts.items()):
        if not host.known:
            continue
        provider = {"id": number, "uuid": f"p-{name}", "name": name, "generation": 1, "accepting": host.accepting}
        tree = {"root": f"p-{name}", "parent": None, "traits": None, "aggregates": None, "updated_at": 0.0}
        providers.append(provider | tree)
        for resource_class, shelf in host.shelves.items():
            offers.append({"provider_id": number, "name": resource_class} | msgspec.structs.asdict(shelf))
    snapshot.take(Changes(1, providers, offers, []))
    return snapshot


def choose(hosts: dict[str, Host], request: ResourceRequest, seed: int = 0, **options: int) -> Decision:
    views = {name: HostView(f"p-{name}", host.state, f"{name} is {host.state}") for name, host in hosts.items()}
    return select(snapshot_of(hosts), views, request, random.Random(seed), **options)


def fits(name: str, host: Host, request: ResourceRequest) -> bool:
    """The oracle: one host, in plain words."""
    if host.state != "up" or not host.known or not host.accepting or name in request.excluded:
        return False
    if request.wanted_host not in (None, name):
        return False
    for resource_class, amount in request.resources.items():
        shelf = host.shelves.get(resource_class)
        if amount and (
            shelf is None
            or shelf.used + amount > shelf.capacity
            or not shelf.min_unit <= amount <= shelf.max_unit
            or amount % shelf.step_size
        ):
            return False
    return True


def weight(host: Host, fitting: list[Host]) -> float:
    total = 0.0
    for resource_class in ("MEMORY_MB", "VCPU", "DISK_GB"):
        free = [_free(other, resource_class) for other in fitting]
        if max(free) > min(free):
            total += (_free(host, resource_class) - min(free)) / (max(free) - min(free))
    return total


def _free(host: Host, resource_class: str) -> int:
    shelf = host.shelves.get(resource_class)
    return max(shelf.capacity - shelf.used, 0) if shelf else 0


shelves = st.builds(
    Shelf,
    capacity=st.integers(0, 12),
    used=st.integers(0, 14),
    min_unit=st.integers(1, 3),
    max_unit=st.integers(1, 12),
    step_size=st.integers(1, 3),
)
some_host = st.builds(
    Host,
    shelves=st.dictionaries(st.sampled_from(CLASSES), shelves),
    accepting=st.sampled_from([True, True, True, False]),
    state=st.sampled_from(("up",) * 8 + STATES[1:]),
    known=st.sampled_from([True, True, True, False]),
)
names = st.sampled_from([f"h{number}" for number in range(12)])
some_hosts = st.dictionaries(names, some_host)
some_request = st.builds(
    ResourceRequest,
    resources=st.dictionaries(st.sampled_from(CLASSES), st.integers(0, 6)),
    excluded=st.dictionaries(names, st.just("not here"), max_size=2),
    wanted_host=st.one_of(st.none(), st.none(), names),
)


@given(some_hosts, some_request, st.integers(1, 4), st.integers(0, 3), st.integers(0, 9))
def test_agrees_with_the_oracle(
    hosts: dict[str, Host], request: ResourceRequest, subset: int, alternates: int, seed: int
) -> None:
    decision = choose(hosts, request, seed, subset=subset, alternates=alternates)
    fitting = {name: host for name, host in hosts.items() if fits(name, host, request)}
    weights = {name: weight(host, list(fitting.values())) for name, host in fitting.items()}
    taken = [decision.chosen, *decision.alternates] if decision.chosen else []
    assert (decision.considered, decision.fitting) == (len(hosts), len(fitting))
    assert len(taken) == min(len(fitting), 1 + alternates)
    assert len({choice.host for choice in taken}) == len(taken)
    for choice in taken:
        assert choice.provider == f"p-{choice.host}"
        assert choice.weight == pytest.approx(weights[choice.host], abs=1e-5)
    if decision.chosen:
        better = sum(other > weights[decision.chosen.host] + 1e-9 for other in weights.values())
        assert better < subset, "one of the best `subset`"
        rest = sorted((weights[name] for name in fitting if name != decision.chosen.host), reverse=True)
        assert [choice.weight for choice in decision.alternates] == pytest.approx(rest[:alternates], abs=1e-5)
    passed = {name: True for name in hosts}
    for verdict in decision.verdicts:
        passed[verdict.host] &= verdict.passed
    assert decision.complete == ({verdict.host for verdict in decision.verdicts} == set(hosts))
    for host in {verdict.host for verdict in decision.verdicts}:
        assert passed[host] == (host in fitting)
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision


REQUEST = ResourceRequest({"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 20})


def sentences(decision: Decision, host: str) -> dict[str, str]:
    return {verdict.filter: verdict.sentence for verdict in decision.verdicts if verdict.host == host}


def test_the_sentence_carries_the_numbers() -> None:
    tight = big(shelves={"VCPU": Shelf(64), "MEMORY_MB": Shelf(8192, used=7168), "DISK_GB": Shelf(4000)})
    decision = choose({"tight": tight}, REQUEST)
    assert decision.chosen is None and decision.complete
    assert sentences(decision, "tight")["capacity"] == "needs 4096 MB, 1024 free of 8192"
    assert decision.sentence() == "0 of 1 hosts fit; capacity rejects 1"


def test_the_taken_are_explained_too() -> None:
    decision = choose({"a": big()}, REQUEST)
    assert sentences(decision, "a") == {
        "wanted_host": "no host was asked for",
        "excluded": "not excluded",
        "host_state": "the host is up",
        "capacity": "needs 2 VCPU, 64 free of 64; needs 4096 MB, 262144 free of 262144; needs 20 GB, 4000 free of 4000",
    }
    assert decision.candidates() == [Candidate("p-a", REQUEST.resources)]


@pytest.mark.parametrize("state", STATES[1:])
def test_only_up_may_be_chosen(state: str) -> None:
    decision = choose({"a": big(state=state)}, REQUEST)
    assert decision.chosen is None
    assert sentences(decision, "a")["host_state"] == f"the host is {state}: a is {state}"


def test_other_words() -> None:
    odd = {"VCPU": Shelf(64, min_unit=4), "MEMORY_MB": Shelf(10**6, max_unit=100), "DISK_GB": Shelf(40, step_size=7)}
    hosts = {
        "closed": big(accepting=False),
        "stranger": big(known=False),
        "bare": big(shelves={}),
        "odd": big(shelves=odd),
    }
    decision = choose(hosts, REQUEST.without("bare", "it failed before"))
    assert sentences(decision, "closed")["host_state"] == "the host is up but accepts no new claims"
    assert sentences(decision, "stranger")["capacity"] == "placement does not know this host"
    assert sentences(decision, "bare")["excluded"] == "it failed before"
    assert "needs 2 VCPU, 0 free of 0" in sentences(decision, "bare")["capacity"]
    assert sentences(decision, "odd")["capacity"] == (
        "VCPU 2 is less than the smallest amount given out, 4; "
        "MEMORY_MB 4096 is more than one consumer may hold, 100; "
        "DISK_GB 20 is not a multiple of 7"
    )
    assert {count.filter: count.rejected for count in decision.counts} == {
        "wanted_host": 0,
        "excluded": 1,
        "host_state": 2,
        "capacity": 3,
    }


def test_the_best_are_chosen_at_random_and_the_rest_are_alternates() -> None:
    hosts = {
        f"h{n}": big(shelves={"VCPU": Shelf(n + 10), "MEMORY_MB": Shelf(5000), "DISK_GB": Shelf(50)}) for n in range(6)
    }
    assert choose(hosts, REQUEST).chosen.host == "h5"  # type: ignore[union-attr]
    assert [choice.host for choice in choose(hosts, REQUEST).alternates] == ["h4", "h3"]
    chosen = {choose(hosts, REQUEST, seed, subset=3).chosen.host for seed in range(40)}  # type: ignore[union-attr]
    assert chosen == {"h5", "h4", "h3"}
    assert choose(hosts, REQUEST, alternates=0).alternates == ()


def test_equals_keep_the_order_of_their_names() -> None:
    decision = choose({name: big() for name in ("c", "a", "b")}, REQUEST)
    assert [choice.host for choice in (decision.chosen, *decision.alternates) if choice] == ["a", "b", "c"]


def test_a_refusal_by_many_hosts_tells_the_nearest() -> None:
    def lacking(memory: int) -> Host:
        return big(shelves={"VCPU": Shelf(64), "MEMORY_MB": Shelf(memory), "DISK_GB": Shelf(4000)})

    hosts = {f"h{number:04}": lacking(number) for number in range(1200)}
    hosts["down"] = big(state="down")
    hosts["both"] = msgspec.structs.replace(lacking(4095), state="down")
    decision = choose(hosts, REQUEST)
    told = list(dict.fromkeys(verdict.host for verdict in decision.verdicts))
    assert not decision.complete and len(told) == 50
    assert told[0] == "down", "it lacks nothing"
    assert told[1:] == [f"h{number:04}" for number in range(1199, 1150, -1)] and "both" not in told
    hosts = dict(list(hosts.items())[:1000])
    assert choose(hosts, REQUEST).complete


def test_a_host_unknown_to_placement_has_nothing() -> None:
    """Its row number is -1: with all rows of the snapshot in use that is another host's row."""
    hosts = {f"h{number:02}": big() for number in range(FIRST_ROWS)}
    views = {"stranger": HostView("p-stranger", "up")}
    field = Field(snapshot_of(hosts), views)
    assert [int(field.free(name)[0]) for name in CLASSES] == [0, 0, 0]
    assert not field.accepting[0]


def test_no_hosts_at_all() -> None:
    decision = choose({}, REQUEST)
    assert decision.chosen is None and decision.considered == 0 and decision.candidates() == []
    assert decision.sentence() == "0 of 0 hosts fit"
