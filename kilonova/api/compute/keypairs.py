"""/os-keypairs. They belong to users, not to projects; an administrator may look after another user's."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.compute.paging import limit_of
from kilonova.api.compute.schemas import keypairs as forms
from kilonova.api.compute.server_view import microseconds
from kilonova.api.content import Content
from kilonova.api.queries import next_links
from kilonova.api.routes import ANY_TOKEN, Handler, Route
from kilonova.records.query import ALL, ListQuery
from kilonova.services.compute.keypairs import Keypair

RULE = "os_compute_api:os-keypairs:"


async def list_(call: Call) -> Response:
    user, paged = _user(call, "index"), call.at(2, 35)
    query = ListQuery(limit=limit_of(call), marker=call.query.get("marker")) if paged else ALL
    keypairs = await call.service.keypairs.list(user, query)
    body: dict[str, Content] = {"keypairs": [{"keypair": brief(call, keypair)} for keypair in keypairs]}
    links = next_links(call, "/os-keypairs", keypairs, query.limit, keypairs[-1].name) if paged and keypairs else []
    return answer(body | ({"keypairs_links": links} if links else {}))


async def show(call: Call) -> Response:
    keypair = await call.service.keypairs.find(_user(call, "show"), call.path["name"])
    never = {"deleted": False, "deleted_at": None, "updated_at": None}
    more = {"user_id": keypair.user_id, "id": keypair.number, "created_at": microseconds(keypair.created_at)}
    return answer({"keypair": brief(call, keypair) | more | never})


async def create(call: Call) -> Response:
    request = call.body["keypair"]
    user = request.get("user_id") or call.caller.user_id
    call.require(f"{RULE}create", user_id=user)
    name, kind = request["name"].strip(), request.get("type", "ssh")
    most = await call.service.quotas.limit("key_pairs", call.caller.project_id, user)
    keypairs = call.service.keypairs
    if "public_key" in request:
        keypair = await keypairs.take(user, name, request["public_key"], kind, most=most)
    else:
        keypair = await keypairs.make(user, name, kind, most=most)
    attributes = brief(call, keypair) | {"user_id": user}
    if keypair.private_key is not None:
        attributes["private_key"] = keypair.private_key
    return answer({"keypair": attributes}, 201 if call.at(2, 2) else 200)


async def delete(call: Call) -> Response:
    await call.service.keypairs.delete(_user(call, "delete"), call.path["name"])
    return nothing(204 if call.at(2, 2) else 202)


def brief(call: Call, keypair: Keypair) -> dict[str, Content]:
    kind = {"type": keypair.type} if call.at(2, 2) else {}
    return {"name": keypair.name, "public_key": keypair.public_key, "fingerprint": keypair.fingerprint, **kind}


def _user(call: Call, rule: str) -> str:
    """Return the user whose key pairs are meant; the first one counts if the query names several."""
    named = call.query.getlist("user_id") if call.at(2, 10) else []
    user = next(iter(named), "") or call.caller.user_id
    call.require(RULE + rule, user_id=user)
    return user


def _route(method: str, path: str, handler: Handler, **more: Any) -> Route:
    """Return a route whose rule the handler checks: the rule depends on the owner of the key pair."""
    return Route(method=method, path=path, handler=handler, rule=ANY_TOKEN, **more)


ROUTES = [
    _route("GET", "/os-keypairs", list_, query=forms.LIST),
    _route("POST", "/os-keypairs", create, body=forms.CREATE),
    _route("GET", "/os-keypairs/{name}", show, query=forms.ONE),
    _route("DELETE", "/os-keypairs/{name}", delete, query=forms.ONE),
]
