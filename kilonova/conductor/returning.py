"""A host that registers is returning: it pays its debts and learns what may run there before anything else happens.

Each copy it reports is settled: adopted (it holds permission to run), kept but stopped (its owner stopped it, or an
open move or operation needs it), destroyed (the server runs elsewhere or is deleted, or a debt says so), or quarantined
(unknown: never touched).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from kilonova.domain.errors import Refused, Superseded
from kilonova.domain.guest import CopyReport
from kilonova.domain.messages import Register, Registered, Returned, Verdict
from kilonova.domain.server import (
    ACTIVE,
    POWER_RUNNING,
    POWER_SHUTDOWN,
    RESIZED,
    SOFT_DELETED,
    STOPPED,
    from_json,
    to_json,
)
from kilonova.engine.connections import with_connections
from kilonova.engine.context import ServerRow, guest_spec
from kilonova.engine.core import Engine
from kilonova.placement import claims
from kilonova.placement.inventories import ensure_provider, set_accepting
from kilonova.placement.reporting import take_report
from kilonova.placement.traits import DISABLED, set_disabled
from kilonova.services.compute.cells import keep_cell
from kilonova.store import rows
from kilonova.store.host_hardware import note_hardware, touch
from kilonova.store.tables import cell, control
from kilonova.world import Row, Store, Tx


def identity_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


async def register(engine: Engine, message: Register) -> Registered:
    """From here until `returned` the host is no destination and gets no steps."""
    try:
        journal = await find_cell(engine, message)
        row = await _host_row(engine, journal, message)
    except Refused as why:
        return Registered(epoch=0, refused=why.message)
    placement = engine.world.db.placement
    await ensure_provider(placement, row["provider_id"], message.host, accepting=False)
    await set_accepting(placement, row["provider_id"], False)
    traits = {*message.inventory.traits, *([DISABLED] if row["disabled"] else [])}
    await take_report(placement, row["provider_id"], dict(message.inventory.classes), traits)
    hardware = to_json(message.inventory.hardware)

    async def body(tx: Tx) -> Registered:
        now = await tx.now()
        host = await rows.fetch(tx, cell.hosts, lock=True, name=message.host)
        assert host is not None
        # whoever answers is no longer fenced; what was decided meanwhile it learns now
        values = {"session": message.session, "returning": 1, "last_seen": now, "storage": message.storage}
        values["fenced"] = None
        values |= {"hypervisor": to_json(message.inventory.hypervisor), "reported_at": now}
        if host["session"] != message.session:
            values["session_since"] = now
        await rows.change(tx, cell.hosts, values, name=message.host)
        await note_hardware(tx, message.host, hardware, message.copies)
        resumes = engine.limits.resume_guests_state_on_host_boot
        verdicts = [await _verdict(tx, message.host, report, resumes) for report in message.copies]
        verdicts += await _unreported_debts(tx, message.host, message.copies)
        for verdict in verdicts:
            if verdict.word == "quarantine":
                await _quarantine(tx, message.host, verdict, now)
        return Registered(epoch=host["epoch"], verdicts=verdicts)

    registered = await engine.write(journal, body)
    verdicts = [await _with_volumes(engine, message.host, verdict) for verdict in registered.verdicts]
    return msgspec.structs.replace(registered, verdicts=verdicts)


async def _with_volumes(engine: Engine, host: str, verdict: Verdict) -> Verdict:
    if verdict.guest is None:
        return verdict
    return msgspec.structs.replace(verdict, guest=await with_connections(engine.world, verdict.guest, host))


async def find_cell(engine: Engine, message: Register) -> Store:
    """A host stays in the cell where it was first seen; a new one joins the cell it names, or the first there is."""
    db, host, wanted = engine.world.db, message.host, message.cell
    if wanted and wanted not in db.cells():
        await db.learn()  # it may be new
    cells = [name for name in db.cells() if name != "cell0"]
    if wanted and wanted not in cells:
        known = f"known are {', '.join(cells) or 'none'}"
        advice = f"correct [compute] cell, or make it: kilonova cell create {wanted}"
        raise Refused(
            "no_such_cell", f"host {host} belongs to the cell {wanted}, which does not exist; {known}; {advice}"
        )

    async def body(tx: Tx) -> str:
        row = await rows.fetch(tx, control.host_mappings, host=host)
        if row is None:
            await keep_cell(tx, db, wanted or cells[0])
            await rows.put(tx, control.host_mappings, unless_there=True, host=host, cell=wanted or cells[0])
            return wanted or cells[0]
        if wanted and row["cell"] != wanted:
            raise Refused(
                "host_in_other_cell",
                f"host {host} is mapped to {row['cell']}, not to {wanted}; start its agent with --cell {row['cell']}, "
                f"or move it first: kilonova cell move-host {host} {wanted}",
            )
        return str(row["cell"])

    return db.cell(await engine.write(db.control, body))


async def _host_row(engine: Engine, journal: Store, message: Register) -> Row:
    """The host's record; its identity is a key, and neither may change behind the other's back."""
    identity = identity_of(message.key)
    service_id, provider_id = engine.world.ids.uuid(), engine.world.ids.uuid()

    async def body(tx: Tx) -> Row:
        row = await rows.fetch(tx, cell.hosts, name=message.host)
        if row is not None:
            if row["identity"] != identity:
                raise Refused(
                    "identity_changed",
                    f"host {message.host} is known with another key; restore its key, or delete its record first",
                )
            return row
        other = await rows.fetch(tx, cell.hosts, identity=identity)
        if other is not None:
            raise Refused(
                "host_renamed",
                f"this agent's key belongs to host {other['name']}; a host cannot be renamed to {message.host}",
            )
        await _insert_host(tx, message, identity, service_id, provider_id)
        created = await rows.fetch(tx, cell.hosts, name=message.host)
        assert created is not None
        return created

    return await engine.write(journal, body)


async def _insert_host(tx: Tx, message: Register, identity: str, service_id: str, provider_id: str) -> None:
    now = await tx.now()
    await rows.put(
        tx,
        cell.hosts,
        name=message.host,
        id=service_id,
        provider_id=provider_id,
        identity=identity,
        session=None,
        session_since=None,
        last_seen=now,
        disabled=0,
        disabled_reason=None,
        forced_down=0,
        fenced=None,
        draining=0,
        returning=1,
        epoch=1,
        address=None,
        storage=message.storage,
        hypervisor=None,
        reported_at=now,
        failed_builds=0,
        created_at=now,
    )


async def _verdict(tx: Tx, host: str, report: CopyReport, resumes: bool) -> Verdict:
    """What shall happen to one reported copy."""
    server = await rows.fetch(tx, cell.servers, id=report.server)
    copy = await rows.fetch(tx, cell.copies, server_id=report.server, copy=report.copy, host=host)
    owed = await rows.fetch(tx, cell.debts, host=host, server_id=report.server, copy=report.copy, verb="ensure_absent")
    if owed is not None:
        return Verdict(report.server, report.copy, "destroy", "a debt: this copy was given up while the host was away")
    if server is None:
        return Verdict(report.server, report.copy, "quarantine", "no such server is known in this cell")
    if report.copy > server["turn"]:  # copies are numbered by turns: these records are older than the copy
        why = f"copy {report.copy} is newer than the records (turn {server['turn']}): was an old database restored?"
        return Verdict(report.server, report.copy, "quarantine", why)
    if server["deleted"]:
        return Verdict(report.server, report.copy, "destroy", "the server is deleted")
    if (server["runner_host"], server["runner_copy"]) == (host, report.copy):
        return await _adopted(tx, server, report, resumes)
    if copy is not None and copy["state"] != "leaving":
        return Verdict(report.server, report.copy, "stop", "kept for an open operation; another copy may run")
    return Verdict(report.server, report.copy, "destroy", f"the server belongs to {server['runner_host'] or 'nobody'}")


async def _adopted(tx: Tx, server: Row, report: CopyReport, resumes: bool) -> Verdict:
    """It holds permission to run, and runs again if it should; what its owner stopped is off, whatever happened there
    meanwhile. While an operation is under way only that one says so: the host is asked again when it has ended."""
    state, was_running = server["vm_state"], server["power_state"] == POWER_RUNNING
    should_run = report.whole and (state == ACTIVE or (state == RESIZED and was_running))
    if server["operation_id"] is not None:
        await rows.change(tx, cell.servers, {"recheck": 1}, id=report.server)
        return Verdict(report.server, report.copy, "adopt", "it holds permission to run; an operation is under way")
    # its volumes may be others by now, or connected anew
    guest = guest_spec(ServerRow(server), report.copy) if server["volume_info"] and report.defined else None
    if state in (STOPPED, SOFT_DELETED):
        why = "it holds permission to run, but its owner stopped it"
        return Verdict(report.server, report.copy, "stop", why, guest=guest)
    why, run = "it holds permission to run", should_run and resumes
    return Verdict(report.server, report.copy, "adopt", why, run, guest)


async def _unreported_debts(tx: Tx, host: str, copies: Sequence[CopyReport]) -> list[Verdict]:
    """A debt stands even where nothing was found: removing nothing is harmless and lets it be paid."""
    found = {(report.server, report.copy) for report in copies}
    owed = await rows.fetch_all(tx, cell.debts, host=host)
    return [
        Verdict(debt["server_id"], debt["copy"], "destroy", "a debt")
        for debt in sorted(owed, key=lambda d: (d["server_id"], d["copy"]))
        if (debt["server_id"], debt["copy"]) not in found
    ]


async def _quarantine(tx: Tx, host: str, verdict: Verdict, now: float) -> None:
    await rows.put(
        tx,
        cell.quarantine,
        unless_there=True,
        host=host,
        server_id=verdict.server,
        copy=verdict.copy,
        reason=verdict.why,
        found_at=now,
    )


async def returned(engine: Engine, message: Returned) -> bool:
    """The verdicts were carried out: debts are paid, the host may work. False: it has to register again."""
    journal = await cell_of(engine, message.host)
    for server, copy in message.destroyed:
        await _paid(engine, journal, message, server, copy)
    host = await _current(engine, journal, message)
    if host is None:
        return False
    await set_accepting(engine.world.db.placement, host["provider_id"], _is_open(host))
    # Whoever closes a host writes placement, the record, placement. Ours may have come last, but then the record tells.
    again = await _current(engine, journal, message)
    if again is None or not _is_open(again):
        await set_accepting(engine.world.db.placement, host["provider_id"], False)
    if again is not None and again["disabled"]:  # our report may have come after that word, and taken its trait away
        await set_disabled(engine.world.db.placement, host["provider_id"], True)

    async def body(tx: Tx) -> bool:
        keys = {"name": message.host, "session": message.session, "epoch": message.epoch}
        if not await rows.change(tx, cell.hosts, {"returning": 0}, **keys):
            return False
        for server, copy, on in message.adopted:
            power = {"power_state": POWER_RUNNING if on else POWER_SHUTDOWN}
            await rows.change(tx, cell.servers, power, id=server, runner_copy=copy, operation_id=None)
            if not on:  # it is not started again (resume_guests_state_on_host_boot): the API says so
                stopped = {"vm_state": STOPPED}
                keys_of = {"id": server, "runner_copy": copy, "operation_id": None, "vm_state": ACTIVE}
                await rows.change(tx, cell.servers, stopped, **keys_of)
        return True

    return await engine.write(journal, body)


def _is_open(host: Row) -> bool:
    return not (host["disabled"] or host["draining"] or host["forced_down"] or host["fenced"])


async def cell_of(engine: Engine, host: str) -> Store:
    async def body(tx: Tx) -> Row | None:
        return await rows.fetch(tx, control.host_mappings, host=host)

    row = await engine.world.db.control.read(body)
    if row is None:
        raise Superseded(f"host {host} is not known")
    return engine.world.db.cell(row["cell"])


async def _current(engine: Engine, journal: Store, message: Returned) -> Row | None:
    async def body(tx: Tx) -> Row | None:
        return await rows.fetch(tx, cell.hosts, name=message.host, session=message.session, epoch=message.epoch)

    return await journal.read(body)


async def _paid(engine: Engine, journal: Store, message: Returned, server: str, copy: int) -> None:
    """Placement first: paying twice is harmless, forgetting the claim is not."""

    async def find(tx: Tx) -> Row | None:
        return await rows.fetch(tx, cell.debts, host=message.host, server_id=server, copy=copy, verb="ensure_absent")

    debt = await journal.read(find)
    evacuation = from_json(debt["after"], {}).get("evacuation") if debt is not None else None
    if evacuation:
        await claims.drop_holder(engine.world.db.placement, server, evacuation)

    async def body(tx: Tx) -> None:
        now = engine.world.clock.now()
        await rows.remove(tx, cell.debts, host=message.host, server_id=server, copy=copy, verb="ensure_absent")
        await rows.remove(tx, cell.copies, host=message.host, server_id=server, copy=copy)
        await touch(tx, message.host)
        if evacuation:
            done = {"status": "completed", "open": 0, "updated_at": now}
            await rows.change(tx, cell.migrations, done, id=evacuation, status="done")

    await engine.write(journal, body)
