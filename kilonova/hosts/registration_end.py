"""The end of a host's return: its verdicts were carried out, its debts are paid, and it may work.

What it reports of a copy counts only where the records have that copy at this host (law 3).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kilonova.domain.errors import Superseded
from kilonova.domain.json import as_text, json_object
from kilonova.domain.messages import Returned
from kilonova.domain.server import ACTIVE, POWER_RUNNING, POWER_SHUTDOWN, SOFT_DELETED, STOPPED
from kilonova.engine.core import Engine
from kilonova.engine.details import edit_details
from kilonova.hosts.registration import cell_of
from kilonova.hosts.verdicts import may_be_gone
from kilonova.placement import claims
from kilonova.placement.inventories import set_by_registration
from kilonova.placement.traits import set_disabled
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.host_hardware import touch
from kilonova.store.quarantine import end_quarantine
from kilonova.world import Row, Store, Tx

logger = logging.getLogger(__name__)
REASON_LENGTH = 500


async def returned(engine: Engine, message: Returned) -> bool:
    """End the registration: the verdicts were carried out and debts are paid, so the host may work. False: it has to
    register again."""
    journal, placement = await cell_of(engine, message.host), engine.world.db.placement
    host = await _current(journal, message)
    if host is None:
        return False
    number = host["registration"] or 0
    try:
        for server, copy in message.destroyed:
            await _pay(engine, journal, message, server, copy)
    except Superseded:
        return False
    await set_by_registration(placement, host["provider_id"], _is_open(host), number)
    # Closing a host writes placement, the record, placement again. Where our write came between, the record shows it.
    again = await _current(journal, message)
    if again is None or again["registration"] != host["registration"] or not _is_open(again):
        await set_by_registration(placement, host["provider_id"], False, number)
    if again is not None and again["disabled"]:  # our report may have arrived later and removed the trait
        await set_disabled(placement, host["provider_id"], True)

    async def body(tx: Tx) -> bool:
        # of this registration: a newer one has to end itself, or no heartbeat would notice that it did not
        keys = {**_keys(message), "registration": host["registration"]}
        if not await rows.change(tx, cell.hosts, {"returning": 0}, **keys):
            return False
        for server, copy, on in message.adopted:
            await _note_power(tx, message.host, server, copy, on)
        for server, copy, reason in message.failed:
            await _note_failed(tx, message.host, server, copy, reason)
        return True

    return await engine.write(journal, body)


async def _note_power(tx: Tx, host: str, server: str, copy: int, on: bool) -> None:
    """Record the power state of a copy that this host may run; a report of any other copy changes nothing."""
    its_own = {"id": server, "runner_host": host, "runner_copy": copy, "operation_id": None}
    await rows.change(tx, cell.servers, {"power_state": POWER_RUNNING if on else POWER_SHUTDOWN}, **its_own)
    if on:  # by restored records it was off
        await rows.change(tx, cell.servers, {"vm_state": ACTIVE}, **its_own, unsettled=1, vm_state=STOPPED)
        await _undelete(tx, host, server, its_own)
    await rows.change(tx, cell.servers, {"unsettled": 0}, **its_own, unsettled=1)
    if not on:  # it is not started again (resume_guests_state_on_host_boot): the API says so
        await rows.change(tx, cell.servers, {"vm_state": STOPPED}, **its_own, vm_state=ACTIVE)


async def _undelete(tx: Tx, host: str, server: str, its_own: Mapping[str, object]) -> None:
    """Restore a server that is soft-deleted by restored records: a guest that runs proves that its owner restored it
    since the backup (law 15)."""
    if await rows.change(tx, cell.servers, {"vm_state": ACTIVE}, **its_own, unsettled=1, vm_state=SOFT_DELETED):
        await edit_details(tx, server, {"soft_deleted_at": None})
        logger.warning(
            "server %s: soft-deleted by the restored records, and its guest runs on %s; set to ACTIVE", server, host
        )


async def _note_failed(tx: Tx, host: str, server: str, copy: int, reason: str) -> None:
    """Record that the guest did not start: its owner may start it, its administrator reads why it is off. A host's
    report of a copy that it may not run changes nothing."""
    if await rows.fetch(tx, cell.servers, id=server, runner_host=host, runner_copy=copy, operation_id=None) is None:
        return
    details = f"{host} could not start it when it returned: {reason[:REASON_LENGTH]}"
    text = "The server could not be started when its host returned."
    ids = {"server_id": server, "operation_id": ""}
    await rows.put(tx, cell.faults, ("created_at",), unless_there=False, **ids, code=500, message=text, details=details)
    logger.warning("guest is off: server=%s host=%s reason=%s", server, host, reason[:REASON_LENGTH])


def _is_open(host: Row) -> bool:
    return not (host["disabled"] or host["draining"] or host["forced_down"] or host["fenced"])


def _keys(message: Returned) -> dict[str, str | int]:
    """Return the columns that match the host only while this agent is the one that registered."""
    return {"name": message.host, "session": message.session, "epoch": message.epoch}


async def _current(journal: Store, message: Returned) -> Row | None:
    async def body(tx: Tx) -> Row | None:
        return await rows.fetch(tx, cell.hosts, lock=False, **_keys(message))

    return await journal.read(body)


async def _pay(engine: Engine, journal: Store, message: Returned, server: str, copy: int) -> None:
    """Pay the debts, placement first: paying twice is harmless, forgetting the claim is not. Raise `Superseded` when
    the host has to register again."""
    at_host = {"host": message.host, "server_id": server, "copy": copy}

    async def find(tx: Tx) -> Row | None:
        return await rows.fetch(tx, cell.debts, lock=False, **at_host, verb="ensure_absent")

    debt = await journal.read(find)
    evacuation = as_text(json_object(debt["after"]).get("evacuation")) if debt is not None else ""
    if evacuation:
        await claims.drop_holder(engine.world.db.placement, server, evacuation)

    async def body(tx: Tx) -> None:
        now = engine.world.clock.now()
        if await rows.fetch(tx, cell.hosts, lock=True, **_keys(message)) is None:
            raise Superseded(f"host {message.host} has to register again")
        if debt is None and not await may_be_gone(tx, message.host, server, copy):
            logger.warning(
                "host %s reports that it removed copy %s of server %s without an order", message.host, copy, server
            )
            return
        await rows.remove(tx, cell.debts, **at_host, verb="ensure_absent")
        await rows.remove(tx, cell.copies, **at_host)
        await end_quarantine(tx, message.host, server, copy, "remove", now)
        await touch(tx, message.host)
        if evacuation:
            done = {"status": "completed", "open": 0, "updated_at": now}
            await rows.change(tx, cell.migrations, done, id=evacuation, status="done")

    await engine.write(journal, body)
