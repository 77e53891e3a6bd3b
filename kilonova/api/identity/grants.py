"""/projects|domains/{…}/users|groups/{…}/roles, and the same on /system: giving a role, asking for it, taking it."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.identity.rules import PolicyTarget, may, require
from kilonova.api.identity.view import collection, member
from kilonova.api.routes import ANY_TOKEN, Handler, Route
from kilonova.domain.json import as_text
from kilonova.records.kinds import id_of
from kilonova.services.identity.assignments import ACTORS, BY_GROUP, BY_USER, THE_SYSTEM, Grant
from kilonova.services.identity.projects import PROJECT as PLACE
from kilonova.services.identity.roles import ROLE
from kilonova.services.identity.tokens import DOMAIN, PROJECT, SYSTEM, Scope


async def list_(call: Call) -> Response:
    grant = _grant(call)
    await _require(call, "list", grant)
    roles = await call.service.identity.assignments.roles_on(grant.actor, grant.actor_id, grant.target)
    return answer(collection(call, "roles", [member(call, "roles", role) for role in roles]))


async def check(call: Call) -> Response:
    grant = _grant(call)
    await _require(call, "list", grant)
    await call.service.identity.assignments.check(grant)
    return nothing()


async def give(call: Call) -> Response:
    grant = _grant(call)
    await _require(call, "manage", grant)
    await call.service.identity.assignments.grant(grant)
    return nothing()


async def take(call: Call) -> Response:
    grant = _grant(call)
    await _require(call, "manage", grant)
    await call.service.identity.assignments.revoke(grant)
    return nothing()


def _grant(call: Call) -> Grant:
    path = call.path
    actor = BY_USER if "user" in path else BY_GROUP
    target = THE_SYSTEM
    if "project" in path:
        target = Scope(PROJECT, path["project"])
    elif "domain" in path:
        target = Scope(DOMAIN, path["domain"])
    return Grant(actor, path[actor], target, path.get("role", ""))


async def _require(call: Call, verb: str, grant: Grant) -> None:
    if grant.target.kind == SYSTEM:
        require(call, f"{verb}_system_grants")
        return
    rule = f"{verb}_grants"
    if may(call, rule):  # an administrator: nothing need be looked up
        return
    records = call.service.identity.records
    target_record = await records.find(PLACE, grant.target.id)
    actor = await records.find(ACTORS[grant.actor], grant.actor_id)
    role = await records.find(ROLE, grant.role_id) if grant.role_id else None
    target = PolicyTarget(
        domain_id=None if target_record is None else as_text(target_record["domain_id"]) or id_of(target_record),
        actor_domain_id=None if actor is None else as_text(actor["domain_id"]),
        role=None if role is None or role["domain_id"] else as_text(role["name"]),
    )
    require(call, rule, target)


def routes() -> Iterator[Route]:
    prefixes = ("/projects/{project}", "/domains/{domain}", "/system")
    one: dict[str, Handler] = {"GET": check, "HEAD": check, "PUT": give, "DELETE": take}
    for prefix in prefixes:
        for actors in ("/users/{user}", "/groups/{group}"):
            path = f"{prefix}{actors}/roles"
            yield Route(method="GET", path=path, handler=list_, rule=ANY_TOKEN)
            for method, handler in one.items():
                yield Route(method=method, path=f"{path}/{{role}}", handler=handler, rule=ANY_TOKEN)
