"""`kilonova op …`: the operations of a running cloud."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote, urlencode

from cyclopts import App

from kilonova.cli.options import DEFAULT_DATA, DEFAULT_URL, AsJson, Data, TokenFile, Url
from kilonova.cli.rest import Cloud

app = App(name="op", help="Operations of a running cloud: list, show, cancel.")


@app.command(name="list")
def list_(
    *,
    server: str = "",
    state: str = "",
    limit: int = 50,
    marker: str = "",
    url: Url = DEFAULT_URL,
    data: Data = DEFAULT_DATA,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """List operations, newest first.

    Parameters
    ----------
    server: Only those on this server.
    state: Only those in this state.
    limit: At most so many.
    marker: Go on after this operation.
    """
    given = {"server": server, "state": state, "limit": limit, "marker": marker}
    query = urlencode({name: value for name, value in given.items() if value})
    found = Cloud(url, data, token_file).get(f"/operations?{query}")
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for operation in found["operations"]:
        print(_line(operation))


@app.command
def show(
    operation: str,
    /,
    *,
    url: Url = DEFAULT_URL,
    data: Data = DEFAULT_DATA,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show one operation with its steps."""
    found = Cloud(url, data, token_file).get(f"/operations/{quote(operation, safe='')}")
    if as_json:
        print(json.dumps(found, indent=2))
        return
    shown = found["operation"]
    print(_line(shown))
    for label in ("waiting_for", "error", "superseded_by", "account"):
        if shown[label]:
            value = shown[label]
            print(f"  {label}: {value['message'] if label == 'error' else value}")
    for step in shown["steps"]:
        problem = f"  {step['error']['message']}" if step["error"] else ""
        print(f"  {step['ordinal']:>4} {step['way']:<4} {step['name']:<26} {step['on']:<12} {step['state']}{problem}")


@app.command
def cancel(
    operation: str, /, *, url: Url = DEFAULT_URL, data: Data = DEFAULT_DATA, token_file: TokenFile = None
) -> None:
    """Undo an operation that has not passed its point of no return."""
    Cloud(url, data, token_file).post(f"/operations/{quote(operation, safe='')}/cancel", {})
    print(f"{operation} is being undone")


def _line(operation: dict[str, Any]) -> str:
    asked = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(operation["created_at"]))
    return f"{operation['id']}  {asked}  {operation['operation']:<14} {operation['state']:<10} {operation['server'] or '-'}"
