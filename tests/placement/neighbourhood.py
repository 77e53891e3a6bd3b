"""Two trees of providers with two of everything, and what an act changed there, row by row.

    a (VCPU, CUSTOM_IRON) ── a1 (DISK_GB, CUSTOM_IRON) ── a2        b (VCPU) ── b1 (DISK_GB)

A statement that loses one of its conditions changes rows of a neighbour, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import select

from kilonova.domain.errors import Conflict, Refused, Superseded
from kilonova.placement.books import balance
from kilonova.schema.tables import placement as tables
from kilonova.store import rows
from kilonova.store.open_stores import open_store
from kilonova.store.statements import Sql
from kilonova.world import Store, Tx
from tests.support.neighbours import contents, zeros

NOW = 10_000.0
PROVIDERS = {
    "a": (1, None, 1),
    "a1": (2, 1, 1),
    "a2": (3, 2, 1),
    "b": (4, None, 4),
    "b1": (5, 4, 4),
}  # id, parent, root
CLASSES = {"VCPU": 1, "DISK_GB": 2, "CUSTOM_IRON": 3, "CUSTOM_SPARE": 4}
TRAITS = {"HW_CPU_X86_AVX": 1, "CUSTOM_GOLD": 2, "CUSTOM_SPARE": 3, "COMPUTE_STATUS_DISABLED": 4, "HW_CPU_X86_VMX": 5}
OFFERED = {
    ("a", "VCPU"),
    ("a", "CUSTOM_IRON"),
    ("a1", "DISK_GB"),
    ("a1", "CUSTOM_IRON"),
    ("b", "VCPU"),
    ("b1", "DISK_GB"),
}
HAS = {
    ("a", "HW_CPU_X86_AVX"),
    ("a", "CUSTOM_GOLD"),
    ("a1", "CUSTOM_GOLD"),
    ("b", "HW_CPU_X86_AVX"),
    ("b", "CUSTOM_GOLD"),
}
IN = {("a", "g1"), ("b", "g1"), ("a", "g2"), ("a1", "g2")}
CONSUMERS = {"s": ("p", "u", 1), "t": ("p", "other-user", 2), "v": ("other-project", "u", 1), "w": ("p", "u", None)}
ALLOCATIONS = {
    ("s", "a", "VCPU", ""): 1,
    ("s", "a1", "DISK_GB", ""): 10,
    ("s", "b", "VCPU", "e"): 2,  # of an evacuation
    ("t", "a", "VCPU", ""): 2,
    ("t", "a", "CUSTOM_IRON", ""): 1,
    ("v", "b", "VCPU", ""): 3,
    ("w", "b", "VCPU", ""): 1,
    ("w", "b1", "DISK_GB", ""): 5,
}
COUNTED = {("g", "s", "a"), ("h", "s", "a"), ("g", "t", "b"), ("h", "v", "b")}  # group, server, host
OUTCOME = '{"type":"claimed","provider":"before"}'  # of the last step of t and v
TIMES = {"mark", "created_at", "updated_at", "at"}
Act = Callable[[Store], Awaitable[Any]]
Cases = dict[str, tuple[Act, set[str]]]


def uuid(name: str) -> str:
    return f"uuid-{name}"


class StandingClock:
    def now(self) -> float:
        return NOW


def _slot(provider: str, resource_class: str) -> dict[str, int]:
    return {"provider_id": PROVIDERS[provider][0], "class_id": CLASSES[resource_class]}


def _inventory(provider: str, resource_class: str) -> dict[str, Any]:
    used = sum(used for key, used in ALLOCATIONS.items() if key[1:3] == (provider, resource_class))
    units = {"total": 100, "reserved": 4, "min_unit": 1, "max_unit": 50, "step_size": 1, "allocation_ratio": 2.0}
    return {**_slot(provider, resource_class), **units, "capacity": 192, "used": used}


ROWS: list[tuple[Any, list[dict[str, Any]]]] = [
    (tables.marks, [{"id": 1}]),
    (
        tables.resource_providers,
        [
            {"id": number, "uuid": uuid(name), "name": name, "parent_id": parent, "root_id": root}
            | {"generation": 10 * number, "accepting": 1}
            for name, (number, parent, root) in PROVIDERS.items()
        ],
    ),
    (tables.resource_classes, [{"id": number, "name": name} for name, number in CLASSES.items()]),
    (tables.traits, [{"id": number, "name": name} for name, number in TRAITS.items()]),
    (tables.consumer_types, [{"id": number, "name": name} for number, name in enumerate(("INSTANCE", "MIGRATION"), 1)]),
    (tables.aggregates, [{"id": number, "uuid": f"g{number}"} for number in (1, 2, 3)]),
    (tables.provider_traits, [{"provider_id": PROVIDERS[one][0], "trait_id": TRAITS[trait]} for one, trait in HAS]),
    (tables.provider_aggregates, [{"provider_id": PROVIDERS[one][0], "aggregate_id": int(g[1])} for one, g in IN]),
    (tables.inventories, [_inventory(*slot) for slot in OFFERED]),
    (
        tables.consumers,
        [
            {"uuid": name, "project_id": project, "user_id": user, "type_id": kind, "generation": 7}
            for name, (project, user, kind) in CONSUMERS.items()
        ],
    ),
    (
        tables.allocations,
        [
            {"consumer": consumer, **_slot(provider, name), "holder": holder, "used": used}
            for (consumer, provider, name, holder), used in ALLOCATIONS.items()
        ],
    ),
    (tables.groups, [{"group_id": group} for group in "gh"]),
    (tables.group_use, [{"group_id": g, "server_id": s, "root_id": PROVIDERS[root][0]} for g, s, root in COUNTED]),
    (tables.claim_fence, [{"server_id": server, "turn": 1, "ordinal": 1, "outcome": OUTCOME} for server in "tv"]),
]


async def put_all(tx: Tx) -> None:
    for table, given in ROWS:
        times = {
            name: value for name, value in {"mark": 5, "created_at": 1.0, "updated_at": 1.0}.items() if name in table.c
        }
        for row in given:
            await rows.put(tx, table, **zeros(table, **times, **row))


def play(path: Path, story: Callable[[Any], Awaitable[None]]) -> None:
    """Run the story with a new database that has all of this."""

    async def whole() -> None:
        store = await open_store("placement", f"sqlite:///{path}/placement.db", clock=StandingClock())
        try:
            await store.write(put_all)
            await story(store)
        finally:
            await store.close()

    asyncio.run(whole())


UNSEEN = ("marks", "this_store", "alembic_version")
NAMED = {
    "provider_id": select(tables.resource_providers.c.id, tables.resource_providers.c.uuid.label("name")),
    "class_id": select(tables.resource_classes),
    "trait_id": select(tables.traits),
    "root_id": select(tables.resource_providers.c.id, tables.resource_providers.c.uuid.label("name")),
}


async def everything(store: Store) -> dict[str, dict[str, Any]]:
    """Every row by a key that can be read."""

    async def body(tx: Tx) -> dict[str, dict[str, Any]]:
        names = {
            column: {row["id"]: row["name"].removeprefix("uuid-") for row in await tx.all(Sql(statement))}
            for column, statement in NAMED.items()
        }
        every = {}
        for table in tables.metadata.sorted_tables:
            for row in await contents(tx, table) if table.name not in UNSEEN else ():
                named = {column: names.get(column, {}).get(value, value) for column, value in row.items()}
                every[_key(table, named)] = {k: v for k, v in named.items() if k not in ("id", *_key_columns(table))}
        return every

    return await store.read(body)


def _key_columns(table: Any) -> list[str]:
    natural = {"resource_providers": ["uuid"], "allocations": ["consumer", "provider_id", "class_id", "holder"]}
    if table.name in natural:
        return natural[table.name]
    return [name for name in ("name", "uuid") if name in table.c and "id" in table.c] or [
        column.name for column in table.primary_key
    ]


def _key(table: Any, row: dict[str, Any]) -> str:
    values = (str(row[name]).removeprefix("uuid-") for name in _key_columns(table))
    return " ".join([table.name, *(value for value in values if value)])


def _shown(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(values.items()))


async def changes(store: Store, act: Act) -> set[str]:
    """What the act added (+), removed (-) and changed: of a changed row its new values, and whether it was marked,
    so that those who choose hosts read it again. And what it returned, or its refusal."""
    before = await everything(store)
    returned, text = await _outcome(store, act)
    after = await everything(store)
    found = {f"- {key}" for key in before.keys() - after.keys()} | ({text} if text else set())
    for key, row in after.items():
        if row.get("outcome") in returned:
            row["outcome"] = "returned"
        if key not in before:
            given = {name: row[name] for name in row.keys() - TIMES if row[name] not in (None, "")}
            found.add(f"+ {key} {_shown(given)}".rstrip())
        elif row != before[key]:
            other = {name: value for name, value in row.items() if value != before[key][name]}
            values = {name: other[name] for name in other.keys() - TIMES}
            found.add(" ".join([key, *[_shown(values)] * bool(values), *["marked"] * ("mark" in other)]))
    return found


async def _outcome(store: Store, act: Act) -> tuple[list[str], str]:
    """What it returned, as it is recorded; and how that is shown."""
    try:
        returned = await act(store)
    except Refused as why:
        return [], f"refused {why.code}: {why}"
    except (Conflict, Superseded) as why:
        return [], f"{type(why).__name__}: {why}"
    text = msgspec.json.encode(returned).decode()
    parts = returned.values() if isinstance(returned, dict) else ()
    recorded = [text, *(msgspec.json.encode(part).decode() for part in parts)]
    return recorded, "" if returned is None else f"returns {text}"


def assert_changes(path: Path, cases: Cases, name: str) -> None:
    """The act of this case changes exactly the rows that it is said to."""
    act, expected = cases[name]

    async def story(store: Store) -> None:
        assert await changes(store, act) == expected
        assert await store.read(balance) == []

    play(path, story)


def one_after_the_other(*acts: Act) -> Act:
    async def act(store: Store) -> Any:
        for each in acts:
            returned = await each(store)
        return returned

    return act


def writing(body: Callable[[Tx], Awaitable[Any]]) -> Act:
    """What is done in a transaction of somebody else."""
    return lambda store: store.write(body)
