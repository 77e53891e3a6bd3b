"""What readers of allocations, usages and consumers see: their rows and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kilonova.placement import reading, usages
from kilonova.placement.amounts import read_amounts
from kilonova.placement.books import by_consumer, read_allocations
from kilonova.placement.consumers import read, type_ids
from kilonova.world import Store
from tests.placement.neighbourhood import Cases, assert_changes, uuid, writing


async def of_project(store: Store, project: str, user: str = "") -> dict[str, Any]:
    found = await usages.of_project(store, project, user)
    total = usages.together(found)
    return {name: (usage.consumers, usage.used) for name, usage in sorted(found.items())} | {
        "total": (total.consumers, total.used)
    }


async def of_consumer(store: Store, name: str) -> tuple[Any, list[Any]]:
    consumer, found = await reading.of_consumer(store, name)
    return consumer, [
        tuple(row[name] for name in ("uuid", "name", "used", "generation", "consumer_generation")) for row in found
    ]


async def of_provider(store: Store, name: str) -> tuple[str, list[Any]]:
    provider, found = await reading.of_provider(store, uuid(name))
    return provider.uuid, [
        tuple(row[name] for name in ("consumer", "name", "used", "consumer_generation")) for row in found
    ]


async def held(store: Store, *names: str) -> Any:
    found = by_consumer(await store.read(lambda tx: read_allocations(tx, names)))
    return {name: sorted(places.items()) for name, places in found.items()}


CASES: Cases = {
    "usage of p": (
        lambda store: of_project(store, "p"),
        {
            (
                "returns "
                '{"INSTANCE":[1,{"DISK_GB":10,"VCPU":3}],"MIGRATION":[1,{"CUSTOM_IRON":1,"VCPU":2}],"unknown":[1,{"DISK_GB":5,"VCPU":1}],"total":[3,{"DISK_GB":15,"VCPU":6,"CUSTOM_IRON":1}]}'
            )
        },
    ),
    "usage of u in p": (
        lambda store: of_project(store, "p", "u"),
        {
            (
                "returns "
                '{"INSTANCE":[1,{"DISK_GB":10,"VCPU":3}],"unknown":[1,{"DISK_GB":5,"VCPU":1}],"total":[2,{"DISK_GB":15,"VCPU":4}]}'
            )
        },
    ),
    "usage of another project": (
        lambda store: of_project(store, "other-project"),
        {'returns {"INSTANCE":[1,{"VCPU":3}],"total":[1,{"VCPU":3}]}'},
    ),
    "usage of nobody": (lambda store: of_project(store, "nobody"), {'returns {"total":[0,{}]}'}),
    "allocations of s": (
        lambda store: of_consumer(store, "s"),
        {
            (
                "returns "
                '[{"uuid":"s","project_id":"p","user_id":"u","type_name":"INSTANCE","generation":7,"updated_at":1.0},[["uuid-a","VCPU",1,10,7],["uuid-a1","DISK_GB",10,20,7],["uuid-b","VCPU",2,40,7]]]'
            )
        },
    ),
    "allocations of nobody": (lambda store: of_consumer(store, "x"), {"returns [null,[]]"}),
    "own allocations of s": (
        lambda store: reading.held_by(store, "s"),
        {'returns {"uuid-a":{"VCPU":1},"uuid-a1":{"DISK_GB":10}}'},
    ),
    "own allocations of nobody": (lambda store: reading.held_by(store, "x"), {"returns {}"}),
    "allocations at a": (
        lambda store: of_provider(store, "a"),
        {'returns ["uuid-a",[["s","VCPU",1,7],["t","VCPU",2,7],["t","CUSTOM_IRON",1,7]]]'},
    ),
    "allocations at a2": (lambda store: of_provider(store, "a2"), {'returns ["uuid-a2",[]]'}),
    "allocations at nobody": (
        lambda store: of_provider(store, "x"),
        {"refused no_such_provider: No resource provider with uuid uuid-x found"},
    ),
    "allocations of two": (
        lambda store: held(store, "t", "v", "x"),
        {'returns {"t":[[["a",""],{"CUSTOM_IRON":1,"VCPU":2}]],"v":[[["b",""],{"VCPU":3}]]}'},
    ),
    "amounts": (
        lambda store: read_amounts(store, [uuid("a1"), uuid("b"), "x"]),
        {
            (
                "returns "
                '{"uuid-a1":{"DISK_GB":{"total":100,"reserved":4,"used":10},"CUSTOM_IRON":{"total":100,"reserved":4,"used":0}},"uuid-b":{"VCPU":{"total":100,"reserved":4,"used":6}}}'
            )
        },
    ),
    "consumer": (
        lambda store: read(store, "t"),
        {
            (
                'returns {"uuid":"t","project_id":"p","user_id":"other-'
                'user","type_name":"MIGRATION","generation":7,"updated_at":1.0}'
            )
        },
    ),
    "consumer without a type": (
        lambda store: read(store, "w"),
        {'returns {"uuid":"w","project_id":"p","user_id":"u","type_name":null,"generation":7,"updated_at":1.0}'},
    ),
    "no consumer": (lambda store: read(store, "x"), set()),
    "types": (
        writing(lambda tx: type_ids(tx, ["MIGRATION", "NEW", "MIGRATION"])),
        {"+ consumer_types NEW", 'returns {"MIGRATION":2,"NEW":3}'},
    ),
    "no types": (writing(lambda tx: type_ids(tx, [])), {"returns {}"}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_act_changes_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, CASES, name)
