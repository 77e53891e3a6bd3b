"""Servers wherever they are: not in a cell yet (build request), in a cell, or buried in cell0."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec
from sqlalchemy import Integer, bindparam, select

from kilonova.domain.errors import Unreachable
from kilonova.domain.server import Flavor
from kilonova.schema.tables import cell, control
from kilonova.store import rows
from kilonova.store.server_records import ServerRecord, from_cell, from_request
from kilonova.store.statements import Sql
from kilonova.world import Row, Stores, Tx

_REQUESTS = Sql(
    select(control.build_requests)
    .where(control.build_requests.c.server_id > bindparam("marker"))
    .order_by(control.build_requests.c.server_id)
    .limit(bindparam("limit", type_=Integer))
)
_ALL_REQUESTS = Sql(select(control.build_requests).where(control.build_requests.c.server_id > bindparam("marker")))
_FAULT = Sql(
    select(cell.faults.c.message, cell.faults.c.details)
    .where(cell.faults.c.server_id == bindparam("server_id"))
    .order_by(cell.faults.c.number.desc())
    .limit(1)
)


class ServerSummary(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    cell: str | None  # None: not in one yet
    vm_state: str
    task_state: str | None
    power_state: int
    host: str | None
    copy: int | None
    runner: tuple[str, int] | None  # the host and copy with permission to run
    turn: int
    operation: str | None  # the live one
    flavor: Flavor
    image: str
    project_id: str
    created_at: float
    fault: str | None = None


FILTERS = ("name", "host", "vm_state")


@cache
def _filtered(names: tuple[str, ...]) -> Sql:
    table = cell.servers.c
    wanted = [table[name] == bindparam(name) for name in names]
    page = select(cell.servers).where(table.deleted == 0, table.id > bindparam("marker"), *wanted)
    return Sql(page.order_by(table.id).limit(bindparam("limit", type_=Integer)))


async def list_servers(
    stores: Stores, *, marker: str, limit: int, by: Mapping[str, str] | None = None
) -> list[ServerSummary]:
    """Return the servers by id. Requests are read first: one that gets its cell meanwhile is then seen twice, never
    missed. `by`: values of FILTERS; those of a request are inside a document and compared here."""
    wanted = dict(by or {})

    async def requested(tx: Tx) -> Sequence[Row]:
        if wanted:
            return await tx.all(_ALL_REQUESTS, marker=marker)
        return await tx.all(_REQUESTS, marker=marker, limit=limit)

    async def placed(tx: Tx) -> Sequence[Row]:
        return await tx.all(_filtered(tuple(sorted(wanted))), marker=marker, limit=limit, **wanted)

    requests = [_summary(from_request(row)) for row in await stores.control.read(requested)]
    summaries = {one.id: one for one in requests if all(getattr(one, name) == wanted[name] for name in wanted)}
    for cell_name in stores.cells():
        with contextlib.suppress(Unreachable):  # `kilonova cell list` names it
            servers = [from_cell(cell_name, row) for row in await stores.cell(cell_name).read(placed)]
            summaries |= {server.id: _summary(server) for server in servers}
    return sorted(summaries.values(), key=lambda server: server.id)[:limit]


async def find_server(stores: Stores, server_id: str) -> ServerSummary | None:
    async def body(tx: Tx) -> tuple[Row | None, Row | None]:
        mapping = await rows.fetch(tx, control.server_mappings, server_id=server_id, queued_for_delete=0)
        return mapping, await rows.fetch(tx, control.build_requests, server_id=server_id)

    mapping, request = await stores.control.read(body)
    if mapping is None:
        return None
    if mapping["cell"] is None:
        return None if request is None else _summary(from_request(request))
    return await _in_cell(stores, mapping["cell"], server_id)


async def _in_cell(stores: Stores, name: str, server_id: str) -> ServerSummary | None:
    async def body(tx: Tx) -> tuple[Row | None, Row | None]:
        server = await rows.fetch(tx, cell.servers, id=server_id, deleted=0)
        failed = server is not None and server["vm_state"] == "error"
        return server, await tx.one(_FAULT, server_id=server_id) if failed else None

    server, fault = await stores.cell(name).read(body)
    return None if server is None else _summary(from_cell(name, server), fault)


def _summary(server: ServerRecord, fault: Row | None = None) -> ServerSummary:
    return ServerSummary(
        id=server.id,
        name=server.name,
        cell=server.cell,
        vm_state=server.vm_state,
        task_state=server.task_state,
        power_state=server.power_state,
        host=server.host,
        copy=server.copy,
        runner=server.runner,
        turn=server.turn,
        operation=server.operation_id,
        flavor=server.flavor,
        image=server.image_ref,
        project_id=server.project_id,
        created_at=server.created_at,
        fault=None if fault is None else f"{fault['message']} {fault['details'] or ''}".strip(),
    )
