"""What a selection comes to: the choice, its alternates, the words."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from kilonova.placement.claims import HostCandidate
from kilonova.placement.groups import GroupRule
from kilonova.placement.snapshot import FIRST_ROWS
from kilonova.scheduler.field import Field
from kilonova.scheduler.select import Selector, select_many
from kilonova.scheduler.verdict import Decision
from kilonova.settings import Settings
from tests.unit.scheduler.worlds import (
    FLAVOR,
    REQUEST,
    Host,
    Shelf,
    aggregate,
    asked,
    big,
    choose,
    hosts_of,
    settings,
    sized,
    snapshot_of,
    with_specs,
)

STATES = ("disabled", "unknown", "down", "draining", "returning")


def sentences(decision: Decision, host: str) -> dict[str, str]:
    return {verdict.filter: verdict.sentence for verdict in decision.verdicts if verdict.host == host}


def taken(decision: Decision) -> list[str]:
    return [choice.host for choice in decision.taken]


def test_the_sentence_carries_the_numbers() -> None:
    tight = big(shelves={"VCPU": Shelf(64), "MEMORY_MB": Shelf(8192, used=7168), "DISK_GB": Shelf(4000)})
    decision = choose({"tight": tight})
    assert decision.chosen is None and decision.complete
    assert sentences(decision, "tight") == {"capacity": "needs 4096 MB, 1024 free of 8192"}
    assert decision.sentence() == "0 of 1 hosts fit; capacity rejects 1"


def test_the_taken_are_told_whole() -> None:
    decision = choose({"a": big()})
    told = sentences(decision, "a")
    assert told["wanted_host"] == "no host was asked for" and told["ComputeFilter"] == "the host is up"
    assert told["capacity"] == (
        "needs 2 VCPU, 64 free of 64; needs 4096 MB, 262144 free of 262144; needs 20 GB, 4000 free of 4000"
    )
    assert decision.candidates() == [HostCandidate("p-a", {"VCPU": 2, "MEMORY_MB": 4096, "DISK_GB": 20})]
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision


@pytest.mark.parametrize("state", STATES)
def test_only_up_may_be_chosen_and_it_is_said_once(state: str) -> None:
    decision = choose({"a": big(state=state, accepting=False, traits=("COMPUTE_STATUS_DISABLED",))})
    assert decision.chosen is None
    assert sentences(decision, "a") == {"ComputeFilter": f"the host is {state}: a is {state}"}


def test_other_words() -> None:
    odd = {"VCPU": Shelf(64, min_unit=4), "MEMORY_MB": Shelf(10**6, max_unit=100), "DISK_GB": Shelf(40, step_size=7)}
    hosts = {"closed": big(accepting=False), "stranger": big(known=False), "bare": Host(), "odd": big(shelves=odd)}
    decision = choose(hosts, REQUEST.without("bare", "it failed before"))
    assert sentences(decision, "closed")["accepting"] == "it accepts no new claims"
    assert sentences(decision, "stranger")["capacity"] == "placement does not know this host"
    assert sentences(decision, "bare")["excluded"] == "it failed before"
    assert "needs 2 VCPU, 0 free of 0" in sentences(decision, "bare")["capacity"]
    assert sentences(decision, "odd")["capacity"] == (
        "VCPU 2 is less than the smallest amount given out, 4; "
        "MEMORY_MB 4096 is more than one consumer may hold, 100; "
        "DISK_GB 20 is not a multiple of 7"
    )


def test_a_wanted_host_is_filtered_and_a_forced_one_is_not() -> None:
    hosts = {"a": big(state="down"), "b": big()}
    assert choose(hosts, asked(wanted_host="a")).chosen is None
    assert taken(choose(hosts, asked(forced_host="a"))) == ["a"]
    assert taken(choose(hosts, asked(wanted_host="b"))) == ["b"]
    assert choose(hosts, asked(wanted_host="nowhere")).chosen is None


def test_a_forced_host_still_answers_to_placement() -> None:
    assert choose({"a": sized(memory_mb=10)}, asked(forced_host="a")).chosen is None
    assert choose({"a": big(accepting=False)}, asked(forced_host="a")).chosen is None
    disabled = choose({"a": big(traits=("COMPUTE_STATUS_DISABLED",))}, asked(forced_host="a"))
    assert sentences(disabled, "a") == {"compute_status_filter": "it is disabled"}


def test_the_best_are_chosen_at_random_and_the_rest_are_alternates() -> None:
    hosts = {f"h{n}": sized(vcpus=n + 10) for n in range(6)}
    assert taken(choose(hosts)) == ["h5", "h4", "h3"]
    by = settings(host_subset_size=3)
    assert {taken(choose(hosts, by=by, seed=seed))[0] for seed in range(40)} == {"h5", "h4", "h3"}
    assert choose(hosts, alternates=0).alternates == ()


def test_equals_keep_the_order_of_their_names_unless_they_are_shuffled() -> None:
    hosts = {name: big() for name in ("c", "a", "b")}
    assert taken(choose(hosts)) == ["a", "b", "c"]
    by = settings(shuffle_best_same_weighed_hosts=True)
    assert {taken(choose(hosts, by=by, seed=seed))[0] for seed in range(40)} == {"a", "b", "c"}


def test_alternates_are_of_the_same_cell() -> None:
    hosts = {"a": big(cell="one"), "b": big(cell="two"), "c": big(cell="one")}
    assert taken(choose(hosts)) == ["a", "c"]
    decision = choose(hosts, cells=["two"])
    assert taken(decision) == ["b"] and decision.considered == 1


def test_a_refusal_by_many_hosts_tells_the_nearest() -> None:
    hosts = {f"h{number:04}": sized(memory_mb=number) for number in range(1200)}
    hosts["down"], hosts["both"] = big(state="down"), sized(memory_mb=4095, state="down")
    decision = choose(hosts)
    told = list(dict.fromkeys(verdict.host for verdict in decision.verdicts))
    assert not decision.complete and len(told) == 50
    assert told[0] == "down", "it lacks nothing"
    assert told[1:] == [f"h{number:04}" for number in range(1199, 1150, -1)] and "both" not in told
    assert choose(dict(list(hosts.items())[:1000])).complete


def test_a_host_unknown_to_placement_has_nothing() -> None:
    """Its row number is -1: with all rows of the snapshot in use that is another host's row."""
    hosts = {f"h{number:02}": big() for number in range(FIRST_ROWS)}
    field = Field(snapshot_of(hosts), hosts_of({"stranger": big()}))
    assert [int(field.free(name)[0]) for name in ("VCPU", "MEMORY_MB", "DISK_GB")] == [0, 0, 0]
    assert not field.fits("VCPU", 1)[0]


