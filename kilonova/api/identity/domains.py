"""/domains."""

from __future__ import annotations

import re

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.identity.rules import PolicyTarget, own_domain, require
from kilonova.api.identity.view import change_of, filters, listed, member
from kilonova.domain.errors import Refused
from kilonova.services.identity.projects import DOMAIN
from kilonova.services.identity.records import Record, missing

ID = re.compile(r"[0-9a-f]{32}")


async def list_(call: Call) -> Response:
    own = own_domain(call)
    require(call, "list_domains", PolicyTarget(domain_id=own))
    asked = {**filters(call, DOMAIN), "is_domain": 1} | ({} if own is None else {"id": own})
    return await listed(call, DOMAIN, asked)


async def show(call: Call) -> Response:
    domain = await _found(call)
    require(call, "get_domain", PolicyTarget(domain_id=None if domain is None else domain["id"]))
    if domain is None:
        raise missing("domain", call.path["domain"])
    return _one(call, domain)


async def create(call: Call) -> Response:
    require(call, "manage_domains")
    wish = dict(call.body["domain"])
    given_id = wish.pop("explicit_domain_id", "")
    if given_id and not ID.fullmatch(given_id):
        raise Refused(400, "explicit_domain_id must be a UUID: 32 hexadecimal digits.")
    made = await call.service.identity.projects.create({**wish, "is_domain": True}, "", given_id=given_id)
    shown = {name: value for name, value in made.items() if name in DOMAIN.attributes or name not in DOMAIN.table.c}
    return _one(call, shown, 201)


async def change(call: Call) -> Response:
    require(call, "manage_domains")
    domain_id = call.path["domain"]
    wish = change_of(call, "domain", domain_id)
    return _one(call, await call.service.identity.projects.change(DOMAIN, domain_id, wish))


async def delete(call: Call) -> Response:
    require(call, "manage_domains")
    await call.service.identity.projects.delete(DOMAIN, call.path["domain"])
    return nothing()


async def _found(call: Call) -> Record | None:
    found = await call.service.identity.records.page(DOMAIN, {"id": call.path["domain"], "is_domain": 1})
    return found[0] if found else None


def _one(call: Call, domain: Record, status: int = 200) -> Response:
    return answer({"domain": member(call, "domains", domain)}, status)
