"""Operations, cells and hosts."""

from __future__ import annotations

from tests.support.things.compute import COMPUTE, VICTIM, a_network, an_image, mend, new_server
from tests.support.things.image import new_image
from tests.support.things.making import Maker, Where, World


def operation(world: World, where: Where) -> str:
    """To be cancelled: one that has only just begun. To be resumed or abandoned: one that waits for that word."""
    if where.entry.route.path.endswith(("/resume", "/abandon")):
        return waiting(world)
    wish = {
        "name": world.name("server"),
        "flavorRef": "1",
        "imageRef": an_image(world),
        "networks": [{"uuid": a_network(world)}],
    }
    found = world.owner.ask("POST", f"{COMPUTE}/servers", {"server": wish})
    assert found.status == 202, found.text
    return found.headers["x-kilonova-operation"]


def waiting(world: World) -> str:
    """A stop that its host refuses, and to be undone too; the second time it would work."""
    server = new_server(world)
    host = world.admin.done("GET", f"{OWN}/servers/{server}")["server"]["host"]
    refuse = {"fail": {"verb": "ensure_power", "times": 2, "how": "refuse"}}
    world.admin.done("POST", f"{OWN}/simulated/hosts/{host}", refuse)
    stopped = world.owner.ask("POST", f"{COMPUTE}/servers/{server}/action", {"os-stop": None})
    assert stopped.status == 202, stopped.text
    made = stopped.headers["x-kilonova-operation"]

    def look() -> bool:
        shown = world.admin.done("GET", f"{OWN}/operations/{made}")["operation"]
        return bool(shown["state"] == "waiting")

    world.admin.cloud.until(look, f"operation {made} waits")
    return made


def finding(world: World, where: Where) -> str:
    """What an abandoned operation left."""
    made = waiting(world)
    world.admin.done("POST", f"{OWN}/operations/{made}/abandon", {"reason": "broken"})
    shown = world.admin.done("GET", f"{OWN}/operations/{made}")["operation"]
    return str(shown["findings"][0]["id"])


def cell(world: World, where: Where) -> str:
    """A new one, unless a host shall go there: then the one where it is."""
    if where.entry.route.path.endswith("/hosts"):
        return "cell1"
    made = world.admin.done("POST", "/kilonova/v1/cells", {"name": world.name("cell")})
    return str(made["cell"]["name"])


def quarantined(world: World, where: Where) -> str:
    """A guest that nobody asked for; its agent tells of it when it registers, which it does after being enabled."""
    mend(world)
    guest, host = world.name("guest"), f"/kilonova/v1/hosts/{VICTIM}"
    world.admin.done("POST", f"/kilonova/v1/simulated/hosts/{VICTIM}", {"plant": {"server": guest}})
    for disabled in (True, False):
        world.admin.done("POST", host, {"disabled": disabled})
    found = lambda: guest in str(world.admin.done("GET", host)["host"]["quarantine"])  # noqa: E731
    world.admin.cloud.until(found, f"{guest} is in quarantine")
    return guest


OWN = "/kilonova/v1"
MAKERS: dict[str, Maker] = {
    "/operations/{id}": operation,
    "/findings/{id}": finding,
    "/openapi/{service}": lambda world, where: "compute",
    "/image-bytes/{image}": lambda world, where: new_image(world, world.owner),
    "/image-quotas/{project}": lambda world, where: world.owner.project_id,
    "/servers/{id}": lambda world, where: new_server(world),
    "/cells/{cell}": cell,
    "/hosts/{host}": lambda world, where: VICTIM,
    "/hosts/{host}/quarantine/{server}": quarantined,
    "/simulated/hosts/{host}": lambda world, where: VICTIM,
    "/simulated/servers/{id}": lambda world, where: new_server(world),
}
