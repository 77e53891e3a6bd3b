"""Hosts as their cells know them, read once and then only where something changed.

A heartbeat changes a host's row every few seconds, which is not a change here. Changes are: hosts that are not simply
up (few), hosts that registered since the last read, and removed hosts, found by the total number. Counts of servers
come from one statement per cell, never one per host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from sqlalchemy import and_, bindparam, func, or_, select

from kilonova.domain.details import details_from
from kilonova.domain.guest import Hypervisor
from kilonova.domain.host import judge
from kilonova.domain.server import BUILDING
from kilonova.placement.snapshot import PlacementSnapshot
from kilonova.scheduler.hosts import UP, Hosts, HostView, Odd
from kilonova.schema.tables.cell import hosts, servers
from kilonova.store.hosts import facts_of, observation
from kilonova.store.statements import Sql, in_list
from kilonova.world import Body, Row, Stores, Tx

LATE = 60.0  # seconds; the longest delay between a registration's time and its COMMIT
# Task states that keep a host's disks or network busy, as in Nova.
BUSY_TASKS = (
    *("rebuilding", "rebuild_block_device_mapping", "rebuild_spawning", "resize_prep", "resize_migrating"),
    *("image_snapshot", "image_snapshot_pending", "image_pending_upload", "image_uploading", "image_backup"),
    *("rescuing", "unshelving"),
)

_NUMBER = Sql(select(func.count().label("number")).select_from(hosts))
_UNUSUAL = Sql(
    select(hosts).where(
        or_(
            hosts.c.last_seen < bindparam("silent_since"),
            hosts.c.disabled == 1,
            hosts.c.forced_down == 1,
            hosts.c.fenced.is_not(None),
            hosts.c.draining == 1,
            hosts.c.returning == 1,
            hosts.c.failed_builds > 0,
        )
    )
)
_ALL = Sql(select(hosts))
_REPORTED = Sql(select(hosts.c.name, hosts.c.reported_at).where(hosts.c.reported_at >= bindparam("since")))
_NAMED = Sql(select(hosts).where(in_list(hosts.c.name, "names")))
_HERE = and_(servers.c.deleted == 0, servers.c.host.is_not(None))
_SERVERS = Sql(select(servers.c.host, func.count().label("number")).where(_HERE).group_by(servers.c.host))
# `+ 0`: SQLite takes "not deleted" for rare, and would go through all servers by the index that begins with it.
_BUSY = Sql(
    select(servers.c.host, func.count().label("number"))
    .where(
        servers.c.deleted + 0 == 0,
        servers.c.host.is_not(None),
        servers.c.task_state.is_not(None),
        or_(servers.c.vm_state == BUILDING, in_list(servers.c.task_state, "tasks")),
    )
    .group_by(servers.c.host)
)
_IMAGES = Sql(select(servers.c.host, servers.c.details).where(_HERE))


@dataclass
class CellReading:
    """The result of one read of a cell."""

    number: int
    at: float  # by the database's clock
    odd: dict[str, Odd] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    reported: Sequence[Row] = ()
    busy: dict[str, int] = field(default_factory=dict)
    servers: dict[str, int] = field(default_factory=dict)
    images: Sequence[Row] = ()


class HostCache:
    """The hosts of all cells, brought up to date by `sync`."""

    def __init__(self, stores: Stores, down_after: float, *, looks_at_images: bool) -> None:
        self._stores = stores
        self._down_after = down_after
        self.counts_servers = False  # from the first request on that asks for it
        self._looks_at_images = looks_at_images
        self._views: dict[str, dict[str, HostView]] = {}  # by cell
        self._reported: dict[str, dict[str, float]] = {}  # by cell: when a host reported what its view shows
        self._readings: dict[str, CellReading] = {}  # by cell: the last one
        self.hosts = Hosts()

    async def sync(self, cell: str) -> None:
        views = self._views.get(cell, {})
        reading = await self._stores.cell(cell).read(self._reading(cell))
        fresh = {row["name"]: _view(cell, row) for row in reading.reported}
        changed = {name: view for name, view in fresh.items() if views.get(name) != view}
        if len(views) + sum(name not in views for name in fresh) != reading.number:  # some are gone: load all again
            self._reported.pop(cell, None)
            reading = await self._stores.cell(cell).read(self._reading(cell))
            views, changed = {}, {row["name"]: _view(cell, row) for row in reading.reported}
        self._reported.setdefault(cell, {}).update({row["name"]: row["reported_at"] for row in reading.reported})
        if changed or cell not in self._views or len(views | changed) != len(self._views[cell]):
            self._views[cell] = views | changed
            self._load()
        self._readings[cell] = reading
        self._update_hosts(cell, reading)

    def name_hosts(self, cell: str, names: Sequence[str], snapshot: PlacementSnapshot) -> None:
        """Add the hosts of an unreachable cell, as control and placement know them; the next `sync` replaces them."""
        views = self._views.get(cell, {})
        missing = set(names) - views.keys()
        if not missing:
            return
        providers = {snapshot.names[at]: uuid for uuid, at in snapshot.index.items() if snapshot.names[at] in missing}
        self._reported.pop(cell, None)
        self._views[cell] = views | {name: HostView(provider=providers.get(name, ""), cell=cell) for name in missing}
        self._load()

    def _load(self) -> None:
        self.hosts.load({name: view for each in self._views.values() for name, view in each.items()})
        for other, last in self._readings.items():  # loading has marked them all as up
            self._update_hosts(other, last)

    def _update_hosts(self, cell: str, reading: CellReading) -> None:
        hosts = self.hosts
        hosts.set_odd(cell, reading.odd)
        hosts.set_counts(hosts.failed, cell, reading.failed)
        hosts.set_counts(hosts.busy, cell, reading.busy)
        if self.counts_servers:
            hosts.set_counts(hosts.servers, cell, reading.servers)
        if self._looks_at_images:
            _count_images(hosts, cell, reading.images)

    def _reading(self, cell: str) -> Body[CellReading]:
        async def body(tx: Tx) -> CellReading:
            now = await tx.now()
            counted = await tx.one(_NUMBER)
            reading = CellReading(counted["number"] if counted is not None else 0, now)
            seen = await observation(tx, now, self._down_after)
            for row in await tx.all(_UNUSUAL, silent_since=now - self._down_after):
                state = judge(facts_of(row), seen, now, self._down_after)
                if state.status != UP:
                    reading.odd[row["name"]] = Odd(state.status, state.sentence)
                if row["failed_builds"]:
                    reading.failed[row["name"]] = row["failed_builds"]
            reading.reported = await self._news(tx, cell)
            reading.busy = _counted(await tx.all(_BUSY, tasks=list(BUSY_TASKS)))
            reading.servers = _counted(await tx.all(_SERVERS)) if self.counts_servers else {}
            reading.images = await tx.all(_IMAGES) if self._looks_at_images else ()
            return reading

        return body

    async def _news(self, tx: Tx, cell: str) -> Sequence[Row]:
        """Return the hosts that registered since the last read: their reports are long, so others are not read."""
        known = self._reported.get(cell)
        if known is None:
            return await tx.all(_ALL)
        said = await tx.all(_REPORTED, since=self._readings[cell].at - LATE)
        names = [row["name"] for row in said if known.get(row["name"]) != row["reported_at"]]
        return await tx.all(_NAMED, names=names) if names else ()


def _counted(rows: Sequence[Row]) -> dict[str, int]:
    return {row["host"]: row["number"] for row in rows}


def _view(cell: str, row: Row) -> HostView:
    hypervisor = msgspec.json.decode(row["hypervisor"], type=Hypervisor) if row["hypervisor"] else Hypervisor()
    return HostView(provider=row["provider_id"], cell=cell, hypervisor=hypervisor, address=row["address"] or "")


def _count_images(hosts: Hosts, cell: str, rows: Sequence[Row]) -> None:
    for name in [name for name in hosts.image_values if hosts.views[hosts.index[name]].cell == cell]:
        del hosts.image_values[name]
    for row in rows:
        if row["host"] in hosts.index:
            there = hosts.image_values.setdefault(row["host"], {})
            for pair in details_from(row["details"]).image_properties.items():
                there[pair] = there.get(pair, 0) + 1
