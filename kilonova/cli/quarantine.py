"""`kilonova quarantine …`: guests that the records do not explain."""

from __future__ import annotations

from typing import Annotated, TypedDict

from cyclopts import App, Parameter

from kilonova.cli.asking import accepted
from kilonova.cli.names import server_id
from kilonova.cli.options import DEFAULT_LOGIN, DEFAULT_WAITING, CloudOptions, HostName, ServerName, Waiting
from kilonova.cli.output import Columns, Record, print_list, print_outcome
from kilonova.cli.rest import Cloud, segment
from kilonova.domain.errors import Refused
from kilonova.domain.json import Json, JsonObject, as_text

app = App(name="quarantine", help="Guests that the records do not explain: list, adopt, remove.")
Copy = Annotated[int | None, Parameter(help="Number of the copy, where the host has several of the server.")]


class HostCopy(TypedDict):
    """A quarantined guest in the API's response, within its host."""

    server: str
    copy: int
    power: str
    whole: bool
    found_at: float
    ended_at: float | None
    action: str | None
    action_by: str | None
    action_at: float | None
    reason: str


class HeldCopy(HostCopy):
    host: str


def _action(one: Record) -> str:
    done = "done" if one["ended_at"] else "under way"
    return f"{one['action']} by {one['action_by']}, {done}" if one["action"] else ""


HELD_COLUMNS: Columns = {
    "host": "host",
    "server": "server",
    "copy": "copy",
    "power": "power",
    "disk": lambda one: "whole" if one["whole"] else "incomplete",
    "found": "found_at",
    "action": _action,
    "reason": "reason",
}


@app.command(name="list")
def list_(
    *,
    host: Annotated[str, Parameter(help="Only those of this host, by name or id.")] = "",
    settled: Annotated[bool, Parameter(help="Also those that were adopted or removed.", negative=())] = False,
    login: CloudOptions = DEFAULT_LOGIN,
) -> None:
    """List guests in quarantine: present on a host, not explained by the records, left unchanged."""
    print_list(held(login.cloud(), host, settled=settled), HELD_COLUMNS, login.form)


def held(cloud: Cloud, host: str = "", *, settled: bool = False) -> list[HeldCopy]:
    names = [host] if host else [one["name"] for one in cloud.get("/hosts")["hosts"] if settled or one["quarantined"]]
    hosts = [cloud.get(f"/hosts/{segment(name)}")["host"] for name in names]
    kinds = ("quarantine", "settled") if settled else ("quarantine",)
    copies: list[tuple[str, HostCopy]] = [(one["name"], copy) for one in hosts for kind in kinds for copy in one[kind]]
    return [{"host": name, **copy} for name, copy in copies]


@app.command
def adopt(
    host: HostName,
    server: ServerName,
    /,
    *,
    copy: Copy = None,
    waiting: Waiting = DEFAULT_WAITING,
    login: CloudOptions = DEFAULT_LOGIN,
) -> int:
    """Make a quarantined copy the server's own. Refused while another copy of the server may be alive."""
    cloud = login.cloud()
    answer = _settle(cloud, host, server, "adopt", copy)
    sentence = f"{server} on {host} is being adopted: operation {answer['operation']}"
    return accepted(cloud, [as_text(answer["operation"])], waiting, login, sentence, answer)


@app.command
def remove(host: HostName, server: ServerName, /, *, copy: Copy = None, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Remove a quarantined copy with its disk. This cannot be undone."""
    answer = _settle(login.cloud(), host, server, "remove", copy)
    print_outcome([f"copy {answer['copy']} of {server} on {host} is being removed"], answer, login.form)


def _guest(cloud: Cloud, given: str) -> str:
    """Return the server id of a guest in quarantine, which may be unknown to the records."""
    try:
        return server_id(cloud, given)
    except Refused as why:
        if why.code != "not_found":
            raise
        return given


def _settle(cloud: Cloud, host: str, server: str, action: str, copy: int | None) -> JsonObject:
    body: dict[str, Json] = {"action": action} if copy is None else {"action": action, "copy": copy}
    path = f"/hosts/{segment(host)}/quarantine/{segment(_guest(cloud, server))}"
    answer: JsonObject = cloud.post(path, body)
    return answer
