"""Guests that started or ended without an order, as their host reports with a heartbeat.

The report alone changes nothing: where it differs from the records, an operation makes the host check again (law 3). As
in Nova, a server that is active and off becomes stopped, and a guest that its owner stopped is stopped again.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.messages import Beat
from kilonova.domain.server import ACTIVE, POWER_RUNNING, POWER_SHUTDOWN, SOFT_DELETED, STOPPED
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.engine.submit import submit
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Row, Store, Tx

logger = logging.getLogger(__name__)
MOST_AT_ONCE = 64  # of one heartbeat; the host reports the rest with the next one
LATER = ("busy", "host_down")  # refused now; the host reports it again


class Followed(NamedTuple):
    noted: list[tuple[str, int]]  # the host need not report these again
    register_again: bool = False  # something runs there that may not


async def follow_powers(engine: Engine, journal: Store, beat: Beat) -> Followed:
    """Follow the power changes that a host reports; its registration was checked just now."""
    noted, register_again = [], False
    for server, copy, on in beat.powers[:MOST_AT_ONCE]:
        row = await _find(journal, server)
        if row is None or (row["runner_host"], row["runner_copy"]) != (beat.host, copy):
            register_again = register_again or (on and (row is None or row["operation_id"] is None))
            noted.append((server, copy))
        elif await _follow(engine, journal, row, beat.host, on):
            noted.append((server, copy))
    return Followed(noted, register_again)


async def _find(journal: Store, server: str) -> Row | None:
    async def body(tx: Tx) -> Row | None:
        return await rows.fetch(tx, cell.servers, id=server, deleted=0)

    return await journal.read(body, few=True)


async def _follow(engine: Engine, journal: Store, row: Row, host: str, on: bool) -> bool:
    """Return whether the change is dealt with. A live operation alone decides about the power."""
    if row["operation_id"] is not None:
        return False
    if on if row["vm_state"] == ACTIVE else not on if row["vm_state"] in (STOPPED, SOFT_DELETED) else True:
        await _note_power(engine, journal, row, on)
        return True
    logger.info("guest %s without an order: server=%s host=%s", "started" if on else "ended", row["id"], host)
    try:
        await submit(engine, Ask(kind="follow_power", server_id=row["id"], cause=_cause(engine, row, on)))
    except Refused as why:
        logger.info("power state not followed: server=%s reason=%s", row["id"], why.message)
        return why.code not in LATER
    return False  # reported again until the records agree: the operation may fail, or be cancelled


async def _note_power(engine: Engine, journal: Store, row: Row, on: bool) -> None:
    """Correct only the power state that is shown: it agrees with the server's state, or that state says nothing about
    power."""
    power = POWER_RUNNING if on else POWER_SHUTDOWN
    if row["power_state"] == power:
        return
    its_own = {"id": row["id"], "turn": row["turn"], "operation_id": None}

    async def body(tx: Tx) -> None:
        await rows.change(tx, cell.servers, {"power_state": power}, **its_own)

    await engine.write(journal, body)


def _cause(engine: Engine, row: Row, on: bool) -> Cause:
    request = f"req-{engine.world.ids.uuid()}"
    owner = {"user_id": row["user_id"], "project_id": row["project_id"]}
    reason = "the guest was started without an order" if on else "the guest has ended without an order"
    return Cause(**owner, through="periodic", request_id=request, reason=reason)
