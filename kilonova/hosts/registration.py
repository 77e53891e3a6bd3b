"""The registration of a host: it counts as returning, is closed for new servers, and gets a verdict on each copy that
it reports or owes. Its answer (registration_end.py) pays its debts and opens it again.

Its report is believed only about itself: its offer, within the bounds of report_bounds.py; the results of its copies,
only if the records have that copy at this host (law 3).
"""

from __future__ import annotations

import hashlib
import logging

import msgspec

from kilonova.bus.serving import MAX_BODY
from kilonova.domain.errors import Refused, Superseded
from kilonova.domain.guest import CopyReport
from kilonova.domain.messages import Register, Registered, Verdict
from kilonova.domain.server import to_json
from kilonova.engine.connections import ports_of, with_volumes
from kilonova.engine.core import Engine
from kilonova.hosts.lost_guests import adopt_lost
from kilonova.hosts.report_bounds import report_error
from kilonova.hosts.verdicts import correct_copies, judge_copies, note_missing
from kilonova.placement.inventories import ensure_provider, newest_registration, set_by_registration
from kilonova.placement.reporting import take_report
from kilonova.placement.traits import DISABLED
from kilonova.schema.tables import cell, control
from kilonova.services.compute.cells import keep_cell
from kilonova.store import rows
from kilonova.store.gone_hosts import find_gone, sentence_of
from kilonova.store.host_hardware import note_hardware
from kilonova.store.hosts import UNKNOWN_IDENTITY
from kilonova.store.quarantine import note_quarantine
from kilonova.store.restored_at import restored_at
from kilonova.world import Row, Store, Tx

logger = logging.getLogger(__name__)
GUESTS_BYTES = MAX_BODY // 2  # of the guests in one answer


def identity_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


async def register(engine: Engine, message: Register) -> Registered:
    """Register a host. From here until `returned` it is not a destination and gets no steps."""
    wrong = await report_error(message, engine.world.db.placement)
    if wrong:
        return Registered(epoch=0, refused=wrong)
    try:
        gone = await _declared_gone(engine, message)
        journal = await find_cell(engine, message, "" if gone is None else gone["cell"])
        row, number = await _host_row(engine, journal, message, gone)
    except Refused as why:
        return Registered(epoch=0, refused=why.message)
    placement = engine.world.db.placement
    await ensure_provider(placement, row["provider_id"], message.host, accepting=False)
    if not await set_by_registration(placement, row["provider_id"], False, number):
        raise _overtaken(message.host)
    traits = {*message.inventory.traits, *([DISABLED] if row["disabled"] else [])}
    offers, initial = dict(message.inventory.classes), message.inventory.initial
    await take_report(placement, row["provider_id"], offers, traits, initial)
    hardware = to_json(message.inventory.hardware)
    new_ports = await _with_new_ports(engine, message)

    news: list[tuple[CopyReport, str]] = []

    async def body(tx: Tx) -> Registered:
        now = await tx.now()
        # of that epoch: one that was fenced or declared down since may be off by now, and asked before (law 3)
        keys = {"name": message.host, "registration": number, "epoch": row["epoch"]}
        host = await rows.fetch(tx, cell.hosts, lock=True, **keys)
        if host is None:
            raise _overtaken(message.host)
        # a host that answers is not fenced any more; it gets the decisions made meanwhile
        values = {"session": message.session, "returning": 1, "last_seen": now, "storage": message.storage}
        values["fenced"] = None
        values |= {"hypervisor": to_json(message.inventory.hypervisor), "reported_at": now}
        if host["session"] != message.session:
            values["session_since"] = now
        await rows.change(tx, cell.hosts, values, name=message.host)
        for server, copy in await adopt_lost(tx, message.host, message.copies, now):
            logger.warning("server %s: its record was lost and made again, %s has copy %d", server, message.host, copy)
        await note_hardware(tx, message.host, hardware, message.copies)
        resumes = engine.settings.default.resume_guests_state_on_host_boot
        verdicts = await judge_copies(tx, message.host, message.copies, resumes, gone, new_ports)
        for server in await note_missing(tx, message.host, message.copies, now):
            logger.warning(
                "server %s: the records were restored, and %s does not have its disk; set to ERROR",
                server,
                message.host,
            )
        reasons = {(one.server, one.copy): one.why for one in verdicts if one.action in ("quarantine", "set_aside")}
        strange = [(one, reasons[key]) for one in message.copies if (key := (one.server, one.copy)) in reasons]
        news[:] = await note_quarantine(tx, message.host, strange, now)
        await correct_copies(tx, message.host, message.copies)
        return Registered(epoch=host["epoch"], verdicts=verdicts, cloud=engine.world.db.cloud)

    registered = await engine.write(journal, body)
    for report, reason in news:
        text = "guest quarantined: host=%s server=%s copy=%s power=%s reason=%r; see `kilonova quarantine list`"
        logger.warning(text, message.host, report.server, report.copy, report.power, reason)
    verdicts = await _with_devices(engine, message, registered.verdicts)
    return msgspec.structs.replace(registered, verdicts=verdicts)


def refusal_of_other_cloud(engine: Engine, message: Register) -> str:
    """Return why the host may not join; "" if it is new or this cloud's own."""
    cloud = engine.world.db.cloud
    if message.cloud in ("", cloud):
        return ""
    return (
        f"host {message.host} belongs to cloud {message.cloud}, and this is cloud {cloud}; correct its [bus] url, "
        "or start it with an empty data directory under a new name"
    )


async def _with_new_ports(engine: Engine, message: Register) -> set[str]:
    """Return the servers of the host whose ports changed while it may have been away. For a host that filters traffic
    that is every server: the rules of their groups may have changed."""
    servers = list({report.server for report in message.copies})
    if message.filters or engine.world.network is None:
        return set(servers)
    return await engine.world.network.changed_ports(servers)


