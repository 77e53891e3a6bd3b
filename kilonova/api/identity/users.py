"""/users, with their own password and their groups."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.identity import view
from kilonova.api.identity.projects import home_of
from kilonova.api.identity.rules import PolicyTarget, only_own, own_domain, require
from kilonova.api.identity.view import change_of, collection, filters, listed, member, within
from kilonova.services.identity.records import Record, missing
from kilonova.services.identity.users import USER


async def list_(call: Call) -> Response:
    own = own_domain(call)
    require(call, "list_users", PolicyTarget(domain_id=own))
    return await listed(call, USER, within(filters(call, USER), "domain_id", own), view.user)


async def show(call: Call) -> Response:
    return _one(call, await found(call, "get_user"))


async def create(call: Call) -> Response:
    wish = call.body["user"]
    home = wish.get("domain_id") or home_of(call)
    require(call, "manage_users", PolicyTarget(domain_id=home))
    return _one(call, await call.service.identity.users.create(wish, home), 201)


async def change(call: Call) -> Response:
    user = await found(call, "manage_users", is_own=False)
    return _one(call, await call.service.identity.users.change(user["id"], change_of(call, "user", user["id"])))


async def change_password(call: Call) -> Response:
    """Change a password. The old password is the proof, so no token is needed."""
    wish = call.body["user"]
    users = call.service.identity.users
    passwords = wish["original_password"], wish["password"]
    await users.change_own_password(call.path["user"], *passwords, address=call.client_group)
    return nothing()


async def delete(call: Call) -> Response:
    user = await found(call, "manage_users", is_own=False)
    await call.service.identity.users.delete(user["id"])
    return nothing()


async def list_groups(call: Call) -> Response:
    user = await found(call, "list_groups_for_user")
    groups = only_own(call, await call.service.identity.groups.groups_of(user["id"]))
    return answer(collection(call, "groups", [member(call, "groups", group) for group in groups]))


async def found(call: Call, rule: str, *, is_own: bool = True) -> Record:
    user_id = call.path["user"]
    user = await call.service.identity.records.find(USER, user_id)
    home = None if user is None else user["domain_id"]
    require(call, rule, PolicyTarget(domain_id=home, user_id=user_id if is_own else None))
    if user is None:
        raise missing("user", user_id)
    return user


def _one(call: Call, user: Record, status: int = 200) -> Response:
    return answer({"user": view.user(call, user)}, status)
