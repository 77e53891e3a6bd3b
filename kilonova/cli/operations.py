"""`kilonova op …`: the operations of a running cloud."""

from __future__ import annotations

from typing import Annotated, Any, cast
from urllib.parse import urlencode

from cyclopts import App, Parameter

from kilonova.cli.asking import accepted
from kilonova.cli.names import server_id
from kilonova.cli.operation_text import account_lines, children_of, intervention, note_of, state_of, step_took, took
from kilonova.cli.options import (
    DEFAULT_LOGIN,
    DEFAULT_WAIT,
    DEFAULT_WAITING,
    CloudOptions,
    OperationId,
    Reason,
    Timeout,
    Waiting,
)
from kilonova.cli.output import (
    At,
    Columns,
    Long,
    Record,
    Took,
    print_lines,
    print_list,
    print_outcome,
    print_record,
    print_table,
)
from kilonova.cli.rest import Cloud, segment
from kilonova.domain.answers import OperationAnswer, StepAnswer, WholeOperation
from kilonova.domain.errors import Refused

app = App(name="op", help="Operations of a running cloud: list, show, watch, cancel, resume, abandon.")


def _operation(record: Record) -> OperationAnswer:
    return cast(OperationAnswer, record)


def _took(record: Record) -> Took | None:
    seconds = took(_operation(record))
    return None if seconds is None else Took(seconds)


COLUMNS: Columns = {
    "id": "id",
    "operation": "operation",
    "server": "server",
    "state": lambda one: state_of(_operation(one)),
    "asked": lambda one: At(one["created_at"]),
    "took": _took,
    "note": lambda one: Long(note_of(_operation(one))),
}
FIELDS: Columns = {
    **COLUMNS,
    "note": lambda one: note_of(_operation(one)),
    "destination": "destination",
    "past its point of no return": "past_no_return",
    "parent": "parent",
    "asked by": "requested_by",
    "request": "request_id",
    "ended": "ended_at",
    "progress": lambda one: children_of(_operation(one)),
}
OperationOrServer = Annotated[
    str, Parameter(help="Id of an operation, or name or id of a server: its newest operation.")
]
STEP_HEADERS = ("step", "name", "on", "state", "began", "took", "error")


@app.command(name="list")
def list_(
    *,
    server: Annotated[str, Parameter(help="Only those on this server, by name or id.")] = "",
    state: Annotated[str, Parameter(help="Only those in this state of the journal, for example waiting.")] = "",
    limit: Annotated[int, Parameter(help="Number of operations to list, 1 to 1000.")] = 50,
    marker: Annotated[str, Parameter(help="List those after this operation.")] = "",
    login: CloudOptions = DEFAULT_LOGIN,
) -> None:
    """List operations, newest first."""
    cloud = login.cloud()
    given = {"server": server and server_id(cloud, server), "state": state, "limit": limit, "marker": marker}
    query = urlencode({name: value for name, value in given.items() if value != ""})
    print_list(cloud.get(f"/operations?{query}")["operations"], COLUMNS, login.form)


def find_operation(cloud: Cloud, given: str) -> WholeOperation:
    """Find an operation by its id, or the newest one of a server by its name or id."""
    try:
        return _shown(cloud, given)
    except Refused as why:
        if why.code != "not_found":
            raise
        missing = why
    try:
        query = urlencode({"server": server_id(cloud, given), "limit": 1})
        (newest,) = cloud.get(f"/operations?{query}")["operations"]
    except Refused:
        raise missing from None
    return _shown(cloud, newest["id"])


def _shown(cloud: Cloud, operation: str) -> WholeOperation:
    record: WholeOperation = cloud.get(f"/operations/{segment(operation)}")["operation"]
    return record


@app.command
def show(operation: OperationOrServer, /, *, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Show one operation with its steps."""
    record = find_operation(login.cloud(), operation)
    print_record(record, FIELDS, login.form)
    if login.form != "table":
        return
    for line in [*account_lines(record), *(intervention(said) for said in record["interventions"])]:
        print_lines([line])
    for finding in record["findings"]:
        state = f"settled by {finding['settled_by']}" if finding["settled_by"] else "not settled"
        print_lines([f"finding {finding['id']}: {finding['step']} was abandoned; {state}"])
    print()
    print_table(STEP_HEADERS, [_step(step) for step in record["steps"]])


def _step(step: StepAnswer) -> list[Any]:
    name = f"undo {step['name']}" if step["way"] == "undo" else step["name"]
    seconds, problem = step_took(step), step["error"]
    began = At(step["taken_at"] or step["created_at"])
    lasted = None if seconds is None else Took(seconds)
    return [step["ordinal"], name, step["on"], step["state"], began, lasted, problem and problem["message"]]


@app.command
def watch(
    *operations: OperationOrServer,
    timeout: Timeout = DEFAULT_WAIT,
    login: CloudOptions = DEFAULT_LOGIN,
) -> int:
    """Follow operations until they end. Exit code 4: one failed or was undone; 5: one still runs."""
    from kilonova.cli.progress import follow

    if not operations:
        raise Refused("usage", "name at least one operation; see kilonova op list")
    cloud = login.cloud()
    ids = [find_operation(cloud, one)["id"] for one in operations]
    return follow(cloud, ids, timeout, login.form)


@app.command
def cancel(
    operation: OperationId, /, *, waiting: Waiting = DEFAULT_WAITING, login: CloudOptions = DEFAULT_LOGIN
) -> int:
    """Undo an operation that has not passed its point of no return."""
    cloud = login.cloud()
    answer = cloud.post(f"/operations/{segment(operation)}/cancel", {})
    return accepted(cloud, [operation], waiting, login, f"{operation} is being undone", answer, "cancelled")


@app.command
def resume(
    operation: OperationId, /, *, waiting: Waiting = DEFAULT_WAITING, login: CloudOptions = DEFAULT_LOGIN
) -> int:
    """Retry the step that an operation waits for, now."""
    cloud = login.cloud()
    answer = cloud.post(f"/operations/{segment(operation)}/resume", {})
    return accepted(cloud, [operation], waiting, login, f"{operation} is retried now", answer)


@app.command
def abandon(operation: OperationId, /, *, reason: Reason, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Skip the step that an operation waits for, and continue with the rest. What the step leaves is a finding."""
    answer = login.cloud().post(f"/operations/{segment(operation)}/abandon", {"reason": reason})
    sentence = f"{operation} continues without that step; see what it left: kilonova finding list"
    print_outcome([sentence], answer, login.form)
