"""/credentials and /policies: kept for others, without a meaning here."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer, nothing
from kilonova.api.identity.rules import PolicyTarget, may, require
from kilonova.api.identity.view import change_of, collection, filters, member, within
from kilonova.services.identity.documents import Credentials, Policies
from kilonova.services.identity.records import Record, missing

# -- credentials ------------------------------------------------------------------------------------------------------


async def list_credentials(call: Call) -> Response:
    """List credentials; callers who are not administrators see only their own."""
    own = None if may(call, "get_credential") else call.caller.user_id
    asked = within(filters(call, Credentials.kind), "user_id", own)
    found = [] if asked is None else await call.service.identity.records.page(Credentials.kind, asked)
    return answer(collection(call, "credentials", [_credential(call, record) for record in found]))


async def show_credential(call: Call) -> Response:
    return answer({"credential": _credential(call, await _found(call, "get_credential"))})


async def create_credential(call: Call) -> Response:
    wish = call.body["credential"]
    require(call, "manage_credentials", PolicyTarget(user_id=wish["user_id"]))
    made = await call.service.identity.credentials.create(wish)
    return answer({"credential": _credential(call, made)}, 201)


async def change_credential(call: Call) -> Response:
    found = await _found(call, "manage_credentials")
    wish = change_of(call, "credential", found["id"])
    require(call, "manage_credentials", PolicyTarget(user_id=wish.get("user_id", found["user_id"])))
    changed = await call.service.identity.credentials.change(found["id"], wish)
    return answer({"credential": _credential(call, changed)})


async def delete_credential(call: Call) -> Response:
    found = await _found(call, "manage_credentials")
    await call.service.identity.credentials.delete(found["id"])
    return nothing()


async def _found(call: Call, rule: str) -> Record:
    record = await call.service.identity.credentials.find(call.path["id"])
    require(call, rule, PolicyTarget(user_id=None if record is None else record["user_id"]))
    if record is None:
        raise missing("credential", call.path["id"])
    return record


def _credential(call: Call, record: Record) -> Record:
    return member(call, "credentials", call.service.identity.credentials.opened(record))


# -- policies ---------------------------------------------------------------------------------------------------------


async def list_policies(call: Call) -> Response:
    require(call, "get_policy")
    found = await call.service.identity.records.page(Policies.kind, filters(call, Policies.kind))
    return answer(collection(call, "policies", [member(call, "policies", record) for record in found]))


async def show_policy(call: Call) -> Response:
    require(call, "get_policy")
    record = await call.service.identity.policies.find(call.path["id"])
    if record is None:
        raise missing("policy", call.path["id"])
    return _policy(call, record)


async def create_policy(call: Call) -> Response:
    require(call, "manage_policies")
    return _policy(call, await call.service.identity.policies.create(call.body["policy"]), 201)


async def change_policy(call: Call) -> Response:
    require(call, "manage_policies")
    wish = change_of(call, "policy", call.path["id"])
    return _policy(call, await call.service.identity.policies.change(call.path["id"], wish))


async def delete_policy(call: Call) -> Response:
    require(call, "manage_policies")
    await call.service.identity.policies.delete(call.path["id"])
    return nothing()


def _policy(call: Call, record: Record, status: int = 200) -> Response:
    return answer({"policy": member(call, "policies", record)}, status)
