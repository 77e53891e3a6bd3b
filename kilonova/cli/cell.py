"""`kilonova cell …`: the cells of a running cloud."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

from cyclopts import App, Parameter

from kilonova.cli.operations import cloud_of, word
from kilonova.cli.options import DEFAULT_LOGIN, AsJson, Login

app = App(name="cell", help="Cells of a running cloud: create, list, show, disable, enable, delete, move-host.")
CellName = Annotated[str, Parameter(help="Name of the cell.")]


@app.command
def create(
    name: CellName,
    /,
    *,
    database: Annotated[
        str, Parameter(help="Name of an empty database in [database.spare]. Without it: a file in the data directory.")
    ] = "",
    bus_prefix: Annotated[str, Parameter(help="First word of the bus subjects of its hosts.")] = "",
    login: Login = DEFAULT_LOGIN,
) -> None:
    """Create a cell: its tables in an empty database. Every process then uses it."""
    wish = {"name": name, "database": database, "bus_prefix": bus_prefix}
    print(_line(cloud_of(login).post("/cells", wish)["cell"]))


@app.command(name="list")
def list_(
    *,
    login: Login = DEFAULT_LOGIN,
    as_json: AsJson = False,
) -> None:
    """List the cells: hosts, servers, and whether their databases answer."""
    found = cloud_of(login).get("/cells")
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for cell in found["cells"]:
        print(_line(cell))


@app.command
def show(
    name: CellName,
    /,
    *,
    login: Login = DEFAULT_LOGIN,
    as_json: AsJson = False,
) -> None:
    """Show one cell."""
    found = cloud_of(login).get(f"/cells/{word(name)}")
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for key, value in found["cell"].items():
        print(f"{key:<14} {'' if value is None else value}")


@app.command
def disable(
    name: CellName,
    /,
    *,
    login: Login = DEFAULT_LOGIN,
) -> None:
    """Place no new servers in a cell. Its servers keep running."""
    print(_line(cloud_of(login).post(f"/cells/{word(name)}", {"disabled": True})["cell"]))


@app.command
def enable(
    name: CellName,
    /,
    *,
    login: Login = DEFAULT_LOGIN,
) -> None:
    """Place new servers in a cell again."""
    print(_line(cloud_of(login).post(f"/cells/{word(name)}", {"disabled": False})["cell"]))


@app.command
def delete(
    name: CellName,
    /,
    *,
    login: Login = DEFAULT_LOGIN,
) -> None:
    """Remove a cell that has no hosts and no servers. Its database is not changed."""
    gone = cloud_of(login).delete(f"/cells/{word(name)}")["cell"]
    print(f"{name} was removed; its database was not changed: {gone['database']}")


@app.command(name="move-host")
def move_host(
    host: Annotated[str, Parameter(help="Name of the host.")],
    cell: CellName,
    /,
    *,
    login: Login = DEFAULT_LOGIN,
) -> None:
    """Move an empty host to another cell. Its agent joins it at its next registration."""
    print(_line(cloud_of(login).post(f"/cells/{word(cell)}/hosts", {"host": host})["cell"]))


def _line(cell: dict[str, Any]) -> str:
    state = "disabled" if cell["disabled"] else "enabled"
    answers = "answers"
    if not cell["reachable"]:
        since = cell["away_since"]
        answers = "cannot be opened" if since is None else f"away since {_moment(since)}"
    counts = f"{cell['hosts']:>5} hosts {cell['servers']:>7} servers"
    return f"{cell['name']:<12} {counts}  {state:<8}  {answers:<8}  {cell['database']}"


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
