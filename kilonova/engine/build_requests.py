"""The build request of a server that is in no cell. Who deletes the server takes it, and with it what `place` began."""

from __future__ import annotations

from typing import Any

from kilonova.domain.server import BUILDING, to_json
from kilonova.engine import journal as log
from kilonova.engine.accept import supersede
from kilonova.engine.course import ENDING
from kilonova.engine.journal import Op
from kilonova.engine.model import Operation
from kilonova.schema.tables import control
from kilonova.store import rows
from kilonova.store.open import CELL0
from kilonova.world import Row, Tx

# Only a server that has no host yet needs these, and its files; its operation carries them (law 6).
READ_ONCE = ("networks", "host", "forced")


def kept_spec(params: dict[str, Any]) -> str:
    """The request spec of a server that is being placed or was built: what was read once is not in it."""
    details = {name: value for name, value in params.get("details", {}).items() if name != "personality"}
    return to_json({name: value for name, value in params.items() if name not in READ_ONCE} | {"details": details})


async def put_request(tx: Tx, server_id: str, turn: int, operation_id: str, params: dict[str, Any]) -> None:
    """The server is in no cell, and this operation is going to find one."""
    await rows.put(
        tx,
        control.build_requests,
        server_id=server_id,
        turn=turn,
        operation_id=operation_id,
        server=to_json({**params, "vm_state": BUILDING}),
        created_at=params["created_at"],
    )


async def take_request(tx: Tx, request: Row, heir: str, by: Operation, now: float) -> list[str]:
    """Ends `place`, and tells the cells where it may still be about to insert the server."""
    await rows.remove(tx, control.build_requests, server_id=request["server_id"])
    placing = await log.load(tx, request["operation_id"], lock=True)
    if placing is None or placing.server_id != request["server_id"]:  # one of many, of which none is placed
        return []
    if placing.is_live:
        await supersede(tx, placing, by, heir, now)
    return places_of(placing)


def places_of(placing: Op) -> list[str]:
    """Return the cell of the last claim (earlier ones were undone and are fenced there), and cell0 while the server
    is being buried there or has not left it yet."""
    claimed = placing.facts.get("cell")
    buried = placing.course.mode == ENDING or placing.facts.get("from_cell0")
    return [*([claimed] if claimed else []), *([CELL0] if buried else [])]