async def _with_devices(engine: Engine, message: Register, verdicts: list[Verdict]) -> list[Verdict]:
    """Add ports and volumes to each guest. Beyond what one message takes, a guest without volumes is left as it is
    defined there."""
    defined = [one.server for one in verdicts if one.guest is not None]
    ports = await ports_of(engine.world, defined, filters=message.filters) if defined else {}
    completed, size = list[Verdict](), 0
    for verdict in verdicts:
        guest = verdict.guest
        if guest is not None:
            whole = msgspec.structs.replace(guest, ports=ports.get(guest.server, []))
            guest = await with_volumes(engine.world, whole, message.host)
            size += len(msgspec.json.encode(guest))
        sent_guest = guest if guest is not None and (guest.volumes or size < GUESTS_BYTES) else None
        completed.append(msgspec.structs.replace(verdict, guest=sent_guest))
    return completed


async def _declared_gone(engine: Engine, message: Register) -> Row | None:
    async def body(tx: Tx) -> Row | None:
        return await find_gone(tx, identity_of(message.key))

    return await engine.world.db.control.read(body)


async def find_cell(engine: Engine, message: Register, former: str = "") -> Store:
    """Return the host's cell: where it was first seen; for a new host the cell that it names, its former one if it was
    declared gone there, or the first one."""
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

    first = wanted or (former if former in cells else cells[0])

    async def body(tx: Tx) -> str:
        row = await rows.fetch(tx, control.host_mappings, host=host)
        if row is None:
            await keep_cell(tx, db, first)
            await rows.put(tx, control.host_mappings, unless_there=True, host=host, cell=first)
            return first
        if wanted and row["cell"] != wanted:
            raise Refused(
                "host_in_other_cell",
                f"host {host} is mapped to {row['cell']}, not to {wanted}; start its agent with --cell {row['cell']}, "
                f"or move it first: kilonova cell move-host {host} {wanted}",
            )
        return str(row["cell"])

    return db.cell(await engine.write(db.control, body))


def _overtaken(host: str) -> Superseded:
    return Superseded(f"host {host} has registered again or was called back since; this registration is outdated")


async def _host_row(engine: Engine, journal: Store, message: Register, gone: Row | None) -> tuple[Row, int]:
    """Return the host's record and the number of this registration: above all that its cell and placement have seen,
    also if one of them was restored."""
    seen = await newest_registration(engine.world.db.placement, message.host)
    ids = engine.world.ids.uuid(), engine.world.ids.uuid()

    async def body(tx: Tx) -> tuple[Row, int]:
        row = await _recorded(tx, message, gone, ids)
        number = max(row["registration"] or 0, seen) + 1
        # Before its provider is closed: if this registration is not continued, a heartbeat of the host notices.
        await rows.change(tx, cell.hosts, {"returning": 1, "registration": number}, name=message.host)
        return row, number

    return await engine.write(journal, body)


async def _recorded(tx: Tx, message: Register, gone: Row | None, ids: tuple[str, str]) -> Row:
    """Return the host's record, locked. Its identity is a key, and neither may change without the other. A host that
    was declared `gone` is disabled until an administrator enables it."""
    identity = identity_of(message.key)
    row = await rows.fetch(tx, cell.hosts, lock=True, name=message.host)
    if row is not None:
        if row["identity"] == identity:
            return row
        values = await _taken_over(tx, message, row, gone)
        if values is None or await rows.fetch(tx, cell.hosts, identity=identity) is not None:
            raise Refused(
                "identity_changed",
                f"host {message.host} is known with another key; restore its key, or delete its record first",
            )
        await rows.change(tx, cell.hosts, {"identity": identity, **values}, name=message.host)
        return await _host(tx, message.host)
    other = await rows.fetch(tx, cell.hosts, lock=True, identity=identity)
    if other is not None and other["name"] == message.host:  # inserted since the look above, by another conductor
        return other
    if other is not None:
        raise Refused(
            "host_renamed",
            f"this agent's key belongs to host {other['name']}; a host cannot be renamed to {message.host}",
        )
    await _insert_host(tx, message, identity, *ids, None if gone is None else sentence_of(gone))
    return await _host(tx, message.host)


async def _host(tx: Tx, name: str) -> Row:
    row = await rows.fetch(tx, cell.hosts, name=name)
    assert row is not None
    return row


async def _taken_over(tx: Tx, message: Register, row: Row, gone: Row | None) -> dict[str, str | int] | None:
    """Return the changes to the record of a host whose key differs, if the reported key replaces the recorded one; else
    None.

    Restored records may have the key of a machine removed since the backup. The host that took its name belongs to this
    cloud, so it was accepted then; if it were refused, its guests would be listed nowhere. An administrator checks it
    first.
    """
    if row["identity"] == UNKNOWN_IDENTITY:
        return {}
    if gone is not None or not message.cloud or row["session"] is not None or await restored_at(tx) < 0:
        return None
    text = "has another key than in the restored records, and joined since the backup"
    logger.warning("host %s %s; disabled until an administrator enables it", message.host, text)
    return {"disabled": 1, "disabled_reason": f"it {text}"}


async def _insert_host(
    tx: Tx, message: Register, identity: str, service_id: str, provider_id: str, disabled_reason: str | None
) -> None:
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
        disabled=int(disabled_reason is not None),
        disabled_reason=disabled_reason,
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


async def cell_of(engine: Engine, host: str) -> Store:
    async def body(tx: Tx) -> Row | None:
        return await rows.fetch(tx, control.host_mappings, host=host)

    row = await engine.world.db.control.read(body)
    if row is None:
        raise Superseded(f"host {host} is not known")
    return engine.world.db.cell(row["cell"])
