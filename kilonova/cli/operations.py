"""`kilonova op …`: the operations of a running cloud."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from cyclopts import App

from kilonova.cli.options import DEFAULT_LOGIN, AsJson, Login, OperationId

if TYPE_CHECKING:
    from kilonova.cli.rest import Cloud

FAILED, TIMED_OUT = 4, 5  # exit codes
PAUSE = 0.3  # seconds between two looks

app = App(name="op", help="Operations of a running cloud: list, show, watch, cancel, resume, abandon.")


@app.command(name="list")
def list_(
    *,
    server: str = "",
    state: str = "",
    limit: int = 50,
    marker: str = "",
    login: Login = DEFAULT_LOGIN,
    as_json: AsJson = False,
) -> None:
    """List operations, newest first.

    Parameters
    ----------
    server
        Only those on this server.
    state
        Only those in this state.
    limit
        Number of operations to list, 1 to 1000.
    marker
        List those after this operation.
    """
    from urllib.parse import urlencode

    given = {"server": server, "state": state, "limit": limit, "marker": marker}
    query = urlencode({name: value for name, value in given.items() if value != ""})
    found = cloud_of(login).get(f"/operations?{query}")
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for operation in found["operations"]:
        waiting = f"  waiting for {operation['waiting_for']}" if operation["waiting_for"] else ""
        print(f"{_line(operation)}{waiting}")


@app.command
def show(
    operation: OperationId,
    /,
    *,
    login: Login = DEFAULT_LOGIN,
    as_json: AsJson = False,
) -> None:
    """Show one operation with its steps."""
    found = cloud_of(login).get(f"/operations/{word(operation)}")
    if as_json:
        print(json.dumps(found, indent=2))
        return
    shown = found["operation"]
    print(_line(shown))
    for label in ("waiting_for", "error", "superseded_by", "account"):
        if shown[label]:
            value = shown[label]
            print(f"  {label}: {value['message'] if label == 'error' else value}")
    for said in shown["interventions"]:
        print(f"  {said['verb']} by {said['by']}{': ' + said['reason'] if said['reason'] else ''}")
    for finding in shown["findings"]:
        state = f"settled by {finding['settled_by']}" if finding["settled_by"] else "not settled"
        print(f"  finding {finding['id']}: {finding['step']} was abandoned; {state}")
    for step in shown["steps"]:
        print(_step(step))


@app.command
def watch(
    operation: OperationId,
    /,
    *,
    seconds: float = 300.0,
    login: Login = DEFAULT_LOGIN,
) -> int:
    """Follow an operation until it ends, a line per step. Exit code 4: it failed or was undone; 5: it still runs.

    Parameters
    ----------
    seconds
        How long to watch.
    """
    cloud, told = cloud_of(login), set[tuple[int, str]]()
    waiting, ends = "", time.monotonic() + seconds
    while True:
        shown = cloud.get(f"/operations/{word(operation)}")["operation"]
        for step in shown["steps"]:
            if (step["ordinal"], step["state"]) not in told:
                told.add((step["ordinal"], step["state"]))
                print(_step(step), flush=True)
        if shown["waiting_for"] and shown["waiting_for"] != waiting:
            print(f"  waiting for {shown['waiting_for']}", flush=True)
        waiting = shown["waiting_for"] or ""
        if shown["ended_at"] is not None:
            print(_line(shown))
            return 0 if shown["state"] == "done" else FAILED
        if time.monotonic() > ends:
            print(f"{operation} is still {shown['state']} after {seconds:g} s")
            return TIMED_OUT
        time.sleep(PAUSE)


@app.command
def cancel(
    operation: OperationId,
    /,
    *,
    login: Login = DEFAULT_LOGIN,
) -> None:
    """Undo an operation that has not passed its point of no return."""
    cloud_of(login).post(f"/operations/{word(operation)}/cancel", {})
    print(f"{operation} is being undone")


@app.command
def resume(
    operation: OperationId,
    /,
    *,
    login: Login = DEFAULT_LOGIN,
) -> None:
    """Retry the step that an operation waits for, now."""
    cloud_of(login).post(f"/operations/{word(operation)}/resume", {})
    print(f"{operation} is retried now; watch it: kilonova op watch {operation}")


@app.command
def abandon(
    operation: OperationId,
    /,
    *,
    reason: str,
    login: Login = DEFAULT_LOGIN,
) -> None:
    """Skip the step that an operation waits for, and continue with the rest. What the step leaves is a finding.

    Parameters
    ----------
    reason
        Why; it is recorded with your name.
    """
    cloud_of(login).post(f"/operations/{word(operation)}/abandon", {"reason": reason})
    print(f"{operation} continues without that step; see what it left: kilonova finding list")


def cloud_of(login: Login) -> Cloud:
    from kilonova.cli.rest import Cloud

    return Cloud(login.url, login.data, login.clouds, login.os_cloud)


def word(given: str) -> str:
    from urllib.parse import quote

    return quote(given, safe="")


def _step(step: dict[str, Any]) -> str:
    problem = f"  {step['error']['message']}" if step["error"] else ""
    return f"  {step['ordinal']:>4} {step['way']:<4} {step['name']:<26} {step['on']:<12} {step['state']}{problem}"


def _line(operation: dict[str, Any]) -> str:
    asked = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(operation["created_at"]))
    what, state, server = operation["operation"], operation["state"], operation["server"] or "-"
    return f"{operation['id']}  {asked}  {what:<14} {state:<10} {server}"
