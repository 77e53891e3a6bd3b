"""An administrator's declarations about a host: down, up, fenced, disabled, enabled.

Closing a host acts immediately and on placement first, so that no claim slips in between. Opening it only lets it
register again: `returned` (hosts/registration_end.py) alone makes a host a destination, after its debts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from sqlalchemy import bindparam, func, select

from kilonova.domain.errors import Failed, KilonovaError, Refused
from kilonova.domain.json import json_object, texts
from kilonova.domain.server import to_json
from kilonova.engine.core import Engine
from kilonova.engine.notifications import new_message_id, notify_service
from kilonova.placement.inventories import set_accepting
from kilonova.placement.traits import set_disabled
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.journal import operations
from kilonova.store import rows
from kilonova.store.hosts import all_hosts, raise_epoch
from kilonova.store.statements import Sql
from kilonova.world import HostFence, Row, Store, Tx

logger = logging.getLogger(__name__)
NOTIFIED = {"disabled", "disabled_reason", "forced_down"}  # columns whose changes are notified, as in Nova
ANY_SESSION = object()
REGISTER_AGAIN_SECONDS = 5.0  # at most: a conductor that is stopping may wait for it
_DEBTS_OF = Sql(select(func.count().label("number")).where(cell.debts.c.host == bindparam("host")))


async def declare_down(engine: Engine, host: str) -> None:
    """Declare that the host is dead. What it still reports belongs to a past epoch; steps there fail or become
    debts."""
    journal, row = await find_host(engine, host)
    await set_accepting(engine.world.db.placement, row["provider_id"], False)
    await _set(engine, journal, host, epoch=True, forced_down=1)
    await _close_again(engine, row)


async def fence(engine: Engine, host: str, confirm: Callable[[], Awaitable[None]] | None = None) -> str:
    """Fence the host, and record the proof: from here on its servers may run elsewhere.

    The host counts as fenced until its agent registers again. `confirm` is called just before the fence and raises
    `Failed` if that is no longer due.
    """
    journal, row = await find_host(engine, host)
    if engine.world.fence is None:
        raise Refused("no_fence", f"host {host}: no fence is configured; switch it off and declare it down")
    try:
        await set_accepting(engine.world.db.placement, row["provider_id"], False)
        if confirm is not None:
            await confirm()
        proof = await _run_fence(engine.world.fence, host, engine.settings.ha.fence_timeout)
        fenced = to_json({"proof": proof, "at": engine.world.clock.now()})
        await _set(engine, journal, host, in_session=row["session"], epoch=True, fenced=fenced)
        await _close_again(engine, row)
    except (Exception, asyncio.CancelledError):
        await _try_to_register_again(engine, journal, host)
        raise
    logger.warning("host fenced: host=%s proof=%s", host, proof)
    return proof


async def _run_fence(command: HostFence, host: str, seconds: float) -> str:
    try:
        async with asyncio.timeout(seconds):
            return await command.fence(host)
    except TimeoutError as error:
        raise Failed("fence_failed", f"{host} could not be fenced: no answer within {seconds:g} s") from error


async def _try_to_register_again(engine: Engine, journal: Store, host: str) -> None:
    """Let the host register again if its cell answers in time; else a conductor finds the host closed later
    (hosts/reopening.py)."""
    try:
        async with asyncio.timeout(REGISTER_AGAIN_SECONDS):
            await _register_again(engine, journal, host)
    except (KilonovaError, TimeoutError) as why:
        logger.warning("host stays closed for now: host=%s reason=%s", host, why or "its cell does not answer in time")


async def _register_again(engine: Engine, journal: Store, host: str) -> None:
    """Let a closed host register again, since nothing else came of closing it: if it lives, that opens it."""

    async def body(tx: Tx) -> None:
        await _lock(tx, host)
        await raise_epoch(tx, host)

    await engine.write(journal, body)


async def fence_absent(engine: Engine, present: Collection[str]) -> list[str]:
    """Mark hosts that this process does not run as fenced, and return their names.

    Only for a process that runs all hosts: the others are certainly off. Each counts as fenced until it is started
    again and registers.
    """
    without_process: list[str] = []
    proof = {"proof": "the process that runs all hosts does not run this one", "at": engine.world.clock.now()}
    for name in engine.world.db.cells():
        journal = engine.world.db.cell(name)
        for row in await journal.read(all_hosts):
            if row["name"] in present or row["fenced"] is not None:
                continue
            await set_accepting(engine.world.db.placement, row["provider_id"], False)
            await _set(engine, journal, row["name"], epoch=True, fenced=to_json(proof))
            without_process.append(row["name"])
    return without_process


async def declare_up(engine: Engine, host: str) -> None:
    """Take the declaration back. Refused while the host owes something: it pays once it answers again."""
    journal, _ = await find_host(engine, host)
    message_id = new_message_id(engine)

    async def body(tx: Tx) -> None:
        row = await _lock(tx, host)
        owed = await tx.one(_DEBTS_OF, host=host)
        if owed is not None and owed["number"]:
            raise Refused(
                "unpaid_debts",
                f"host {host}: {owed['number']} stale guest copies are still to be removed; "
                "start its agent, and retry when it has removed them",
                debts=owed["number"],
            )
        if row["forced_down"]:
            await rows.change(tx, cell.hosts, {"forced_down": 0}, name=host)
            await raise_epoch(tx, host)
            await notify_service(engine, tx, host, message_id)

    await engine.write(journal, body)
    await engine.wake(journal.name, "", host)


async def disable(engine: Engine, host: str, reason: str = "") -> None:
    """Disable the host: it gets no new server; what runs there goes on."""
    journal, row = await find_host(engine, host)
    await set_accepting(engine.world.db.placement, row["provider_id"], False)
    await set_disabled(engine.world.db.placement, row["provider_id"], True)
    await _set(engine, journal, host, disabled=1, disabled_reason=reason or None)
    await _close_again(engine, row)


async def _close_again(engine: Engine, row: Row) -> None:
    """Close the host again: it may have been returning, and was opened by a process that read its record before the
    change."""
    await set_accepting(engine.world.db.placement, row["provider_id"], False)


async def enable(engine: Engine, host: str, *, drained: bool = False) -> None:
    """Enable the host. `drained`: also if a drain has closed it; refused while that runs."""
    journal, row = await find_host(engine, host)
    opened = {"draining": 0} if drained else {}
    guard = _refuse_while_drained if drained else None
    await _set(engine, journal, host, epoch=True, guard=guard, disabled=0, disabled_reason=None, **opened)
    await set_disabled(engine.world.db.placement, row["provider_id"], False)
    await engine.wake(journal.name, "", host)


async def _refuse_while_drained(tx: Tx, host: Row) -> None:
    """Raise `Refused` if a drain began and closed the host since it was read; call it where the host is opened."""
    if not host["draining"]:
        return
    for row in await rows.fetch_all(tx, operations, kind="drain_host", live=1):
        if host["name"] in texts(json_object(row["params"]).get("hosts")):
            raise Refused("busy", f"host {host['name']}: operation {row['id']} drains it; cancel that first")


async def find_host(engine: Engine, host: str) -> tuple[Store, Row]:
    """Return the host's cell and record."""

    async def record(tx: Tx) -> Row | None:
        return await rows.fetch(tx, cell.hosts, name=host)

    name = await cell_of_host(engine, host)
    journal = engine.world.db.cell(name) if name is not None else None
    row = await journal.read(record) if journal is not None else None
    if journal is None or row is None:
        raise Refused("no_such_host", f"Compute host {host} could not be found.")
    return journal, row


