"""Volumes in the state that a route needs, snapshots, attachments, types."""

from __future__ import annotations

from typing import Any

from tests.support.things.compute import quota_owner
from tests.support.things.identity import project
from tests.support.things.making import Maker, Where, World

V3 = "/volume/v3"
VOLUME, SNAPSHOT, ATTACHMENT, TYPE = (
    *("/volumes/{volume}", "/snapshots/{snapshot}"),
    *("/attachments/{attachment}", "/types/{type}"),
)
NEWEST = {"openstack-api-version": "volume 3.71"}
CONNECTOR = {"host": "somewhere", "ip": "192.0.2.7"}
SERVER = "5e55107e-0000-4000-8000-000000000000"
# What must have been done before, so that the action can be: by action of the volume.
BEFORE: dict[str, list[dict[str, Any]]] = {
    "os-unreserve": [{"os-reserve": {}}],
    "os-begin_detaching": [{"os-attach": {"instance_uuid": SERVER, "mountpoint": "/dev/vdb"}}],
    "os-detach": [{"os-attach": {"instance_uuid": SERVER, "mountpoint": "/dev/vdb"}}],
    "os-force_detach": [{"os-attach": {"instance_uuid": SERVER, "mountpoint": "/dev/vdb"}}],
    "os-terminate_connection": [{"os-initialize_connection": {"connector": CONNECTOR}}],
    "os-unset_image_metadata": [{"os-set_image_metadata": {"metadata": {"colour": "red"}}}],
}
BEFORE["os-roll_detaching"] = [*BEFORE["os-begin_detaching"], {"os-begin_detaching": {}}]


def lift_quotas(world: World) -> None:
    names = world.admin.done("GET", f"{V3}/os-quota-sets/{world.owner.project_id}")["quota_set"]
    limits = {name: -1 for name in names if name != "id"}
    world.admin.done("PUT", f"{V3}/os-quota-sets/{world.owner.project_id}", {"quota_set": limits})


def new_volume(world: World) -> str:
    wish = {"size": 1, "name": world.name("volume"), "metadata": {"colour": "blue"}}
    made: str = world.made(world.owner, f"{V3}/volumes", "volume", wish)["id"]
    _until_available(world, "volume", made)
    return made


def new_snapshot(world: World, volume_id: str = "") -> str:
    wish = {"volume_id": volume_id or new_volume(world), "metadata": {"colour": "blue"}}
    made: str = world.made(world.owner, f"{V3}/snapshots", "snapshot", wish)["id"]
    _until_available(world, "snapshot", made)
    return made


def new_attachment(world: World, *, connected: bool = False) -> str:
    wish: dict[str, Any] = {"volume_uuid": new_volume(world), "instance_uuid": SERVER}
    wish |= {"connector": CONNECTOR} if connected else {}
    made = world.owner.done("POST", f"{V3}/attachments", {"attachment": wish}, NEWEST)
    return str(made["attachment"]["id"])


def _until_available(world: World, noun: str, record_id: str) -> None:
    shown = lambda: world.owner.done("GET", f"{V3}/{noun}s/{record_id}")[noun]["status"]  # noqa: E731
    world.owner.cloud.until(lambda: shown() == "available", f"the {noun} {record_id} is available")


def volume(world: World, where: Where) -> str:
    made = new_volume(world)
    for body in BEFORE.get(where.entry.route.action, ()):
        world.owner.done("POST", f"{V3}/volumes/{made}/action", body)
    return made


def attachment(world: World, where: Where) -> str:
    return new_attachment(world, connected=where.entry.route.action == "os-complete")


def new_type(world: World, **wish: Any) -> str:
    told = {"name": world.name("type"), "extra_specs": {"colour": "blue"}, **wish}
    return str(world.made(world.admin, f"{V3}/types", "volume_type", told)["id"])


def type_(world: World, where: Where) -> str:
    """For a list of who may use it, one that is not for all."""
    route = where.entry.route
    private = route.path.endswith(("/action", "/os-volume-type-access"))
    made = new_type(world, **{"os-volume-type-access:is_public": not private})
    if route.action == "removeProjectAccess":
        grant = {"addProjectAccess": {"project": world.owner.project_id}}
        world.admin.done("POST", f"{V3}/types/{made}/action", grant)
    return made


def backend(world: World) -> str:
    found = world.admin.done("GET", f"{V3}/os-services")["services"]
    return str(next(each["host"] for each in found if each["binary"] == "cinder-volume"))


def with_default(world: World, where: Where) -> str:
    """A project that has a default type of its own."""
    made = project(world, where)
    if where.entry.route.method != "PUT":
        wish = {"default_type": {"volume_type": new_type(world)}}
        world.admin.done("PUT", f"{V3}/default-types/{made}", wish, NEWEST)
    return made


BY_PATH = (type_,)  # what they make depends on what follows in the address
MAKERS: dict[str, Maker] = {
    VOLUME: volume,
    f"{VOLUME}/metadata/{{key}}": lambda world, where: "colour",
    SNAPSHOT: lambda world, where: new_snapshot(world),
    f"{SNAPSHOT}/metadata/{{key}}": lambda world, where: "colour",
    ATTACHMENT: attachment,
    TYPE: type_,
    f"{TYPE}/extra_specs/{{key}}": lambda world, where: "colour",
    "/default-types/{project}": with_default,
    "/os-quota-sets/{project}": quota_owner,
    "/os-quota-class-sets/{class}": lambda world, where: "default" if where.entry.is_read else world.name("class"),
    "/os-services/{verb}": lambda world, where: "enable",
    "/os-hosts/{host}": lambda world, where: backend(world),
    "/capabilities/{host}": lambda world, where: backend(world),
}
