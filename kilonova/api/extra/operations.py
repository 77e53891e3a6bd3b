"""/operations: what was asked, how far it is, why it went where it went; and asking."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.extra import view
from kilonova.api.reading import decode, limit_of, read_body
from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.operation import OPERATION_STATES
from kilonova.domain.server import Flavor
from kilonova.engine.abandon import abandon, resume
from kilonova.engine.accept import Accepted, Ask, Key
from kilonova.engine.cancel import cancel
from kilonova.engine.core import Engine
from kilonova.operations.declare_gone import declare_gone
from kilonova.operations.hosts import find_host
from kilonova.operations.retry import rebuild_unplaced
from kilonova.operations.submit import NewServer, create, evacuate_host, find_mapping, submit
from kilonova.store.findings import findings_of, interventions_of
from kilonova.store.operations import Journaled, actions_of, find, marker_key, page, steps_of
from kilonova.world import Stores

ROUTE = "POST /kilonova/v1/operations"
KEY_LENGTH = 255
MOST = 2**31 - 1  # what a column takes
ServerOperation = Literal["delete", "migrate", "confirm_resize", "revert_resize", "evacuate"]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Reason = Annotated[str, Meta(min_length=1, max_length=1000)]


class FlavorBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Name = "custom"
    vcpus: Annotated[int, Meta(ge=1, le=MOST)]
    memory_mb: Annotated[int, Meta(ge=1, le=MOST)]
    disk_gb: Annotated[int, Meta(ge=0, le=MOST)]


class CreateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operation: Literal["create"]
    name: Name
    flavor: FlavorBody
    image: str = ""
    host: str | None = None


class ServerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operation: ServerOperation
    server: str
    host: str | None = None  # where to, for migrate and evacuate


class RetryBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Try a server again that never found a host."""

    operation: Literal["retry"]
    server: str


class RebuildBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operation: Literal["rebuild"]
    server: str
    image: str  # its id


class HostBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operation: Literal["evacuate_host"]
    host: str


class GoneBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operation: Literal["host_gone"]
    host: str
    reason: Reason


SERVER_FORMS: dict[str, Any] = dict.fromkeys(get_args(ServerOperation), ServerBody)
HOST_FORMS: dict[str, Any] = {"evacuate_host": HostBody, "host_gone": GoneBody}
PLAN_FORMS: dict[str, Any] = {"create": None, **SERVER_FORMS, "rebuild": RebuildBody, **HOST_FORMS}
FORMS = {"create": CreateBody, "retry": RetryBody, **SERVER_FORMS, **HOST_FORMS}


class ReasonBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An administrator's word is recorded with its reason."""

    reason: Reason


class Named(msgspec.Struct, frozen=True):
    operation: str


def form_of(body: bytes, forms: dict[str, Any]) -> Any:
    """By the operation that the body names."""
    kind = decode(body, Named).operation
    if kind not in forms:
        raise Refused("bad_request", f"operation {kind[:80]!r}: unknown here; use one of {', '.join(forms)}")
    return forms[kind]


async def submit_(call: Call) -> Response:
    """Ask for an operation."""
    engine = call.engine
    body = await read_body(call.request)
    wish = decode(body, form_of(body, FORMS))
    server, accepted = await _accept(engine, wish, call.cause, _key(call.request, body))
    operation = accepted.operation_id
    return answer({"operation": operation, "server": server}, 202, {"X-Kilonova-Operation": operation})


def _key(request: Request, body: bytes) -> Key | None:
    given = request.headers.get("idempotency-key")
    if given is None:
        return None
    if not given or len(given) > KEY_LENGTH:
        raise Refused("bad_request", f"Idempotency-Key: must have 1 to {KEY_LENGTH} characters")
    return Key(given, ROUTE, hashlib.sha256(body).hexdigest())


