"""`kilonova finding …`: what abandoned steps left, until an operator settles it."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from kilonova.cli.options import DEFAULT_LOGIN, CloudOptions, Reason
from kilonova.cli.output import Columns, Long, print_list, print_outcome
from kilonova.cli.rest import segment

app = App(name="finding", help="What abandoned steps left: list, settle.")

COLUMNS: Columns = {
    "id": "id",
    "server": "server",
    "step": lambda one: f"{'undo of ' if one['way'] == 'undo' else ''}{one['step']}",
    "on": "on",
    "since": "created_at",
    "settled by": "settled_by",
    "error": lambda one: Long(one["error"]["message"] if one["error"] else ""),
}


@app.command(name="list")
def list_(
    *,
    settled: Annotated[bool, Parameter(help="Also list those that were settled.", negative=())] = False,
    login: CloudOptions = DEFAULT_LOGIN,
) -> None:
    """List what abandoned steps left and nobody has settled."""
    findings = login.cloud().get(f"/findings?settled={'true' if settled else 'false'}")["findings"]
    print_list(findings, COLUMNS, login.form)


@app.command
def settle(
    finding: Annotated[str, Parameter(help="Id of the finding.")],
    /,
    *,
    reason: Reason,
    login: CloudOptions = DEFAULT_LOGIN,
) -> None:
    """Record that you have dealt with what an abandoned step left.

    The next audit frees what it still holds in placement, and its host checks its guests again.
    """
    answer = login.cloud().post(f"/findings/{segment(finding)}/settle", {"reason": reason})
    print_outcome([f"{finding} is settled; compare the records now: kilonova audit"], answer, login.form)
