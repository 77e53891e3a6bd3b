"""The build request of a server that is in no cell. A delete removes it and thereby ends `place`."""

from __future__ import annotations

import msgspec

from kilonova.domain.params import BuildRequest, ServerSpec
from kilonova.domain.server import BUILDING, to_json
from kilonova.engine import journal as log
from kilonova.engine.accept import supersede
from kilonova.engine.course import ENDING
from kilonova.engine.journal import Op
from kilonova.engine.model import AnyOperation
from kilonova.schema.tables import control
from kilonova.store import rows
from kilonova.store.open_stores import CELL0
from kilonova.world import Row, Tx


class _Placed(msgspec.Struct):
    """The facts of `place` that say where it may be about to insert the server."""

    cell: str = ""
    from_cell0: bool = False


def stored_spec(spec: ServerSpec) -> str:
    """Return the request spec of a server that is being placed or was built, without networks, destination and files:
    only a server without a host needs them, and its operation has them (law 6)."""
    details = msgspec.structs.replace(spec.details, personality=None)
    return to_json(msgspec.structs.replace(spec, details=details, networks=[], host=None, forced=False))


async def put_request(tx: Tx, server_id: str, turn: int, operation_id: str, spec: ServerSpec) -> None:
    """Record that the server is in no cell, and that this operation is going to find one."""
    await rows.put(
        tx,
        control.build_requests,
        server_id=server_id,
        turn=turn,
        operation_id=operation_id,
        server=to_json(BuildRequest(**msgspec.structs.asdict(spec), vm_state=BUILDING)),
        created_at=spec.created_at,
    )


async def take_request(tx: Tx, request: Row, heir: str, by: AnyOperation, now: float) -> list[str]:
    """End `place`; return the cells where it may still be about to insert the server."""
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
    facts = msgspec.json.decode(placing.facts_document, type=_Placed)
    buried = placing.course.mode == ENDING or facts.from_cell0
    return [*([facts.cell] if facts.cell else []), *([CELL0] if buried else [])]
