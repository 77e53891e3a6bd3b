"""All records, read at once from all databases by a process that takes no part."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table, select

from kilonova.domain.network import Vif
from kilonova.placement.books import Held, Imbalance, balance, by_consumer, read_allocations
from kilonova.schema.tables import cell, control, failures, image, journal, network, quotas, server_groups, volume
from kilonova.schema.tables import placement as books
from kilonova.services.network.servers import vifs_of
from kilonova.sim.lab.cloud import SimCloud
from kilonova.store.statements import Sql
from kilonova.world import Row, Stores, Tx

JOURNAL = (journal.operations, journal.steps, journal.secrets, journal.findings, journal.notifications)
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
    cell.host_hardware,
)
CONTROL = (
    *JOURNAL,
    control.server_mappings,
    control.build_requests,
    control.request_specs,
    control.host_mappings,
    control.gone_hosts,
    failures.host_failures,
    quotas.quota_usages,
    server_groups.server_groups,
    server_groups.server_group_members,
    network.ports,
    network.subnets,
    network.fixed_ips,
    network.free_ranges,
    volume.volumes,
    volume.snapshots,
    volume.attachments,
    volume.volume_usage,
    image.images,
)
PLACEMENT = (
    books.inventories,
    books.group_use,
    books.resource_providers,
    books.resource_classes,
    books.traits,
    books.allocations,
)
_ALL = {table.name: Sql(select(table)) for table in {t.name: t for t in (*CELL, *CONTROL, *PLACEMENT)}.values()}
_ONE_LIVE = Sql(select(journal.operations.c.id).where(journal.operations.c.live == 1).limit(1))

Rows = list[Row]


@dataclass
class Records:
    """Rows by database and table; allocations in the shape of domain/owned.py."""

    databases: dict[str, dict[str, Rows]] = field(default_factory=dict)
    held: Held = field(default_factory=dict)
    imbalances: list[Imbalance] = field(default_factory=list)
    vifs: dict[str, list[Vif]] = field(default_factory=dict)  # the network service's record, by server

    def table(self, name: str) -> Rows:
        """Return the rows of a table in all databases, each with its `database`. Raise KeyError for a table that is not
        read."""
        _ALL[name]
        return [
            {**row, "database": database} for database, tables in self.databases.items() for row in tables.get(name, [])
        ]

    def unsettled(self) -> set[str]:
        """Return the servers with unsettled remains of an abandoned step (law 17)."""
        return {row["server_id"] for row in self.table("findings") if row["open"]}

    def server(self, server_id: str) -> Row | None:
        return next((row for row in self.table("servers") if row["id"] == server_id), None)


def read_records(cloud: SimCloud) -> Records:
    """Read all records. This runs the loop until they are read; other roles go on meanwhile."""
    return cloud.alone(_read, "the records", faulty=False)


def is_idle(cloud: SimCloud) -> bool:
    """Return True if no operation is under way."""
    return cloud.alone(_is_idle, "the journals", faulty=False)


async def _is_idle(stores: Stores) -> bool:
    for store in stores.journals():
        if await store.read(_live):
            return False
    return True


async def _live(tx: Tx) -> bool:
    return await tx.one(_ONE_LIVE) is not None


async def _read(stores: Stores) -> Records:
    """Read the cells first: what they record of a server was true in control before."""
    records = Records()
    for name in stores.cells():
        records.databases[name] = await stores.cell(name).read(_tables(CELL))
    records.databases["control"] = await stores.control.read(_tables(CONTROL))
    records.vifs = await stores.control.read(_vifs([row["id"] for row in records.table("servers")]))
    records.held = await stores.placement.read(_held)
    records.imbalances = list(await stores.placement.read(balance))
    records.databases["placement"] = await stores.placement.read(_tables(PLACEMENT))
    return records


def _tables(tables: tuple[Table, ...]) -> Any:
    async def body(tx: Tx) -> dict[str, Rows]:
        return {table.name: [_plain(row) for row in await tx.all(_ALL[table.name])] for table in tables}

    return body


def _plain(row: Row) -> Row:
    return {key: row[key] for key in row.keys()}  # noqa: SIM118 - not a dict


def _vifs(servers: list[str]) -> Any:
    async def body(tx: Tx) -> dict[str, list[Vif]]:
        return await vifs_of(tx, servers)

    return body


async def _held(tx: Tx) -> Held:
    return by_consumer(await read_allocations(tx))
