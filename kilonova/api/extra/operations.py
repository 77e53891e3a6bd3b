"""/operations: requested operations, their progress and the reasons for their decisions; and new requests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.compute.rebuild_image import image_for
from kilonova.api.compute.server_resize import resize_params
from kilonova.api.compute.server_unplaced import rebuild_params
from kilonova.api.extra import owners, view
from kilonova.api.extra.create import submit_create
from kilonova.api.extra.planning import with_scheduler
from kilonova.api.extra.progress import progress_of
from kilonova.api.extra.snapshots import SnapshotBody, server_named, submit_snapshot
from kilonova.api.full_disk import refuse_operation
from kilonova.api.reading import decode, limit_of, read_body
from kilonova.domain.answers import WholeOperation
from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.json import Json
from kilonova.domain.operation import OPERATION_STATES
from kilonova.domain.whole_hosts import REFUSE
from kilonova.engine.abandon import abandon, resume
from kilonova.engine.accept import Accepted, Ask, IdempotencyKey
from kilonova.engine.cancel import cancel
from kilonova.engine.core import Engine
from kilonova.engine.submit import find_mapping, known_operation, submit
from kilonova.hosts.states import find_host
from kilonova.operations.in_cell0.retry import ANY_FAILURE, rebuild_unplaced
from kilonova.operations.whole_hosts.declare_gone import declare_gone
from kilonova.operations.whole_hosts.rehearse import rehearse_host
from kilonova.operations.whole_hosts.requests import Bulk, ask_for_hosts, is_running_already, known_for_hosts
from kilonova.operations.whole_hosts.steps import misfit_sentence
from kilonova.store.findings import findings_of, interventions_of
from kilonova.store.open_stores import CELL0
from kilonova.store.operations import Journaled, actions_of, find, page, steps_of
from kilonova.world import Stores

ROUTE = "POST /kilonova/v1/operations"
KEY_LENGTH = 255
MOST = 2**31 - 1  # the largest value of the column
Bodies = dict[str, type[msgspec.Struct]]  # by the name of the operation
ServerOperation = Literal["delete", "migrate", "confirm_resize", "revert_resize"]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Reason = Annotated[str, Meta(min_length=1, max_length=1000)]


class ServerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operation: ServerOperation
    server: str
    host: str | None = None  # where to, for migrate

    def params(self) -> dict[str, Json]:
        return {"host": self.host} if self.host else {}


class EvacuateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operation: Literal["evacuate"]
    server: str
    host: str | None = None  # where to
    accept_unfenced: bool = False  # though only silence proves that its host is dead

    def params(self) -> dict[str, Json]:
        return {"accept_unfenced": self.accept_unfenced, **({"host": self.host} if self.host else {})}


class RetryBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Try a server in cell0 again: it never found a host, or every host failed to build it."""

    operation: Literal["retry"]
    server: str


class RebuildBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The newest form of a rebuild: it re-images the volume that a server boots from, and schedules a server in cell0
    again."""

    operation: Literal["rebuild"]
    server: str
    image: str  # its id


class ResizeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operation: Literal["resize"]
    server: str
    flavor: Name  # its id


class HostOperationBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Servers of whole hosts. Either `host` or `hosts`."""

    operation: str
    host: Name | None = None
    hosts: Annotated[list[Name], Meta(max_length=1000)] = []
    on_misfit: Literal["refuse", "skip"] = "skip"
    deadline: Annotated[float, Meta(gt=0, le=MOST)] | None = None  # seconds

    def named(self) -> list[str]:
        if (self.host is None) == (not self.hosts):
            raise Refused("bad_request", "'host' or 'hosts' is a required property, and only one of the two")
        return [self.host] if self.host is not None else self.hosts

    def bulk(self) -> Bulk:
        return Bulk(on_misfit=self.on_misfit, deadline=self.deadline)


