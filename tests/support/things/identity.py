"""Projects, users, groups, roles, and who has which; nothing of the first cloud's own is touched."""

from __future__ import annotations

from tests.support.people import PASSWORD
from tests.support.things.making import Maker, Where, World

V3 = "/identity/v3"
HOME = "default"
PLACES = ("/projects/{project}", "/domains/{domain}", "/system")
ACTORS = ("/users/{user}", "/groups/{group}")


def domain(world: World, where: Where) -> str:
    """Only a disabled one can be deleted."""
    enabled = where.entry.route.method != "DELETE" or "/roles/" in where.entry.route.path
    wish = {"name": world.name("domain"), "enabled": enabled}
    return str(world.made(world.admin, f"{V3}/domains", "domain", wish)["id"])


def project(world: World, where: Where) -> str:
    wish = {"name": world.name("project"), "domain_id": HOME, "tags": ["blue"]}
    return str(world.made(world.admin, f"{V3}/projects", "project", wish)["id"])


def user(world: World, where: Where) -> str:
    wish = {"name": world.name("user"), "domain_id": HOME, "password": PASSWORD}
    return str(world.made(world.admin, f"{V3}/users", "user", wish)["id"])


def member(world: World, where: Where) -> str:
    made = user(world, where)
    world.admin.done("PUT", f"{V3}/groups/{where.before('/groups/{group}')}/users/{made}")
    return made


def group(world: World, where: Where) -> str:
    wish = {"name": world.name("group"), "domain_id": HOME}
    return str(world.made(world.admin, f"{V3}/groups", "group", wish)["id"])


def role(world: World, where: Where) -> str:
    return str(world.made(world.admin, f"{V3}/roles", "role", {"name": world.name("role")})["id"])


def implied(world: World, where: Where) -> str:
    made = role(world, where)
    if where.entry.route.method != "PUT":
        world.admin.done("PUT", f"{V3}/roles/{where.before('/roles/{role}')}/implies/{made}")
    return made


def granted(world: World, where: Where) -> str:
    """A role that the actor of the address has on its place."""
    made = role(world, where)
    path = where.entry.route.path.removesuffix("/{role}")
    for upto, value in where.values.items():
        path = path.replace("{" + upto.rpartition("{")[2], value)
    world.admin.done("PUT", f"{V3}{path}/{made}")
    return made


def service(world: World, where: Where) -> str:
    return str(world.made(world.admin, f"{V3}/services", "service", {"type": world.name("service")})["id"])


def endpoint(world: World, where: Where) -> str:
    wish = {"service_id": service(world, where), "interface": "public", "url": "http://elsewhere"}
    return str(world.made(world.admin, f"{V3}/endpoints", "endpoint", wish)["id"])


def region(world: World, where: Where) -> str:
    if where.entry.route.method == "PUT":
        return world.name("region")  # it is made by that
    return str(world.made(world.admin, f"{V3}/regions", "region", {"id": world.name("region")})["id"])


def credential(world: World, where: Where) -> str:
    wish = {"blob": "{}", "type": "cert", "user_id": world.owner.user_id, "project_id": world.owner.project_id}
    return str(world.made(world.admin, f"{V3}/credentials", "credential", wish)["id"])


def policy(world: World, where: Where) -> str:
    return str(world.made(world.admin, f"{V3}/policies", "policy", {"blob": "{}", "type": "text"})["id"])


MAKERS: dict[str, Maker] = {
    "/domains/{domain}": domain,
    "/projects/{project}": project,
    "/projects/{project}/tags/{tag}": lambda world, where: "blue",
    "/users/{user}": user,
    "/groups/{group}": group,
    "/groups/{group}/users/{user}": member,
    "/roles/{role}": role,
    "/roles/{role}/implies/{implied}": implied,
    "/services/{id}": service,
    "/endpoints/{id}": endpoint,
    "/regions/{id}": region,
    "/credentials/{id}": credential,
    "/policies/{id}": policy,
    **{f"{place}/users/{{user}}": user for place in PLACES},
    **{f"{place}/groups/{{group}}": group for place in PLACES},
    **{f"{place}{actor}/roles/{{role}}": granted for place in PLACES for actor in ACTORS},
}
