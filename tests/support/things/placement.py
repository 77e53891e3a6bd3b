"""Providers are hosts, consumers are servers."""

from __future__ import annotations

from tests.support.things.compute import VICTIM, new_server
from tests.support.things.making import Maker, Where, World


def provider(world: World, where: Where) -> str:
    found = world.admin.done("GET", "/placement/resource_providers")["resource_providers"]
    return str(next(each["uuid"] for each in found if each["name"] == VICTIM))


MAKERS: dict[str, Maker] = {
    "/resource_providers/{provider}": provider,
    "/allocations/{consumer}": lambda world, where: new_server(world),
}
