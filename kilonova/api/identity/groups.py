"""/groups and who is in them."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.identity import view
from kilonova.api.identity.projects import home_of
from kilonova.api.identity.rules import PolicyTarget, only_own, own_domain, require
from kilonova.api.identity.view import change_of, collection, filters, listed, member, within
from kilonova.domain.errors import Refused
from kilonova.services.identity.groups import GROUP
from kilonova.services.identity.records import Record, missing
from kilonova.services.identity.users import USER


async def list_(call: Call) -> Response:
    own = own_domain(call)
    require(call, "list_groups", PolicyTarget(domain_id=own))
    return await listed(call, GROUP, within(filters(call, GROUP), "domain_id", own))


async def show(call: Call) -> Response:
    return _one(call, await _found(call, "get_group"))


async def create(call: Call) -> Response:
    wish = call.body["group"]
    home = wish.get("domain_id") or home_of(call)
    require(call, "manage_groups", PolicyTarget(domain_id=home))
    return _one(call, await call.service.identity.groups.create(wish, home), 201)


async def change(call: Call) -> Response:
    group = await _found(call, "manage_groups")
    return _one(call, await call.service.identity.groups.change(group["id"], change_of(call, "group", group["id"])))


async def delete(call: Call) -> Response:
    group = await _found(call, "manage_groups")
    await call.service.identity.groups.delete(group["id"])
    return nothing()


async def list_users(call: Call) -> Response:
    group = await _found(call, "get_group")
    found = only_own(call, await call.service.identity.groups.users_in(group["id"]))
    return answer(collection(call, "users", [view.user(call, user) for user in found]))


async def add_user(call: Call) -> Response:
    group_id, user_id = await _both(call, "manage_members")
    await call.service.identity.groups.add(group_id, user_id)
    return nothing()


async def has_user(call: Call) -> Response:
    group_id, user_id = await _both(call, "get_members")
    if not await call.service.identity.groups.has(group_id, user_id):
        raise Refused(404, f"User {user_id[:255]} is not in group {group_id}.")
    return nothing()


async def remove_user(call: Call) -> Response:
    group_id, user_id = await _both(call, "manage_members")
    await call.service.identity.groups.remove(group_id, user_id)
    return nothing()


async def _both(call: Call, rule: str) -> tuple[str, str]:
    """The group and the user: who has only a domain's token needs both to be in that domain."""
    user_id = call.path["user"]
    user = await call.service.identity.records.find(USER, user_id)
    group = await _found(call, rule, user)
    if user is None:
        raise missing("user", user_id)
    return group["id"], user_id


async def _found(call: Call, rule: str, user: Record | None = None) -> Record:
    group_id = call.path["group"]
    group = await call.service.identity.records.find(GROUP, group_id)
    home, home_of_user = (None if record is None else record["domain_id"] for record in (group, user))
    require(call, rule, PolicyTarget(domain_id=home, actor_domain_id=home_of_user))
    if group is None:
        raise missing("group", group_id)
    return group


def _one(call: Call, group: Record, status: int = 200) -> Response:
    return answer({"group": member(call, "groups", group)}, status)
