"""`kilonova unplaced …`: servers that never found a host."""

from __future__ import annotations

import json
from typing import Annotated, Any

from cyclopts import App, Parameter

from kilonova.cli.operations import cloud_of, word
from kilonova.cli.options import DEFAULT_LOGIN, AsJson, Login
from kilonova.cli.rest import Cloud
from kilonova.domain.errors import Refused

PAGE = 100
app = App(name="unplaced", help="Servers that never found a host: list, retry.")


@app.command(name="list")
def list_(*, login: Login = DEFAULT_LOGIN, as_json: AsJson = False) -> None:
    """List servers that never found a host, why, and where each would go now."""
    found = _all(cloud_of(login))
    if as_json:
        print(json.dumps({"unplaced": found}, indent=2))
        return
    for one in found:
        print(_line(one))


@app.command
def retry(
    *servers: Annotated[str, Parameter(help="Ids of the servers.")],
    all_: Annotated[bool, Parameter(name="--all", help="Retry every server that would find a host now.")] = False,
    login: Login = DEFAULT_LOGIN,
) -> None:
    """Try to place servers again under their ids."""
    if all_ == bool(servers):
        raise Refused("usage", "name servers, or give --all")
    cloud = cloud_of(login)
    wanted = [one["server"] for one in _all(cloud) if one["host"]] if all_ else list(servers)
    for server in wanted:
        made = cloud.post("/operations", {"operation": "retry", "server": word(server)})
        print(f"{server}  operation {made['operation']}")
    if not wanted:
        print("no server would find a host now; see `kilonova unplaced list`")


def _all(cloud: Cloud) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        marker = f"&marker={found[-1]['server']}" if found else ""
        page = cloud.get(f"/unplaced?limit={PAGE}{marker}")["unplaced"]
        found += page
        if len(page) < PAGE:
            return found


def _line(one: dict[str, Any]) -> str:
    now = f"would go to {one['host']}" if one["host"] else f"not now: {one['why_not']}"
    return f"{one['server']}  {one['name']}  {one['failure']}  {now}"
