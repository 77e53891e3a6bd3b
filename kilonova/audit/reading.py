"""One reading of all databases. Placement is read first: every claim that it has then has its operation in the
journals, which are read afterwards, control before the cells, since operations only go from control to cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import select

from kilonova.audit.hardware import differences
from kilonova.domain.errors import StoreError
from kilonova.domain.json import as_text, json_object
from kilonova.domain.owned import left_by, owned_by
from kilonova.placement.books import Held, by_consumer, read_allocations
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import operations
from kilonova.schema.tables.placement import claim_fence, consumers, ledger
from kilonova.store.findings import OPEN as OPEN_FINDINGS
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Store, Stores, Tx

_SERVERS = Sql(select(*cell.servers.c["id", "host", "flavor", "claimed", "turn", "deleted", "project_id", "user_id"]))
_MOVE = ("id", "server_id", "kind", "source_host", "source_copy", "old_flavor", "old_claimed", "open", "source_gone")
_MIGRATIONS = Sql(select(*cell.migrations.c[_MOVE]))
_COPIES = Sql(select(*cell.copies.c["server_id", "copy", "host", "claim", "state"]))
_QUARANTINE = Sql(select(*cell.quarantine.c["server_id", "host"]).where(cell.quarantine.c.ended_at.is_(None)))
_HARDWARE = Sql(select(cell.host_hardware))
_LIVE = Sql(select(*operations.c["server_id", "facts"]).where(operations.c.live == 1))
_UNPLACED = Sql(select(control.build_requests.c.server_id))
_MAPPINGS = Sql(select(*control.server_mappings.c["server_id", "cell"]))
_FENCES = Sql(select(*claim_fence.c["server_id", "turn", "ordinal"]))
_MOVED = Sql(
    select(ledger.c.consumer, ledger.c.server_id)
    .where(in_list(ledger.c.consumer, "consumers"), ledger.c.server_id != ledger.c.consumer)
    .distinct()
)
_GENERATIONS = Sql(select(*consumers.c["uuid", "generation"]))


class ServerVersion(NamedTuple):
    """The version of a server: equal at two readings, nothing changed in between. It is also the token of a repair."""

    turn: int | None  # of the server, by its cell
    fence: tuple[int, int] | None  # the newest step that has written in placement
    generation: int | None  # of the consumer


@dataclass
class Reading:
    expected: Held = field(default_factory=dict)
    held: Held = field(default_factory=dict)
    server_of: dict[str, str] = field(default_factory=dict)  # migration → server
    owners: dict[str, tuple[str, str]] = field(default_factory=dict)  # server → project, user
    busy: set[str] = field(default_factory=set)  # consumers that a live operation may be changing
    turns: dict[str, int] = field(default_factory=dict)
    fences: dict[str, tuple[int, int]] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    copies: set[tuple[str, str]] = field(default_factory=set)  # server, host
    quarantined: set[tuple[str, str]] = field(default_factory=set)  # server, host
    mapped: dict[str, str | None] = field(default_factory=dict)  # server → cell
    unreachable: dict[str, str] = field(default_factory=dict)  # cell → why
    hardware: set[str] = field(default_factory=set)  # errors in the copies' claims on it
    left: Held = field(default_factory=dict)  # by steps that were abandoned and not settled (law 17)
    abandoned: list[str] = field(default_factory=list)  # those steps, a sentence each

    def suspects(self) -> set[str]:
        """Return the consumers at rest whose allocations differ from what they own, without those with an abandoned
        step: they are left to an operator."""
        return {
            consumer
            for consumer in {*self.held, *self.expected}
            if consumer not in self.busy
            and consumer not in self.left
            and self.held.get(consumer, {}) != self.expected.get(consumer, {})
        }

    def server(self, consumer: str) -> str:
        return self.server_of.get(consumer, consumer)

    def standing(self, consumer: str) -> ServerVersion:
        server = self.server(consumer)
        return ServerVersion(self.turns.get(server), self.fences.get(server), self.generations.get(consumer))

    def is_unknown(self, consumer: str) -> bool:
        """Return True if the consumer's records may be in an unreachable cell. A migration is not mapped: any cell may
        have it."""
        if not self.unreachable or self.server(consumer) in self.turns:
            return False
        where = self.mapped.get(consumer)
        return where is None or where in self.unreachable

    def is_ours(self, consumer: str) -> bool:
        """Return True if the consumer is or was a server or a migration. Others may have allocations too."""
        server = self.server(consumer)
        return server in self.turns or server in self.fences or server in self.mapped or server != consumer


async def read_all(stores: Stores) -> Reading:
    """Raise StoreError when placement or control cannot be read; a cell that cannot is named in the reading."""
    reading = Reading()

    async def from_placement(tx: Tx) -> None:
        reading.held = by_consumer(await read_allocations(tx))
        reading.fences = {row["server_id"]: (row["turn"], row["ordinal"]) for row in await tx.all(_FENCES)}
        reading.generations = {row["uuid"]: row["generation"] for row in await tx.all(_GENERATIONS)}

    async def from_control(tx: Tx) -> None:
        reading.mapped = {row["server_id"]: row["cell"] for row in await tx.all(_MAPPINGS)}
        reading.busy |= {row["server_id"] for row in await tx.all(_UNPLACED)}
        _add_findings(reading, await tx.all(OPEN_FINDINGS))
        _add_live(reading, await tx.all(_LIVE))

    await stores.placement.read(from_placement)
    await stores.control.read(from_control)
    for name in stores.cells():
        try:
            await _read_cell(stores.cell(name), reading)
        except StoreError as error:
            reading.unreachable[name] = str(error)
    await _ask_ledger(stores.placement, reading)
    reading.busy |= {consumer for consumer, server in reading.server_of.items() if server in reading.busy}
    return reading


async def _ask_ledger(placement: Store, reading: Reading) -> None:
    """Ask placement for the servers of migrations without a record in any cell, because its database was restored."""
    unknown = [consumer for consumer in reading.held if not reading.is_ours(consumer)]

    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(_MOVED, consumers=unknown)

    for row in await placement.read(body) if unknown else ():
        reading.server_of[row["consumer"]] = row["server_id"]


async def _read_cell(store: Store, reading: Reading) -> None:
    async def body(tx: Tx) -> tuple[Sequence[Row], ...]:
        statements = (_SERVERS, _MIGRATIONS, _COPIES, _QUARANTINE, _LIVE, _HARDWARE, OPEN_FINDINGS)
        return tuple([await tx.all(statement) for statement in statements])

    servers, migrations, copies, quarantined, live, hosts, findings = await store.read(body)
    _add_live(reading, live)
    _add_findings(reading, findings)
    reading.hardware |= differences(hosts, copies, {row["id"]: row for row in servers}, migrations, reading.busy)
    reading.copies |= {(row["server_id"], row["host"]) for row in copies}
    reading.quarantined |= {(row["server_id"], row["host"]) for row in quarantined}
    by_server: dict[str, list[Row]] = {}
    for row in migrations:
        reading.server_of[row["id"]] = row["server_id"]
        if row["open"]:
            by_server.setdefault(row["server_id"], []).append(row)
    for row in servers:
        reading.turns[row["id"]] = row["turn"]
        reading.owners[row["id"]] = (row["project_id"], row["user_id"])
        if not row["deleted"]:
            reading.expected |= owned_by(row, by_server.get(row["id"], ()))


def _add_live(reading: Reading, live: Iterable[Row]) -> None:
    for row in live:
        reading.busy |= {row["server_id"] or "", as_text(json_object(row["facts"]).get("migration"))}


def _add_findings(reading: Reading, findings: Sequence[Row]) -> None:
    for consumer, places in left_by(findings).items():
        reading.left.setdefault(consumer, {}).update(places)
    for row in findings:
        undo, where = "undo of " if row["way"] == "undo" else "", f" on {row['host']}" if row["host"] else ""
        reading.abandoned.append(
            f"{undo}{row['step']}{where} of server {row['server_id']} was abandoned by {row['user_id']}: "
            f"{row['reason']}; settle it: kilonova finding settle {row['id']} --reason TEXT"
        )