async def cell_of_host(engine: Engine, host: str) -> str | None:
    """Return the host's cell by control's mapping, even if that cell does not answer."""

    async def body(tx: Tx) -> Row | None:
        return await rows.fetch(tx, control.host_mappings, host=host)

    mapped = await engine.world.db.control.read(body)
    return None if mapped is None else str(mapped["cell"])


async def _set(
    engine: Engine,
    journal: Store,
    host: str,
    *,
    in_session: Any = ANY_SESSION,
    epoch: bool = False,
    guard: Callable[[Tx, Row], Awaitable[None]] | None = None,
    **values: Any,
) -> None:
    """Change columns of a host's record; equal values change nothing.

    `in_session`: refuse if another agent has started since that session, so the machine is on (law 3). `guard` gets the
    locked record and raises if the change is not allowed.
    """
    message_id = new_message_id(engine) if NOTIFIED & values.keys() else ""

    async def body(tx: Tx) -> None:
        row = await _lock(tx, host)
        if guard is not None:
            await guard(tx, row)
        if in_session is not ANY_SESSION and row["session"] != in_session:
            raise Failed(
                "fence_outdated", f"{host} could not be fenced: its agent was started again before that was recorded"
            )
        if all(row[column] == value for column, value in values.items()):
            return
        await rows.change(tx, cell.hosts, values, name=host)
        if epoch:
            await raise_epoch(tx, host)
        await notify_service(engine, tx, host, message_id)

    await engine.write(journal, body)


async def _lock(tx: Tx, host: str) -> Row:
    row = await rows.fetch(tx, cell.hosts, lock=True, name=host)
    if row is None:
        raise Refused("no_such_host", f"Compute host {host} could not be found.")
    return row
