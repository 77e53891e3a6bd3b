"""A server as the API reads it, wherever it is: not in a cell yet (build request), in a cell, or buried in cell0."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from sqlalchemy import bindparam, select

from kilonova.domain.params import BuildRequest, ServerSpec
from kilonova.domain.server import Flavor, Server
from kilonova.schema.tables import cell, control
from kilonova.store import rows
from kilonova.store.new_server import new_server
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Stores, Tx

SCHEDULING = "scheduling"

SELECTED = select(cell.servers)
FAULTS = Sql(select(cell.faults).where(in_list(cell.faults.c.server_id, "ids")).order_by(cell.faults.c.number))
_ONE = Sql(SELECTED.where(cell.servers.c.id == bindparam("id")))
UNKNOWN_FLAVOR = Flavor("", 0, 0, 0)


class ServerRecord(Server):
    """A server with the facts that are not in its row."""

    cell: str | None = None  # None: not in one yet
    fault: Row | None = None
    zone: str = ""  # of its host, once it was read
    is_partial: bool = False  # built from its mapping and its request: its cell does not answer


async def find(stores: Stores, server_id: str, *, deleted: bool = False) -> ServerRecord | None:
    """Return a server's record; with `deleted` also that of a deleted one, as long as its row exists."""

    async def body(tx: Tx) -> tuple[Row | None, Row | None]:
        mapping = await rows.fetch(tx, control.server_mappings, server_id=server_id)
        unplaced = mapping is not None and mapping["cell"] is None
        return mapping, await rows.fetch(tx, control.build_requests, server_id=server_id) if unplaced else None

    left = ""  # the cell where it was not, when its mapping was read before
    for _ in range(3):  # a row that vanished has moved: its mapping says where
        mapping, request = await stores.control.read(body, few=True)
        if mapping is None:
            return None
        if mapping["cell"] is not None:  # its row says whether it was deleted, here as in lists
            record = await _in_cell(stores, mapping["cell"], server_id, deleted)
            if record is not None or mapping["cell"] == left:
                return record
            left = mapping["cell"]
            continue
        if mapping["queued_for_delete"] and not deleted:
            return None
        if request is not None:
            return from_request(request)
    return None


async def _in_cell(stores: Stores, name: str, server_id: str, deleted: bool) -> ServerRecord | None:
    async def body(tx: Tx) -> ServerRecord | None:
        record = await read_one(tx, name, server_id)
        if record is None or (record.deleted and not deleted):
            return None
        if record.vm_state in ("error", "deleted"):
            faults = await tx.all(FAULTS, ids=[server_id])
            record.fault = faults[-1] if faults else None
        return record

    return await stores.cell(name).read(body, few=True)


async def read_one(tx: Tx, cell_name: str, server_id: str) -> ServerRecord | None:
    row = await tx.one(_ONE, id=server_id)
    return None if row is None else from_cell(cell_name, row)


def from_cell(name: str, row: Iterable[Any]) -> ServerRecord:
    """`row` is a whole one."""
    record = ServerRecord.from_row(row)
    record.cell = name
    return record


def from_request(row: Row) -> ServerRecord:
    request = msgspec.json.decode(row["server"], type=BuildRequest)
    server = new_server(row["server_id"], row["turn"], request)
    state = {"operation_id": row["operation_id"], "vm_state": request.vm_state, "task_state": SCHEDULING}
    return ServerRecord.from_row(msgspec.structs.astuple(server.changed(state)))


async def find_partial(stores: Stores, server_id: str) -> ServerRecord | None:
    """Return what control alone knows of a server: its owner, and the request that created it."""

    async def body(tx: Tx) -> ServerRecord | None:
        mapping = await rows.fetch(tx, control.server_mappings, server_id=server_id, queued_for_delete=0)
        spec = await rows.fetch(tx, control.request_specs, server_id=server_id)
        return None if mapping is None else from_mapping(mapping, spec)

    return await stores.control.read(body, few=True)


def from_mapping(mapping: Row, spec: Row | None = None) -> ServerRecord:
    """`spec` is its request spec, if that was read."""
    owned = {name: mapping[name] for name in ("project_id", "user_id", "created_at")}
    if spec is None:
        requested = ServerSpec(name="", flavor=UNKNOWN_FLAVOR, **owned)
    else:
        requested = msgspec.structs.replace(msgspec.json.decode(spec["spec"], type=ServerSpec), **owned)
    server = new_server(mapping["server_id"], 0, requested, vm_state="unknown")
    record = from_cell(mapping["cell"], msgspec.structs.astuple(server))
    record.is_partial = True
    return record
