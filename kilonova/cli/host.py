"""`kilonova host …` and `kilonova quarantine …`: how hosts stand, and guests that the records do not explain."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from kilonova.cli.operations import cloud_of, word
from kilonova.cli.options import DEFAULT_LOGIN, AsJson, HostName, Login

if TYPE_CHECKING:
    from kilonova.cli.rest import Cloud

app = App(name="host", help="Hosts of a running cloud: list, show, gone.")
quarantine = App(name="quarantine", help="Guests that the records do not explain: list, adopt, remove.")

HOST_COLUMNS = ("name", "id", "cell", "state", "debts", "quarantined", "sentence")
COPY_COLUMNS = ("host", "server", "copy", "power", "disk", "found", "action", "reason")
ServerId = Annotated[str, Parameter(help="Id of the server.")]
Copy = Annotated[int | None, Parameter(help="Number of the copy, where the host has several of the server.")]


@app.command(name="list")
def list_(*, login: Login = DEFAULT_LOGIN, as_json: AsJson = False) -> None:
    """List hosts: state, debts, quarantined guests."""
    found = cloud_of(login).get("/hosts")
    if as_json:
        print(json.dumps(found, indent=2))
        return
    _print_table(HOST_COLUMNS, ([host[name] for name in HOST_COLUMNS] for host in found["hosts"]))


@app.command
def show(host: HostName, /, *, login: Login = DEFAULT_LOGIN, as_json: AsJson = False) -> None:
    """Show one host, by name or id: its state, what it owes, and the guests in quarantine."""
    found = cloud_of(login).get(f"/hosts/{word(host)}")
    if as_json:
        print(json.dumps(found, indent=2))
        return
    shown = found["host"]
    for key in ("name", "id", "cell", "state", "sentence", "disabled", "disabled_reason", "forced_down", "epoch"):
        print(f"{key:<16} {'' if shown[key] is None else shown[key]}".rstrip())
    print(f"{'last_seen':<16} {_moment(shown['last_seen'])}")
    if shown["owed"]:
        print("\nowes the removal of")
        rows = ([debt["server"], debt["copy"], _moment(debt["created_at"])] for debt in shown["owed"])
        _print_table(("server", "copy", "since"), rows)
    if shown["quarantine"]:
        print("\nin quarantine")
        _print_table(COPY_COLUMNS, (_copy_row(shown["name"], one) for one in shown["quarantine"]))


@app.command
def gone(
    host: HostName,
    /,
    *,
    reason: str,
    login: Login = DEFAULT_LOGIN,
) -> None:
    """Declare a dead host gone: nothing waits for it any more, and it is removed. This cannot be undone.

    Parameters
    ----------
    reason
        Why it never comes back; recorded, and shown if it does.
    """
    body = {"operation": "host_gone", "host": host, "reason": reason}
    operation = cloud_of(login).post("/operations", body)["operation"]
    print(f"{host} is declared gone: operation {operation}")


@quarantine.command(name="list")
def list_copies(
    *,
    host: str = "",
    settled: Annotated[bool, Parameter(help="Also those that were adopted or removed.", negative=())] = False,
    login: Login = DEFAULT_LOGIN,
    as_json: AsJson = False,
) -> None:
    """List guests in quarantine: present on a host, not explained by the records, left unchanged.

    Parameters
    ----------
    host
        Only those of this host, by name or id.
    """
    cloud = cloud_of(login)
    names = [host] if host else [one["name"] for one in cloud.get("/hosts")["hosts"] if settled or one["quarantined"]]
    found = [{"host": one["name"], **copy} for one in _hosts(cloud, names) for copy in _copies(one, settled)]
    if as_json:
        print(json.dumps({"quarantine": found}, indent=2))
        return
    _print_table(COPY_COLUMNS, (_copy_row(one["host"], one) for one in found))


@quarantine.command
def adopt(host: HostName, server: ServerId, /, *, copy: Copy = None, login: Login = DEFAULT_LOGIN) -> None:
    """Make a quarantined copy the server's own. Refused while another copy of the server may be alive."""
    operation = _settle(login, host, server, "adopt", copy)["operation"]
    print(f"{server} on {host} is being adopted: operation {operation}")


@quarantine.command
def remove(host: HostName, server: ServerId, /, *, copy: Copy = None, login: Login = DEFAULT_LOGIN) -> None:
    """Remove a quarantined copy with its disk. This cannot be undone."""
    number = _settle(login, host, server, "remove", copy)["copy"]
    print(f"copy {number} of {server} on {host} is being removed")


def _settle(login: Login, host: str, server: str, action: str, copy: int | None) -> dict[str, Any]:
    body: dict[str, Any] = {"action": action} if copy is None else {"action": action, "copy": copy}
    answer: dict[str, Any] = cloud_of(login).post(f"/hosts/{word(host)}/quarantine/{word(server)}", body)
    return answer


def _hosts(cloud: Cloud, names: Iterable[str]) -> list[dict[str, Any]]:
    return [cloud.get(f"/hosts/{word(name)}")["host"] for name in names]


def _copies(host: dict[str, Any], settled: bool) -> list[dict[str, Any]]:
    return [*host["quarantine"], *(host["settled"] if settled else ())]


def _copy_row(host: str, one: dict[str, Any]) -> list[Any]:
    done = "done" if one["ended_at"] else "under way"
    action = f"{one['action']} by {one['action_by']}, {done}" if one["action"] else "-"
    disk = "whole" if one["whole"] else "incomplete"
    return [host, one["server"], one["copy"], one["power"], disk, _moment(one["found_at"]), action, one["reason"]]


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns as wide as their widest cell; the last one as it comes."""
    cells = [list(columns), *([str(value) for value in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(columns))]
    for row in cells:
        print("  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())
