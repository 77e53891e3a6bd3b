"""`kilonova server …`: the servers of a running cloud, and what administrators do with them."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter

from kilonova.cli.asking import request
from kilonova.cli.names import flavor_id, host_name, image_id, server_id
from kilonova.cli.options import DEFAULT_FOLLOWING, DEFAULT_LOGIN, CloudOptions, Following, ServerName, Unfenced
from kilonova.cli.output import Columns, print_list, print_record
from kilonova.cli.rest import segment
from kilonova.domain.json import Json

app = App(
    name="server",
    help="Servers of a running cloud: list, show, evacuate, migrate, resize, confirm, revert, rebuild, retry.",
)

POWER = {0: "-", 1: "running", 3: "paused", 4: "off", 6: "crashed", 7: "suspended"}
COLUMNS: Columns = {
    "id": "id",
    "name": "name",
    "state": "vm_state",
    "task": "task_state",
    "power": lambda one: POWER.get(one["power_state"], one["power_state"]),
    "host": "host",
    "cell": "cell",
    "flavor": lambda one: one["flavor"].get("name"),
    "created": "created_at",
}
FIELDS: Columns = {
    **COLUMNS,
    "vcpus": lambda one: one["flavor"].get("vcpus"),
    "memory": lambda one: f"{one['flavor'].get('memory_mb')} MB",
    "disk": lambda one: f"{one['flavor'].get('disk_gb')} GB",
    "image": "image",
    "project": "project_id",
    "copy": "copy",
    "may run": lambda one: one["runner"] and f"copy {one['runner'][1]} on {one['runner'][0]}",
    "operation": "operation",
    "turn": "turn",
    "fault": "fault",
}
Destination = Annotated[
    str, Parameter(name="--host", help="Name or id of the host to go to; without it the scheduler chooses.")
]


@app.command(name="list")
def list_(
    *,
    name: Annotated[str, Parameter(help="Only servers with this name.")] = "",
    host: Annotated[str, Parameter(help="Only servers on this host, by name or id.")] = "",
    state: Annotated[str, Parameter(help="Only servers in this vm_state, for example error.")] = "",
    login: CloudOptions = DEFAULT_LOGIN,
) -> None:
    """List the servers of all projects."""
    cloud = login.cloud()
    on = host and host_name(cloud, host)
    print_list(list(cloud.all("/servers", "servers", name=name, host=on, vm_state=state)), COLUMNS, login.form)


@app.command
def show(server: ServerName, /, *, login: CloudOptions = DEFAULT_LOGIN) -> None:
    """Show one server: where it is, what it is doing, and its last fault."""
    cloud = login.cloud()
    record = cloud.get(f"/servers/{segment(server_id(cloud, server))}")["server"]
    print_record(record, FIELDS, login.form)


@app.command
def evacuate(
    server: ServerName,
    /,
    *,
    to: Destination = "",
    accept_unfenced: Unfenced = False,
    following: Following = DEFAULT_FOLLOWING,
    login: CloudOptions = DEFAULT_LOGIN,
) -> int:
    """Bring a server of a dead host up on another one."""
    flags = {"accept_unfenced": True} if accept_unfenced else {}
    return _ask("evacuate", server, "is being evacuated", following, login, to=to, **flags)


@app.command
def migrate(
    server: ServerName,
    /,
    *,
    to: Destination = "",
    following: Following = DEFAULT_FOLLOWING,
    login: CloudOptions = DEFAULT_LOGIN,
) -> int:
    """Move a server to another host while it is off. Confirm or revert it afterwards."""
    return _ask("migrate", server, "is being migrated", following, login, to=to)


@app.command
def resize(
    server: ServerName,
    /,
    *,
    flavor: Annotated[str, Parameter(help="Name or id of the new flavor.")],
    following: Following = DEFAULT_FOLLOWING,
    login: CloudOptions = DEFAULT_LOGIN,
) -> int:
    """Give a server another flavor. Confirm or revert it afterwards."""
    return _ask("resize", server, "is being resized", following, login, flavor=flavor)


@app.command
def confirm(
    server: ServerName, /, *, following: Following = DEFAULT_FOLLOWING, login: CloudOptions = DEFAULT_LOGIN
) -> int:
    """Confirm a migration or resize: remove what is left on the source."""
    return _ask("confirm_resize", server, "is being confirmed", following, login)


@app.command
def revert(
    server: ServerName, /, *, following: Following = DEFAULT_FOLLOWING, login: CloudOptions = DEFAULT_LOGIN
) -> int:
    """Revert a migration or resize: go back to the source and the flavor before."""
    return _ask("revert_resize", server, "is being reverted", following, login)


@app.command
def rebuild(
    server: ServerName,
    /,
    *,
    image: Annotated[str, Parameter(help="Name or id of the image.")],
    following: Following = DEFAULT_FOLLOWING,
    login: CloudOptions = DEFAULT_LOGIN,
) -> int:
    """Make the root disk of a server again from an image. What it holds is lost."""
    return _ask("rebuild", server, "is being rebuilt", following, login, image=image)


@app.command
def retry(
    server: ServerName, /, *, following: Following = DEFAULT_FOLLOWING, login: CloudOptions = DEFAULT_LOGIN
) -> int:
    """Try again to place a server that found no host, or that no host built, under its id."""
    return _ask("retry", server, "is being placed", following, login)


def _ask(operation: str, server: str, what: str, following: Following, login: CloudOptions, **given: Any) -> int:
    cloud = login.cloud()
    body: dict[str, Json] = {"operation": operation, "server": server_id(cloud, server)}
    if to := given.pop("to", ""):
        body["host"] = host_name(cloud, to)
    for name, find in (("flavor", flavor_id), ("image", image_id)):
        if name in given:
            given[name] = find(cloud, given[name])
    return request(cloud, body | given, following, login, f"{server} {what}")
