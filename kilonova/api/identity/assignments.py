"""/role_assignments: who has which role where; on demand with names, or with all that follows from groups and roles."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.identity.rules import PolicyTarget, own_domain, require
from kilonova.api.identity.view import collection, is_true
from kilonova.domain.caller import IdentityRef
from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject
from kilonova.services.identity.assignments import BY_USER, THE_SYSTEM, AssignmentFilter, Grant
from kilonova.services.identity.names import names_of
from kilonova.services.identity.tokens import DOMAIN, PROJECT, SYSTEM, Scope

Names = Mapping[str, IdentityRef]


async def list_(call: Call) -> Response:
    identity, own = call.service.identity, own_domain(call)
    require(call, "list_role_assignments", PolicyTarget(domain_id=own))
    await identity.look()
    grants = await identity.assignments.list(_wanted(call))
    with_names = is_true(call.query.get("include_names"))
    names: Names = {}
    if with_names or own is not None:
        ids = [each for grant in grants for each in (grant.actor_id, grant.role_id, grant.target.id)]
        names = await names_of(identity.records, ids)
    if own is not None:
        grants = [grant for grant in grants if _home(grant, names) == own]
    views = [_shown(call, grant, names if with_names else {}) for grant in grants]
    return answer(collection(call, "role_assignments", views))


def _wanted(call: Call) -> AssignmentFilter:
    query = call.query
    scopes = [name for name in ("scope.project.id", "scope.domain.id", "scope.system") if query.get(name)]
    if len(scopes) > 1:
        raise Refused(400, f"Use {scopes[0]} or {scopes[1]}, not both.")
    if query.get("user.id") and query.get("group.id"):
        raise Refused(400, "Use user.id or group.id, not both.")
    effective = is_true(query.get("effective"))
    if effective and query.get("group.id"):
        raise Refused(400, "An effective list has users only; do not filter it by group.id.")
    target = Scope()
    if query.get("scope.system"):
        target = THE_SYSTEM
    elif scopes:
        kind = PROJECT if scopes[0] == "scope.project.id" else DOMAIN
        target = Scope(kind, query[scopes[0]])
    return AssignmentFilter(
        user_id=query.get("user.id", ""),
        group_id=query.get("group.id", ""),
        role_id=query.get("role.id", ""),
        target=target,
        effective=effective,
    )


def _home(grant: Grant, names: Names) -> str:
    """The domain that the target is or is in."""
    target = names.get(grant.target.id)
    return "" if target is None else target.domain_id or target.id


def _shown(call: Call, grant: Grant, names: Names) -> JsonObject:
    kind, target = grant.target.kind, grant.target.id
    view: JsonObject = {
        "role": _named(grant.role_id, names),
        grant.actor: _named(grant.actor_id, names),
        "scope": {"system": {"all": True}} if kind == SYSTEM else {kind: _named(target, names)},
    }
    path = "/system" if kind == SYSTEM else f"/{kind}s/{target}"
    through = f"groups/{grant.group_id}" if grant.group_id else f"{grant.actor}s/{grant.actor_id}"
    links = {"assignment": call.url(f"{path}/{through}/roles/{grant.prior_id or grant.role_id}")}
    if grant.actor == BY_USER and grant.group_id:
        links["membership"] = call.url(f"/groups/{grant.group_id}/users/{grant.actor_id}")
    if grant.prior_id:
        links["prior_role"] = call.url(f"/roles/{grant.prior_id}/implies/{grant.role_id}")
    return {**view, "links": links}


def _named(record_id: str, names: Names) -> JsonObject:
    named = names.get(record_id)
    if named is None:
        return {"id": record_id}
    reference: JsonObject = {"id": record_id, "name": named.name}
    return {**reference, "domain": {"id": named.domain_id, "name": named.domain_name}} if named.domain_id else reference
