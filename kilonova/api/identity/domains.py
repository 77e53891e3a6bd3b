"""/domains."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call
from kilonova.api.identity.collection import IdentityCollection
from kilonova.api.identity.rules import PolicyTarget, own_domain, require
from kilonova.api.identity.view import change_of, filters, listed
from kilonova.domain.errors import Refused
from kilonova.records.kinds import Record, id_of
from kilonova.services.identity.projects import DOMAIN, Projects

ID = re.compile(r"[0-9a-f]{32}")


class DomainCollection(IdentityCollection):
    kind, list_key, param = DOMAIN, "domains", "domain"
    reads, writes = "get_domain", "manage_domains"

    def service(self, call: Call) -> Projects:
        return call.service.identity.projects

    def target(self, call: Call, record: Record | None, *, writes: bool) -> PolicyTarget:
        return PolicyTarget(domain_id=None if record is None or writes else id_of(record))

    async def look_up(self, call: Call) -> Record | None:
        by: Mapping[str, Any] = {"id": call.path["domain"], "is_domain": 1}
        records = await call.service.identity.records.page(DOMAIN, by)
        return records[0] if records else None

    async def list_(self, call: Call) -> Response:
        own = own_domain(call)
        require(call, "list_domains", PolicyTarget(domain_id=own))
        criteria = {**filters(call, DOMAIN), "is_domain": 1}
        return await listed(call, DOMAIN, criteria if own is None else {**criteria, "id": own})

    async def add(self, call: Call) -> Record:
        require(call, self.writes)
        request = dict(call.body["domain"])
        given_id = request.pop("explicit_domain_id", "")
        if given_id and not ID.fullmatch(given_id):
            raise Refused(400, "explicit_domain_id must be a UUID: 32 hexadecimal digits.")
        domain = await self.service(call).create({**request, "is_domain": True}, "", given_id=given_id)
        return {
            name: value for name, value in domain.items() if name in DOMAIN.attributes or name not in DOMAIN.table.c
        }

    async def edit(self, call: Call, record: Record) -> Record:
        return await self.service(call).change(DOMAIN, id_of(record), change_of(call, "domain", id_of(record)))

    async def drop(self, call: Call, record: Record) -> None:
        await self.service(call).delete(DOMAIN, id_of(record))
