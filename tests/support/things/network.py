"""Networks, subnets, ports, security groups, routers, floating ips."""

from __future__ import annotations

from typing import Any

from tests.support.things.compute import quota_owner
from tests.support.things.making import Maker, Where, World

V2 = "/network/v2.0"
PATHS = {
    "network": "networks",
    "subnet": "subnets",
    "port": "ports",
    "security_group": "security-groups",
    "security_group_rule": "security-group-rules",
    "router": "routers",
    "floatingip": "floatingips",
}


def lift_quotas(world: World) -> None:
    names = world.admin.done("GET", f"{V2}/quotas/{world.owner.project_id}")["quota"]
    world.admin.done("PUT", f"{V2}/quotas/{world.owner.project_id}", {"quota": dict.fromkeys(names, -1)})


def new(world: World, word: str, **wish: Any) -> str:
    return str(world.made(world.owner, f"{V2}/{PATHS[word]}", word, wish)["id"])


def network(world: World) -> str:
    return new(world, "network", name=world.name("network"))


def subnet(world: World) -> str:
    return new(world, "subnet", network_id=network(world), cidr=world.cidr(), ip_version=4)


def port(world: World) -> str:
    """With an address, so that it can have a floating one."""
    under = subnet(world)
    shown = world.owner.done("GET", f"{V2}/subnets/{under}")["subnet"]
    return new(world, "port", network_id=shown["network_id"])


def security_group(world: World) -> str:
    return new(world, "security_group", name=world.name("group"))


def security_group_rule(world: World) -> str:
    return new(world, "security_group_rule", security_group_id=security_group(world), direction="ingress")


def router(world: World) -> str:
    return new(world, "router", name=world.name("router"))


def joined(world: World, router: str) -> str:
    """A subnet that the router leads to."""
    made = subnet(world)
    world.owner.done("PUT", f"{V2}/routers/{router}/add_router_interface", {"subnet_id": made})
    return made


def public_network(world: World) -> str:
    def find() -> str:
        found = world.admin.done("GET", f"{V2}/networks")["networks"]
        return str(next(each["id"] for each in found if each["name"] == "public"))

    return world.once("public network", find)


def floatingip(world: World) -> str:
    return new(world, "floatingip", floating_network_id=public_network(world))


NEW = {
    "network": network,
    "subnet": subnet,
    "port": port,
    "security_group": security_group,
    "security_group_rule": security_group_rule,
    "router": router,
    "floatingip": floatingip,
}


def _maker(word: str) -> Maker:
    return lambda world, where: NEW[word](world)


def _tag(word: str) -> Maker:
    def tag(world: World, where: Where) -> str:
        path = f"{V2}/{PATHS[word]}/{where.before(f'/v2.0/{PATHS[word]}/{{id}}')}/tags/blue"
        world.owner.done("PUT", path)
        return "blue"

    return tag


MAKERS: dict[str, Maker] = {
    **{f"/v2.0/{path}/{{id}}": _maker(word) for word, path in PATHS.items()},
    **{f"/v2.0/{path}/{{id}}/tags/{{tag}}": _tag(word) for word, path in PATHS.items()},
    "/v2.0/quotas/{project}": quota_owner,
    "/v2.0/extensions/{alias}": lambda world, where: "router",
}