class EvacuateHostBody(HostOperationBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operation: Literal["evacuate_host"]
    accept_unfenced: bool = False

    def bulk(self) -> Bulk:
        return msgspec.structs.replace(super().bulk(), accept_unfenced=self.accept_unfenced)


class DrainBody(HostOperationBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a drain. If servers do not fit elsewhere, nothing moves, unless misfits may stay."""

    operation: Literal["drain_host"]
    on_misfit: Literal["refuse", "skip"] = "refuse"
    by: Literal["migrate", "stop"] = "migrate"

    def bulk(self) -> Bulk:
        return msgspec.structs.replace(super().bulk(), by=self.by)


class ReturnBody(HostOperationBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operation: Literal["return_host"]


class GoneBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    operation: Literal["host_gone"]
    host: str
    reason: Reason


SERVER_FORMS: Bodies = {**dict.fromkeys(get_args(ServerOperation), ServerBody), "evacuate": EvacuateBody}
HOST_FORMS: Bodies = {
    "evacuate_host": EvacuateHostBody,
    "drain_host": DrainBody,
    "return_host": ReturnBody,
    "host_gone": GoneBody,
}
CHANGE_FORMS: Bodies = {
    "retry": RetryBody,
    "rebuild": RebuildBody,
    "snapshot": SnapshotBody,
    "resize": ResizeBody,
}
BOTH_FORMS: Bodies = {**SERVER_FORMS, **CHANGE_FORMS, **HOST_FORMS}
FORMS: dict[str, type[msgspec.Struct] | None] = {"create": None, **BOTH_FORMS}  # None: the body of POST /servers


class ReasonBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An administrator's intervention. It is recorded with its reason."""

    reason: Reason


class OperationName(msgspec.Struct, frozen=True):
    operation: str


def form_of(body: bytes, forms: Mapping[str, type[msgspec.Struct] | None]) -> Any:
    """Return the form of the operation that the body names."""
    kind = decode(body, OperationName).operation
    if kind not in forms:
        raise Refused("bad_request", f"operation {kind[:80]!r}: unknown here; use one of {', '.join(forms)}")
    return forms[kind]


async def submit_(call: Call) -> Response:
    """Submit an operation."""
    engine = call.engine
    body = await read_body(call.request)
    server: str | None
    if decode(body, OperationName).operation == "create":
        return await _create(call, body)
    request = decode(body, form_of(body, FORMS))
    refuse_operation(call, request.operation)
    key = _key(call.request, body)
    if isinstance(request, HostOperationBody):
        return _of_hosts(await _for_hosts(call, request, key))
    known = await known_operation(engine, key, call.cause) if key else None
    if known is not None:  # whatever has become of server, host, flavor or image since
        server, accepted = getattr(request, "server", None), known
    elif isinstance(request, SnapshotBody):
        server, accepted = await submit_snapshot(call, request, key)
    elif isinstance(request, ResizeBody):
        server, accepted = request.server, await _resize(call, request, key)
    elif isinstance(request, RebuildBody):
        server, accepted = request.server, await _rebuild(call, request, key)
    else:
        server, accepted = await _accept(engine, request, call.cause, key)
    operation = accepted.operation_id
    return answer({"operation": operation, "server": server}, 202, {"X-Kilonova-Operation": operation})


async def _create(call: Call, body: bytes) -> Response:
    refuse_operation(call, "create")
    key = _key(call.request, body)
    try:
        return await submit_create(call, body, key)
    except Refused:
        if key is None or await known_operation(call.engine, key, call.cause) is None:
            raise
    return await submit_create(call, body, key)  # a concurrent request with the same key was faster


async def _for_hosts(call: Call, request: HostOperationBody, key: IdempotencyKey | None) -> dict[str, Accepted]:
    try:
        await _refuse_misfits(call, request, key)
        return await ask_for_hosts(call.engine, request.operation, request.named(), call.cause, key, request.bulk())
    except Refused:
        known = await known_for_hosts(call.engine, call.cause, key)
        if not known:
            raise
        return known


async def _refuse_misfits(call: Call, request: HostOperationBody, key: IdempotencyKey | None) -> None:
    """Refuse the whole request if one server fits nowhere and the request says that this must stop it."""
    engine, hosts, bulk = call.engine, request.named(), request.bulk()
    if bulk.on_misfit != REFUSE or await is_running_already(engine, request.operation, hosts, call.cause, key):
        return
    plan = await rehearse_host(with_scheduler(engine), request.operation, hosts, bulk, call.cause)
    if plan.misfits:
        raise Refused("misfits", misfit_sentence(plan))


def _of_hosts(accepted: dict[str, Accepted]) -> Response:
    """Return the accepted operations, one per cell; `operation` is the first of them."""
    operations = {cell: one.operation_id for cell, one in accepted.items()}
    first = next(iter(operations.values()))
    return answer({"operation": first, "operations": operations, "server": None}, 202, {"X-Kilonova-Operation": first})


async def _resize(call: Call, request: ResizeBody, key: IdempotencyKey | None) -> Accepted:
    params = await resize_params(call, await server_named(call, request.server), request.flavor)
    return await submit(
        call.engine, Ask(kind="resize", server_id=request.server, cause=call.cause, params=params, key=key)
    )


async def _rebuild(call: Call, request: RebuildBody, key: IdempotencyKey | None) -> Accepted:
    record = await server_named(call, request.server)
    if record.cell == CELL0:
        params = await rebuild_params(call, record, {"imageRef": request.image}, {})
        ask = Ask(kind="rebuild", server_id=request.server, cause=call.cause, params=params, key=key)
        return await rebuild_unplaced(call.engine, ask)
    kind, params = await image_for(call, record, request.image, reimages=True)
    return await submit(call.engine, Ask(kind=kind, server_id=request.server, cause=call.cause, params=params, key=key))


def _key(request: Request, body: bytes) -> IdempotencyKey | None:
    given = request.headers.get("idempotency-key")
    if given is None:
        return None
    if not given or len(given) > KEY_LENGTH:
        raise Refused("bad_request", f"Idempotency-Key: must have 1 to {KEY_LENGTH} characters")
    return IdempotencyKey(given, ROUTE, hashlib.sha256(body).hexdigest())


async def _accept(
    engine: Engine,
    request: RetryBody | ServerBody | EvacuateBody | GoneBody,
    cause: Cause,
    key: IdempotencyKey | None,
) -> tuple[str | None, Accepted]:
    if isinstance(request, GoneBody):
        journal, _ = await find_host(engine, request.host)
        return None, await declare_gone(engine, journal, request.host, request.reason, cause, key)
    if isinstance(request, RetryBody):
        await find_mapping(engine, request.server)
        ask = Ask(kind="rebuild", server_id=request.server, cause=cause, params=ANY_FAILURE, key=key)
        return request.server, await rebuild_unplaced(engine, ask)
    ask = Ask(kind=request.operation, server_id=request.server, cause=cause, params=request.params(), key=key)
    return request.server, await submit(engine, ask)


async def list_(call: Call) -> Response:
    """List operations, newest first. Without the rule `kilonova:operations`: those on one server of the own project."""
    stores, query, sees_all = call.engine.world.db, call.query, call.allows(owners.SEES_ALL)
    if unknown := set(query) - {"server", "state", "limit", "marker"}:
        raise Refused("bad_request", f"unknown query parameter {', '.join(sorted(unknown))}")
    by = {column: query[name] for name, column in (("server", "server_id"), ("state", "state")) if name in query}
    if by.get("state", "done") not in OPERATION_STATES:
        raise Refused("bad_request", f"state={by['state']!r}: unknown; use one of {', '.join(OPERATION_STATES)}")
    if not sees_all:
        if "server" not in query:
            raise Refused(403, f"Policy doesn't allow {owners.SEES_ALL} to be performed; name a server: ?server=ID")
        await owners.require_server(call, query["server"])
    before = (
        await _marker(stores, query["marker"], None if sees_all else by["server_id"]) if "marker" in query else None
    )
    operations = await page(stores, by=by, before=before, limit=limit_of(call.request))
    if not operations and "server" in query:
        await newest_of(stores, query["server"], limit=1)
    if sees_all:
        return answer({"operations": [view.operation(journaled) for journaled in operations]})
    return answer({"operations": [await owners.operation(call.engine, journaled) for journaled in operations]})


async def _marker(stores: Stores, marker: str, server: str | None) -> tuple[float, str]:
    """Return the position where the page begins. `server`: the only server whose operations the caller may see."""
    entries = await find(stores, marker)
    if not entries or server not in (None, entries[-1].row["server_id"]):
        raise Refused("bad_request", f"marker {marker[:80]}: not found")
    return entries[-1].key


async def journaled_of(call: Call) -> list[Journaled]:
    operation_id = call.path["id"]
    entries = await find(call.engine.world.db, operation_id)
    if not entries:
        raise Refused("not_found", f"operation {operation_id}: not found")
    if not call.allows(owners.SEES_ALL):
        await owners.require_own(call, entries)
    return entries


async def show(call: Call) -> Response:
    """Show one operation with its steps, actions and events; for the server's owner, without hosts."""
    entries = await journaled_of(call)
    steps = [step for journaled in entries for step in await steps_of(journaled)]
    steps.sort(key=lambda step: int(step["ordinal"]))
    if not call.allows(owners.SEES_ALL):
        return answer({"operation": await owners.whole(call.engine, entries, steps)})
    actions = await actions_of(call.engine.world.db, call.path["id"])
    interventions = [intervention for journaled in entries for intervention in await interventions_of(journaled)]
    left = [finding for journaled in entries for finding in await findings_of(journaled)]
    content: WholeOperation = {
        **view.operation(entries),
        "decision": view.short(view.decision(entries, steps)),
        "progress": await progress_of(entries[-1], steps),
        "steps": [view.step(step) for step in steps],
        "actions": [view.action(action, events) for action, events in actions],
        "interventions": [view.intervention(intervention) for intervention in interventions],
        "findings": [view.finding(finding) for finding in left],
    }
    return answer({"operation": content})


async def newest_of(stores: Stores, server_id: str, *, limit: int) -> list[list[Journaled]]:
    """Return the newest operations on a server. An id without any is unknown: a server has at least its create."""
    operations = await page(stores, by={"server_id": server_id}, before=None, limit=limit)
    if not operations:
        raise owners.no_operations(server_id)
    return operations


async def cancel_(call: Call) -> Response:
    """Undo what was done so far, until the point of no return."""
    engine, entries = call.engine, await journaled_of(call)
    operation_id = call.path["id"]
    await cancel(engine, entries[-1].journal, operation_id, call.cause.user_id)
    return answer({"operation": operation_id}, 202, {"X-Kilonova-Operation": operation_id})


async def resume_(call: Call) -> Response:
    """Try the step that waits now."""
    entries, operation_id = await journaled_of(call), call.path["id"]
    await resume(call.engine, entries[-1].journal, operation_id, call.cause)
    return answer({"operation": operation_id}, 202, {"X-Kilonova-Operation": operation_id})


async def abandon_(call: Call) -> Response:
    """Skip the step that was refused for good, and go on with the rest; what it leaves is a finding."""
    request = decode(await read_body(call.request), ReasonBody)
    entries, operation_id = await journaled_of(call), call.path["id"]
    await abandon(call.engine, entries[-1].journal, operation_id, call.cause, request.reason)
    return answer({"operation": operation_id}, 202, {"X-Kilonova-Operation": operation_id})
