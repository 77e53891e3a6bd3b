"""The operations on a server as its owners see them: without hosts, and with safe texts instead of reasons.

Administrators (`kilonova:operations`) see everything. Others see the operations on the servers of their project, and
cancel those that their project requested; an operation of another project is not found.
"""

from __future__ import annotations

from collections.abc import Sequence

from kilonova.api.call import Call
from kilonova.api.extra import view
from kilonova.domain.answers import OperationAnswer, ProblemAnswer, StepAnswer, WholeOperation
from kilonova.domain.errors import Refused
from kilonova.domain.json import decoded
from kilonova.engine.core import Engine
from kilonova.engine.course import ABANDONED, Course, problem_from
from kilonova.engine.records import ABANDONED as ABANDONED_WORDS
from kilonova.engine.records import CANCELLED
from kilonova.store.operations import Journaled, steps_of
from kilonova.store.server_records import ServerRecord, find
from kilonova.world import Row

SEES_ALL = "kilonova:operations"
# Asked for by the server's owner, and there before or after the server itself.
OF_ITS_OWNER = ("place", "place_many", "build", "delete_unplaced")
REFUSED = "an administrator: a step was refused, and is tried again every minute"
HOST = "a host of the cloud to answer"
WHETHER_ONE_FITS = "hosts of the cloud to answer: it is not known yet whether one fits"
OTHER = "the cloud: it is tried again shortly"


async def require_server(call: Call, server_id: str) -> None:
    """Raise `Refused` for the server of another project, in the words for one that never was."""
    record = await find(call.db, server_id, deleted=True)
    if record is None or not call.allows(call.route.rule, project_id=record.project_id, user_id=record.user_id):
        raise no_operations(server_id)


def no_operations(server_id: str) -> Refused:
    return Refused("not_found", f"server {server_id[:80]}: it has no operations")


async def require_own(call: Call, entries: Sequence[Journaled]) -> None:
    """Raise `Refused` unless the operation is on a server of the caller's project, or made one for it."""
    row = entries[0].row
    record = await find(call.db, row["server_id"], deleted=True) if row["server_id"] else None
    if record is not None:
        owner: str | None = record.project_id
    else:
        owner = row["project_id"] if row["kind"] in OF_ITS_OWNER else None
    if owner is None or not call.allows(call.route.rule, project_id=owner):
        raise Refused("not_found", f"operation {row['id']}: not found")
    if call.route.method != "GET":
        _require_own_request(call, row, record)


def _require_own_request(call: Call, row: Row, record: ServerRecord | None) -> None:
    if row["project_id"] != call.caller.project_id:
        raise Refused(403, f"operation {row['id']}: your project did not ask for it; ask an administrator to cancel it")
    if record is not None and record.details.locked_by is not None:
        raise Refused("locked", f"Instance {record.id} is locked", status=409)


async def operation(engine: Engine, entries: Sequence[Journaled]) -> OperationAnswer:
    """Return the same fields as for administrators; null for values that owners may not see."""
    newest = entries[-1].row
    steps = await steps_of(entries[-1]) if newest["waiting_for"] else ()
    return {
        **view.operation(entries),
        "turn": None,
        "destination": None,
        "parent": None,
        "account": None,
        "journals": None,
        "reason": None,
        "waiting_for": _waiting_for(newest, steps),
        "error": _error(engine, newest),
    }


async def whole(engine: Engine, entries: Sequence[Journaled], steps: Sequence[Row]) -> WholeOperation:
    """Return the operation with its steps. Actions and events are in os-instance-actions; the rest is for
    administrators."""
    return {
        **await operation(engine, entries),
        "decision": None,
        "progress": None,
        "actions": [],
        "interventions": [],
        "findings": [],
        "steps": [_step(step) for step in steps],
    }


def _step(row: Row) -> StepAnswer:
    return {**view.step(row), "on": None, "copy": None, "inherited_from": None, "error": None}


def _waiting_for(row: Row, steps: Sequence[Row]) -> str | None:
    if not row["waiting_for"]:
        return None
    if decoded(row["course"], Course).stuck:
        return REFUSED
    if any(step["open"] and step["host"] for step in steps):
        return HOST
    return WHETHER_ONE_FITS if view.facts_of(row).decision is not None else OTHER


def _error(engine: Engine, row: Row) -> ProblemAnswer | None:
    problem = problem_from(row["error"])
    if problem is None:
        return None
    messages = {"cancelled": CANCELLED, ABANDONED: ABANDONED_WORDS}
    message = messages.get(problem.code) or engine.operation(row["kind"]).message_for(problem)
    return {"code": problem.code, "message": message, "step": problem.step}
