"""`kilonova op …`: the operations of a running cloud."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from kilonova.cli.options import DEFAULT_DATA, DEFAULT_URL, AsJson, Data, TokenFile, Url

if TYPE_CHECKING:
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
    from urllib.parse import urlencode

    given = {"server": server, "state": state, "limit": limit, "marker": marker}
    query = urlencode({name: value for name, value in given.items() if value})
    found = _cloud(url, data, token_file).get(f"/operations?{query}")
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
    found = _cloud(url, data, token_file).get(f"/operations/{_word(operation)}")
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
    _cloud(url, data, token_file).post(f"/operations/{_word(operation)}/cancel", {})
    print(f"{operation} is being undone")


def _cloud(url: str, data: Path, token_file: Path | None) -> Cloud:
    from kilonova.cli.rest import Cloud

    return Cloud(url, data, token_file)


def _word(given: str) -> str:
    from urllib.parse import quote

    return quote(given, safe="")


def _line(operation: dict[str, Any]) -> str:
    asked = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(operation["created_at"]))
    what, state, server = operation["operation"], operation["state"], operation["server"] or "-"
    return f"{operation['id']}  {asked}  {what:<14} {state:<10} {server}"
