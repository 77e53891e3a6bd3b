"""Rules on setting and seeing single attributes, and on records inside a network, whose owner counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kilonova.api.call import Call
from kilonova.domain.errors import Refused
from kilonova.domain.json import Json, as_text
from kilonova.policy.network import BY_ADMINS, SEEN_BY_ADMINS
from kilonova.records.kinds import Thing, owner_of
from kilonova.services.network.owners import OF_THE_NETWORK

Wish = Mapping[str, Any]
HARMLESS: tuple[Any, ...] = (None, False, "", {}, [])  # at a create, to say what is so anyway needs no permission


def hidden_from(call: Call, noun: str) -> tuple[str, ...]:
    """Attributes that this caller does not see."""
    return tuple(name for name in SEEN_BY_ADMINS.get(noun, ()) if not call.allows(f"get_{noun}:{name}"))


async def guard_new(call: Call, noun: str, wish: dict[str, Json]) -> None:
    """Raises `Refused` (403), or `Refused` when the network it should lie in is not to be seen."""
    _require_all(call, "create", noun, (name for name in _attributes(noun, wish)))
    if noun == "subnet":
        network = await _network(call, as_text(wish["network_id"]))
        call.require(project_id=owner_of(network))
    elif noun == "port":
        network = await _network(call, as_text(wish["network_id"]))
        if not network["shared"]:
            call.require(project_id=owner_of(network))
        _guard_port(call, "create", wish, network)
    elif noun == "security_group_rule":
        viewer = None if call.allows("get_security_group", project_id="") else call.caller.project_id
        group = await call.service.networks.groups.show(viewer, as_text(wish["security_group_id"]))
        call.require(project_id=owner_of(group))
        wish["project_id"] = group["project_id"]  # whoever has the group has its rules


async def guard_change(call: Call, noun: str, thing: Thing, wish: Wish) -> None:
    """Check an update, or (without a wish) a delete, of a record that the caller sees."""
    is_delete = call.route.rule == f"delete_{noun}"
    if noun == "port" and not call.allows(call.route.rule, project_id=owner_of(thing)):
        network = await _network(call, as_text(thing["network_id"]))
        if not is_delete or not call.allows(call.route.rule, project_id=owner_of(network)):
            raise Refused(403, f"Policy doesn't allow {call.route.rule} to be performed.")
    elif noun != "port":
        call.require(project_id=owner_of(thing))
    _require_all(call, "update", noun, _attributes(noun, wish, changing=True))
    if noun == "port" and wish:
        _guard_port(call, "update", wish, await _network(call, as_text(thing["network_id"])))


async def _network(call: Call, network_id: str) -> Thing:
    viewer = None if call.allows("get_network", project_id="") else call.caller.project_id
    return await call.service.networks.networks.show(viewer, network_id)


def _require_all(call: Call, verb: str, noun: str, names: Iterable[str]) -> None:
    for name in names:
        call.require(f"{verb}_{noun}:{name}")


def _attributes(noun: str, wish: Wish, *, changing: bool = False) -> list[str]:
    """Return the attributes in the request that only administrators may set; `a:b` is b inside of a."""
    found = []
    for name in BY_ADMINS.get(noun, ()):
        if noun == "router":
            outer, _, inner = name.partition(":")
            inside = wish.get(outer) or {}
            if inner in inside:
                found.append(name)
        elif name in wish and (changing or wish[name] not in HARMLESS):
            found.append(name)
    return found


def _guard_port(call: Call, verb: str, wish: Wish, network: Thing) -> None:
    fixed = wish.get("fixed_ips") or []
    asked = {
        "mac_address": wish.get("mac_address"),
        "port_security_enabled": wish.get("port_security_enabled", True) is False,
        "allowed_address_pairs": wish.get("allowed_address_pairs"),
        "device_owner": (wish.get("device_owner") or "").startswith(OF_THE_NETWORK),
        "fixed_ips:ip_address": any("ip_address" in each for each in fixed),
        "fixed_ips:subnet_id": not network["shared"] and any("subnet_id" in each for each in fixed),
    }
    for name, is_asked in asked.items():
        if is_asked:
            call.require(f"{verb}_port:{name}", project_id=owner_of(network))