async def _accept(
    engine: Engine,
    wish: CreateBody | RetryBody | ServerBody | HostBody | GoneBody,
    cause: Cause,
    key: Key | None,
) -> tuple[str | None, Accepted]:
    if isinstance(wish, CreateBody):
        flavor = Flavor(wish.flavor.name, wish.flavor.vcpus, wish.flavor.memory_mb, wish.flavor.disk_gb)
        return await create(
            engine, NewServer(name=wish.name, flavor=flavor, image=wish.image, host=wish.host), cause, key
        )
    if isinstance(wish, HostBody):
        journal, _ = await find_host(engine, wish.host)
        return None, await evacuate_host(engine, journal, wish.host, cause, key)
    if isinstance(wish, GoneBody):
        journal, _ = await find_host(engine, wish.host)
        return None, await declare_gone(engine, journal, wish.host, wish.reason, cause, key)
    if isinstance(wish, RetryBody):
        await find_mapping(engine, wish.server)
        ask = Ask(kind="rebuild", server_id=wish.server, cause=cause, key=key)
        return wish.server, await rebuild_unplaced(engine, ask)
    params = {"host": wish.host} if wish.host else {}
    ask = Ask(kind=wish.operation, server_id=wish.server, cause=cause, params=params, key=key)
    return wish.server, await submit(engine, ask)


async def list_(call: Call) -> Response:
    """Operations, the newest first."""
    stores, query = call.engine.world.db, call.query
    if unknown := set(query) - {"server", "state", "limit", "marker"}:
        raise Refused("bad_request", f"unknown query parameter {', '.join(sorted(unknown))}")
    by = {column: query[name] for name, column in (("server", "server_id"), ("state", "state")) if name in query}
    if by.get("state", "done") not in OPERATION_STATES:
        raise Refused("bad_request", f"state={by['state']!r}: unknown; use one of {', '.join(OPERATION_STATES)}")
    before = None
    if "marker" in query:
        before = await marker_key(stores, query["marker"])
        if before is None:
            raise Refused("bad_request", f"marker {query['marker']}: not found")
    found = await page(stores, by=by, before=before, limit=limit_of(call.request))
    if not found and "server" in query:
        await newest_of(stores, query["server"], limit=1)
    return answer({"operations": [view.operation(journaled) for journaled in found]})


async def found_by(call: Call) -> list[Journaled]:
    operation_id = call.path["id"]
    found = await find(call.engine.world.db, operation_id)
    if not found:
        raise Refused("not_found", f"operation {operation_id}: not found")
    return found


async def show(call: Call) -> Response:
    """One operation with its steps, actions and events."""
    found = await found_by(call)
    steps = [step for journaled in found for step in await steps_of(journaled)]
    steps.sort(key=lambda step: int(step["ordinal"]))
    actions = await actions_of(call.engine.world.db, call.path["id"])
    shown = view.operation(found)
    words = [word for journaled in found for word in await interventions_of(journaled)]
    left = [finding for journaled in found for finding in await findings_of(journaled)]
    return answer(
        {
            "operation": {
                **shown,
                "decision": view.short(view.decision(found, steps)),
                "steps": [view.step(step) for step in steps],
                "actions": [view.action(action, events) for action, events in actions],
                "interventions": [view.intervention(word) for word in words],
                "findings": [view.finding(finding) for finding in left],
            }
        }
    )


async def newest_of(stores: Stores, server_id: str, *, limit: int) -> list[list[Journaled]]:
    """Every server has at least been asked for, so one without operations is none."""
    found = await page(stores, by={"server_id": server_id}, before=None, limit=limit)
    if not found:
        raise Refused("not_found", f"server {server_id[:80]}: it has no operations")
    return found


async def cancel_(call: Call) -> Response:
    """Undo what was done so far, until the point of no return."""
    engine, found = call.engine, await found_by(call)
    operation_id = call.path["id"]
    await cancel(engine, found[-1].journal, operation_id, call.cause.user_id)
    return answer({"operation": operation_id}, 202, {"X-Kilonova-Operation": operation_id})


async def resume_(call: Call) -> Response:
    """Try the step that waits now."""
    found, operation_id = await found_by(call), call.path["id"]
    await resume(call.engine, found[-1].journal, operation_id, call.cause)
    return answer({"operation": operation_id}, 202, {"X-Kilonova-Operation": operation_id})


async def abandon_(call: Call) -> Response:
    """Skip the step that was refused for good, and go on with the rest; what it leaves is a finding."""
    request = decode(await read_body(call.request), ReasonBody)
    found, operation_id = await found_by(call), call.path["id"]
    await abandon(call.engine, found[-1].journal, operation_id, call.cause, request.reason)
    return answer({"operation": operation_id}, 202, {"X-Kilonova-Operation": operation_id})
