"""Submit an operation on a server, for the API and the command line: find the journal that owns the server, and accept
there."""

from __future__ import annotations

import msgspec

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused, Unreachable
from kilonova.domain.json import as_text, json_object
from kilonova.domain.params import ServerSpec
from kilonova.domain.server import ARRIVING, LEAVING
from kilonova.engine.accept import (
    Accepted,
    Ask,
    IdempotencyKey,
    accept,
    known_key,
    params_of,
    remember_key,
    store_operation,
)
from kilonova.engine.build_requests import take_request
from kilonova.engine.core import Engine
from kilonova.engine.course import Course
from kilonova.engine.journal import Op
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import operations
from kilonova.store import rows
from kilonova.store.open_stores import CELL0
from kilonova.world import Row, Tx


async def submit(engine: Engine, ask: Ask) -> Accepted:
    """Accept an operation on an existing server, in whichever cell it is; `delete` also before it is in one."""
    earlier = await _earlier(engine, ask)
    if earlier is not None:
        return earlier
    try:
        return await _submit(engine, ask)
    except Refused:
        earlier = await _earlier(engine, ask)  # the same request, sent at the same time, may have been faster
        if earlier is None:
            raise
        return earlier


async def _submit(engine: Engine, ask: Ask) -> Accepted:
    for _ in range(10):
        mapping = await find_mapping(engine, ask.server_id)
        if mapping["cell"] is not None:
            await engine.operation(ask.kind).admit(engine, ask, mapping)
            accepted = await _accept_in(engine, await _owner(engine, mapping["cell"], ask), ask)
            if accepted is not None:
                return accepted
            continue
        if ask.kind != "delete":
            raise Refused("busy", f"Instance {ask.server_id} is being built; wait until it has a host")
        accepted = await _delete_unplaced(engine, ask)
        if accepted is not None:
            return accepted
    raise Refused("busy", f"Instance {ask.server_id} is being moved between cells; retry the request")


async def _accept_in(engine: Engine, name: str, ask: Ask) -> Accepted | None:
    """Accept in that cell. None: the server has left it; look again where it is."""
    try:
        return await accept(engine, engine.world.db.cell(name), ask)
    except Refused as why:
        if why.code != "not_found":
            raise
        mapped = (await find_mapping(engine, ask.server_id))["cell"]
        if mapped is not None and await _owner(engine, mapped, ask) == name:
            raise
        return None


async def _owner(engine: Engine, mapped: str, ask: Ask) -> str:
    """Return the cell whose journal owns the server. On the way to cell0 that is the cell that it leaves, until its row
    there is gone (law 6); meanwhile only a delete may be requested."""
    db = engine.world.db
    if mapped != CELL0 or ask.kind != "delete":
        return mapped

    async def arriving(tx: Tx) -> str:
        row = await rows.fetch(tx, cell.servers, id=ask.server_id, hidden=ARRIVING)
        return "" if row is None else as_text(json_object(row["runner_proof"]).get("left"))

    async def is_there(tx: Tx) -> bool:
        return await rows.fetch(tx, cell.servers, id=ask.server_id, hidden=LEAVING) is not None

    left = await db.cell(CELL0).read(arriving, few=True)
    return left if left in db.cells() and await db.cell(left).read(is_there, few=True) else CELL0


async def _earlier(engine: Engine, ask: Ask) -> Accepted | None:
    """Return the operation of an earlier request with the same key, in whichever journal; the server may have moved or
    gone since (law 10)."""

    async def body(tx: Tx) -> Accepted | None:
        return await known_key(tx, ask)

    for journal in engine.world.db.journals() if ask.key is not None else ():
        try:
            known = await journal.read(body)
        except Unreachable:  # a key belongs to a request about one server: if that is there, `accept` fails too
            continue
        if known is not None:
            return known
    return None


async def known_operation(engine: Engine, key: IdempotencyKey, cause: Cause) -> Accepted | None:
    """Return the operation that an earlier request with this key began."""
    return await _earlier(engine, Ask(kind="", server_id="", cause=cause, key=key))


async def find_mapping(engine: Engine, server_id: str) -> Row:
    async def body(tx: Tx) -> Row | None:
        return await rows.fetch(tx, control.server_mappings, server_id=server_id, queued_for_delete=0)

    mapping = await engine.world.db.control.read(body, few=True)
    if mapping is None:
        raise Refused("not_found", f"Instance {server_id} could not be found.")
    return mapping


async def _delete_unplaced(engine: Engine, ask: Ask) -> Accepted | None:
    """Delete a server that is in no cell. None: `place` was faster, and the server is in a cell now."""
    operation = engine.operation("delete_unplaced")
    operation_id = ask.operation_id or engine.world.ids.uuid()

    async def body(tx: Tx) -> Accepted | None:
        now = engine.world.clock.now()
        if await rows.fetch(tx, operations, id=operation_id) is not None:
            return Accepted(operation_id, joined=True)
        request = await rows.fetch(tx, control.build_requests, lock=True, server_id=ask.server_id)
        if request is None:
            return await _running_delete(tx, ask, now)
        cells = await take_request(tx, request, operation_id, operation, now)
        op = fresh(engine, ask, operation_id, turn=request["turn"] + 1, kind=operation.name)
        spec = msgspec.json.decode(request["server"], type=ServerSpec)
        spec.details.user_data = spec.details.personality = None
        facts = op.facts(operation)
        facts.cells, facts.devices = cells, bool(spec.volumes)
        facts.build_request = spec if engine.settings.notifications.is_on else None
        op.committed = True  # the build request is gone
        await store_operation(engine, tx, engine.world.db.control, operation, op, ask, now)
        return Accepted(operation_id)

    accepted = await engine.write(engine.world.db.control, body)
    if accepted is not None:
        await engine.wake("control", accepted.operation_id)
    return accepted


async def _running_delete(tx: Tx, ask: Ask, now: float) -> Accepted | None:
    row = await rows.fetch(tx, operations, server_id=ask.server_id, kind="delete_unplaced", live=1)
    if row is None:
        return None
    known = await known_key(tx, ask)
    if known is None:
        await remember_key(tx, ask, row["id"], now)
    return known or Accepted(row["id"], joined=True)


def fresh(engine: Engine, ask: Ask, operation_id: str, *, turn: int, kind: str = "") -> Op:
    operation = engine.operation(kind or ask.kind)
    return Op(
        id=operation_id,
        kind=operation.name,
        version=operation.version,
        server_id=ask.server_id or None,  # None: of several
        turn=turn,
        state="accepted",
        ordinal=0,
        committed=False,
        course=Course(),
        known_params=params_of(operation, ask.params),
        known_facts=operation.facts_type(),
        cause=ask.cause,
        request_id=ask.cause.request_id,
    )
