"""/auth/tokens: logging in, looking at a token, giving it back. And /auth/…: where its owner may go."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.content import Content
from kilonova.api.identity.rules import PolicyTarget, require
from kilonova.api.identity.view import collection, member, time_of
from kilonova.domain.errors import Refused
from kilonova.domain.json import Json
from kilonova.services.identity.catalog import catalog
from kilonova.services.identity.login import Login, Which
from kilonova.services.identity.service import Issued
from kilonova.services.identity.tokens import DOMAIN, PROJECT, SYSTEM, UNSCOPED

METHODS = ("password", "token")
SUBJECT = "X-Subject-Token"


class _Domain(TypedDict, total=False):
    id: str
    name: str


class _Target(_Domain, total=False):
    domain: _Domain


class _LoginUser(_Target):
    password: str


class _ByPassword(TypedDict):
    user: _LoginUser


class _ByToken(TypedDict):
    id: str


class _Identity(TypedDict):
    methods: list[str]
    password: NotRequired[_ByPassword]
    token: NotRequired[_ByToken]


class _Auth(TypedDict):
    identity: _Identity
    scope: NotRequired[Json]


async def issue(call: Call) -> Response:
    issued = await call.service.identity.authenticate(_login(call.body["auth"], call.client_group))
    return answer(_shown(call, issued), 201, {SUBJECT: issued.token})


def _login(auth: _Auth, address: str) -> Login:
    identity = auth["identity"]
    methods = set(identity["methods"])
    if methods - set(METHODS):
        raise Refused(401, "Attempted to authenticate with an unsupported method.")
    for method in methods:
        if method not in identity:
            raise Refused(400, f"Authentication method {method}: its section of the body is missing.")
    scope, target = _scope(auth.get("scope"))
    user = identity["password"]["user"] if "password" in methods else None
    token = identity["token"]["id"] if "token" in methods else ""
    if "token" in methods and not token:
        raise Refused(404, "Failed to validate token")
    return Login(
        user=None if user is None else _which(user),
        password="" if user is None else user["password"],
        token=token,
        scope=scope,
        target=target,
        address=address,
    )


def _scope(given: Any) -> tuple[str | None, Which]:
    if given is None:
        return None, Which()
    if isinstance(given, str):
        if given != "unscoped":
            raise Refused(400, "scope must be an object, or the word unscoped.")
        return UNSCOPED, Which()
    ((kind, where),) = given.items()
    if kind in (PROJECT, DOMAIN):
        return kind, _which(where)
    return (SYSTEM if kind == SYSTEM else UNSCOPED), Which()


def _which(given: _Target) -> Which:
    domain = given.get("domain", {})
    return Which(given.get("id", ""), given.get("name", ""), domain.get("id", ""), domain.get("name", ""))


async def show(call: Call) -> Response:
    issued = await _subject(call, "validate_token")
    return answer(_shown(call, issued), 200, {SUBJECT: issued.token})


async def revoke(call: Call) -> Response:
    issued = await _subject(call, "revoke_token")
    await call.service.identity.revoke(issued.claims)
    return nothing()


async def _subject(call: Call, rule: str) -> Issued:
    issued = await call.service.identity.inspect(call.request.headers.get(SUBJECT, ""))
    if issued is None:
        raise Refused(404, "Could not find the token: it is unknown, expired or revoked.")
    require(call, rule, PolicyTarget(user_id=issued.claims.user_id))
    return issued


def _shown(call: Call, issued: Issued) -> Content:
    claims, standing = issued.claims, issued.standing
    user, target = standing.user, standing.target
    token: dict[str, Content] = {
        "methods": claims.methods,
        "user": {
            "id": user.id,
            "name": user.name,
            "domain": {"id": user.domain_id, "name": user.domain_name},
            "password_expires_at": None,
        },
        "audit_ids": claims.audit_ids,
        "expires_at": time_of(claims.expires_at),
        "issued_at": time_of(claims.issued_at),
    }
    kind = claims.scope.kind
    if kind == UNSCOPED:
        return {"token": token}
    token["roles"] = [{"id": role.id, "name": role.name} for role in standing.roles]
    if kind == SYSTEM:
        token["system"] = {"all": True}
    elif target is not None and kind == DOMAIN:
        token["domain"] = {"id": target.id, "name": target.name}
    elif target is not None:
        domain = {"id": target.domain_id, "name": target.domain_name}
        token |= {"project": {"id": target.id, "name": target.name, "domain": domain}, "is_domain": False}
    if "nocatalog" not in call.query:
        project_id = claims.scope.id if kind == PROJECT else ""
        token["catalog"] = catalog(call.service.identity.snapshot, call.service.public_url, project_id)
    return {"token": token}


# -- where the owner of the token may go ------------------------------------------------------------------------------


async def show_catalog(call: Call) -> Response:
    if call.caller.project is None:
        raise Refused(403, "The catalog needs a project-scoped token.")
    services = catalog(call.service.identity.snapshot, call.service.public_url, call.caller.project_id)
    return answer({"catalog": services, "links": {"self": call.url("/auth/catalog")}})


async def list_projects(call: Call) -> Response:
    projects = await call.service.identity.assignments.projects_of(call.caller.user_id)
    return answer(collection(call, "projects", [member(call, "projects", project) for project in projects]))


async def list_domains(call: Call) -> Response:
    domains = await call.service.identity.assignments.domains_of(call.caller.user_id)
    return answer(collection(call, "domains", [member(call, "domains", domain) for domain in domains]))


async def show_system(call: Call) -> Response:
    is_there = await call.service.identity.assignments.is_on_system(call.caller.user_id)
    return answer({"system": [{"all": True}] if is_there else [], "links": {"self": call.url("/auth/system")}})
