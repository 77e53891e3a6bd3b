"""`kilonova cell …`: the cells of a running cloud."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from kilonova.cli.options import DEFAULT_LOGIN, CloudOptions, HostName
from kilonova.cli.output import Columns, Record, print_list, print_outcome, print_record
from kilonova.cli.rest import segment
from kilonova.cli.times import moment
from kilonova.domain.json import JsonObject

app = App(name="cell", help="Cells of a running cloud: list, show, create, disable, enable, delete, move-host.")
CellName = Annotated[str, Parameter(help="Name of the cell.")]


def _answers(cell: Record) -> str:
    if cell["reachable"]:
        return "answers"
    since = cell["away_since"]
    return "cannot be opened" if since is None else f"away since {moment(since)}"


COLUMNS: Columns = {
    "name": "name",
    "hosts": "hosts",
    "servers": "servers",
    "state": lambda one: "disabled" if one["disabled"] else "enabled",
    "database answers": _answers,
    "database": "database",
}
FIELDS: Columns = {
    "name": "name",
    "id": "id",
    **COLUMNS,
    "away because": "away_because",
    "bus prefix": "bus_prefix",
    "configured": "configured",
    "created": "created_at",
}


@app.command
def create(
    name: CellName,
    /,
    *,
    database: Annotated[
        str, Parameter(help="Name of an empty database in [database.spare]. Without it: a file in the data directory.")
    ] = "",
    bus_prefix: Annotated[str, Parameter(help="First word of the bus subjects of its hosts.")] = "",
    login: CloudOptions = DEFAULT_LOGIN,
) -> None:
    """Create a cell: its tables in an empty database. Every process then uses it."""
    request = {"name": name, "database": database, "bus_prefix": bus_prefix}
    _print(login.cloud().post("/cells", request)["cell"], login)


@app.command(name="list")
def list_(*, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """List the cells: hosts, servers, and whether their databases answer."""
    print_list(login.cloud().get("/cells")["cells"], COLUMNS, login.form)


@app.command
def show(name: CellName, /, *, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Show one cell."""
    print_record(login.cloud().get(f"/cells/{segment(name)}")["cell"], FIELDS, login.form)


@app.command
def disable(name: CellName, /, *, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Place no new servers in a cell. Its servers keep running."""
    _print(login.cloud().post(f"/cells/{segment(name)}", {"disabled": True})["cell"], login)


@app.command
def enable(name: CellName, /, *, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Place new servers in a cell again."""
    _print(login.cloud().post(f"/cells/{segment(name)}", {"disabled": False})["cell"], login)


@app.command
def delete(name: CellName, /, *, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Remove a cell that has no hosts and no servers. Its database is not changed."""
    gone = login.cloud().delete(f"/cells/{segment(name)}")["cell"]
    sentence = f"{name} was removed; its database was not changed: {gone['database']}"
    print_outcome([sentence], gone, login.form)


@app.command(name="move-host")
def move_host(host: HostName, cell: CellName, /, *, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Move an empty host to another cell. Its agent joins it at its next registration."""
    from kilonova.cli.names import host_name

    cloud = login.cloud()
    _print(cloud.post(f"/cells/{segment(cell)}/hosts", {"host": host_name(cloud, host)})["cell"], login)


def _print(cell: JsonObject, login: CloudOptions) -> None:
    if login.form == "table":
        print_list([cell], COLUMNS, "table")
    else:
        print_record(cell, FIELDS, login.form)