def test_no_hosts_at_all() -> None:
    decision = choose({})
    assert decision.chosen is None and decision.considered == 0 and decision.candidates() == []
    assert decision.sentence() == "0 of 0 hosts fit"


# -- nested and sharing providers -------------------------------------------------------------------------------------


def test_nested_providers_give_together() -> None:
    numa = {"VCPU": Shelf(4), "MEMORY_MB": Shelf(8192)}
    host = Host(shelves={"DISK_GB": Shelf(100)}, below={"a_numa0": numa, "a_numa1": numa})
    decision = choose({"a": host, "flat": sized(disk_gb=5)})
    assert taken(decision) == ["a"]
    candidate = decision.candidates()[0]
    assert candidate.provider == "p-a" and candidate.resources == {"DISK_GB": 20}
    assert candidate.others == {"p-a_numa0": {"VCPU": 2, "MEMORY_MB": 4096}}
    assert decision.taken[0].names == {"p-a_numa0": "a_numa0"}


def test_groups_with_a_suffix_are_served_by_one_provider_each() -> None:
    gpus = {"a_gpu0": {"VGPU": Shelf(1)}, "a_gpu1": {"VGPU": Shelf(1)}}
    flavor = msgspec.structs.replace(
        FLAVOR, extra_specs={"resources1:VGPU": "1", "resources2:VGPU": "1", "group_policy": "isolate"}
    )
    decision = choose({"a": big(below=gpus), "b": big()}, asked(flavor=flavor))
    assert taken(decision) == ["a"]
    assert sorted(decision.taken[0].mappings.values()) == [["p-a_gpu0"], ["p-a_gpu1"]]
    assert decision.counts[-1].rejected == 1


def test_a_sharing_provider_gives_the_disk() -> None:
    pool = ("pool", ("MISC_SHARES_VIA_AGGREGATE",), "a-1", {"DISK_GB": Shelf(1000)})
    host = Host(shelves={"VCPU": Shelf(8), "MEMORY_MB": Shelf(8192)})
    inside = [aggregate(1, "a")]
    decision = choose({"a": host, "b": host}, aggregates=inside, more=[pool])
    assert taken(decision) == ["a"]
    assert decision.candidates()[0].others == {"p-pool": {"DISK_GB": 20}}


