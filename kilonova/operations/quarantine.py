"""An operator's decision about a copy in quarantine: adopt it as the server's own, or remove it.

Otherwise only the copy's disappearance ends a quarantine. The decision, its author and its time are stored with the
copy, and logged.
"""

from __future__ import annotations

import logging

from sqlalchemy import bindparam, select

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.server import Server
from kilonova.engine.accept import Accepted, Ask
from kilonova.engine.core import Engine
from kilonova.engine.debts import owe_removal
from kilonova.engine.submit import find_mapping, submit
from kilonova.hosts.states import find_host
from kilonova.operations.adopt import proof_against
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import fences, operations
from kilonova.schema.tables.placement import claim_fence
from kilonova.store import rows
from kilonova.store.quarantine import open_quarantine
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Tx

logger = logging.getLogger(__name__)
_CLAIM_TURN = Sql(select(claim_fence.c.turn).where(claim_fence.c.server_id == bindparam("server")))
_FENCE_TURN = Sql(select(fences.c.turn).where(fences.c.server_id == bindparam("server")))


async def adopt_quarantined(engine: Engine, host: str, server: str, copy: int | None, cause: Cause) -> Accepted:
    """Adopt the copy, unless another may be alive. This is an operation, since claims, ports and volumes follow."""
    journal, _ = await find_host(engine, host)
    row = await _quarantined(journal, host, server, copy)
    mapping = await find_mapping(engine, server)
    if mapping["cell"] != journal.name:
        where = mapping["cell"] or "no cell yet"
        raise Refused(
            "other_cell", f"server {server} is in {where}, host {host} in {journal.name}; it cannot be adopted"
        )
    record = await _server(journal, server)
    await proof_against(engine.world, journal, record, engine.settings.default.service_down_time)
    await _raise_turn(engine, journal, record, max(row["copy"], row["turn"]))
    params = {"host": host, "copy": row["copy"], "forced": True}
    accepted = await submit(engine, Ask(kind="adopt", server_id=server, cause=cause, params=params))
    logger.warning("copy adopted: host=%s server=%s copy=%s by=%s", host, server, row["copy"], cause.user_id)
    return accepted


async def remove_quarantined(engine: Engine, host: str, server: str, copy: int | None, cause: Cause) -> int:
    """Remove the copy; its host does it when it gets the message, or when it is back. Return the copy's number."""
    journal, _ = await find_host(engine, host)
    row = await _quarantined(journal, host, server, copy)
    keys = {"host": host, "server_id": server, "copy": row["copy"]}

    async def body(tx: Tx) -> None:
        now = await tx.now()
        locked = await rows.fetch(tx, cell.quarantine, lock=True, **keys)
        if locked is None or locked["ended_at"] is not None:
            raise _not_there(host, server, row["copy"])
        if await rows.fetch(tx, operations, server_id=server, kind="adopt", live=1) is not None:
            raise Refused("busy", f"server {server}: copy {row['copy']} on {host} is being adopted")
        if locked["action"] == "remove":
            return
        removal: dict[str, object] = {"action": "remove", "action_by": cause.user_id, "action_at": now}
        await rows.change(tx, cell.quarantine, removal, **keys)
        of_move = {"server_id": server, "source_host": host, "source_copy": row["copy"], "open": 1}
        await rows.change(tx, cell.migrations, {"source_gone": 1}, **of_move)  # the move cannot be reverted to it
        await owe_removal(tx, host, server, row["copy"], cause.request_id, now)

    await engine.write(journal, body)
    await engine.wake(journal.name, "", host)
    logger.warning("copy removed: host=%s server=%s copy=%s by=%s", host, server, row["copy"], cause.user_id)
    return int(row["copy"])


async def _quarantined(journal: Store, host: str, server: str, copy: int | None) -> Row:
    async def body(tx: Tx) -> list[Row]:
        return [row for row in await open_quarantine(tx, host) if row["server_id"] == server]

    copies = [row for row in await journal.read(body) if copy in (None, row["copy"])]
    if not copies:
        raise _not_there(host, server, copy)
    if len(copies) > 1:
        numbers = ", ".join(str(row["copy"]) for row in copies)
        raise Refused("bad_request", f"server {server} has the copies {numbers} in quarantine on {host}; name the copy")
    return copies[0]


def _not_there(host: str, server: str, copy: int | None) -> Refused:
    what = "has no copy" if copy is None else f"has no copy {copy}"
    text = f"server {server[:80]} {what} in quarantine on {host}; see `kilonova quarantine list`"
    return Refused("not_quarantined", text)


async def _server(journal: Store, server: str) -> Server:
    async def body(tx: Tx) -> Row | None:
        return await rows.fetch(tx, cell.servers, id=server, deleted=0)

    row = await journal.read(body)
    if row is None:
        raise Refused("not_found", f"Instance {server} could not be found.")
    return Server.from_row(row)


async def _raise_turn(engine: Engine, journal: Store, server: Server, floor: int) -> None:
    """Raise the server's turn to the highest that its copy, placement and control have seen.

    If the records are older than the copy, the operation's writes there would count as late. The turn only ever grows,
    so raising it while no operation is under way is safe.
    """

    async def seen_in_placement(tx: Tx) -> int:
        row = await tx.one(_CLAIM_TURN, server=server.id)
        return int(row["turn"]) if row is not None else 0

    async def seen_in_control(tx: Tx) -> int:
        row = await tx.one(_FENCE_TURN, server=server.id)
        return int(row["turn"]) if row is not None else 0

    db = engine.world.db
    turn = max(floor, await db.placement.read(seen_in_placement), await db.control.read(seen_in_control))

    async def body(tx: Tx) -> None:
        if turn > server.turn:
            await rows.change(tx, cell.servers, {"turn": turn}, id=server.id, turn=server.turn, operation_id=None)

    await engine.write(journal, body)
