"""Allocations as clients write them: which rows each write changes, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kilonova.placement.offers import offer
from kilonova.placement.refusals import LostRace, NoSuchProvider, OverCapacity
from kilonova.placement.reshape import reshape
from kilonova.placement.writing import ANY, TRIES, AllocationRequest, drop, replace, write_patiently
from kilonova.world import Store, Tx
from tests.placement.neighbourhood import Act, Cases, assert_changes, one_after_the_other, play, uuid


def wanted(
    consumer: str, generation: int | None = 7, kind: str | None = None, **of: dict[str, int]
) -> AllocationRequest:
    """For each provider the amounts that the consumer wants there; it becomes the consumer of project q."""
    of_uuid = {uuid(provider): amounts for provider, amounts in of.items()}
    return AllocationRequest(consumer, of_uuid, "q", "bob", generation, kind)


def replaced(*requests: AllocationRequest) -> Act:
    return lambda store: replace(store, requests, "eve")


def reshaped(shapes: dict[str, tuple[int, Any]], *requests: AllocationRequest) -> Act:
    return lambda store: reshape(store, {uuid(name): shape for name, shape in shapes.items()}, requests, "eve")


IRON, VCPU = {"CUSTOM_IRON": 1}, {"VCPU": 3}
SOME = offer({"total": 10, "max_unit": 4})
CASES: Cases = {
    "more of the same, and less": (
        replaced(wanted("s", a={"VCPU": 4}, a1={"DISK_GB": 2, "CUSTOM_IRON": 1})),
        {
            "+ allocations s a1 CUSTOM_IRON used=1",
            (
                '+ ledger 1 consumer=s holds=[[1,1,"",4],[2,2,"",2],[2,3,"",1],[4,1,"e",2]] server_id=s '
                "verb=allocate who=eve"
            ),
            "allocations s a VCPU used=4",
            "allocations s a1 DISK_GB used=2",
            "consumers s generation=8 project_id=q user_id=bob",
            "inventories a VCPU used=6 marked",
            "inventories a1 CUSTOM_IRON used=1 marked",
            "inventories a1 DISK_GB used=2 marked",
            "resource_providers a generation=11 marked",
            "resource_providers a1 generation=21 marked",
        },
    ),
    "elsewhere": (
        replaced(wanted("t", b=VCPU)),
        {
            "+ allocations t b VCPU used=3",
            '+ ledger 1 consumer=t holds=[[4,1,"",3]] server_id=t verb=allocate who=eve',
            "- allocations t a CUSTOM_IRON",
            "- allocations t a VCPU",
            "consumers t generation=8 project_id=q user_id=bob",
            "inventories a CUSTOM_IRON used=0 marked",
            "inventories a VCPU used=1 marked",
            "inventories b VCPU used=9 marked",
            "resource_providers a marked",
            "resource_providers b generation=41 marked",
        },
    ),
    "nothing": (
        replaced(wanted("t")),
        {
            "+ ledger 1 consumer=t holds=[] server_id=t verb=allocate who=eve",
            "- allocations t a CUSTOM_IRON",
            "- allocations t a VCPU",
            "- consumers t",
            "inventories a CUSTOM_IRON used=0 marked",
            "inventories a VCPU used=1 marked",
            "resource_providers a generation=11 marked",
        },
    ),
    "nothing, beside an evacuation": (
        replaced(wanted("s")),
        {
            '+ ledger 1 consumer=s holds=[[4,1,"e",2]] server_id=s verb=allocate who=eve',
            "- allocations s a VCPU",
            "- allocations s a1 DISK_GB",
            "consumers s generation=8 project_id=q user_id=bob",
            "inventories a VCPU used=2 marked",
            "inventories a1 DISK_GB used=0 marked",
            "resource_providers a generation=11 marked",
            "resource_providers a1 generation=21 marked",
        },
    ),
    "of a new consumer": (
        replaced(wanted("new", None, "VM", a2={}, b=VCPU)),
        {
            "+ allocations new b VCPU used=3",
            "+ consumer_types VM",
            "+ consumers new generation=1 project_id=q type_id=3 user_id=bob",
            '+ ledger 1 consumer=new holds=[[4,1,"",3]] server_id=new verb=allocate who=eve',
            "inventories b VCPU used=9 marked",
            "resource_providers b generation=41 marked",
        },
    ),
    "of another type": (
        replaced(wanted("w", 7, "INSTANCE", b={"VCPU": 1}, b1={"DISK_GB": 5})),
        {
            "consumers w generation=8 project_id=q type_id=1 user_id=bob",
            "resource_providers b generation=41 marked",
            "resource_providers b1 generation=51 marked",
        },
    ),
    "two at once": (
        replaced(wanted("t", b=VCPU), wanted("v", 7, "MIGRATION", a=VCPU)),
        {
            "+ allocations t b VCPU used=3",
            "+ allocations v a VCPU used=3",
            '+ ledger 1 consumer=t holds=[[4,1,"",3]] server_id=t verb=allocate who=eve',
            '+ ledger 2 consumer=v holds=[[1,1,"",3]] server_id=v verb=allocate who=eve',
            "- allocations t a CUSTOM_IRON",
            "- allocations t a VCPU",
            "- allocations v b VCPU",
            "consumers t generation=8 project_id=q user_id=bob",
            "consumers v generation=8 project_id=q type_id=2 user_id=bob",
            "inventories a CUSTOM_IRON used=0 marked",
            "inventories a VCPU used=4 marked",
            "resource_providers a generation=11 marked",
            "resource_providers b generation=41 marked",
        },
    ),
    "without comparing": (
        replaced(wanted("v", ANY, b=VCPU)),
        {"consumers v generation=8 project_id=q user_id=bob", "resource_providers b generation=41 marked"},
    ),
    "without comparing, of a new consumer": (
        replaced(wanted("new", ANY, b=VCPU)),
        {
            "+ allocations new b VCPU used=3",
            "+ consumers new generation=1 project_id=q user_id=bob",
            '+ ledger 1 consumer=new holds=[[4,1,"",3]] server_id=new verb=allocate who=eve',
            "inventories b VCPU used=9 marked",
            "resource_providers b generation=41 marked",
        },
    ),
    "of another generation": (
        replaced(wanted("v", 6, b=VCPU)),
        {"refused generation_conflict: consumer generation conflict - expected 7 but got 6"},
    ),
    "as if it were new": (
        replaced(wanted("v", None, b=VCPU)),
        {"refused generation_conflict: consumer generation conflict - expected 7 but got None"},
    ),
    "as if it were there": (
        replaced(wanted("new", 1, b=VCPU)),
        {"refused generation_conflict: consumer generation conflict - expected null but got 1"},
    ),
    "one of two is of another generation": (
        replaced(wanted("t", b=VCPU), wanted("v", 6, b=VCPU)),
        {"refused generation_conflict: consumer generation conflict - expected 7 but got 6"},
    ),
    "of no provider": (
        replaced(wanted("t", x=VCPU)),
        {"refused unknown_provider: Allocation for resource provider 'uuid-x' that does not exist."},
    ),
    "of a class that is not offered": (
        replaced(wanted("t", b=IRON)),
        {"refused no_inventory: Inventory for 'CUSTOM_IRON' on resource provider 'uuid-b' invalid: it has none"},
    ),
    "of an unknown class": (
        replaced(wanted("t", b={"CUSTOM_NO": 1})),
        {"refused unknown_class: Unable to allocate inventory for consumer: No such resource class CUSTOM_NO."},
    ),
    "more than one may have": (
        replaced(wanted("t", b={"VCPU": 51})),
        {"refused wrong_unit: provider uuid-b: VCPU 51 is more than one consumer may hold, 50"},
    ),
    "more than there is": (
        replaced(*(wanted(f"n{n}", None, b={"VCPU": 48}) for n in range(4))),
        {"refused over_capacity: provider uuid-b: needs 192 VCPU, 186 free of 192"},
    ),
    "drop": (
        lambda store: drop(store, "t", "eve"),
        {
            "+ ledger 1 consumer=t holds=[] server_id=t verb=deallocate who=eve",
            "- allocations t a CUSTOM_IRON",
            "- allocations t a VCPU",
            "- consumers t",
            "inventories a CUSTOM_IRON used=0 marked",
            "inventories a VCPU used=1 marked",
            "resource_providers a marked",
            "returns true",
        },
    ),
    "drop, beside an evacuation": (
        lambda store: drop(store, "s", "eve"),
        {
            '+ ledger 1 consumer=s holds=[[4,1,"e",2]] server_id=s verb=deallocate who=eve',
            "- allocations s a VCPU",
            "- allocations s a1 DISK_GB",
            "consumers s generation=8",
            "inventories a VCPU used=2 marked",
            "inventories a1 DISK_GB used=0 marked",
            "resource_providers a marked",
            "resource_providers a1 marked",
            "returns true",
        },
    ),
    "drop again": (
        one_after_the_other(lambda store: drop(store, "t", "eve"), lambda store: drop(store, "t", "eve")),
        {
            "+ ledger 1 consumer=t holds=[] server_id=t verb=deallocate who=eve",
            "- allocations t a CUSTOM_IRON",
            "- allocations t a VCPU",
            "- consumers t",
            "inventories a CUSTOM_IRON used=0 marked",
            "inventories a VCPU used=1 marked",
            "resource_providers a marked",
            "returns false",
        },
    ),
    "reshape": (
        reshaped(
            {"b1": (50, {"VCPU": SOME}), "b": (40, {"CUSTOM_SPARE": SOME})},
            *(wanted(name, b1={"VCPU": 1}) for name in ("v", "w")),
        ),
        {"refused inventory_in_use: Inventory for 'VCPU' on resource provider 'uuid-b' in use."},
    ),
    "reshape and leave some": (
        reshaped({"a1": (20, {"CUSTOM_IRON": SOME})}, wanted("t", a1=IRON)),
        {"refused inventory_in_use: Inventory for 'DISK_GB' on resource provider 'uuid-a1' in use."},
    ),
    "reshape, with all moved": (
        reshaped(
            {"b1": (50, {}), "b": (40, {"VCPU": SOME, "DISK_GB": SOME})}, wanted("w", b={"VCPU": 1, "DISK_GB": 4})
        ),
        {
            "+ allocations w b DISK_GB used=4",
            (
                "+ inventories b DISK_GB allocation_ratio=1.0 capacity=10 max_unit=4 min_unit=1 reserved=0 "
                "step_size=1 total=10 used=4"
            ),
            '+ ledger 1 consumer=w holds=[[4,1,"",1],[4,2,"",4]] server_id=w verb=reshape who=eve',
            "- allocations w b1 DISK_GB",
            "- inventories b1 DISK_GB",
            "consumers w generation=8 project_id=q user_id=bob",
            "inventories b VCPU allocation_ratio=1.0 capacity=10 max_unit=4 reserved=0 total=10 marked",
            "resource_providers b generation=43 marked",
            "resource_providers b1 generation=51 marked",
        },
    ),
    "reshape, of another generation": (
        reshaped({"a2": (30, {}), "a1": (9, {})}),
        {
            (
                "refused generation_conflict: resource provider generation conflict: actual: 20, given: 9. "
                "Resource provider's generation already changed. Please update the generation and try again."
            )
        },
    ),
    "reshape, with an unknown class": (
        reshaped({"x": (30, {"CUSTOM_NO": SOME})}),
        {"refused unknown_class: No such resource class CUSTOM_NO."},
    ),
    "reshape, of no provider": (
        reshaped({"x": (30, {"VCPU": SOME})}),
        {"refused unknown_reshaped_provider: Resource provider uuid-x in inventories not found"},
    ),
    "reshape, of another generation of a consumer": (
        reshaped({"a2": (30, {"VCPU": SOME})}, wanted("v", 6)),
        {"refused generation_conflict: consumer generation conflict - expected 7 but got 6"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_act_changes_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, CASES, name)


@pytest.mark.parametrize("why", [LostRace("a race"), NoSuchProvider("p"), OverCapacity("p", "VCPU", 1, 1, 1)], ids=repr)
def test_a_write_that_meets_another_is_tried_again_and_at_last_refused(tmp_path: Path, why: Exception) -> None:
    """Ten times, as in Placement; what does not fit is refused at once."""
    tries = 0

    async def body(tx: Tx) -> None:
        nonlocal tries
        tries += 1
        raise why

    async def once(tx: Tx) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise why

    async def story(store: Store) -> None:
        nonlocal tries
        with pytest.raises(type(why)):
            await write_patiently(store, body)
        is_retried = not isinstance(why, OverCapacity)
        assert tries == (TRIES if is_retried else 1)
        tries = 0
        if is_retried:
            await write_patiently(store, once)
            assert tries == 2

    play(tmp_path, story)
