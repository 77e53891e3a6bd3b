"""Cancel an operation: allowed until the point of no return was taken; everything done so far is undone."""

from __future__ import annotations

from kilonova.domain.errors import Refused
from kilonova.domain.operation import BACK
from kilonova.engine import journal as log
from kilonova.engine.conclude import Next
from kilonova.engine.conclude import cancel as turn_back
from kilonova.engine.core import Engine
from kilonova.engine.course import ENDING, Problem
from kilonova.engine.run import pass_on
from kilonova.world import Store, Tx


async def cancel(engine: Engine, journal: Store, operation_id: str, who: str) -> None:
    async def body(tx: Tx) -> Next | None:
        op = await log.load(tx, operation_id, lock=True)
        if op is None:
            raise Refused("not_found", f"operation {operation_id}: not found")
        if not op.is_live:
            raise Refused("ended", f"operation {operation_id}: it has ended ({op.state})")
        if op.committed:
            raise Refused(
                "no_return", f"operation {operation_id}: it has passed its point of no return and can only continue"
            )
        if op.course.mode in (BACK, ENDING):
            return None  # it is being undone already
        return await turn_back(engine, tx, journal, op, Problem(code="cancelled", message=f"cancelled by {who}"))

    following = await engine.write(journal, body)
    if following is not None:
        await pass_on(engine, journal, following)
