"""A server as the API reads it, wherever it is: not in a cell yet (build request), in a cell, or buried in cell0."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from sqlalchemy import bindparam, select

from kilonova.domain.details import Details, details_from
from kilonova.domain.network import Vif
from kilonova.domain.server import Flavor, flavor_from, from_json
from kilonova.domain.volume import ServerVolume, server_volumes
from kilonova.schema.tables import cell, control
from kilonova.store import rows
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Stores, Tx

SCHEDULING = "scheduling"

# The columns of a record, in the order in which `from_cell` decodes them: by position, since lists have a thousand.
COLUMNS = (
    *("id", "project_id", "user_id", "name", "turn", "operation_id", "vm_state", "task_state", "power_state"),
    *("host", "copy", "image_ref", "flavor", "details", "network_info", "volume_info"),
    *("created_at", "updated_at", "launched_at", "terminated_at", "deleted", "hidden"),
)
SELECTED = select(*cell.servers.c[COLUMNS])
FAULTS = Sql(select(cell.faults).where(in_list(cell.faults.c.server_id, "ids")).order_by(cell.faults.c.number))
_ONE = Sql(SELECTED.where(cell.servers.c.id == bindparam("id")))
UNKNOWN_FLAVOR = Flavor("", 0, 0, 0)
_VIFS = msgspec.json.Decoder(list[Vif])


@dataclass(slots=True)
class ServerRecord:
    id: str
    project_id: str
    user_id: str
    name: str
    cell: str | None  # None: not in one yet
    turn: int
    operation_id: str | None
    vm_state: str
    task_state: str | None
    power_state: int
    host: str | None
    copy: int | None
    image_ref: str
    flavor: Flavor
    details: Details
    vifs: list[Vif]
    volumes: list[ServerVolume]
    created_at: float
    updated_at: float
    launched_at: float | None
    terminated_at: float | None
    deleted: bool
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
        if mapping["cell"] is not None:  # whose row says whether it is gone, here as in lists
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


def from_cell(name: str, row: Row) -> ServerRecord:
    """`row` has the COLUMNS."""
    (id_, project_id, user_id, own_name, turn, operation_id, vm_state, task_state, power_state, *more) = row
    (host, copy, image_ref, flavor, details, network_info, volume_info, *times, deleted, _hidden) = more
    created_at, updated_at, launched_at, terminated_at = times
    return ServerRecord(
        id=id_,
        project_id=project_id,
        user_id=user_id,
        name=own_name,
        cell=name,
        turn=turn,
        operation_id=operation_id,
        vm_state=vm_state,
        task_state=task_state,
        power_state=power_state,
        host=host,
        copy=copy,
        image_ref=image_ref,
        flavor=flavor_from(flavor),
        details=details_from(details),
        vifs=_VIFS.decode(network_info) if network_info else [],
        volumes=server_volumes(volume_info),
        created_at=created_at,
        updated_at=updated_at,
        launched_at=launched_at,
        terminated_at=terminated_at,
        deleted=bool(deleted),
    )


def from_request(row: Row) -> ServerRecord:
    server = from_json(row["server"], {})
    return ServerRecord(
        id=row["server_id"],
        project_id=server["project_id"],
        user_id=server["user_id"],
        name=server["name"],
        cell=None,
        turn=row["turn"],
        operation_id=row["operation_id"],
        vm_state=server["vm_state"],
        task_state=SCHEDULING,
        power_state=0,
        host=None,
        copy=None,
        image_ref=server["image"],
        flavor=msgspec.convert(server["flavor"], Flavor),
        details=msgspec.convert(server.get("details", {}), Details),
        vifs=[],
        volumes=[],
        created_at=row["created_at"],
        updated_at=row["created_at"],
        launched_at=None,
        terminated_at=None,
        deleted=False,
    )


async def find_partial(stores: Stores, server_id: str) -> ServerRecord | None:
    """Return what control alone knows of a server: its owner, and the request that created it."""

    async def body(tx: Tx) -> ServerRecord | None:
        mapping = await rows.fetch(tx, control.server_mappings, server_id=server_id, queued_for_delete=0)
        spec = await rows.fetch(tx, control.request_specs, server_id=server_id)
        return None if mapping is None else from_mapping(mapping, spec)

    return await stores.control.read(body, few=True)


def from_mapping(mapping: Row, spec: Row | None = None) -> ServerRecord:
    requested = from_json(spec["spec"], {}) if spec is not None else {}
    return ServerRecord(
        id=mapping["server_id"],
        project_id=mapping["project_id"],
        user_id=mapping["user_id"],
        name=requested.get("name", ""),
        cell=mapping["cell"],
        turn=0,
        operation_id=None,
        vm_state="unknown",
        task_state=None,
        power_state=0,
        host=None,
        copy=None,
        image_ref=requested.get("image", ""),
        flavor=Flavor(**requested["flavor"]) if requested else UNKNOWN_FLAVOR,
        details=msgspec.convert(requested.get("details", {}), Details),
        vifs=[],
        volumes=[],
        created_at=mapping["created_at"],
        updated_at=mapping["created_at"],
        launched_at=None,
        terminated_at=None,
        deleted=False,
        is_partial=True,
    )
