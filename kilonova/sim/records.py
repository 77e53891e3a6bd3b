"""Everything that is recorded, read in one go from all databases by a process that takes no part."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table, select

from kilonova.placement.audit import Held, Imbalance, balance, by_consumer, read_allocations
from kilonova.sim.cloud import SimCloud
from kilonova.sim.loop import Process
from kilonova.store.statements import Sql
from kilonova.store.tables import cell, control, journal
from kilonova.store.tables import placement as books
from kilonova.world import Row, Stores, Tx

JOURNAL = (journal.operations, journal.steps, journal.secrets)
CELL = (
    *JOURNAL,
    cell.servers,
    cell.copies,
    cell.debts,
    cell.migrations,
    cell.actions,
    cell.action_events,
    cell.faults,
    cell.hosts,
    cell.quarantine,
)
CONTROL = (*JOURNAL, control.server_mappings, control.build_requests, control.host_mappings)
_ALL = {table.name: Sql(select(table)) for table in {t.name: t for t in (*CELL, *CONTROL, books.inventories)}.values()}

Rows = list[dict[str, Any]]


@dataclass
class Records:
    """Rows by database and table; allocations in the shape of domain/owned.py."""

    databases: dict[str, dict[str, Rows]] = field(default_factory=dict)
    held: Held = field(default_factory=dict)
    imbalances: list[Imbalance] = field(default_factory=list)
    inventories: Rows = field(default_factory=list)

    def table(self, name: str) -> Rows:
        """The rows of a table in all databases, each with its `database`."""
        return [
            {**row, "database": database} for database, tables in self.databases.items() for row in tables.get(name, [])
        ]

    def server(self, server_id: str) -> dict[str, Any] | None:
        return next((row for row in self.table("servers") if row["id"] == server_id), None)


def read_records(cloud: SimCloud) -> Records:
    """Runs the loop until everything is read; other roles go on meanwhile."""
    process = Process("looker")
    stores = cloud.open_stores()
    process.on_kill(stores.drop)
    answer: asyncio.Future[Records] = cloud.loop.create_future()

    async def run() -> None:
        answer.set_result(await _read(stores))

    cloud.loop.spawn(process, run())
    cloud.loop.run_until(answer.done, 60.0, "the records")
    cloud.loop.kill(process)
    return answer.result()


async def _read(stores: Stores) -> Records:
    records = Records()
    for name in stores.cells():
        records.databases[name] = await stores.cell(name).read(_tables(CELL))
    records.databases["control"] = await stores.control.read(_tables(CONTROL))
    records.held = await stores.placement.read(_held)
    records.imbalances = list(await stores.placement.read(balance))
    records.inventories = (await stores.placement.read(_tables((books.inventories,))))["inventories"]
    return records


def _tables(tables: tuple[Table, ...]) -> Any:
    async def body(tx: Tx) -> dict[str, Rows]:
        return {table.name: [_plain(row) for row in await tx.all(_ALL[table.name])] for table in tables}

    return body


def _plain(row: Row) -> dict[str, Any]:
    return {key: row[key] for key in row.keys()}  # noqa: SIM118 - not a dict


async def _held(tx: Tx) -> Held:
    return by_consumer(await read_allocations(tx))
