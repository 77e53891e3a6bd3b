"""The progress of an operation on whole hosts: its children, and the bytes of their disks."""

from __future__ import annotations

from collections.abc import Sequence

from kilonova.domain.answers import ProgressAnswer
from kilonova.operations.whole_hosts.plan import plan_from
from kilonova.operations.whole_hosts.steps import CHILDREN, PLAN
from kilonova.store.operations import Journaled
from kilonova.world import Row, Tx


async def progress_of(one: Journaled, steps: Sequence[Row]) -> ProgressAnswer | None:
    """Return the progress of a whole-host operation; None if it has no plan of moves."""
    document = next((step["result"] for step in reversed(steps) if step["name"] == PLAN and step["result"]), None)
    plan = plan_from(document)
    if not plan.operation:
        return None

    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(CHILDREN, parent=one.row["id"])

    children = await one.journal.read(body)
    done = {child["server_id"] for child in children if child["state"] == "done"}
    running = sum(child["live"] for child in children)
    moves = plan.moves
    return {
        "children": {
            "planned": len(moves),
            "begun": len(children),
            "running": running,
            "done": len(done),
            "failed": len(children) - running - len(done),
        },
        "bytes": {
            "planned": plan.bytes,
            "done": sum(move.bytes for move in moves if move.server in done),
        },
        "seconds_estimated": plan.seconds,
    }
