"""Operations and hosts."""

from __future__ import annotations

from tests.support.things.compute import COMPUTE, VICTIM, a_network, an_image, new_server
from tests.support.things.making import Maker, Where, World


def operation(world: World, where: Where) -> str:
    """To be cancelled: one that has only just begun."""
    wish = {
        "name": world.name("server"),
        "flavorRef": "1",
        "imageRef": an_image(world),
        "networks": [{"uuid": a_network(world)}],
    }
    found = world.owner.ask("POST", f"{COMPUTE}/servers", {"server": wish})
    assert found.status == 202, found.text
    return found.headers["x-kilonova-operation"]


MAKERS: dict[str, Maker] = {
    "/operations/{id}": operation,
    "/openapi/{service}": lambda world, where: "compute",
    "/servers/{id}": lambda world, where: new_server(world),
    "/hosts/{host}": lambda world, where: VICTIM,
    "/simulated/hosts/{host}": lambda world, where: VICTIM,
    "/simulated/servers/{id}": lambda world, where: new_server(world),
}
