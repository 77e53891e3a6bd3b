"""Providers are hosts where they are looked at, and of our own making where they are changed; consumers are servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from kilonova.api.routes import Version
from tests.support.table import Entry
from tests.support.things.compute import VICTIM
from tests.support.things.making import Maker, Where, World

NEWEST = {"openstack-api-version": "placement 1.39"}


def ask(world: World, method: str, path: str, body: Any = None) -> Any:
    return world.admin.done(method, f"/placement{path}", body, NEWEST)


def provider(world: World, where: Where) -> str:
    return host_provider(world) if where.entry.is_read else new_provider(world)


def host_provider(world: World) -> str:
    found = ask(world, "GET", "/resource_providers")["resource_providers"]
    return str(next(each["uuid"] for each in found if each["name"] == VICTIM))


def new_provider(world: World) -> str:
    """With an inventory, so that something can be changed or claimed there."""
    uuid = str(ask(world, "POST", "/resource_providers", {"name": world.name("provider")})["uuid"])
    ask(world, "POST", f"/resource_providers/{uuid}/inventories", {"resource_class": "VCPU", "total": 10_000})
    return uuid


def generation(world: World, uuid: str) -> int:
    return int(ask(world, "GET", f"/resource_providers/{uuid}")["generation"])


def consumer(world: World, where: Where) -> str:
    """A server where it is looked at, or may go; where it is written, one that there is not yet."""
    return str(uuid4()) if where.entry.route.method == "PUT" else new_consumer(world)


def new_consumer(world: World) -> str:
    uuid, at = str(uuid4()), new_provider(world)
    ask(world, "PUT", f"/allocations/{uuid}", claim(world, at) | {"consumer_generation": None, "consumer_type": "TEST"})
    return uuid


def claim(world: World, at: str) -> dict[str, Any]:
    owner = {"project_id": world.owner.project_id, "user_id": world.owner.user_id}
    return {"allocations": {at: {"resources": {"VCPU": 1}}}, **owner}


def custom_name(world: World) -> str:
    return f"CUSTOM_{world.name().upper().replace('-', '_')}"


def trait(world: World, where: Where) -> str:
    name = custom_name(world)
    ask(world, "PUT", f"/traits/{name}")
    return name


def resource_class(world: World, where: Where) -> str:
    name = custom_name(world)
    ask(world, "PUT", f"/resource_classes/{name}")
    return name


MAKERS: dict[str, Maker] = {
    "/resource_providers/{provider}": provider,
    "/resource_providers/{provider}/inventories/{class}": lambda world, where: "VCPU",
    "/allocations/{consumer}": consumer,
    "/traits/{trait}": trait,
    "/resource_classes/{class}": resource_class,
}


# -- bodies that have to agree with what is there ---------------------------------------------------------------------


def body(world: World, entry: Entry, version: Version, values: list[str]) -> Any:
    """None: the form alone tells what is good."""
    made = BODIES.get(f"{entry.route.method} {entry.route.path}")
    return None if made is None else made(world, version, values)


def _guarded(world: World, uuid: str, **content: Any) -> dict[str, Any]:
    return {"resource_provider_generation": generation(world, uuid), **content}


def _aggregates(world: World, version: Version, values: list[str]) -> Any:
    named = [str(uuid4())]
    return named if version < (1, 19) else _guarded(world, values[0], aggregates=named)


def _allocation(world: World, version: Version, values: list[str]) -> dict[str, Any]:
    """For a consumer that there is not yet."""
    made = claim(world, new_provider(world))
    if version < (1, 12):
        shares = [{"resource_provider": {"uuid": at}, **share} for at, share in made["allocations"].items()]
        return {"allocations": shares} if version < (1, 8) else made | {"allocations": shares}
    made |= {"consumer_generation": None} if version >= (1, 28) else {}
    return made | ({"consumer_type": "TEST"} if version >= (1, 38) else {})


def _reshape(world: World, version: Version, values: list[str]) -> dict[str, Any]:
    uuid = new_provider(world)
    shape = _guarded(world, uuid, inventories={"VCPU": {"total": 10}, "DISK_GB": {"total": 5}})
    held = _allocation(world, version, []) | {"allocations": {uuid: {"resources": {"DISK_GB": 1}}}}
    return {"inventories": {uuid: shape}, "allocations": {str(uuid4()): held}}


VCPU = {"total": 10_000}
BODIES: dict[str, Callable[[World, Version, list[str]], Any]] = {
    "PUT /resource_providers/{provider}/inventories": lambda world, version, values: _guarded(
        world, values[0], inventories={"VCPU": VCPU}
    ),
    "PUT /resource_providers/{provider}/inventories/{class}": lambda world, version, values: _guarded(
        world, values[0], **VCPU
    ),
    "PUT /resource_providers/{provider}/traits": lambda world, version, values: _guarded(
        world, values[0], traits=["HW_CPU_X86_AVX"]
    ),
    "PUT /resource_providers/{provider}/aggregates": _aggregates,
    "PUT /allocations/{consumer}": _allocation,
    "POST /allocations": lambda world, version, values: {str(uuid4()): _allocation(world, version, values)},
    "POST /reshaper": _reshape,
    "POST /resource_classes": lambda world, version, values: {"name": custom_name(world)},
    "PUT /resource_classes/{class}": lambda world, version, values: (
        {"name": custom_name(world)} if version < (1, 7) else b""
    ),
}
