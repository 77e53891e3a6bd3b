"""Volumes that old records would delete with their servers (`delete_on_termination`) are kept (law 15).

Since the backup such a volume may have been detached or attached to another server, or its owner may have decided to
keep it. So no record from before deletes it with its server; the owner may set the flag again, or delete it.
"""

from __future__ import annotations

import msgspec
from sqlalchemy import select

from kilonova.domain.params import ServerSpec
from kilonova.domain.server import to_json
from kilonova.domain.volume import server_volumes
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.volume import attachments, volumes
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

_SERVERS = Sql(
    select(cell.servers.c.id, cell.servers.c.volume_info)
    .where(cell.servers.c.deleted == 0, cell.servers.c.volume_info.is_not(None))
    .order_by(cell.servers.c.id)
)
_SPECS = Sql(select(control.request_specs.c.server_id, control.request_specs.c.spec))
_CREATED = Sql(
    select(volumes.c.id, volumes.c.created_for.label("server_id"))
    .where(volumes.c.goes_with_server == 1)
    .order_by(volumes.c.id)
)
_ATTACHED = Sql(
    select(attachments.c.volume_id.label("id"), attachments.c.server_id)
    .where(attachments.c.goes_with_server == 1)
    .order_by(attachments.c.volume_id)
)
ADVICE = "set delete_on_termination again, or delete the volume when it is unused"


async def keep_volumes_of_servers(tx: Tx) -> list[str]:
    """Keep the volumes of a cell's servers; return a sentence for each. Repeating it is harmless."""
    sentences = []
    for row in await tx.all(_SERVERS):
        there = server_volumes(row["volume_info"])
        going = [one.volume_id for one in there if one.delete_on_termination]
        if going:
            staying = [msgspec.structs.replace(one, delete_on_termination=False) for one in there]
            await rows.change(tx, cell.servers, {"volume_info": to_json(staying)}, id=row["id"])
        sentences += [_sentence(volume, row["id"]) for volume in going]
    return sentences


async def keep_volumes_in_control(tx: Tx) -> list[str]:
    """Keep, in control, the volumes of servers that were being built, and those requested by specs of servers that
    may be built again."""
    held = {(row["id"], row["server_id"]) for row in (*await tx.all(_CREATED), *await tx.all(_ATTACHED))}
    for table in (volumes, attachments):
        await rows.change(tx, table, {"goes_with_server": 0}, goes_with_server=1)
    for row in await tx.all(_SPECS):
        await _keep_requested(tx, row)
    return [_sentence(volume, server or "") for volume, server in sorted(held, key=str)]


async def _keep_requested(tx: Tx, row: Row) -> None:
    spec = msgspec.json.decode(row["spec"], type=ServerSpec)
    if any(one.delete_on_termination for one in spec.volumes):
        spec.volumes = [msgspec.structs.replace(one, delete_on_termination=False) for one in spec.volumes]
        await rows.change(tx, control.request_specs, {"spec": to_json(spec)}, server_id=row["server_id"])


def _sentence(volume: str, server: str) -> str:
    return f"volume {volume}: went with server {server} by the old records; it is kept; {ADVICE}"
