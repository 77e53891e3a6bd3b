"""`kilonova host …`: the hosts of a running cloud, and what administrators do with whole ones."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter

from kilonova.cli.asking import request
from kilonova.cli.names import host_name
from kilonova.cli.options import DEFAULT_FOLLOWING, DEFAULT_LOGIN, CloudOptions, Following, HostName, Seconds, Unfenced
from kilonova.cli.output import Columns, print_list, print_outcome, print_record
from kilonova.cli.quarantine import HELD_COLUMNS
from kilonova.cli.rest import segment
from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject

app = App(
    name="host", help="Hosts of a running cloud: list, show, evacuate, drain, return, fence, gone, disable, enable."
)

COLUMNS: Columns = {
    "name": "name",
    "id": "id",
    "cell": "cell",
    "state": "state",
    "debts": "debts",
    "quarantined": "quarantined",
    "sentence": "sentence",
}
FIELDS: Columns = {
    **COLUMNS,
    "last seen": "last_seen",
    "disabled": "disabled",
    "disabled because": "disabled_reason",
    "declared down": "forced_down",
    "epoch": "epoch",
}
DEBT_COLUMNS: Columns = {"server": "server", "copy": "copy", "since": "created_at"}
OnMisfit = Annotated[
    Literal["skip", "refuse"], Parameter(help="Servers that fit nowhere: skip them, or refuse to move any.")
]
Deadline = Annotated[Seconds | None, Parameter(help="Begin no more servers after this time, as 90, 90s, 5m or 2h.")]


@app.command(name="list")
def list_(
    *,
    state: Annotated[str, Parameter(help="Only hosts in this state, for example down.")] = "",
    login: CloudOptions = DEFAULT_LOGIN,
) -> None:
    """List hosts: state, debts, quarantined guests."""
    hosts = login.cloud().get("/hosts")["hosts"]
    print_list([host for host in hosts if state in ("", host["state"])], COLUMNS, login.form)


@app.command
def show(host: HostName, /, *, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Show one host: its state, what it owes, and the guests in quarantine."""
    record = login.cloud().get(f"/hosts/{segment(host)}")["host"]
    print_record(record, FIELDS, login.form)
    if login.form != "table":
        return
    for heading, key, columns in (
        ("owes the removal of", "owed", DEBT_COLUMNS),
        ("in quarantine", "quarantine", HELD_COLUMNS),
    ):
        if record[key]:
            print(f"\n{heading}")
            print_list([{"host": record["name"], **one} for one in record[key]], columns, "table")


@app.command
def evacuate(
    *hosts: HostName,
    accept_unfenced: Unfenced = False,
    on_misfit: OnMisfit = "skip",
    deadline: Deadline = None,
    following: Following = DEFAULT_FOLLOWING,
    login: CloudOptions = DEFAULT_LOGIN,
) -> int:
    """Bring the servers of dead hosts up elsewhere: one operation per cell."""
    flags = {"accept_unfenced": True} if accept_unfenced else {}
    return _ask_for_all("evacuate_host", hosts, "evacuating", on_misfit, deadline, following, login, flags)


@app.command
def drain(
    *hosts: HostName,
    by: Annotated[
        Literal["migrate", "stop"], Parameter(help="Move the servers to other hosts, or stop them where they are.")
    ] = "migrate",
    on_misfit: OnMisfit = "refuse",
    deadline: Deadline = None,
    following: Following = DEFAULT_FOLLOWING,
    login: CloudOptions = DEFAULT_LOGIN,
) -> int:
    """Empty hosts that answer, for maintenance: take no new servers, and move the others away."""
    return _ask_for_all("drain_host", hosts, "draining", on_misfit, deadline, following, login, {"by": by})


@app.command(name="return")
def return_(
    *hosts: HostName,
    on_misfit: OnMisfit = "skip",
    deadline: Deadline = None,
    following: Following = DEFAULT_FOLLOWING,
    login: CloudOptions = DEFAULT_LOGIN,
) -> int:
    """Open hosts again after maintenance, and bring home the servers that left them."""
    return _ask_for_all("return_host", hosts, "returning", on_misfit, deadline, following, login)


@app.command
def gone(
    host: HostName,
    /,
    *,
    reason: Annotated[str, Parameter(help="Why it never comes back; recorded, and shown if it does.")],
    following: Following = DEFAULT_FOLLOWING,
    login: CloudOptions = DEFAULT_LOGIN,
) -> int:
    """Declare a dead host gone: nothing waits for it any more, and it is removed. This cannot be undone."""
    cloud = login.cloud()
    body = {"operation": "host_gone", "host": host_name(cloud, host), "reason": reason}
    return request(cloud, body, following, login, f"{host} is declared gone")


@app.command
def fence(host: HostName, /, *, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Switch a silent host off with the configured fence command. Its servers can then be evacuated."""
    _change(host, {"fence": True}, "is fenced", login)


@app.command
def disable(
    host: HostName,
    /,
    *,
    reason: Annotated[str, Parameter(help="Why; it is shown with the host.")] = "",
    login: CloudOptions = DEFAULT_LOGIN,
) -> None:
    """Place no new servers on a host. Its servers keep running."""
    _change(host, {"disabled": True, "reason": reason}, "takes no new servers", login)


@app.command
def enable(host: HostName, /, *, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Place new servers on a host again."""
    _change(host, {"disabled": False}, "takes new servers", login)


def _change(host: str, body: JsonObject, what: str, login: CloudOptions) -> None:
    record = login.cloud().post(f"/hosts/{segment(host)}", body)["host"]
    print_outcome([f"{record['name']} {what}; it is {record['state']}"], record, login.form)


def _ask_for_all(
    operation: str,
    hosts: tuple[str, ...],
    doing: str,
    on_misfit: str,
    deadline: float | None,
    following: Following,
    login: CloudOptions,
    flags: JsonObject | None = None,
) -> int:
    if not hosts:
        raise Refused("usage", "name at least one host; see kilonova host list")
    cloud = login.cloud()
    names = [host_name(cloud, host) for host in hosts]
    body = {"operation": operation, "hosts": names, "on_misfit": on_misfit, **(flags or {})}
    body |= {"deadline": deadline} if deadline is not None else {}
    return request(cloud, body, following, login, f"{doing} {', '.join(names)}")
