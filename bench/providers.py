"""Providers in bulk, straight into a placement database: half full, with traits and aggregates as a cloud has them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from kilonova.placement.names import standard_traits
from kilonova.schema.tables import placement as tables
from kilonova.store.statements import Sql, insert_row
from kilonova.world import Store, Tx

OFFERS = {"VCPU": 128, "MEMORY_MB": 524288, "DISK_GB": 8000}
MODELS = 24  # kinds of hosts: each has its own set of traits
TRAITS_EACH = 40
AGGREGATES = 48
AGGREGATES_EACH = 2
CHUNK = 20_000  # rows in one statement's turn


def uuid_of(number: int, kind: str = "b") -> str:
    return f"{kind}0000000-0000-0000-0000-{number:012}"


async def fill(store: Store, count: int) -> None:
    """Provider numbers and class, trait and aggregate ids begin with 1."""
    chance = random.Random(count)
    names = [*sorted(standard_traits())[:120], "COMPUTE_NODE", "CUSTOM_GOLD"]
    models = [["COMPUTE_NODE", *chance.sample(names[:120], TRAITS_EACH - 1)] for _ in range(MODELS)]
    for model in models[::2]:
        model[-1] = "CUSTOM_GOLD"
    ids = {name: number for number, name in enumerate(names, 1)}
    await _put(store, tables.resource_classes, [{"id": n, "name": name} for n, name in enumerate(OFFERS, 1)])
    await _put(store, tables.traits, [{"id": number, "name": name} for name, number in ids.items()])
    await _put(store, tables.aggregates, [{"id": n, "uuid": uuid_of(n, "a")} for n in range(1, AGGREGATES + 1)])
    numbers = range(1, count + 1)
    await _put(store, tables.resource_providers, map(_provider, numbers))
    await _put(store, tables.inventories, (row for number in numbers for row in _offers(number, chance)))
    await _put(
        store,
        tables.provider_traits,
        ({"provider_id": n, "trait_id": ids[name]} for n in numbers for name in set(models[n % MODELS])),
    )
    await _put(
        store,
        tables.provider_aggregates,
        (
            {"provider_id": n, "aggregate_id": number}
            for n in numbers
            for number in chance.sample(range(1, AGGREGATES + 1), AGGREGATES_EACH)
        ),
    )


def _provider(number: int) -> dict[str, Any]:
    times = {"created_at": 1.0, "updated_at": 1.0}
    family = {"root_id": number, "parent_id": None, "generation": 1, "accepting": 1, "mark": 0, "registration": None}
    return {"id": number, "uuid": uuid_of(number), "name": f"compute-{number:06}.example"} | family | times


def _offers(number: int, chance: random.Random) -> Iterator[dict[str, Any]]:
    for class_id, total in enumerate(OFFERS.values(), 1):
        units = {"min_unit": 1, "max_unit": total, "step_size": 1, "allocation_ratio": 1.0}
        used = int(total * chance.choice([0.25, 0.5, 0.5, 0.75]))
        amounts = {"total": total, "reserved": 0, "capacity": total, "used": used, "mark": 0}
        yield {"provider_id": number, "class_id": class_id} | amounts | units


async def _put(store: Store, table: Any, rows: Any) -> None:
    statement, waiting = Sql(insert_row(table)), iter(rows)
    while chunk := list(islice(waiting, CHUNK)):
        await store.write(_inserting(statement, chunk))


def _inserting(statement: Sql, rows: Sequence[dict[str, Any]]) -> Any:
    async def body(tx: Tx) -> None:
        await tx.many(statement, rows)

    return body
