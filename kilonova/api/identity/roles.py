"""/roles, and which of them imply which."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.identity.collection import IdentityCollection
from kilonova.api.identity.rules import PolicyTarget, own_domain, require
from kilonova.api.identity.view import filters, listed, member
from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject, as_text
from kilonova.records.kinds import Record
from kilonova.services.identity.roles import ROLE, Roles


class RoleCollection(IdentityCollection):
    kind, list_key, param = ROLE, "roles", "role"
    reads, writes = "get_role", "manage_roles"

    def service(self, call: Call) -> Roles:
        return call.service.identity.roles

    def target(self, call: Call, record: Record | None, *, writes: bool) -> PolicyTarget:
        is_managed = record is not None and not record["domain_id"] and not writes
        return PolicyTarget(role=as_text(record["name"]) if record is not None and is_managed else None)

    async def list_(self, call: Call) -> Response:
        """List roles; without a domain, those that apply to all domains."""
        require(call, "list_roles", PolicyTarget(domain_id=own_domain(call)))
        return await listed(call, ROLE, {"domain_id": "", **filters(call, ROLE)})


# -- what implies what ------------------------------------------------------------------------------------------------


async def list_inferences(call: Call) -> Response:
    require(call, "get_implied_roles")
    inferences = await call.service.identity.roles.inferences()
    views = [{"prior_role": _short(call, prior), "implies": _shorts(call, implied)} for prior, implied in inferences]
    return answer({"role_inferences": views, "links": {"self": call.url("/role_inferences")}})


async def list_implied(call: Call) -> Response:
    require(call, "get_implied_roles")
    ((prior, implied),) = await call.service.identity.roles.inferences(call.path["role"])
    inference = {"prior_role": _short(call, prior), "implies": _shorts(call, implied)}
    address = call.url(f"/roles/{prior['id']}/implies")
    return answer({"role_inference": inference, "links": {"self": address}})


async def show_implied(call: Call) -> Response:
    require(call, "get_implied_roles")
    return await _inference(call, 200)


async def check_implied(call: Call) -> Response:
    await show_implied(call)
    return nothing()


async def imply(call: Call) -> Response:
    require(call, "manage_roles")
    await call.service.identity.roles.imply(call.path["role"], call.path["implied"])
    return await _inference(call, 201)


async def imply_no_more(call: Call) -> Response:
    require(call, "manage_roles")
    await call.service.identity.roles.imply_no_more(call.path["role"], call.path["implied"])
    return nothing()


async def _inference(call: Call, status: int) -> Response:
    ((prior, implied),) = await call.service.identity.roles.inferences(call.path["role"])
    for role in implied:
        if role["id"] == call.path["implied"]:
            view = {"prior_role": _short(call, prior), "implies": _short(call, role)}
            address = call.url(f"/roles/{prior['id']}/implies/{role['id']}")
            return answer({"role_inference": view, "links": {"self": address}}, status)
    raise Refused(404, f"{prior['name']} does not imply {call.path['implied'][:255]}.")


def _short(call: Call, role: Record) -> JsonObject:
    view = member(call, "roles", role)
    return {name: view[name] for name in ("id", "name", "links")}


def _shorts(call: Call, roles: list[Record]) -> list[JsonObject]:
    return [_short(call, role) for role in roles]
