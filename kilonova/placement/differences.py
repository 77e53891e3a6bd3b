"""An audit of claims against records: what placement holds for each server, and what the server's own records say it
owns. It only reports, and never speaks about what an open operation may be changing: such servers are passed over, and
a difference counts only when a second reading finds the same, with the server's turn and its fence unmoved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import select

from kilonova.domain.owned import OpenEvacuation, OpenMigration, OwningServer, Size, owned
from kilonova.domain.server import flavor_from, from_json
from kilonova.placement.audit import Held, by_consumer, read_allocations
from kilonova.store.statements import Sql
from kilonova.store.tables import cell, control
from kilonova.store.tables.journal import operations
from kilonova.store.tables.placement import claim_fence
from kilonova.world import Row, Store, Stores, Tx

_SERVERS = Sql(select(*cell.servers.c["id", "host", "flavor", "turn", "deleted"]))
_MIGRATIONS = Sql(select(*cell.migrations.c["id", "server_id", "kind", "source_host", "old_flavor", "open"]))
_LIVE = Sql(select(*operations.c["server_id", "facts"]).where(operations.c.live == 1))
_UNPLACED = Sql(select(control.build_requests.c.server_id))
_FENCES = Sql(select(*claim_fence.c["server_id", "turn", "ordinal"]))


class Difference(msgspec.Struct, frozen=True):
    """What one consumer holds and what it owns: place (host, holder) → resource class → amount."""

    consumer: str
    holds: dict[tuple[str, str], dict[str, int]]
    owns: dict[tuple[str, str], dict[str, int]]

    def sentence(self) -> str:
        return f"{self.consumer} holds {_told(self.holds)}, owns {_told(self.owns)}"


@dataclass
class Reading:
    """One look at all databases, placement last: what was claimed before it has its operation in the others."""

    expected: Held = field(default_factory=dict)
    held: Held = field(default_factory=dict)
    server_of: dict[str, str] = field(default_factory=dict)  # consumer → server
    busy: set[str] = field(default_factory=set)  # consumers that a live operation may be changing
    turns: dict[str, int] = field(default_factory=dict)
    fences: dict[str, tuple[int, int]] = field(default_factory=dict)

    def differences(self) -> dict[str, Difference]:
        return {
            consumer: Difference(consumer, self.held.get(consumer, {}), self.expected.get(consumer, {}))
            for consumer in sorted({*self.held, *self.expected})
            if consumer not in self.busy and self.held.get(consumer, {}) != self.expected.get(consumer, {})
        }

    def standing(self, consumer: str) -> tuple[Any, ...]:
        """Unchanged between two readings: nobody was at it in between."""
        server = self.server_of.get(consumer, consumer)
        return self.turns.get(server), self.fences.get(server)


async def find_differences(stores: Stores) -> list[Difference]:
    first = await _read(stores)
    suspects = first.differences()
    if not suspects:
        return []
    second = await _read(stores)
    return [
        found
        for consumer, found in second.differences().items()
        if suspects.get(consumer) == found and first.standing(consumer) == second.standing(consumer)
    ]


async def _read(stores: Stores) -> Reading:
    """Operations are read once more after the claims: one that began in between is busy too."""
    reading = Reading()
    await _read_live(stores, reading)
    for name in stores.cells():
        await _read_cell(stores.cell(name), reading)
    await stores.placement.read(_claims_into(reading))
    await _read_live(stores, reading)
    reading.busy |= {consumer for consumer, server in reading.server_of.items() if server in reading.busy}
    return reading


async def _read_live(stores: Stores, reading: Reading) -> None:
    async def unplaced(tx: Tx) -> list[Row]:
        return list(await tx.all(_UNPLACED))

    async def live(tx: Tx) -> list[Row]:
        return list(await tx.all(_LIVE))

    reading.busy |= {row["server_id"] for row in await stores.control.read(unplaced)}
    for journal in stores.journals():
        for row in await journal.read(live):
            reading.busy.add(row["server_id"] or "")
            reading.busy.add(from_json(row["facts"], {}).get("migration") or "")


async def _read_cell(store: Store, reading: Reading) -> None:
    async def body(tx: Tx) -> tuple[list[Row], list[Row]]:
        return list(await tx.all(_SERVERS)), list(await tx.all(_MIGRATIONS))

    servers, migrations = await store.read(body)
    by_server: dict[str, list[Row]] = {}
    for row in migrations:
        reading.server_of[row["id"]] = row["server_id"]
        if row["open"]:
            by_server.setdefault(row["server_id"], []).append(row)
    for row in servers:
        reading.turns[row["id"]] = row["turn"]
        if not row["deleted"]:
            reading.expected |= owned_by(row, by_server.get(row["id"], ()))


def owned_by(server: Row, open_migrations: Iterable[Row]) -> Held:
    """`domain.owned` of rows as the cell has them."""
    size = _size(server["flavor"])
    moves = [
        OpenMigration(row["id"], row["source_host"], _size(row["old_flavor"]))
        for row in open_migrations
        if row["kind"] != "evacuation"
    ]
    evacuations = [
        OpenEvacuation(row["id"], row["source_host"], size) for row in open_migrations if row["kind"] == "evacuation"
    ]
    return owned(OwningServer(server["id"], server["host"], size), moves, evacuations)


def _claims_into(reading: Reading) -> Any:
    async def body(tx: Tx) -> None:
        reading.held = by_consumer(await read_allocations(tx))
        reading.fences = {row["server_id"]: (row["turn"], row["ordinal"]) for row in await tx.all(_FENCES)}

    return body


def _size(flavor: str) -> Size:
    known = flavor_from(flavor)
    return Size(known.vcpus, known.memory_mb, known.disk_gb)


def _told(places: dict[tuple[str, str], dict[str, int]]) -> str:
    return (
        ", ".join(
            " ".join(f"{amount} {name}" for name, amount in sorted(amounts.items()))
            + f" on {host}"
            + (f" for {holder}" if holder else "")
            for (host, holder), amounts in sorted(places.items())
        )
        or "nothing"
    )
