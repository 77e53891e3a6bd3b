"""/hosts: the state of each host with the reason for it, and the administrator's declarations about hosts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from kilonova.api.call import Call, answer, notify_declared
from kilonova.api.content import Content
from kilonova.api.reading import decode, is_uuid, read_body
from kilonova.domain.errors import Failed, Refused
from kilonova.domain.host import HostState
from kilonova.engine.core import Engine
from kilonova.hosts.states import declare_down, declare_up, disable, enable, fence, find_host
from kilonova.operations.quarantine import adopt_quarantined, remove_quarantined
from kilonova.schema.tables import cell
from kilonova.services.compute.hosts import read_by_cell
from kilonova.store import rows
from kilonova.store.hosts import all_hosts, judge_all
from kilonova.store.quarantine import all_quarantine
from kilonova.world import Row, Store, Tx

logger = logging.getLogger(__name__)
DEBT_SHOWN = ("copy", "verb", "created_at")
COPY_SHOWN = ("copy", "reason", "power", "whole", "found_at", "action", "action_by", "action_at", "ended_at")


class HostUpdateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    forced_down: bool | None = None
    disabled: bool | None = None
    fence: Literal[True] | None = None
    reason: Annotated[str, Meta(max_length=255)] = ""  # as long as Nova lets it be


class QuarantineBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    action: Literal["adopt", "remove"]
    copy: Annotated[int, Meta(ge=1, le=2**62)] | None = None  # needed where several copies of the server are held


async def list_(call: Call) -> Response:
    """List the hosts with their state and the reason for it."""
    return answer({"hosts": await _hosts(call.engine)})


async def show(call: Call) -> Response:
    """Show one host: its state, the reason for it, its debts, and guests that the records do not explain."""
    return answer({"host": await _host(call.engine, call.path["host"])})


async def change(call: Call) -> Response:
    """Declare a host down or up; close it to new servers or open it; switch it off by the fence command."""
    engine = call.engine
    host = (await _record(engine, call.path["host"]))["name"]
    request = decode(await read_body(call.request), HostUpdateBody)
    if request.forced_down is None and request.disabled is None and request.fence is None:
        raise Refused("bad_request", "the body must have forced_down or disabled, true or false, or fence, true")
    if request.fence:
        await _fence(call, host)
    if request.forced_down is not None:
        await (declare_down if request.forced_down else declare_up)(engine, host)
        notify_declared(call, host, down=request.forced_down)
    if request.disabled:
        await disable(engine, host, request.reason)
    elif request.disabled is False:
        await enable(engine, host, drained=True)
    return answer({"host": await _host(engine, host)})


async def _fence(call: Call, host: str) -> None:
    """Fence a host. One that answers is refused, because all its servers would be cut off: drain it first."""
    journal, _ = await find_host(call.engine, host)
    states = await journal.read(lambda tx: judge_all(tx, call.settings.default.service_down_time))
    if states[host].is_up:
        raise Refused("host_still_up", f"{states[host].sentence}; drain it, or declare it down before it is fenced")
    logger.warning("fencing host: host=%s user=%s", host, call.caller.user_id)
    try:
        await fence(call.engine, host)
    except Failed as why:  # nothing was changed that the host does not mend when it registers
        raise Refused(why.code, why.message) from why


async def settle_copy(call: Call) -> Response:
    """Adopt a quarantined copy as the server's own, or have it removed."""
    request = decode(await read_body(call.request), QuarantineBody)
    record = await _record(call.engine, call.path["host"])
    host, server = record["name"], call.path["server"]
    if request.action == "adopt":
        accepted = await adopt_quarantined(call.engine, host, server, request.copy, call.cause)
        operation = accepted.operation_id
        content = {"host": host, "server": server, "action": "adopt", "operation": operation}
        return answer(content, 202, {"X-Kilonova-Operation": operation})
    copy = await remove_quarantined(call.engine, host, server, request.copy, call.cause)
    return answer({"host": host, "server": server, "copy": copy, "action": "remove"}, 202)


async def _record(engine: Engine, given: str) -> Row:
    """Return the host with this name, or with this service id."""
    if is_uuid(given):

        async def read(store: Store) -> list[Row]:
            return [row for row in await store.read(all_hosts) if row["id"] == given]

        for records in (await read_by_cell(engine.world.db, read)).values():
            for row in records or ():
                return row
    _, row = await find_host(engine, given)
    return row


async def _host(engine: Engine, given: str) -> dict[str, Content]:
    record = await _record(engine, given)
    journal, _ = await find_host(engine, record["name"])
    summary = next(host for host in await _hosts(engine, journal.name) if host["name"] == record["name"])

    async def body(tx: Tx) -> tuple[list[Row], list[Row]]:
        owed = await rows.fetch_all(tx, cell.debts, host=record["name"])
        return list(owed), [row for row in await all_quarantine(tx) if row["host"] == record["name"]]

    owed, quarantined = await journal.read(body)
    owed.sort(key=lambda debt: (debt["server_id"], debt["copy"]))
    return {
        **summary,
        "owed": [{"server": debt["server_id"], **{name: debt[name] for name in DEBT_SHOWN}} for debt in owed],
        "quarantine": [_copy(row) for row in quarantined if row["ended_at"] is None],
        "settled": [_copy(row) for row in quarantined if row["ended_at"] is not None],
    }


def _copy(row: Row) -> dict[str, Content]:
    content = {"server": row["server_id"], **{name: row[name] for name in COPY_SHOWN}}
    return {**content, "whole": bool(row["whole"])}


async def _hosts(engine: Engine, only_cell: str | None = None) -> list[dict[str, Content]]:
    """Return the hosts of the cells that answer. `kilonova cell list` shows the other cells."""

    async def body(tx: Tx) -> tuple[list[Row], dict[str, HostState], list[Row], Sequence[Row]]:
        states = await judge_all(tx, engine.settings.default.service_down_time)
        debts = list(await rows.fetch_all(tx, cell.debts))
        return await all_hosts(tx), states, debts, await all_quarantine(tx)

    async def read(store: Store) -> list[dict[str, Content]]:
        records, states, debts, quarantined = await store.read(body)
        owed = Counter(debt["host"] for debt in debts)
        held = Counter(row["host"] for row in quarantined if row["ended_at"] is None)
        return [_view(store.name, row, states[row["name"]], owed[row["name"]], held[row["name"]]) for row in records]

    if only_cell is not None:
        return await read(engine.world.db.cell(only_cell))
    hosts_by_cell = await read_by_cell(engine.world.db, read)
    return [host for hosts in hosts_by_cell.values() for host in hosts or ()]


def _view(cell_name: str, row: Row, state: HostState, owed: int, quarantined: int) -> dict[str, Content]:
    return {
        "name": row["name"],
        "id": row["id"],
        "cell": cell_name,
        "state": state.status,
        "sentence": state.sentence,
        "proven_by": state.proven_by,
        "forced_down": bool(row["forced_down"]),
        "disabled": bool(row["disabled"]),
        "disabled_reason": row["disabled_reason"],
        "debts": owed,
        "quarantined": quarantined,
        "last_seen": row["last_seen"],
        "epoch": row["epoch"],
    }
