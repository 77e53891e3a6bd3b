"""What is written about one row, and decided by it, is not written to its neighbours or decided by them: rows that
differ in one key only. Hosts that return, by the rows of one cell."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kilonova.domain.server import ACTIVE, ERROR, LOST, SOFT_DELETED, STOPPED
from kilonova.engine.debts import owe_removal
from kilonova.hosts.lost_guests import adopt_lost
from kilonova.hosts.registration_end import _note_power
from kilonova.hosts.verdicts import correct_copies, judge_copies, may_be_gone, note_missing
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.quarantine import end_quarantine, note_quarantine
from kilonova.world import Tx
from tests.engine.test_restored import ERA, RESTORED_AT, report, server
from tests.engine.test_restored import run as run
from tests.support.neighbours import Watched, put_neighbours, zeros

ELSEWHERE = {"turn": 5, "turn_floor": 0, "unsettled": 0, "runner_host": "host1", "runner_copy": 4}
HERE = {**ELSEWHERE, "runner_host": "host2", "runner_copy": 2}
COPY = {"server_id": "s", "host": "host2", "copy": 2, "state": "whole", "claim": None, "operation_id": ""}
DEBT = {"host": "host2", "server_id": "s", "copy": 2, "verb": "ensure_absent", "after": "{}", "operation_id": ""}
AT_OTHER = {"server_id": "t", "host": "host3", "copy": 3}


async def judged(tx: Tx, gone: Any = None) -> str:
    verdicts = await judge_copies(tx, "host2", [report(2)], True, gone)
    assert {"host3"}.isdisjoint(one.server for one in verdicts)
    return next(one.action for one in verdicts if (one.server, one.copy) == ("s", 2))


@pytest.mark.parametrize("gone", [None, {"ended_at": None}], ids=["returned", "declared gone"])
@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_copy_is_judged_by_its_own_record(run: Any, gone: Any, is_recorded: bool) -> None:
    async def body(tx: Tx) -> None:
        await put_neighbours(tx, cell.servers, server(**HERE, deleted=1), id="0")
        await rows.put(tx, cell.servers, **server(**ELSEWHERE))
        await put_neighbours(tx, cell.copies, COPY, **AT_OTHER)
        if is_recorded:
            await rows.put(tx, cell.copies, **zeros(cell.copies, **COPY))
        assert await judged(tx, gone) == ("stop" if is_recorded else "set_aside" if gone else "destroy")

    run(body)


@pytest.mark.parametrize("is_owed", [False, True])
def test_a_copy_is_judged_by_its_own_debt(run: Any, is_owed: bool) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**HERE))
        await put_neighbours(tx, cell.debts, DEBT, **AT_OTHER, verb="ensure_stopped")
        if is_owed:
            await rows.put(tx, cell.debts, **zeros(cell.debts, **DEBT))
        assert await judged(tx) == ("destroy" if is_owed else "adopt")

    run(body)


@pytest.mark.parametrize("is_owed", [False, True])
def test_what_was_given_up_since_the_host_was_declared_gone(run: Any, is_owed: bool) -> None:
    """Its own debt, made since then, is paid; what it has from before is set aside."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**ELSEWHERE))
        await put_neighbours(tx, cell.debts, DEBT, **AT_OTHER, verb="ensure_stopped")
        if is_owed:
            await rows.put(tx, cell.debts, **zeros(cell.debts, **DEBT))
        assert await judged(tx, {"ended_at": 7.0}) == ("destroy" if is_owed else "set_aside")

    run(body)


def test_a_host_pays_its_own_debts_only(run: Any) -> None:
    """Those whose copies it did not report, too; each once."""

    async def body(tx: Tx) -> None:
        await put_neighbours(tx, cell.debts, {**DEBT, "copy": 4}, host="host3")
        await rows.put(tx, cell.debts, **zeros(cell.debts, **{**DEBT, "copy": 3}))
        await rows.put(tx, cell.debts, **zeros(cell.debts, **DEBT))
        told = await judge_copies(tx, "host2", [report(2)], True)
        assert [(one.server, one.copy, one.action) for one in told] == [("s", 2, "destroy"), ("s", 3, "destroy")]

    run(body)


