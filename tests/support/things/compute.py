"""Servers and what hangs on them, flavors, key pairs."""

from __future__ import annotations

from typing import Any

from kilonova.api.routes import Version
from tests.support.embedded import Answered
from tests.support.things import identity
from tests.support.things.image import new_image
from tests.support.things.making import Maker, Where, World

COMPUTE = "/compute/v2.1"
SERVER = "/servers/{server}"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHyxRSpfOFtQbW2mIR/cDspWFkFQ1P3vrQwaCGp3Qyqd somebody"
VICTIM = "host3"  # the host that may be treated badly
SPARE = (
    "host4",
    "host5",
    "host6",
    "host7",
    "host8",
    "host9",
)  # hosts that are switched off from the beginning, so that they can be forgotten
NEWEST = {"openstack-api-version": "compute latest"}


def lift_quotas(world: World) -> None:
    limits = {"instances": 500, "cores": -1, "ram": -1, "key_pairs": -1, "server_groups": -1}
    world.admin.done("PUT", f"{COMPUTE}/os-quota-sets/{world.owner.project_id}", {"quota_set": limits})


def an_image(world: World) -> str:
    return world.once("image", lambda: new_image(world, world.admin, visibility="public"))


def a_network(world: World) -> str:
    def find() -> str:
        found = world.admin.done("GET", "/network/v2.0/networks")["networks"]
        return str(next(each["id"] for each in found if each["name"] == "shared"))

    return world.once("network", find)


def new_server(world: World, **more: Any) -> str:
    """Active, with a tag, a key of metadata and an address."""
    wish = {
        "name": world.name("server"),
        "flavorRef": "1",
        "imageRef": an_image(world),
        "networks": [{"uuid": a_network(world)}],
        "metadata": {"colour": "red"},
        "tags": ["blue"],
        **more,
    }
    server = world.owner.done("POST", f"{COMPUTE}/servers", {"server": wish}, NEWEST)["server"]["id"]
    is_in(world, server, "ACTIVE")
    return str(server)


def is_in(world: World, server: str, status: str) -> None:
    def look() -> bool:
        shown = world.owner.done("GET", f"{COMPUTE}/servers/{server}")["server"]
        assert shown["status"] != "ERROR" or status == "ERROR", shown
        return bool(shown["status"] == status)

    world.owner.cloud.until(look, f"{server} is {status}")


def server(world: World, where: Where) -> str:
    made = new_server(world)
    if where.entry.route.action == "os-start":
        world.owner.done("POST", f"{COMPUTE}/servers/{made}/action", {"os-stop": None})
        is_in(world, made, "SHUTOFF")
    if where.entry.route.action in ("confirmResize", "revertResize") or "/migrations/" in where.entry.route.path:
        world.admin.done("POST", f"{COMPUTE}/servers/{made}/action", {"migrate": None})
        is_in(world, made, "VERIFY_RESIZE")
    if where.entry.route.action == "restore":
        world.owner.done("DELETE", f"{COMPUTE}/servers/{made}")
        is_in(world, made, "SOFT_DELETED")
    return made


def console_token(world: World, where: Where) -> str:
    path, asked = f"{COMPUTE}/servers/{new_server(world)}/remote-consoles", {"protocol": "serial", "type": "serial"}
    url = world.owner.done("POST", path, {"remote_console": asked}, NEWEST)["remote_console"]["url"]
    return str(url).partition("token=")[2]


def migration(world: World, where: Where) -> str:
    query = f"instance_uuid={where.before(SERVER)}"
    return str(world.admin.ask("GET", f"{COMPUTE}/os-migrations", query=query).json["migrations"][0]["id"])


def request(world: World, where: Where) -> str:
    path = f"{COMPUTE}/servers/{where.before(SERVER)}/os-instance-actions"
    return str(world.owner.done("GET", path)["instanceActions"][0]["request_id"])


def port(world: World, where: Where) -> str:
    path = f"{COMPUTE}/servers/{where.before(SERVER)}/os-interface"
    return str(world.owner.done("GET", path)["interfaceAttachments"][0]["port_id"])


def flavor(world: World, where: Where) -> str:
    private = "access" in where.entry.route.path or where.entry.route.action
    wish = {"name": world.name("flavor"), "ram": 64, "vcpus": 1, "disk": 1, "os-flavor-access:is_public": not private}
    made = str(world.made(world.admin, f"{COMPUTE}/flavors", "flavor", wish)["id"])
    if private and where.entry.route.action != "addTenantAccess":
        grant = {"addTenantAccess": {"tenant": world.owner.project_id}}
        world.admin.done("POST", f"{COMPUTE}/flavors/{made}/action", grant)
    return made


def spec(world: World, where: Where) -> str:
    path = f"{COMPUTE}/flavors/{where.before('/flavors/{flavor}')}/os-extra_specs"
    world.admin.done("POST", path, {"extra_specs": {"hw:cpu_policy": "shared"}})
    return "hw:cpu_policy"


def keypair(world: World, where: Where) -> str:
    wish = {"name": world.name("key"), "public_key": KEY}
    return str(world.made(world.owner, f"{COMPUTE}/os-keypairs", "keypair", wish)["name"])


def server_group(world: World, where: Where) -> str:
    wish = {"name": world.name("group"), "policies": ["anti-affinity"]}
    return str(world.made(world.owner, f"{COMPUTE}/os-server-groups", "server_group", wish)["id"])


