"""Operations, cells and hosts."""

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


def cell(world: World, where: Where) -> str:
    """A new one, unless a host shall go there: then the one where it is."""
    if where.entry.route.path.endswith("/hosts"):
        return "cell1"
    made = world.admin.done("POST", "/kilonova/v1/cells", {"name": world.name("cell")})
    return str(made["cell"]["name"])


MAKERS: dict[str, Maker] = {
    "/operations/{id}": operation,
    "/openapi/{service}": lambda world, where: "compute",
    "/servers/{id}": lambda world, where: new_server(world),
    "/cells/{cell}": cell,
    "/hosts/{host}": lambda world, where: VICTIM,
    "/simulated/hosts/{host}": lambda world, where: VICTIM,
    "/simulated/servers/{id}": lambda world, where: new_server(world),
}