@pytest.mark.parametrize("is_held", [False, True])
def test_a_copy_is_in_quarantine_by_its_own_record(run: Any, is_held: bool) -> None:
    held = {"host": "host2", "server_id": "s", "copy": 2, "reason": "why", "power": "off"}

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**ELSEWHERE))
        await put_neighbours(tx, cell.quarantine, held, **AT_OTHER)
        if is_held:
            await rows.put(tx, cell.quarantine, **zeros(cell.quarantine, **held))
        assert await judged(tx) == ("quarantine" if is_held else "destroy")

    run(body)


@pytest.mark.parametrize("ended_at", [None, 7.0])
def test_a_word_that_was_carried_out_holds_nothing(run: Any, ended_at: float | None) -> None:
    held = {"host": "host2", "server_id": "s", "copy": 2, "reason": "why", "power": "off", "ended_at": ended_at}

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**ELSEWHERE))
        await rows.put(tx, cell.quarantine, **zeros(cell.quarantine, **held))
        assert await judged(tx) == ("destroy" if ended_at else "quarantine")

    run(body)


def test_only_the_copy_itself_is_given_up(run: Any) -> None:
    async def body(tx: Tx) -> None:
        await put_neighbours(tx, cell.servers, server(**HERE), id="0")
        await rows.put(tx, cell.servers, **server(**ELSEWHERE))
        await put_neighbours(tx, cell.copies, COPY, **AT_OTHER)
        assert await may_be_gone(tx, "host2", "s", 2)
        await rows.put(tx, cell.copies, **zeros(cell.copies, **COPY))
        assert not await may_be_gone(tx, "host2", "s", 2)

    run(body)


OLD = {"turn": ERA, "turn_floor": ERA, "unsettled": 0}
MOVE = {"id": "m", "server_id": "s", "source_host": "host2", "source_copy": 2, "open": 1, "source_gone": 0}
OF_ANOTHER_MOVE = {"server_id": "t", "source_host": "host3", "source_copy": 3, "open": 0}


