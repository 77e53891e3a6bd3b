"""/credentials and /policies: kept for others, without a meaning here."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.identity.collection import IdentityCollection
from kilonova.api.identity.rules import PolicyTarget, may, require
from kilonova.api.identity.view import change_of, collection, filters, member, within
from kilonova.domain.json import as_text
from kilonova.records.kinds import Record, id_of
from kilonova.services.identity.documents import Credentials, Policies


class CredentialCollection(IdentityCollection):
    kind, list_key = Credentials.kind, "credentials"
    reads, writes = "get_credential", "manage_credentials"

    def service(self, call: Call) -> Credentials:
        return call.service.identity.credentials

    def target(self, call: Call, record: Record | None, *, writes: bool) -> PolicyTarget:
        return PolicyTarget(user_id=None if record is None else as_text(record["user_id"]))

    async def list_(self, call: Call) -> Response:
        """List credentials; callers who are not administrators see only their own."""
        own = None if may(call, "get_credential") else call.caller.user_id
        criteria = within(filters(call, self.kind), "user_id", own)
        records = [] if criteria is None else await call.service.identity.records.page(self.kind, criteria)
        return answer(collection(call, self.list_key, [self.view(call, record) for record in records]))

    async def add(self, call: Call) -> Record:
        request = call.body["credential"]
        require(call, self.writes, PolicyTarget(user_id=request["user_id"]))
        return await self.service(call).create(request)

    async def edit(self, call: Call, record: Record) -> Record:
        change = change_of(call, "credential", id_of(record))
        require(call, self.writes, PolicyTarget(user_id=change.get("user_id", record["user_id"])))
        return await self.service(call).change(id_of(record), change)

    def view(self, call: Call, record: Record) -> Record:
        return member(call, "credentials", self.service(call).opened(record))


class PolicyCollection(IdentityCollection):
    kind, list_key = Policies.kind, "policies"
    reads, writes = "get_policy", "manage_policies"

    def service(self, call: Call) -> Policies:
        return call.service.identity.policies

    async def list_(self, call: Call) -> Response:
        require(call, self.reads)
        records = await call.service.identity.records.page(self.kind, filters(call, self.kind))
        return answer(collection(call, self.list_key, [self.view(call, record) for record in records]))
