"""/users, with their own password and their groups."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.identity import view
from kilonova.api.identity.collection import IdentityCollection
from kilonova.api.identity.projects import home_of
from kilonova.api.identity.rules import PolicyTarget, only_own, own_domain, require
from kilonova.api.identity.view import collection, filters, listed, member, within
from kilonova.domain.json import as_text
from kilonova.records.kinds import Record, id_of
from kilonova.services.identity.users import USER, Users


class UserCollection(IdentityCollection):
    kind, list_key, param = USER, "users", "user"
    reads, writes = "get_user", "manage_users"

    def service(self, call: Call) -> Users:
        return call.service.identity.users

    def target(self, call: Call, record: Record | None, *, writes: bool) -> PolicyTarget:
        own = None if writes else call.path["user"]
        return PolicyTarget(domain_id=None if record is None else as_text(record["domain_id"]), user_id=own)

    async def list_(self, call: Call) -> Response:
        own = own_domain(call)
        require(call, "list_users", PolicyTarget(domain_id=own))
        return await listed(call, USER, within(filters(call, USER), "domain_id", own), view.user)

    async def add(self, call: Call) -> Record:
        request = call.body["user"]
        home = request.get("domain_id") or home_of(call)
        require(call, self.writes, PolicyTarget(domain_id=home))
        return await self.service(call).create(request, domain_id=home)

    def view(self, call: Call, record: Record) -> Record:
        return view.user(call, record)


USERS = UserCollection()


async def change_password(call: Call) -> Response:
    """Change a password. The old password is the proof, so no token is needed."""
    request = call.body["user"]
    users = call.service.identity.users
    passwords = request["original_password"], request["password"]
    await users.change_own_password(call.path["user"], *passwords, address=call.client_group)
    return nothing()


async def list_groups(call: Call) -> Response:
    user = await USERS.find(call, rule="list_groups_for_user")
    groups = only_own(call, await call.service.identity.groups.groups_of(id_of(user)))
    return answer(collection(call, "groups", [member(call, "groups", group) for group in groups]))
