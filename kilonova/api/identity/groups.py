"""/groups and who is in them."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.identity import view
from kilonova.api.identity.collection import IdentityCollection
from kilonova.api.identity.projects import home_of
from kilonova.api.identity.rules import PolicyTarget, only_own, own_domain, require
from kilonova.api.identity.view import collection, filters, listed, within
from kilonova.domain.errors import Refused
from kilonova.domain.json import as_text
from kilonova.records.kinds import Record, id_of
from kilonova.services.identity.groups import GROUP, UserGroups
from kilonova.services.identity.records import missing
from kilonova.services.identity.users import USER


class GroupCollection(IdentityCollection):
    kind, list_key, param = GROUP, "groups", "group"
    reads, writes = "get_group", "manage_groups"

    def service(self, call: Call) -> UserGroups:
        return call.service.identity.groups

    def target(self, call: Call, record: Record | None, *, writes: bool) -> PolicyTarget:
        return PolicyTarget(domain_id=None if record is None else as_text(record["domain_id"]))

    async def list_(self, call: Call) -> Response:
        own = own_domain(call)
        require(call, "list_groups", PolicyTarget(domain_id=own))
        return await listed(call, GROUP, within(filters(call, GROUP), "domain_id", own))

    async def add(self, call: Call) -> Record:
        request = call.body["group"]
        home = request.get("domain_id") or home_of(call)
        require(call, self.writes, PolicyTarget(domain_id=home))
        return await self.service(call).create(request, domain_id=home)


GROUPS = GroupCollection()


async def list_users(call: Call) -> Response:
    group = await GROUPS.find(call)
    users = only_own(call, await call.service.identity.groups.users_in(id_of(group)))
    return answer(collection(call, "users", [view.user(call, user) for user in users]))


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
    """Return the group and the user. A caller with only a domain's token needs both to be in that domain."""
    user_id = call.path["user"]
    user = await call.service.identity.records.find(USER, user_id)
    group = await GROUPS.look_up(call)
    homes = [None if record is None else as_text(record["domain_id"]) for record in (group, user)]
    require(call, rule, PolicyTarget(domain_id=homes[0], actor_domain_id=homes[1]))
    for noun, record in (("group", group), ("user", user)):
        if record is None:
            raise missing(noun, call.path[noun])
    return call.path["group"], user_id
