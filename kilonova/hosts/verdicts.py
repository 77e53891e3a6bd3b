"""Verdicts on the copies that a returning host reports or owes: each is settled before the host does anything else.

A copy is adopted (it holds permission to run), kept but stopped (its owner stopped it, or an open move or operation
needs it), destroyed (the server runs elsewhere or is deleted, or a debt says so), or quarantined (unknown: never
touched). On a host that was declared gone no earlier copy is destroyed: it is switched off and set aside. The records
decide, never the host: the runner, or a copy recorded at that very host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from sqlalchemy import bindparam, select

from kilonova.domain.guest import CopyReport
from kilonova.domain.messages import Verdict
from kilonova.domain.server import ACTIVE, ERROR, POWER_RUNNING, RESIZED, SOFT_DELETED, STOPPED, Server
from kilonova.engine.context import guest_spec
from kilonova.schema.tables import cell
from kilonova.schema.tables.stores import this_store
from kilonova.store import rows
from kilonova.store.quarantine import open_quarantine
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

_OLD_COPIES = Sql(
    select(cell.copies.c.server_id, cell.copies.c.copy, cell.servers.c.runner_host, cell.servers.c.runner_copy)
    .join(cell.servers, cell.servers.c.id == cell.copies.c.server_id)
    .where(
        cell.copies.c.host == bindparam("host"),
        cell.copies.c.copy <= cell.servers.c.turn_floor,
        cell.servers.c.operation_id.is_(None),
        cell.servers.c.deleted == 0,
    )
)


async def judge_copies(
    tx: Tx,
    host: str,
    reports: Sequence[CopyReport],
    resumes: bool,
    gone: Row | None = None,
    new_ports: Set[str] = frozenset(),
) -> list[Verdict]:
    """Return verdicts on all copies that the host reported or owes. `gone`: the record of its declaration as gone.
    `new_ports`: servers whose current ports the host may not know."""
    held = {_key(row): row["reason"] for row in await open_quarantine(tx, host)}
    verdicts = [
        await _set_aside(tx, host, report, gone) or await _verdict(tx, host, report, resumes, held, new_ports)
        for report in reports
    ]
    return verdicts + await _unreported_debts(tx, host, reports)


def _key(row: Row) -> tuple[str, int]:
    return row["server_id"], row["copy"]


async def _set_aside(tx: Tx, host: str, report: CopyReport, gone: Row | None) -> Verdict | None:
    """Return the verdict on a copy from before the host was declared gone, whose server runs elsewhere or is deleted;
    None for any other copy. A copy that the host got or gave up after that has a record or a debt, and gets the
    ordinary verdict."""
    server = await rows.fetch(tx, cell.servers, id=report.server) if gone is not None else None
    if gone is None or server is None or report.copy > server["turn"]:
        return None
    copy = await rows.fetch(tx, cell.copies, server_id=report.server, copy=report.copy, host=host)
    owed = await rows.fetch(tx, cell.debts, host=host, server_id=report.server, copy=report.copy, verb="ensure_absent")
    if gone["ended_at"] is not None and not (copy is None and owed is None):
        return None
    if copy is not None and copy["state"] != "leaving":
        return None
    if await _is_from_before(tx, server, report, None) or server["runner_host"] == host:
        return None
    if not server["deleted"] and server["runner_host"] is None:
        return None
    where = "is deleted" if server["deleted"] else f"belongs to {server['runner_host']}"
    return Verdict(report.server, report.copy, "set_aside", f"its host was declared gone, and the server {where}")


async def _verdict(
    tx: Tx,
    host: str,
    report: CopyReport,
    resumes: bool,
    quarantined: Mapping[tuple[str, int], str],
    new_ports: Set[str],
) -> Verdict:
    """Return the verdict on one reported copy."""
    server = await rows.fetch(tx, cell.servers, id=report.server)
    copy = await rows.fetch(tx, cell.copies, server_id=report.server, copy=report.copy, host=host)
    owed = await rows.fetch(tx, cell.debts, host=host, server_id=report.server, copy=report.copy, verb="ensure_absent")
    is_old = await _is_from_before(tx, server, report, owed)
    if owed is not None and not is_old:
        return Verdict(report.server, report.copy, "destroy", "a debt: this copy was given up while the host was away")
    may_run = server is not None and (server["runner_host"], server["runner_copy"]) == (host, report.copy)
    if (report.server, report.copy) in quarantined and not may_run:  # until an operator decides about it
        return Verdict(report.server, report.copy, "quarantine", quarantined[report.server, report.copy])
    if server is None:
        return Verdict(report.server, report.copy, "quarantine", "no such server is known in this cell")
    if report.copy > server["turn"]:  # copies are numbered by turns: these records are older than the copy
        why = f"copy {report.copy} is newer than the records (turn {server['turn']}): was an old database restored?"
        return Verdict(report.server, report.copy, "quarantine", why)
    if server["deleted"]:
        return Verdict(report.server, report.copy, "destroy", "the server is deleted")
    if (server["runner_host"], server["runner_copy"]) == (host, report.copy):
        return await _adopted(tx, server, report, resumes, new_ports)
    if is_old and (report.power == "on" or not await _is_needed(tx, host, report)):
        why = "it is from before the records were restored, and may be the newest; adopt or remove it"
        return Verdict(report.server, report.copy, "quarantine", why)
    if copy is not None and copy["state"] != "leaving":
        return Verdict(report.server, report.copy, "stop", "kept for an open operation; another copy may run")
    if copy is None and server["runner_host"] is None:  # there is no better one: it may be the last
        return Verdict(report.server, report.copy, "quarantine", "it is not recorded, and no other copy may run")
    return Verdict(report.server, report.copy, "destroy", f"the server belongs to {server['runner_host'] or 'nobody'}")


async def _adopted(tx: Tx, server: Row, report: CopyReport, resumes: bool, new_ports: Set[str]) -> Verdict:
    """Return the verdict on the copy that may run: it runs again if it should. A server that its owner stopped stays
    off.

    While an operation is under way, that operation decides: the host is asked again when it has ended.
    """
    state, was_running = server["vm_state"], server["power_state"] == POWER_RUNNING
    should_run = report.whole and (state == ACTIVE or (state == RESIZED and was_running))
    if server["operation_id"] is not None:
        await rows.change(tx, cell.servers, {"recheck": 1}, id=report.server)
        return Verdict(report.server, report.copy, "adopt", "it holds permission to run; an operation is under way")
    if server["unsettled"]:
        return _adopted_as_it_is(report)
    # its volumes and ports may have changed, or have new connections
    is_new = server["volume_info"] or report.server in new_ports
    guest = guest_spec(Server.from_row(server), report.copy) if is_new and report.defined else None
    if state in (STOPPED, SOFT_DELETED):
        why = "it holds permission to run, but its owner stopped it"
        return Verdict(report.server, report.copy, "stop", why, guest=guest)
    why, run = "it holds permission to run", should_run and resumes
    return Verdict(report.server, report.copy, "adopt", why, run, guest)


def _adopted_as_it_is(report: CopyReport) -> Verdict:
    """Return the verdict on a copy that is newer than the records: it is neither started nor stopped because of them,
    since a newer copy may run elsewhere."""
    if not report.whole:
        return Verdict(report.server, report.copy, "quarantine", "the records were restored, and its disk is not whole")
    return Verdict(report.server, report.copy, "adopt", "it holds permission to run; the records were restored")


async def _is_from_before(tx: Tx, server: Row | None, report: CopyReport, owed: Row | None) -> bool:
    """Return whether the copy is older than the restore of the records, which may be out of date about it. A debt
    recorded since then is valid."""
    if server is None or server["deleted"] or report.copy > (server["turn_floor"] or 0):
        return False
    this = await rows.fetch(tx, this_store, id=1)
    return owed is None or this is None or owed["created_at"] < (this["restored_at"] or 0.0)


async def _is_needed(tx: Tx, host: str, report: CopyReport) -> bool:
    """Return whether an open move may go back to this copy."""
    copy = report.copy
    move = await rows.fetch(tx, cell.migrations, server_id=report.server, source_host=host, source_copy=copy, open=1)
    return move is not None


async def correct_copies(tx: Tx, host: str, reports: Sequence[CopyReport]) -> None:
    """Correct records of copies from before the restore that have no live operation.

    Remove a copy that the host does not have or that is in quarantine now; mark one that may run as whole. A move whose
    old copy is gone cannot be reverted.
    """
    there = {(report.server, report.copy): report for report in reports}
    quarantined = {_key(row) for row in await open_quarantine(tx, host)}
    for copy in await tx.all(_OLD_COPIES, host=host):
        keys = {"server_id": copy["server_id"], "copy": copy["copy"], "host": host}
        if (copy["runner_host"], copy["runner_copy"]) == (host, copy["copy"]):
            report = there.get(_key(copy))
            if report is not None and report.whole:
                await rows.change(tx, cell.copies, {"state": "whole"}, **keys)
        elif _key(copy) not in there or _key(copy) in quarantined:
            await rows.remove(tx, cell.copies, **keys)
            if _key(copy) not in there:  # confirmed since the backup: a revert would remove the only disk
                of_move = {"server_id": copy["server_id"], "source_host": host, "source_copy": copy["copy"], "open": 1}
                await rows.change(tx, cell.migrations, {"source_gone": 1}, **of_move)


async def note_missing(tx: Tx, host: str, reports: Sequence[CopyReport], now: float) -> list[str]:
    """Put servers into ERROR that run here by restored records and whose copy is not reported whole: another copy may
    be the right one, and an operator says which. Return their ids."""
    whole = {(report.server, report.copy) for report in reports if report.whole}
    unsettled = await rows.fetch_all(tx, cell.servers, runner_host=host, unsettled=1, deleted=0)
    missing = [row["id"] for row in unsettled if (row["id"], row["runner_copy"]) not in whole]
    for server in missing:
        await rows.change(tx, cell.servers, {"vm_state": ERROR, "unsettled": 0, "updated_at": now}, id=server)
        text = f"The records were restored, and {host} does not have the server's disk."
        values = {"server_id": server, "operation_id": "", "code": 500, "message": text, "created_at": now}
        await rows.put(tx, cell.faults, **values, details="adopt one of its quarantined copies, or delete the server")
    return missing


async def may_be_gone(tx: Tx, host: str, server_id: str, copy: int) -> bool:
    """Return whether the host may have been ordered to remove this copy: the records gave it up, or never had it."""
    server = await rows.fetch(tx, cell.servers, id=server_id)
    if server is None or server["deleted"]:
        return True
    if (server["runner_host"], server["runner_copy"]) == (host, copy):
        return False
    recorded = await rows.fetch(tx, cell.copies, server_id=server_id, copy=copy, host=host)
    return recorded is None or recorded["state"] == "leaving"


async def _unreported_debts(tx: Tx, host: str, copies: Sequence[CopyReport]) -> list[Verdict]:
    """Return verdicts for debts whose copies were not reported: removing nothing is harmless and pays the debt."""
    reported = {(report.server, report.copy) for report in copies}
    owed = await rows.fetch_all(tx, cell.debts, host=host)
    return [
        Verdict(debt["server_id"], debt["copy"], "destroy", "a debt")
        for debt in sorted(owed, key=lambda d: (d["server_id"], d["copy"]))
        if (debt["server_id"], debt["copy"]) not in reported
    ]
