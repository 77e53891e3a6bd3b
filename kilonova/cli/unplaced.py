"""`kilonova unplaced …`: servers in cell0, which found no host or were not built on any."""

from __future__ import annotations

import sys
from typing import Annotated, TypedDict

from cyclopts import App, Parameter

from kilonova.cli.exits import DONE, REFUSED
from kilonova.cli.names import server_id
from kilonova.cli.options import DEFAULT_LOGIN, DEFAULT_WAITING, CloudOptions, Waiting
from kilonova.cli.output import Columns, Record, print_list
from kilonova.cli.rest import Cloud
from kilonova.domain.errors import Refused
from kilonova.domain.visible import visible

app = App(name="unplaced", help="Servers that found no host, or that no host built: list, retry.")


class UnplacedServer(TypedDict):
    server: str
    name: str
    failure: str
    failed_at: float | None
    host: str | None
    why_not: str
    changes: list[str]


class Retried(TypedDict):
    server: str
    operation: str


def _now(one: Record) -> str:
    return f"would go to {one['host']}" if one["host"] else f"not now: {one['why_not']}"


COLUMNS: Columns = {
    "server": "server",
    "name": "name",
    "failure": "failure",
    "failed": "failed_at",
    "now": _now,
    "would fit with": lambda one: " or ".join(one["changes"]),
}
RETRIED_COLUMNS: Columns = {"server": "server", "operation": "operation"}


@app.command(name="list")
def list_(*, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """List servers that found no host or were not built, why, and where each would go now."""
    print_list(all_unplaced(login.cloud()), COLUMNS, login.form)


@app.command
def retry(
    *servers: Annotated[str, Parameter(help="Names or ids of the servers.")],
    all_: Annotated[
        bool, Parameter(name="--all", negative=(), help="Retry every server that would find a host now.")
    ] = False,
    waiting: Waiting = DEFAULT_WAITING,
    login: CloudOptions = DEFAULT_LOGIN,
) -> int:
    """Try to place servers again under their ids."""
    if all_ == bool(servers):
        raise Refused("usage", "name servers, or give --all")
    cloud = login.cloud()
    if all_:
        wanted = [one["server"] for one in all_unplaced(cloud) if one["host"]]
    else:
        wanted = [server_id(cloud, server) for server in servers]
    retried, refused = _retry_each(cloud, wanted)
    if retried and waiting.wait:
        from kilonova.cli.progress import follow

        code = follow(cloud, [one["operation"] for one in retried], waiting.timeout, login.form)
    elif retried or refused or login.form != "table":
        print_list(retried, RETRIED_COLUMNS, login.form)
        code = DONE
    else:
        print("no server would find a host now; see kilonova unplaced list")
        code = DONE
    for why in refused:
        print(f"kilonova: {visible(why.message)}", file=sys.stderr)
    return code or (REFUSED if refused else DONE)


def _retry_each(cloud: Cloud, servers: list[str]) -> tuple[list[Retried], list[Refused]]:
    """Retry each server. One that was deleted meanwhile, or found a host, does not stop the others."""
    retried: list[Retried] = []
    refused: list[Refused] = []
    for server in servers:
        try:
            retried.append(cloud.post("/operations", {"operation": "retry", "server": server}))
        except Refused as why:
            refused.append(why)
    return retried, refused


def all_unplaced(cloud: Cloud) -> list[UnplacedServer]:
    return list(cloud.all("/unplaced", "unplaced", by="server"))
