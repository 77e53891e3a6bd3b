"""A request that should succeed, for every route of the table: its body is the smallest that the route's form takes,
with real things where it names some."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import jsonschema_rs

from kilonova.api.forms import Schema
from kilonova.api.routes import EVER, Version
from tests.support.embedded import Asked
from tests.support.people import PASSWORD
from tests.support.table import Entry
from tests.support.things import Things, address, compute, identity, image, network, placement, server_volume, volume
from tests.support.things.making import World

Value = Callable[[World], Any]
UUID = "00000000-0000-4000-8000-000000000000"
TEXTS = (
    "thing",
    "1",
    UUID,
    "192.0.2.1",
    "2001:db8::1",
    "http://elsewhere",
    "10.9.8.0/24",
    "",
    "a",
    "QUFB",
    "/10.0.0.0",
)

# What a name means in a body, by the end of the path to it: the longest that fits counts.
MEANINGS: dict[str, Value] = {
    "name": lambda world: world.name(),
    "flavorRef": lambda world: "1",
    "resize.flavorRef": lambda world: "2",
    "imageRef": compute.an_image,
    "networks": lambda world: [{"uuid": compute.a_network(world)}],
    "tenant": lambda world: world.owner.project_id,
    "public_key": lambda world: compute.KEY,
    "host": lambda world: compute.VICTIM,
    "binary": lambda world: "nova-compute",
    "status": lambda world: "enabled",
    "user_id": lambda world: world.owner.user_id,
    "project_id": lambda world: world.owner.project_id,
    "domain_id": lambda world: identity.HOME,
    "service_id": lambda world: world.made(world.admin, f"{identity.V3}/services", "service", {"type": "x"})["id"],
    "identity.methods": lambda world: ["password"],
    "password.user": lambda world: {"id": world.owner.user_id, "password": world.owner.password},
    "user.password": lambda world: PASSWORD + "-2",
    "user.original_password": lambda world: PASSWORD,
    "member": lambda world: world.admin.project_id,
    "network_id": network.network,
    "cidr": lambda world: "10.9.8.0/24",
    "security_group_id": network.security_group,
    "floating_network_id": network.public_network,
    "subnet_id": network.subnet,
    "meta": lambda world: {"colour": "green"},
    "tags": lambda world: ["green"],
    "resource_class": lambda world: "DISK_GB",
    "traits": lambda world: ["HW_CPU_X86_AVX"],
    "parent_provider_uuid": placement.new_provider,
    "snapshot.volume_id": volume.new_volume,
    "volumeAttachment.volumeId": volume.new_volume,
    "volume_uuid": volume.new_volume,
    "remote_console.protocol": lambda world: "serial",
    "remote_console.type": lambda world: "serial",
    "instance_uuid": lambda world: volume.SERVER,
    "connector": lambda world: volume.CONNECTOR,
    "new_size": lambda world: 2,
    "new_type": volume.new_type,
    "default_type.volume_type": volume.new_type,
    "os-reset_status.status": lambda world: "error",
    "os-update_snapshot_status.status": lambda world: "available",
    "os-unset_image_metadata.key": lambda world: "colour",
    "addProjectAccess.project": lambda world: world.owner.project_id,
    "removeProjectAccess.project": lambda world: world.owner.project_id,
}
# Names that a form does not ask for, but the handler does.
WANTED: dict[str, tuple[str, ...]] = {
    "POST /servers": ("server.imageRef", "server.networks"),
    "POST /os-volumes_boot": ("server.imageRef", "server.networks"),
    "PUT /servers/{server}": ("server.name",),
    "PUT /os-services/{service}": ("status",),
    "POST /auth/tokens": ("auth.identity.password",),
    "PATCH /regions/{id}": ("region.description",),
    "POST /users": ("user.domain_id",),
    "POST /v2.0/networks": ("network.name",),
    "PUT /v2.0/routers/{id}/add_router_interface": ("subnet_id",),
    "PUT /v2.0/routers/{id}/remove_router_interface": ("subnet_id",),
    "POST /volumes": ("volume.size",),
    "PUT /volumes/{volume}": ("volume.name",),
    "POST /volumes/{volume}/action": ("os-reset_status.status",),
    "PUT /types/{type}": ("volume_type.name",),
    **{f"POST /v2.0/{path}": (word,) for word, path in network.PATHS.items()},
}
BODIES: dict[str, Value] = {
    "PUT /flavors/{flavor}/os-extra_specs/{key}": lambda world: {"hw:cpu_policy": "dedicated"},
    "POST /kilonova/v1/operations": lambda world: {"operation": "delete", "server": compute.new_server(world)},
    "POST /kilonova/v1/operations/{id}/cancel": lambda world: b"",
    "POST /kilonova/v1/operations/{id}/resume": lambda world: b"",
    "POST /kilonova/v1/operations/{id}/abandon": lambda world: {"reason": "broken"},
    "POST /kilonova/v1/findings/{id}/settle": lambda world: {"reason": "seen to"},
    "POST /kilonova/v1/plans": lambda world: {"operation": "migrate", "server": compute.new_server(world)},
    "POST /kilonova/v1/ha": lambda world: {"action": "disarm", "seconds": 1, "reason": "an example"},
    "POST /cells": lambda world: {"name": world.name("cell")},
    "POST /cells/{cell}": lambda world: {"disabled": True},
    "DELETE /cells/{cell}": lambda world: b"",
    "POST /cells/{cell}/hosts": lambda world: {"host": compute.VICTIM},
    "POST /image-quotas/{project}": lambda world: {"limit": None},
    "POST /hosts/{host}": lambda world: {"disabled": False},
    "POST /hosts/{host}/quarantine/{server}": lambda world: {"action": "remove"},
    "POST /simulated/hosts/{host}": lambda world: {"power": "on", "link": "up"},
    "POST /simulated/servers/{id}/write": lambda world: {"text": "marker"},
    "POST /token-keys": lambda world: b"",
    "POST /kilonova/v1/audits": lambda world: {},
    "PATCH /v2/images/{image}": lambda world: [{"op": "add", "path": "/colour", "value": "red"}],
    "PUT /v2/images/{image}/file": lambda world: b"0123456789",
    "PUT /image-bytes/{image}": lambda world: b"0123456789",
    **{
        f"PUT /volume/v3/os-services/{verb}": lambda world: {
            "host": volume.backend(world),
            "binary": "cinder-volume",
            "disabled_reason": "broken",
        }
        for verb in ("enable", "disable", "disable-log-reason", "{verb}")
    },
    "PUT /types/{type}/extra_specs/{key}": lambda world: {"colour": "green"},
    "POST /types/{type}/extra_specs": lambda world: {"extra_specs": {"shape": "round"}},
}
QUERIES: dict[str, Callable[[World], str]] = {
    "GET /usages": lambda world: f"project_id={world.owner.project_id}",
    "GET /allocation_candidates": lambda world: "resources=VCPU:1",
}
HEADERS: dict[str, Callable[[World], dict[str, str]]] = {
    "PATCH /v2/images/{image}": lambda world: {"content-type": "application/openstack-images-v2.1-json-patch"},
    "PUT /v2/images/{image}/file": lambda world: image.BYTES,
    "PUT /image-bytes/{image}": lambda world: image.BYTES,
    **{
        f"{method} /auth/tokens": lambda world: {"x-subject-token": world.owner.again()}
        for method in ("GET", "HEAD", "DELETE")
    },
}


class Examples:
    def __init__(self, things: Things) -> None:
        self.things = things

    def request(self, entry: Entry, version: Version, *, anew: bool = False) -> Asked:
        """Complete but for the token."""
        key, world = _key(entry), self.things.world
        values = self.things.values(entry, version, anew=anew)
        given = {"content-type": "application/json", **version_headers(entry, version)}
        given |= HEADERS[key](world) if key in HEADERS else {}
        body = self.body(entry, version, values)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = [(name.encode(), value.encode()) for name, value in given.items()]
        query = QUERIES[key](world) if key in QUERIES else ""
        return Asked(entry.route.method, address(entry, values), query, headers, content)

    def body(self, entry: Entry, version: Version, values: dict[str, str]) -> Any:
        route, world = entry.route, self.things.world
        made = BODIES.get(_key(entry)) or BODIES.get(f"{route.method} {entry.prefix}{route.path}")
        if made is not None:
            return made(world)
        if entry.service == "placement":
            made_there = placement.body(world, entry, version, list(values.values()))
            if made_there is not None:
                return made_there
        if route.body is None:
            assert not route.raw or entry.is_read, f"tests/support/examples must know a body for {entry.name}"
            return b""
        body = fill(route.body.at(version), world, WANTED.get(_key(entry), ()))
        return _related(entry, values, body, world)


def version_headers(entry: Entry, version: Version) -> dict[str, str]:
    return {} if version == EVER else {"openstack-api-version": f"{entry.service} {version[0]}.{version[1]}"}


def _key(entry: Entry) -> str:
    return f"{entry.route.method} {entry.route.path}"


def _related(entry: Entry, values: dict[str, str], body: Any, world: World) -> Any:
    """What must agree with the address, or with what was done before."""
    if entry.route.path.endswith("/metadata/{key}"):
        return {"meta": {list(values.values())[-1]: "green"}}
    if entry.route.path.endswith("/remove_router_interface"):
        (router,) = values.values()
        return {"subnet_id": world.once(f"joined to {router}", lambda: network.joined(world, router))}
    if _key(entry) == f"PUT {server_volume.ATTACHED}":
        fate = {} if entry.route.until is not None else {"delete_on_termination": True}
        return {"volumeAttachment": {"volumeId": list(values.values())[-1], **fate}}
    if entry.route.action == "os-reimage":
        return {"os-reimage": {"image_id": compute.an_image(world)}}
    if entry.route.action == "revert":
        (made,) = values.values()
        return {"revert": {"snapshot_id": world.once(f"of {made}", lambda: volume.new_snapshot(world, made))}}
    return body


# -- the smallest value that a schema takes ---------------------------------------------------------------------------


def fill(schema: Schema, world: World, wanted: Iterable[str] = (), path: str = "") -> Any:
    meaning = max((end for end in MEANINGS if path == end or path.endswith(f".{end}")), key=len, default=None)
    if meaning is not None:
        value = MEANINGS[meaning](world)
        if _fits(value, schema):
            return value
    for word in ("oneOf", "anyOf"):
        if word in schema and "properties" not in schema:
            return fill(schema[word][0], world, wanted, path)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        return _object(schema, world, tuple(wanted), path)
    if kind == "array":
        return [fill(schema["items"], world, wanted, path) for _ in range(schema.get("minItems", 0))]
    if kind == "string":
        return next((text for text in TEXTS if _fits(text, schema)), None)
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    return {"boolean": True}.get(kind or "")


def _object(schema: Schema, world: World, wanted: tuple[str, ...], path: str) -> dict[str, Any]:
    known, made = schema.get("properties", {}), {}
    names = [*schema.get("required", ())]
    names += next((each["required"] for each in schema.get("anyOf", ()) if "required" in each), [])
    names += [name for name in known if any(f"{each}.".startswith(f"{_join(path, name)}.") for each in wanted)]
    if not names and known and schema.get("minProperties"):
        names.append(next(iter(known)))
    for name in dict.fromkeys(names):
        made[name] = fill(known.get(name, {}), world, wanted, _join(path, name))
    return made


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _fits(value: Any, schema: Schema) -> bool:
    return bool(jsonschema_rs.Draft202012Validator(schema, validate_formats=True).is_valid(value))