def test_only_records_of_copies_that_the_host_lacks_are_removed(run: Any) -> None:
    """From before the restore. The move that came from that copy cannot be reverted to it, others can."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**OLD))
        await rows.put(tx, cell.servers, **server(**OLD, id="deleted", deleted=1))
        await rows.put(tx, cell.servers, **server(**OLD, id="busy", operation_id="o"))
        await rows.put(tx, cell.servers, **server(**{**OLD, "turn_floor": 1}, id="made since"))
        for other in ("deleted", "busy", "made since"):
            await rows.put(tx, cell.copies, **zeros(cell.copies, **{**COPY, "server_id": other}))
        await put_neighbours(tx, cell.copies, COPY, host="host3", copy=3)
        await rows.put(tx, cell.copies, **zeros(cell.copies, **COPY))
        await put_neighbours(tx, cell.migrations, MOVE, **OF_ANOTHER_MOVE)
        await rows.put(tx, cell.migrations, **zeros(cell.migrations, **MOVE))
        copies, moves = [await Watched.since_now(tx, table) for table in (cell.copies, cell.migrations)]
        await correct_copies(tx, "host2", [report(3)])
        assert [(row["server_id"], row["host"], row["copy"]) for row in await copies.changed(tx)] == [("s", "host2", 2)]
        assert [row["id"] for row in await moves.changed(tx)] == ["m"]

    run(body)


@pytest.mark.parametrize("whole", [False, True])
def test_a_copy_that_may_run_is_whole_if_its_host_says_so(run: Any, whole: bool) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**OLD, runner_host="host2", runner_copy=2))
        await put_neighbours(tx, cell.copies, {**COPY, "state": "making"}, host="host3", copy=3)
        await rows.put(tx, cell.copies, **zeros(cell.copies, **{**COPY, "state": "making"}))
        copies = await Watched.since_now(tx, cell.copies)
        await correct_copies(tx, "host2", [report(2, whole=whole), report(3)])
        changed = [(row["host"], row["copy"]) for row in await copies.changed(tx)]
        assert changed == ([("host2", 2)] if whole else [])

    run(body)


def test_only_servers_that_run_here_by_restored_records_are_missed(run: Any) -> None:
    async def body(tx: Tx) -> None:
        await put_neighbours(tx, cell.servers, server(), runner_host="host3", unsettled=0, deleted=1)
        await rows.put(tx, cell.servers, **server())
        servers = await Watched.since_now(tx, cell.servers)
        assert await note_missing(tx, "host1", [], 1.0) == ["s"]
        assert [row["id"] for row in await servers.changed(tx)] == ["s"]

    run(body)


NOT_ITS_OWN = {"id": "0", "runner_host": "host3", "runner_copy": 3, "operation_id": "o"}


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("state", [ACTIVE, STOPPED, SOFT_DELETED, ERROR])
@pytest.mark.parametrize("unsettled", [0, 1])
def test_a_host_speaks_of_the_power_of_its_own_copy(run: Any, on: bool, state: str, unsettled: int) -> None:
    """A guest that runs proves something only against records that were restored."""
    before = server(**{**HERE, "unsettled": unsettled}, vm_state=state, power_state=3)
    proves = on and unsettled and state in (STOPPED, SOFT_DELETED)

    async def body(tx: Tx) -> None:
        await put_neighbours(tx, cell.servers, before, **NOT_ITS_OWN)
        await rows.put(tx, cell.servers, **before)
        servers = await Watched.since_now(tx, cell.servers)
        await _note_power(tx, "host2", "s", 2, on)
        assert [row["id"] for row in await servers.changed(tx)] == ["s"]
        row = await rows.fetch(tx, cell.servers, id="s")
        stops = not on and state == ACTIVE
        assert row is not None and row["power_state"] == (1 if on else 4) and row["unsettled"] == 0
        assert row["vm_state"] == (ACTIVE if proves else STOPPED if stops else state)

    run(body)


def test_only_the_guests_own_server_is_adopted(run: Any) -> None:
    lost = {"turn": 5, "unsettled": LOST, "host": "host2", "runner_host": None, "runner_copy": None, "vm_state": ERROR}

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**lost))
        await rows.put(tx, cell.servers, **server(**{**lost, "unsettled": 0}, id="t"))
        servers = await Watched.since_now(tx, cell.servers)
        assert await adopt_lost(tx, "host2", [report(2, "on")], 0.0) == [("s", 2)]
        assert [row["id"] for row in await servers.changed(tx)] == ["s"]

    run(body)


def test_only_what_the_host_no_longer_reports_leaves_the_quarantine(run: Any) -> None:
    """And only of this host; what is about to be removed stays as the record of that word."""
    held = {"host": "host2", "server_id": "s", "copy": 2, "reason": "why", "power": "off", "whole": 1}

    async def body(tx: Tx) -> None:
        await put_neighbours(tx, cell.quarantine, held, **AT_OTHER)
        await rows.put(tx, cell.quarantine, **zeros(cell.quarantine, **held))
        await rows.put(tx, cell.quarantine, **zeros(cell.quarantine, **{**held, "copy": 4, "action": "remove"}))
        quarantine = await Watched.since_now(tx, cell.quarantine)
        kept = [(report(3), "why"), (msgspec.structs.replace(report(2), server="t"), "why")]
        assert await note_quarantine(tx, "host2", kept, 1.0) == []
        gone = [(row["host"], row["server_id"], row["copy"]) for row in await quarantine.changed(tx)]
        assert gone == [("host2", "s", 2)]

    run(body)


def test_only_the_copy_itself_ends_its_quarantine(run: Any) -> None:
    held = {"host": "host2", "server_id": "s", "copy": 2, "reason": "why", "power": "off", "action": "remove"}

    async def body(tx: Tx) -> None:
        await put_neighbours(tx, cell.quarantine, held, **AT_OTHER)
        await rows.put(tx, cell.quarantine, **zeros(cell.quarantine, **held))
        quarantine = await Watched.since_now(tx, cell.quarantine)
        await end_quarantine(tx, "host2", "s", 2, "adopt", 1.0)
        assert await quarantine.changed(tx) == []
        await end_quarantine(tx, "host2", "s", 2, "remove", 1.0)
        assert [(row["host"], row["server_id"], row["copy"]) for row in await quarantine.changed(tx)] == [
            ("host2", "s", 2)
        ]

    run(body)


@pytest.mark.parametrize("created_at", [RESTORED_AT - 1, RESTORED_AT + 1])
def test_a_debt_from_before_the_restore_removes_nothing(run: Any, created_at: float) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**{**ELSEWHERE, "turn_floor": 5}))
        await owe_removal(tx, "host2", "s", 2, "o", created_at)
        assert await judged(tx) == ("quarantine" if created_at < RESTORED_AT else "destroy")

    run(body)
