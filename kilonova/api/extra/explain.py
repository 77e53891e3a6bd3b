"""The explanation of a server's host: each attempt's decision, host, filters and numbers, and its outcome."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.content import Content
from kilonova.api.extra import view
from kilonova.api.extra.operations import journaled_of, newest_of
from kilonova.domain.driver import BESIDE, INSTEAD
from kilonova.engine.course import problem_from
from kilonova.store.operations import Journaled, steps_of
from kilonova.world import Row

OLD_DISK = {
    BESIDE: "kept until the new one runs: the host has room for both",
    INSTEAD: "removed first: the host has no room for both",
}
MOST_OPERATIONS = 50  # that are looked through for a decision


async def explain(call: Call) -> Response:
    """Explain the host of a server: each attempt's decision, host and filters."""
    return answer(await _explanation(await journaled_of(call)))


async def explain_server(call: Call) -> Response:
    """Show the newest decision about a server, with the operation that made it."""
    newest = await newest_of(call.db, call.path["id"], limit=MOST_OPERATIONS)
    for journaled in newest:
        explanation = await _explanation(journaled)
        if explanation["decision"] is not None:
            return answer(explanation)
    return answer(await _explanation(newest[0]))


async def _explanation(journaled: Sequence[Journaled]) -> dict[str, Content]:
    """The newest decision, why the operation failed if it did, and the attempts before."""
    steps = [step for one in journaled for step in await steps_of(one)]
    steps.sort(key=lambda step: int(step["ordinal"]))
    return {
        "operation": journaled[0].row["id"],
        "decision": view.decision(journaled, steps),
        "problem": view.problem(journaled[-1].row["error"]),
        "earlier": _attempts(journaled[0].row, steps)[:-1],
        **_old_disk(journaled[-1].row),
    }


def _old_disk(row: Row) -> dict[str, str]:
    """Return what a rebuild does with the old disk, once its host has measured the free space."""
    room = view.facts_of(row).room
    return {"old_disk": OLD_DISK[room]} if row["kind"] == "rebuild" and room in OLD_DISK else {}


def _attempts(first: Row, steps: Sequence[Row]) -> list[dict[str, Content]]:
    """Return the attempts: each begins with a decision and lists the steps that failed after it.

    If the server was requested together with others, the first decision is in its facts: `place_many` wrote it there.
    """
    given = None if any(view.decided(step) for step in steps[:1]) else view.facts_of(first).decision
    attempts: list[dict[str, Content]] = [] if given is None else [{"decision": given, "problem": None}]
    for step in steps:
        decision = view.decided(step)
        if decision is not None:
            attempts.append({"decision": decision, "problem": None})
        if attempts and step["way"] == "do" and step["state"] == "failed":
            error = problem_from(step["error"])
            reason = {} if error is None else {"code": error.code, "message": error.message}
            attempts[-1]["problem"] = {**reason, "step": step["name"]}
    return attempts
