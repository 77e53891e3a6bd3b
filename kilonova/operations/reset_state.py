"""Reset state: an administrator declares a server's state. Its guest is not touched.

It is one transaction before the response, not an operation. It is refused while an operation is under way, while the
state says which of two copies counts (VERIFY_RESIZE), and for deleted servers. Nova overwrites those states too, and
then the server is stuck.
"""

from __future__ import annotations

import logging

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.params import StateParams
from kilonova.domain.server import ACTIVE, ERROR, POWER_SHUTDOWN, RESTORED, STOPPED, Server
from kilonova.engine.accept import Ask, Overtaken, admitted, gather
from kilonova.engine.context import Subject
from kilonova.engine.core import Engine
from kilonova.engine.facts import OperationFacts
from kilonova.engine.model import Operation
from kilonova.engine.submit import find_mapping
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Tx

logger = logging.getLogger(__name__)
TRIES = 3  # against operations that begin and end in between


class ResetState(Operation[OperationFacts, StateParams]):
    """The checks of a reset, the same as those of every operation; nothing else of it is used."""

    facts_type = OperationFacts
    params_type = StateParams
    name = "reset_state"
    action = "resetState"
    from_states = frozenset({ACTIVE, STOPPED, ERROR})

    def check(self, subject: Subject[StateParams]) -> OperationFacts:
        server = subject.server
        assert server is not None
        if subject.params.state == ACTIVE:
            _require_guest(server)
        return OperationFacts()


def _require_guest(server: Server) -> None:
    text = f"Cannot 'resetState' instance {server.id} to active"
    if server.host is None or (server.runner_host, server.runner_copy) != (server.host, server.copy):
        raise Refused("not_ready", f"{text}: it has no guest")
    if server.unsettled == RESTORED:
        raise Refused("unsettled", f"{text}: the records were restored, and {server.host} has not reported since")


async def reset_state(engine: Engine, server_id: str, state: str, cause: Cause) -> str:
    """Return the state that it has now. A server whose guest is off is not active but stopped."""
    for _ in range(TRIES):
        mapping = await find_mapping(engine, server_id)
        if mapping["cell"] is None:
            raise Refused("busy", f"Instance {server_id} is being built; wait until it has a host")
        try:
            became = await _reset(engine, mapping["cell"], server_id, state, cause)
        except Overtaken:
            continue
        logger.warning("state reset: server=%s state=%s user=%s", server_id, became, cause.user_id)
        return became
    raise Refused("busy", f"Instance {server_id} was modified concurrently; retry the request")


async def _reset(engine: Engine, in_cell: str, server_id: str, state: str, cause: Cause) -> str:
    ask = Ask(kind=ResetState.name, server_id=server_id, cause=cause, params=StateParams(state=state))

    async def body(tx: Tx) -> str:
        operation = ResetState()
        subject = await gather(engine, tx, ask, operation)
        await admitted(tx, operation, subject)
        server = subject.server
        assert server is not None
        if state == ACTIVE:
            await _require_whole_disk(tx, server)
        is_off = server.power_state == POWER_SHUTDOWN
        became = (STOPPED if is_off else ACTIVE) if state == ACTIVE else ERROR
        now = await tx.now()
        values = {"vm_state": became, "updated_at": now}
        if not await rows.change(tx, cell.servers, values, id=server.id, turn=server.turn, operation_id=None):
            raise Overtaken(f"server {server.id} was modified concurrently")
        await _note_action(tx, server.id, cause, now)
        return became

    return await engine.write(engine.world.db.cell(in_cell), body)


async def _require_whole_disk(tx: Tx, server: Server) -> None:
    copy = await rows.fetch(tx, cell.copies, server_id=server.id, host=server.host, copy=server.copy)
    if copy is None or copy["state"] != "whole":
        text = f"Cannot 'resetState' instance {server.id} to active: its disk is not whole"
        raise Refused("not_ready", f"{text}; rebuild it")


async def _note_action(tx: Tx, server_id: str, cause: Cause, now: float) -> None:
    await rows.put(
        tx,
        cell.actions,
        server_id=server_id,
        request_id=cause.request_id,
        operation_id="",
        action=ResetState.action,
        user_id=cause.user_id,
        project_id=cause.project_id,
        started_at=now,
        updated_at=now,
        message=None,
    )
