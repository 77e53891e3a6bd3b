"""The server a request is about: found where it is, invisible to other projects."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from kilonova.api.call import OPERATION_HEADER, Call, nothing
from kilonova.api.compute.repeating import idempotency_key, repeated
from kilonova.domain.caller import Caller, IdentityRef
from kilonova.domain.details import Details, details_document, details_from
from kilonova.domain.errors import Refused, Unreachable
from kilonova.domain.host import HostState
from kilonova.domain.server import LEAVING
from kilonova.engine.accept import Accepted, Ask
from kilonova.engine.core import Engine
from kilonova.engine.submit import submit
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.hosts import judge_all, judge_host
from kilonova.store.server_records import ServerRecord, find, find_partial, read_one
from kilonova.world import Tx

Submit = Callable[[Engine, Ask], Awaitable[Accepted]]
PATIENCE = 20  # looks, a tenth of a second apart, until a new server has left for its cell


async def server_of(call: Call, *, deleted: bool = False, rule: str = "") -> ServerRecord:
    server_id = call.path["server"]
    return _allowed(call, await find(call.db, server_id, deleted=deleted), rule)


async def partial_server_of(call: Call) -> ServerRecord:
    """Return a server whose cell does not answer, with the data in control; from 2.69 on."""
    record = _allowed(call, await find_partial(call.db, call.path["server"]))
    if not call.at(2, 69):
        raise Unreachable(f"server {record.id}: its cell does not answer")
    return record


def _allowed(call: Call, record: ServerRecord | None, rule: str = "") -> ServerRecord:
    if record is None or (record.project_id != call.caller.project_id and not call.caller.is_admin):
        raise Refused(404, f"Instance {call.path['server']} could not be found.")
    call.require(rule, project_id=record.project_id, user_id=record.user_id)
    return record


def owner_of(caller: Caller, record: ServerRecord) -> Caller:
    """Return the owner of the server's networks and volumes, also if the caller is an administrator."""
    if caller.project_id == record.project_id:
        return caller
    return msgspec.structs.replace(caller, project=IdentityRef(record.project_id, record.project_id))


def check_unlocked(call: Call, record: ServerRecord) -> None:
    if record.details.locked_by is not None and not call.caller.is_admin:
        raise Refused(409, f"Instance {record.id} is locked")


def check_state(record: ServerRecord, verb: str, states: Iterable[str], *, busy: bool = False) -> None:
    """Refuse the verb unless the server is in one of the states. `busy`: also accept it while an operation runs."""
    text = f"Cannot '{verb}' instance {record.id} while it is in"
    if record.vm_state not in states:
        raise Refused(409, f"{text} vm_state {record.vm_state}")
    if not busy and record.task_state is not None:
        raise Refused(409, f"{text} task_state {record.task_state}")


async def act(call: Call, operation: str, status: int = 202, *, by: Submit = submit, **params: Any) -> Response:
    """Submit the operation and put its id into a response header."""
    if (again := await repeated(call)) is not None:
        return nothing(status, {OPERATION_HEADER: again})
    record = await server_of(call)
    check_unlocked(call, record)
    ask = Ask(kind=operation, server_id=record.id, cause=call.cause, params=params, key=idempotency_key(call))
    accepted = await by(call.engine, ask)
    return nothing(status, {OPERATION_HEADER: accepted.operation_id})


async def placed(call: Call, record: ServerRecord, verb: str) -> ServerRecord:
    """Wait until the server has a cell, and return its record. Attributes that only the API writes are in its cell's
    row."""
    for _ in range(PATIENCE):
        if record.cell is not None:
            return record
        await call.engine.world.clock.sleep(0.1)
        record = await server_of(call)
    raise Refused(409, f"Cannot '{verb}' instance {record.id} while it is in task_state {record.task_state}")


async def change_details(
    call: Call, record: ServerRecord, edit: Callable[[Details], None], **columns: Any
) -> ServerRecord:
    """Read, change and write in one transaction. `edit` may run twice and may raise. What a server's owner says while
    it leaves its cell is said to the record that it has afterwards."""
    for _ in range(PATIENCE):
        changed = await _changed(call, record, edit, columns)
        if changed is not None:
            return changed
        await call.engine.world.clock.sleep(0.1)
        record = await server_of(call)
    raise Refused(409, f"Instance {record.id} is being moved between cells; retry the request")


async def _changed(
    call: Call, record: ServerRecord, edit: Callable[[Details], None], columns: Mapping[str, object]
) -> ServerRecord | None:
    """Return the changed record; None if the server has left the cell, or is about to."""
    assert record.cell is not None
    now = call.now

    async def body(tx: Tx) -> ServerRecord | None:
        row = await rows.fetch(tx, cell.servers, lock=True, id=record.id, deleted=0)
        if row is None or row["hidden"] == LEAVING:
            return None
        details = details_from(row["details"])
        edit(details)
        values = {**columns, "details": details_document(details), "updated_at": now}
        await rows.change(tx, cell.servers, values, id=record.id)
        changed = await read_one(tx, record.cell or "", record.id)
        assert changed is not None
        return changed

    return await call.engine.write(call.db.cell(record.cell), body)


async def look_at_ports(call: Call, records: Sequence[ServerRecord]) -> None:
    """Update the ports of these records. A row has the ports of the last operation; later changes are read from
    Network."""
    changed = await call.service.networks.changed_vifs([record.id for record in records if record.cell is not None])
    for record in records if changed else ():
        if record.id in changed:
            record.vifs = changed[record.id]


async def host_states(call: Call, records: Sequence[ServerRecord]) -> dict[str, HostState]:
    """Return the states of these servers' hosts. Only called for callers who may see them."""
    down_after = call.settings.default.service_down_time
    if len(records) == 1:
        return await _host_state(call, records[0], down_after)

    async def body(tx: Tx) -> dict[str, HostState]:
        return await judge_all(tx, down_after)

    states: dict[str, HostState] = {}
    for name in {record.cell for record in records if record.cell is not None and record.host}:
        with contextlib.suppress(Unreachable):  # gone since the servers were read
            states |= await call.db.cell(name).read(body)
    return states


async def _host_state(call: Call, record: ServerRecord, down_after: float) -> dict[str, HostState]:
    """Read the state of the server's host only, not of all hosts."""
    host = record.host

    async def body(tx: Tx) -> HostState | None:
        return await judge_host(tx, host, down_after) if host is not None else None

    state = await call.db.cell(record.cell).read(body, few=True) if record.cell is not None else None
    return {} if state is None else {state.name: state}