def switch_spares_off(world: World) -> None:
    for host in SPARE:
        world.admin.done("POST", f"/kilonova/v1/hosts/{host}", {"disabled": True})
        world.admin.done("POST", f"/kilonova/v1/simulated/hosts/{host}", {"power": "off"})


def _how_it_stands(world: World, server: str, asked: dict[str, Answered]) -> str:
    shown = world.admin.done("GET", f"/kilonova/v1/servers/{server}")["server"]
    found = world.admin.ask("GET", "/kilonova/v1/operations", query=f"server={server}").text
    said = f"{asked[server].status} {asked[server].text}" if server in asked else "not asked"
    return f"{shown}; delete said {said}; operations {found[:2000]}"


def _gone_for_good(world: World, server: str) -> Answered:
    return world.admin.ask("POST", f"{COMPUTE}/servers/{server}/action", {"forceDelete": None})


def tidy(world: World, most: int) -> bool:
    """If there are more servers, all of them go."""
    found = world.owner.done("GET", f"{COMPUTE}/servers")["servers"]
    softly = world.admin.ask("GET", f"{COMPUTE}/servers", query="all_tenants=1&soft_deleted=true")
    found += softly.json["servers"]
    if len(found) <= most:
        return False
    asked = {each["id"]: _gone_for_good(world, each["id"]) for each in found}
    gone = lambda: not world.owner.done("GET", f"{COMPUTE}/servers")["servers"]  # noqa: E731
    try:
        world.owner.cloud.until(gone, "all servers are gone")
    except AssertionError as error:
        left = world.owner.done("GET", f"{COMPUTE}/servers")["servers"]
        raise AssertionError(f"{error}: {[_how_it_stands(world, each['id'], asked) for each in left]}") from error
    return True


def mend(world: World) -> None:
    """Whatever was done to the host that may be treated badly."""
    world.admin.done("POST", f"/kilonova/v1/simulated/hosts/{VICTIM}", {"power": "on", "link": "up"})
    world.admin.ask("POST", f"/kilonova/v1/hosts/{VICTIM}", {"forced_down": False, "disabled": False})


def version_header(version: Version) -> dict[str, str]:
    return {"openstack-api-version": f"compute {version[0]}.{version[1]}"}


def service(world: World, where: Where) -> str:
    if where.entry.route.until is not None:
        return "enable"  # in old versions the address has the verb
    by_host = _services(world, where)
    if not (where.anew and where.entry.route.method == "DELETE"):
        return str(by_host[VICTIM]["id"])
    spare = next((host for host in SPARE if host in by_host), VICTIM)
    if spare != VICTIM:  # it can only be forgotten when it has been silent long enough
        world.admin.cloud.until(lambda: _services(world, where)[spare]["state"] == "down", f"{spare} is down")
    return str(by_host[spare]["id"])


def _services(world: World, where: Where) -> dict[str, dict[str, Any]]:
    found = world.admin.done("GET", f"{COMPUTE}/os-services", headers=version_header(where.version))["services"]
    return {each["host"]: each for each in found}


def hypervisor(world: World, where: Where) -> str:
    if where.entry.route.path.endswith(("/search", "/servers")):
        return "host"
    found = world.admin.done("GET", f"{COMPUTE}/os-hypervisors", headers=version_header(where.version))["hypervisors"]
    return str(next(each["id"] for each in found if each["hypervisor_hostname"] == VICTIM))


def aggregate(world: World, where: Where) -> str:
    """With the victim in it where it is to be removed; without anybody where the aggregate itself goes."""
    wish = {"name": world.name("aggregate")}
    made = str(world.made(world.admin, f"{COMPUTE}/os-aggregates", "aggregate", wish)["id"])
    if where.entry.route.action == "remove_host":
        world.admin.done("POST", f"{COMPUTE}/os-aggregates/{made}/action", {"add_host": {"host": VICTIM}})
    return made


def quota_owner(world: World, where: Where) -> str:
    """Whose limits are changed is nobody who needs them."""
    if where.entry.is_read:
        return world.owner.project_id
    return identity.project(world, where)


BY_PATH = (server, flavor, hypervisor, aggregate)  # what they make depends on what follows in the address
MAKERS: dict[str, Maker] = {
    SERVER: server,
    "/os-volumes_boot/{server}": server,
    f"{SERVER}/ips/{{network}}": lambda world, where: "shared",
    f"{SERVER}/metadata/{{key}}": lambda world, where: "colour",
    f"{SERVER}/tags/{{tag}}": lambda world, where: "blue",
    f"{SERVER}/os-instance-actions/{{request}}": request,
    f"{SERVER}/os-interface/{{port}}": port,
    f"{SERVER}/migrations/{{migration}}": migration,
    "/images/{image}": lambda world, where: new_image(world, world.owner, colour="red"),
    "/images/{image}/metadata/{key}": lambda world, where: "colour",
    "/flavors/{flavor}": flavor,
    "/flavors/{flavor}/os-extra_specs/{key}": spec,
    "/os-keypairs/{name}": keypair,
    "/os-server-groups/{group}": server_group,
    "/os-quota-sets/{project}": quota_owner,
    "/os-quota-class-sets/{class}": lambda world, where: "default" if where.entry.is_read else world.name("class"),
    "/os-services/{service}": service,
    "/os-hypervisors/{hypervisor}": hypervisor,
    "/os-aggregates/{aggregate}": aggregate,
    "/os-console-auth-tokens/{token}": console_token,
    "/extensions/{alias}": lambda world, where: "os-keypairs",
}
