"""/hosts: how each host stands, with the sentence that says why; and the administrator's word about it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.reading import decode, read_body
from kilonova.domain.errors import Refused
from kilonova.domain.host import HostState
from kilonova.engine.core import Engine
from kilonova.operations.hosts import declare_down, declare_up, disable, enable, find_host
from kilonova.services.compute.hosts import read_by_cell
from kilonova.store import rows
from kilonova.store.hosts import all_hosts, judge_all
from kilonova.store.tables import cell
from kilonova.world import Row, Store, Tx


class ChangeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    forced_down: bool | None = None
    disabled: bool | None = None
    reason: str = ""


async def list_(call: Call) -> Response:
    """How each host stands, and why."""
    return answer({"hosts": await _hosts(call.engine)})


async def show(call: Call) -> Response:
    """How one host stands, and why."""
    return answer({"host": await _host(call.engine, call.path["host"])})


async def change(call: Call) -> Response:
    """Declare a host down or up; close it to new servers or open it."""
    engine, host = call.engine, call.path["host"]
    wish = decode(await read_body(call.request), ChangeBody)
    if wish.forced_down is None and wish.disabled is None:
        raise Refused("bad_request", "say forced_down or disabled, true or false")
    if wish.forced_down is not None:
        await (declare_down if wish.forced_down else declare_up)(engine, host)
    if wish.disabled:
        await disable(engine, host, wish.reason)
    elif wish.disabled is False:
        await enable(engine, host)
    return answer({"host": await _host(engine, host)})


async def _host(engine: Engine, name: str) -> dict[str, Any]:
    journal, _ = await find_host(engine, name)
    return next(host for host in await _hosts(engine, journal.name) if host["name"] == name)


async def _hosts(engine: Engine, only_cell: str | None = None) -> list[dict[str, Any]]:
    """Of a cell that does not answer there is nothing to tell; `kilonova cell list` names it."""

    async def body(tx: Tx) -> tuple[list[Row], dict[str, HostState], list[Row]]:
        states = await judge_all(tx, engine.limits.service_down_time)
        return await all_hosts(tx), states, list(await rows.fetch_all(tx, cell.debts))

    async def read(store: Store) -> list[dict[str, Any]]:
        records, states, debts = await store.read(body)
        owed = Counter(debt["host"] for debt in debts)
        return [_view(store.name, row, states[row["name"]], owed[row["name"]]) for row in records]

    if only_cell is not None:
        return await read(engine.world.db.cell(only_cell))
    found = await read_by_cell(engine.world.db, read)
    return [host for hosts in found.values() for host in hosts or ()]


def _view(cell_name: str, row: Row, state: HostState, owed: int) -> dict[str, Any]:
    return {
        "name": row["name"],
        "cell": cell_name,
        "state": state.word,
        "sentence": state.sentence,
        "forced_down": bool(row["forced_down"]),
        "disabled": bool(row["disabled"]),
        "disabled_reason": row["disabled_reason"],
        "debts": owed,
        "last_seen": row["last_seen"],
        "epoch": row["epoch"],
    }
