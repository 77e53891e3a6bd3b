"""Policy rules on setting and seeing single attributes, and on records inside a network, which depend on its owner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kilonova.api.call import Call
from kilonova.domain.errors import Refused
from kilonova.domain.json import Json, as_text
from kilonova.policy.network import BY_ADMINS, SEEN_BY_ADMINS
from kilonova.records.kinds import Record, owner_of
from kilonova.services.network.owners import OF_THE_NETWORK

Attributes = Mapping[str, Any]
HARMLESS: tuple[Any, ...] = (None, False, "", {}, [])  # at a create, explicit defaults need no permission


def hidden_from(call: Call, noun: str) -> tuple[str, ...]:
    """Attributes that this caller does not see."""
    return tuple(name for name in SEEN_BY_ADMINS.get(noun, ()) if not call.allows(f"get_{noun}:{name}"))


async def guard_new(call: Call, noun: str, request: dict[str, Json]) -> None:
    """Check the rules on creating the record. Raise `Refused` (403), or not found if the caller may not see its
    network."""
    _require_all(call, "create", noun, (name for name in _attributes(noun, request)))
    if noun == "subnet":
        network = await _network(call, as_text(request["network_id"]))
        call.require(project_id=owner_of(network))
    elif noun == "port":
        network = await _network(call, as_text(request["network_id"]))
        if not network["shared"]:
            call.require(project_id=owner_of(network))
        _guard_port(call, "create", request, network)
    elif noun == "security_group_rule":
        viewer = None if call.allows("get_security_group", project_id="") else call.caller.project_id
        group = await call.service.networks.groups.show(viewer, as_text(request["security_group_id"]))
        call.require(project_id=owner_of(group))
        request["project_id"] = group["project_id"]  # the owner of the group owns its rules


async def guard_change(call: Call, noun: str, record: Record, request: Attributes) -> None:
    """Check an update, or (without a request) a delete, of a record that the caller sees."""
    is_delete = call.route.rule == f"delete_{noun}"
    if noun == "port" and not call.allows(call.route.rule, project_id=owner_of(record)):
        network = await _network(call, as_text(record["network_id"]))
        if not is_delete or not call.allows(call.route.rule, project_id=owner_of(network)):
            raise Refused(403, f"Policy doesn't allow {call.route.rule} to be performed.")
    elif noun != "port":
        call.require(project_id=owner_of(record))
    _require_all(call, "update", noun, _attributes(noun, request, changing=True))
    if noun == "port" and request:
        _guard_port(call, "update", request, await _network(call, as_text(record["network_id"])))


async def _network(call: Call, network_id: str) -> Record:
    viewer = None if call.allows("get_network", project_id="") else call.caller.project_id
    return await call.service.networks.networks.show(viewer, network_id)


def _require_all(call: Call, verb: str, noun: str, names: Iterable[str]) -> None:
    for name in names:
        call.require(f"{verb}_{noun}:{name}")


def _attributes(noun: str, request: Attributes, *, changing: bool = False) -> list[str]:
    """Return the attributes in the request that only administrators may set; `a:b` is b inside of a."""
    names = []
    for name in BY_ADMINS.get(noun, ()):
        if noun == "router":
            outer, _, inner = name.partition(":")
            inside = request.get(outer) or {}
            if inner in inside:
                names.append(name)
        elif name in request and (changing or request[name] not in HARMLESS):
            names.append(name)
    return names


def _guard_port(call: Call, verb: str, request: Attributes, network: Record) -> None:
    fixed = request.get("fixed_ips") or []
    requested = {
        "mac_address": request.get("mac_address"),
        "port_security_enabled": request.get("port_security_enabled", True) is False,
        "allowed_address_pairs": request.get("allowed_address_pairs"),
        "device_owner": (request.get("device_owner") or "").startswith(OF_THE_NETWORK),
        "fixed_ips:ip_address": any("ip_address" in each for each in fixed),
        "fixed_ips:subnet_id": not network["shared"] and any("subnet_id" in each for each in fixed),
    }
    for name, is_requested in requested.items():
        if is_requested:
            call.require(f"{verb}_port:{name}", project_id=owner_of(network))
