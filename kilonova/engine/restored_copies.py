"""The check for a newer copy of a server elsewhere after a restore: no second guest is started beside it."""

from __future__ import annotations

from sqlalchemy import select

from kilonova.domain.errors import Refused
from kilonova.domain.server import POWER_RUNNING, Server
from kilonova.engine.model import AnyOperation
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.restored_at import restored_at
from kilonova.store.statements import Sql
from kilonova.world import Tx

HARMLESS = frozenset({"adopt", "delete", "soft_delete"})  # these start no guest of the older copy
_HOSTS = Sql(select(cell.hosts.c.name, cell.hosts.c.reported_at, cell.hosts.c.forced_down, cell.hosts.c.fenced))


async def refuse_unless_settled(tx: Tx, operation: AnyOperation, server: Server) -> None:
    """Raise `Refused` while a copy from before the restore is in quarantine, or while a host that may have one has not
    reported and is not declared down.

    A stop starts nothing; it is refused only while a copy is in quarantine, which it would not reach. A confirm is
    refused until the destination has reported: if the move was reverted since the backup, the source has the only copy,
    and a confirm would remove it. A revert is refused until every host has reported: if the move was confirmed since,
    the destination has the only copy, and a revert would remove it.
    """
    if operation.name in HARMLESS or (server.runner_copy or 0) > (server.turn_floor or 0):
        return
    copies = await rows.fetch_all(tx, cell.quarantine, server_id=server.id, ended_at=None)
    if copies:
        where = ", ".join(f"copy {row['copy']} on {row['host']}" for row in copies)
        text = f"server {server.id}: the records were restored, and {where} may be newer; adopt or remove it first"
        raise Refused("quarantined", f"{text} (`kilonova quarantine list`)")
    if operation.name == "confirm_resize" and server.unsettled:
        text = f"server {server.id}: the records were restored, and {server.runner_host} has not reported since"
        raise Refused("unsettled", f"{text}; start its agent, then confirm")
    if operation.name == "stop" or (server.power_state == POWER_RUNNING and operation.name != "revert_resize"):
        return
    since = await restored_at(tx)
    for host in await tx.all(_HOSTS):
        if host["reported_at"] < since and not host["forced_down"] and not host["fenced"]:
            text = (
                f"server {server.id}: the records were restored, and {host['name']} has not reported its guests since"
            )
            raise Refused("unsettled", f"{text}; start its agent, or declare it down")
