"""The hosts in Compute: services and hypervisors, gathered from all cells; and the workers behind them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from sqlalchemy import bindparam, case, delete, func, select

from kilonova.domain.errors import Unreachable
from kilonova.domain.guest import Hypervisor
from kilonova.domain.host import HostState, Observation, judge
from kilonova.schema.tables.cell import servers
from kilonova.schema.tables.control import host_mappings, workers
from kilonova.store.hosts import all_hosts, facts_of, observation
from kilonova.store.open_stores import CELL0
from kilonova.store.statements import Sql, in_list
from kilonova.world import Body, Row, Store, Stores, Tx

T = TypeVar("T")

_COUNTS = Sql(
    select(
        servers.c.host,
        func.count().label("servers"),
        func.coalesce(func.sum(case((servers.c.task_state.is_not(None), 1), else_=0)), 0).label("busy"),
    )
    .where(servers.c.deleted == 0, in_list(servers.c.host, "names"))
    .group_by(servers.c.host)
)
_SERVERS = Sql(
    select(servers.c.host, servers.c.id, servers.c.name)
    .where(servers.c.deleted == 0, servers.c.hidden == 0, in_list(servers.c.host, "names"))
    .order_by(servers.c.host, servers.c.id)
)
_MAPPED = Sql(select(host_mappings.c.host).where(in_list(host_mappings.c.cell, "cells")).order_by(host_mappings.c.host))
_WORKERS = Sql(select(workers).order_by(workers.c.id))
_FORGET_WORKER = Sql(
    delete(workers).where(workers.c.id == bindparam("worker"), workers.c.lease_until <= bindparam("now"))
)


class HostRecord(msgspec.Struct, frozen=True, kw_only=True):
    cell: str
    name: str
    id: str  # of its service
    provider_id: str  # of its hypervisor, and in placement
    state: HostState
    disabled: bool
    disabled_reason: str | None
    forced_down: bool
    last_seen: float
    answers_since: float | None  # its agent, without a restart
    now: float  # by the database's clock, when this was read
    address: str | None
    hypervisor: Hypervisor  # as its driver reports it


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the control plane. One that died is listed as down for a day, or until its record is deleted."""

    id: str
    kind: str
    renewed_at: float
    is_up: bool  # its lease has not run out


class OnHost(msgspec.Struct, frozen=True, kw_only=True):
    servers: int = 0
    busy: int = 0  # those with a task under way


def number_of(record_id: str) -> int:
    """Return the integer id that old microversions need: the first 48 bits of the real id, so it never changes."""
    return int(record_id.replace("-", "")[:12], 16)


def service_id(worker: Worker, binary: str) -> str:
    """Return the id of a service. One worker is listed as several of Nova's services, each with a different id."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{binary}/{worker.id}"))


async def read_hosts(stores: Stores, down_after: float) -> list[HostRecord]:
    """Return the hosts of all reachable cells, by name."""
    by_cell = await read_by_cell(stores, partial(_in_cell, down_after=down_after))
    return sorted((host for hosts in by_cell.values() for host in hosts or ()), key=lambda host: host.name)


async def read_away(stores: Stores) -> list[str]:
    """Names of the hosts whose cell does not answer."""
    away = [name for name in stores.cells() if stores.outage(name) is not None] + [*stores.unopened()]

    async def body(tx: Tx) -> list[str]:
        return [row["host"] for row in await tx.all(_MAPPED, cells=away)]

    return await stores.control.read(body) if away else []


async def read_by_cell(stores: Stores, read: Callable[[Store], Awaitable[T]]) -> dict[str, T | None]:
    """Read from each cell with hosts, concurrently. The result of a cell that does not answer or cannot be opened is
    None."""

    async def one(name: str) -> T | None:
        try:
            return await read(stores.cell(name))
        except Unreachable:
            return None

    unknown: dict[str, T | None] = dict.fromkeys(stores.unopened())  # before the others: one may be opened meanwhile
    names = [name for name in stores.cells() if name != CELL0]
    answers = dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))
    return unknown | answers


async def _in_cell(store: Store, down_after: float) -> list[HostRecord]:
    async def body(tx: Tx) -> tuple[list[Row], Observation | None, float]:
        now = await tx.now()
        return await all_hosts(tx), await observation(tx, now, down_after), now

    records, seen, now = await store.read(body)
    return [_record(store.name, row, judge(facts_of(row), seen, now, down_after), now) for row in records]


def _record(cell: str, row: Row, state: HostState, now: float) -> HostRecord:
    return HostRecord(
        cell=cell,
        name=row["name"],
        id=row["id"],
        provider_id=row["provider_id"],
        state=state,
        disabled=bool(row["disabled"]),
        disabled_reason=row["disabled_reason"],
        forced_down=bool(row["forced_down"]),
        last_seen=row["last_seen"],
        answers_since=row["session_since"],
        now=now,
        address=row["address"],
        hypervisor=msgspec.json.decode(row["hypervisor"], type=Hypervisor) if row["hypervisor"] else Hypervisor(),
    )


async def read_workers(stores: Stores, lease_seconds: float) -> list[Worker]:
    """Return the workers; those that are up come first."""

    async def body(tx: Tx) -> tuple[Sequence[Row], float]:
        return await tx.all(_WORKERS), await tx.now()

    rows, now = await stores.control.read(body)
    listing = [
        Worker(
            id=row["id"],
            kind=row["kind"],
            renewed_at=min(now, row["lease_until"] - lease_seconds),  # a single worker has a longer lease
            is_up=row["lease_until"] > now,
        )
        for row in rows
    ]
    return sorted(listing, key=lambda worker: not worker.is_up)


async def forget_worker(stores: Stores, worker: str) -> bool:
    """Delete the record of one that is down; False: it lives, or has no record."""

    async def body(tx: Tx) -> bool:
        return await tx.run(_FORGET_WORKER, worker=worker, now=await tx.now()) > 0

    return await stores.control.write(body)


async def count_servers(stores: Stores, hosts: Sequence[HostRecord]) -> dict[str, OnHost]:
    """Return the counts by host; a host without servers is left out."""
    counts: dict[str, OnHost] = {}
    for cell, names in _by_cell(hosts).items():

        async def body(tx: Tx, names: list[str] = names) -> Sequence[Row]:
            return await tx.all(_COUNTS, names=names)

        for row in await _unless_away(stores.cell(cell), body):
            counts[row["host"]] = OnHost(servers=row["servers"], busy=int(row["busy"]))
    return counts


async def name_servers(stores: Stores, hosts: Sequence[HostRecord]) -> dict[str, list[tuple[str, str]]]:
    """Id and name of each server, by host."""
    names_by_host: dict[str, list[tuple[str, str]]] = {}
    for cell, names in _by_cell(hosts).items():

        async def body(tx: Tx, names: list[str] = names) -> Sequence[Row]:
            return await tx.all(_SERVERS, names=names)

        for row in await _unless_away(stores.cell(cell), body):
            names_by_host.setdefault(row["host"], []).append((row["id"], row["name"]))
    return names_by_host


async def _unless_away(store: Store, body: Body[Sequence[Row]]) -> Sequence[Row]:
    try:
        return await store.read(body)
    except Unreachable:  # gone since its hosts were read
        return ()


def _by_cell(hosts: Sequence[HostRecord]) -> dict[str, list[str]]:
    cells: dict[str, list[str]] = {}
    for host in hosts:
        cells.setdefault(host.cell, []).append(host.name)
    return cells
