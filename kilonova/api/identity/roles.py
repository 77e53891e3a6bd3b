"""/roles, and which of them imply which."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.identity.rules import PolicyTarget, own_domain, require
from kilonova.api.identity.view import change_of, filters, listed, member
from kilonova.domain.errors import Refused
from kilonova.services.identity.records import Record, missing
from kilonova.services.identity.roles import ROLE


async def list_(call: Call) -> Response:
    """List roles; without a domain, those that apply to all domains."""
    require(call, "list_roles", PolicyTarget(domain_id=own_domain(call)))
    return await listed(call, ROLE, {"domain_id": "", **filters(call, ROLE)})


async def show(call: Call) -> Response:
    role_id = call.path["role"]
    role = await call.service.identity.records.find(ROLE, role_id)
    is_managed = role is not None and not role["domain_id"]
    require(call, "get_role", PolicyTarget(role=role["name"] if role is not None and is_managed else None))
    if role is None:
        raise missing("role", role_id)
    return _one(call, role)


async def create(call: Call) -> Response:
    require(call, "manage_roles")
    return _one(call, await call.service.identity.roles.create(call.body["role"]), 201)


async def change(call: Call) -> Response:
    require(call, "manage_roles")
    role_id = call.path["role"]
    return _one(call, await call.service.identity.roles.change(role_id, change_of(call, "role", role_id)))


async def delete(call: Call) -> Response:
    require(call, "manage_roles")
    await call.service.identity.roles.delete(call.path["role"])
    return nothing()


# -- what implies what ------------------------------------------------------------------------------------------------


async def list_inferences(call: Call) -> Response:
    require(call, "get_implied_roles")
    found = await call.service.identity.roles.inferences()
    shown = [{"prior_role": _short(call, prior), "implies": _shorts(call, implied)} for prior, implied in found]
    return answer({"role_inferences": shown, "links": {"self": call.url("/role_inferences")}})


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
            shown = {"prior_role": _short(call, prior), "implies": _short(call, role)}
            address = call.url(f"/roles/{prior['id']}/implies/{role['id']}")
            return answer({"role_inference": shown, "links": {"self": address}}, status)
    raise Refused(404, f"{prior['name']} does not imply {call.path['implied'][:255]}.")


def _short(call: Call, role: Record) -> dict[str, Any]:
    shown = member(call, "roles", role)
    return {name: shown[name] for name in ("id", "name", "links")}


def _shorts(call: Call, roles: list[Record]) -> list[dict[str, Any]]:
    return [_short(call, role) for role in roles]


def _one(call: Call, role: Record, status: int = 200) -> Response:
    return answer({"role": member(call, "roles", role)}, status)
