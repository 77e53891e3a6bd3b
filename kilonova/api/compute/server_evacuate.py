"""POST /servers/{server}/action evacuate: an administrator brings a server of a dead host up elsewhere. What the body
may say has changed four times."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import OPERATION_HEADER, Call, answer, nothing
from kilonova.api.compute.passwords import new_password, shown_password
from kilonova.api.compute.repeating import idempotency_key, repeated
from kilonova.api.compute.schemas import server_actions as schemas
from kilonova.api.compute.server import server_of
from kilonova.api.routes import Route
from kilonova.domain.errors import Refused
from kilonova.domain.flags import is_true
from kilonova.domain.json import Json, JsonObject, as_text
from kilonova.engine.accept import Ask
from kilonova.engine.submit import submit
from kilonova.hosts.states import find_host
from kilonova.store.server_records import ServerRecord


async def evacuate(call: Call) -> Response:
    """Evacuate a server, even if its owner has locked it: its host is dead."""
    request = call.body["evacuate"]
    password = _password(call, request)
    if (again := await repeated(call)) is not None:
        return _answer(call, password, again)
    record = await server_of(call)
    params = await _params(call, request, record)
    ask = Ask(
        kind="evacuate",
        server_id=record.id,
        cause=call.cause,
        params=params,
        secrets={} if password is None else {"admin_pass": password},
        key=idempotency_key(call),
    )
    accepted = await submit(call.engine, ask)
    return _answer(call, password, accepted.operation_id)


async def _params(call: Call, request: JsonObject, record: ServerRecord) -> dict[str, Json]:
    host, params = request.get("host"), dict[str, Json]()
    force = is_true(request.get("force") or False)
    if force and host is None:
        raise Refused(400, "Can't force to a non-provided destination")
    if record.launched_at is None:
        raise Refused(409, f"Instance {record.id} is in an invalid state for 'evacuate'")
    if host is not None:
        await _check_host(call, record, as_text(host))
        params["host"] = host
        params["forced"] = force or not call.at(2, 29)
    if call.at(2, 95):
        params["stopped"] = True
    if not call.at(2, 14):
        params["shared"] = is_true(request["onSharedStorage"])
    return params


async def _check_host(call: Call, record: ServerRecord, host: str) -> None:
    """Refuse the server's own host, an unknown one, and one of another cell."""
    if host == record.host:
        raise Refused(400, "The target host can't be the same one.")
    try:
        journal, _ = await find_host(call.engine, host)
    except Refused as why:
        raise Refused(404, why.message) from why
    if journal.name != record.cell:
        text = f"Compute host {host} is in cell {journal.name}, instance {record.id} in {record.cell}"
        raise Refused(400, f"{text}; name a host of the same cell or none")


def _password(call: Call, request: JsonObject) -> str | None:
    """Return the password; None on shared storage: the disk is kept, and with it the password."""
    if not call.at(2, 14) and is_true(request["onSharedStorage"]):
        if request.get("adminPass"):
            raise Refused(400, "admin password can't be changed on existing disk")
        return None
    return as_text(request.get("adminPass")) or new_password(call)


def _answer(call: Call, password: str | None, operation: str) -> Response:
    headers = {OPERATION_HEADER: operation}
    if call.at(2, 14):
        return nothing(200, headers)
    body = {"adminPass": None} if password is None else shown_password(call, password)
    return answer(body, 200, headers)


ROUTES = [
    Route(
        method="POST",
        path="/servers/{server}/action",
        handler=evacuate,
        rule="os_compute_api:os-evacuate",
        body=schemas.EVACUATE,
        action="evacuate",
    )
]