def test_trees_beyond_the_limit_are_not_searched() -> None:
    hosts = {f"h{n}": Host(below={f"h{n}_x": {"VCPU": Shelf(4)}}) for n in range(5)}
    request = asked(flavor=msgspec.structs.replace(FLAVOR, memory_mb=0, disk_gb=0))
    limited = Settings(scheduler=msgspec.structs.replace(Settings().scheduler, max_placement_results=2))
    assert choose(hosts, request, by=limited).fitting == 2
    near = msgspec.structs.replace(request, group=GroupRule("g", "soft-affinity"))
    assert choose(hosts, near, by=limited).fitting == 5


# -- several at once --------------------------------------------------------------------------------------------------


def many(hosts: dict[str, Host], count: int, **changes: object) -> list[Decision]:
    requests = [asked(server=f"s{n}", **changes) for n in range(count)]
    return select_many(Selector(Settings()), snapshot_of(hosts), hosts_of(hosts), requests, random.Random(0))


def test_each_of_a_batch_sees_what_those_before_it_took() -> None:
    made = many({"a": sized(vcpus=4), "b": sized(vcpus=4)}, 4)
    assert [decision.chosen.host for decision in made if decision.chosen] == ["a", "b", "a", "b"]
    assert all(decision.alternates == () for decision in made), "both hosts are somebody's choice"


def test_a_batch_ends_where_there_is_no_room_for_the_next() -> None:
    hosts = {"a": sized(vcpus=4)}
    snapshot = snapshot_of(hosts)
    requests = [asked(server=f"s{n}") for n in range(5)]
    made = select_many(Selector(Settings()), snapshot, hosts_of(hosts), requests, random.Random(0))
    assert [decision.chosen is not None for decision in made] == [True, True, False]
    assert snapshot.classes["VCPU"].table[1].sum() == 0, "on trial only"


def test_a_batch_of_a_group_keeps_apart() -> None:
    group = GroupRule("g", "anti-affinity")
    hosts = {name: big() for name in ("a", "b")}
    made = many(hosts, 3, group=group)
    assert [decision.chosen.host if decision.chosen else None for decision in made] == ["a", "b", None]


def test_nobodys_alternate_is_anothers_choice() -> None:
    made = many({name: big() for name in "abcde"}, 2)
    chosen = {decision.chosen.host for decision in made if decision.chosen}
    assert len(chosen) == 2
    for decision in made:
        assert len(decision.alternates) == 2 and not chosen & {choice.host for choice in decision.alternates}


def test_the_weights_of_the_taken_say_which_weigher_gave_what() -> None:
    decision = choose({"a": sized(memory_mb=8192), "b": sized(vcpus=4), "c": sized(memory_mb=16384)})
    assert decision.chosen is not None
    shares = {one.host: one.weights for one in decision.taken}
    assert shares["b"] == {"RAMWeigher": 1.0, "CPUWeigher": 0.0}
    assert all(one.weight == pytest.approx(sum(one.weights.values())) for one in decision.taken)
    assert decision.rule == "the heaviest host"


@pytest.mark.parametrize(
    ("options", "hosts", "rule"),
    [
        ({}, 1, "the only host that fits"),
        ({}, 2, "1 other host weighs the same; the first by name"),
        ({}, 3, "2 other hosts weigh the same; the first by name"),
        ({"shuffle_best_same_weighed_hosts": True}, 3, "2 other hosts weigh the same; one of them at random"),
        ({"host_subset_size": 5}, 3, "one of the 3 heaviest hosts, at random"),
    ],
)
def test_a_decision_says_why_the_winner_won(options: dict[str, Any], hosts: int, rule: str) -> None:
    assert choose({f"h{n}": big() for n in range(hosts)}, by=settings(**options)).rule == rule


@pytest.mark.parametrize(
    ("hosts", "shortage"),
    [
        ({"a": sized(memory_mb=4095), "b": sized(memory_mb=1)}, "no host has 4096 MB free"),
        ({"a": sized(vcpus=1, disk_gb=1)}, "no host has 2 VCPU or 20 GB free"),
        ({"a": sized(vcpus=1), "b": sized(disk_gb=1)}, "no host has 2 VCPU, 4096 MB and 20 GB free together"),
        ({"a": sized(vcpus=1), "b": big(state="down")}, "no host has 2 VCPU free"),
        ({"a": big(state="down")}, ""),  # capacity is not what is missing
        ({"a": big(accepting=False)}, ""),
        ({"a": big()}, ""),
    ],
)
def test_the_owner_reads_only_the_numbers_of_the_own_request(hosts: dict[str, Host], shortage: str) -> None:
    assert choose(hosts).shortage == shortage


def test_a_missing_trait_is_not_called_a_shortage() -> None:
    assert choose({"a": big()}, with_specs(trait__CUSTOM_GOLD="required")).shortage == ""
