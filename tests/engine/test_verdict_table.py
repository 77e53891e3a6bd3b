"""Every verdict on a copy that a host reports: which record decides, and which comes first."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kilonova.domain.guest import CopyReport
from kilonova.domain.server import ACTIVE, ERROR, LOST, LOST_IN_MOVE, STOPPED
from kilonova.hosts.lost_guests import adopt_lost
from kilonova.hosts.verdicts import correct_copies, judge_copies, may_be_gone
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.test_neighbours import COPY, DEBT, ELSEWHERE, HERE, MOVE
from tests.engine.test_restored import report, server
from tests.engine.test_restored import run as run
from tests.support.neighbours import Watched, zeros

NOBODY = {**ELSEWHERE, "runner_host": None, "runner_copy": None}
DELETED = {**NOBODY, "deleted": 1}
RESTORED = {**ELSEWHERE, "turn_floor": 5}  # since copy 5
HELD = {"host": "host2", "server_id": "s", "copy": 2, "reason": "held", "power": "off"}


async def put(tx: Tx, of: Any, state: str | None = None, *, owed: bool = False, held: bool = False) -> None:
    if of is not None:
        await rows.put(tx, cell.servers, **server(**of))
    if state is not None:
        await rows.put(tx, cell.copies, **zeros(cell.copies, **{**COPY, "state": state}))
    if owed:
        await rows.put(tx, cell.debts, **zeros(cell.debts, **DEBT))
    if held:
        await rows.put(tx, cell.quarantine, **zeros(cell.quarantine, **HELD))


@pytest.mark.parametrize(
    ("of", "given", "power", "word", "why"),
    [
        (None, {}, "off", "quarantine", "no such server"),
        (None, {"owed": True}, "off", "destroy", "a debt"),
        ({**ELSEWHERE, "turn": 1}, {}, "off", "quarantine", "newer than the records (turn 1)"),
        ({**ELSEWHERE, "turn": 2}, {}, "off", "destroy", "belongs to host1"),
        (DELETED, {}, "on", "destroy", "deleted"),
        (DELETED, {"state": "whole"}, "off", "destroy", "deleted"),
        (HERE, {}, "on", "adopt", "permission"),
        (HERE, {"held": True}, "on", "adopt", "permission"),
        (HERE, {"owed": True}, "on", "destroy", "a debt"),
        (ELSEWHERE, {"held": True, "state": "whole"}, "off", "quarantine", "held"),
        (ELSEWHERE, {"state": "whole"}, "on", "stop", "kept"),
        (ELSEWHERE, {"state": "making"}, "on", "stop", "kept"),
        (ELSEWHERE, {"state": "leaving"}, "on", "destroy", "belongs to host1"),
        (NOBODY, {"state": "leaving"}, "on", "destroy", "belongs to nobody"),
        (NOBODY, {"state": "whole"}, "on", "stop", "kept"),
        (NOBODY, {}, "on", "quarantine", "no other copy may run"),
        (RESTORED, {}, "off", "quarantine", "from before the records were restored"),
        (RESTORED, {"owed": True}, "off", "quarantine", "from before the records were restored"),
        ({**RESTORED, "turn_floor": 1}, {}, "off", "destroy", "belongs to host1"),
    ],
)
def test_of_a_host_that_returns(run: Any, of: Any, given: Any, power: str, word: str, why: str) -> None:
    async def body(tx: Tx) -> None:
        await put(tx, of, **given)
        (verdict,) = await judge_copies(tx, "host2", [report(2, power)], True)
        assert (verdict.action, why in verdict.why) == (word, True), verdict.why

    run(body)


@pytest.mark.parametrize("power", ["on", "off"])
def test_an_old_copy_that_runs_is_not_the_one_of_an_open_move(run: Any, power: str) -> None:
    async def body(tx: Tx) -> None:
        await put(tx, RESTORED, "whole")
        await rows.put(tx, cell.migrations, **zeros(cell.migrations, **MOVE))
        (verdict,) = await judge_copies(tx, "host2", [report(2, power)], True)
        assert verdict.action == ("quarantine" if power == "on" else "stop")

    run(body)


@pytest.mark.parametrize(
    ("of", "given", "ended_at", "word"),
    [
        (None, {}, None, "quarantine"),
        ({**ELSEWHERE, "turn": 1}, {}, None, "quarantine"),
        (ELSEWHERE, {}, None, "set_aside"),
        (ELSEWHERE, {"state": "leaving"}, None, "set_aside"),
        (ELSEWHERE, {"owed": True}, None, "set_aside"),
        (ELSEWHERE, {}, 7.0, "set_aside"),
        (ELSEWHERE, {"state": "leaving"}, 7.0, "destroy"),
        (ELSEWHERE, {"owed": True}, 7.0, "destroy"),
        (ELSEWHERE, {"state": "whole"}, None, "stop"),
        (RESTORED, {}, None, "quarantine"),
        ({**DELETED, "turn_floor": 5}, {}, None, "set_aside"),
        (HERE, {}, None, "adopt"),
        (NOBODY, {}, None, "quarantine"),
    ],
)
def test_of_a_host_that_was_declared_gone(run: Any, of: Any, given: Any, ended_at: Any, word: str) -> None:
    async def body(tx: Tx) -> None:
        await put(tx, of, **given)
        gone: Any = {"ended_at": ended_at}
        (verdict,) = await judge_copies(tx, "host2", [report(2)], True, gone)
        assert verdict.action == word

    run(body)


@pytest.mark.parametrize(
    ("volumes", "new_ports", "defined", "is_told"),
    [
        (None, set(), True, False),
        (None, {"s"}, True, True),
        (None, {"s"}, False, False),
        (None, {"t"}, True, False),
        ("[]", set(), True, True),  # it had volumes: they may be others by now
    ],
)
def test_a_guest_is_defined_again_if_its_devices_changed(
    run: Any, volumes: str | None, new_ports: set[str], defined: bool, is_told: bool
) -> None:
    """Where it was defined at all."""

    async def body(tx: Tx) -> None:
        await put(tx, {**HERE, "volume_info": volumes})
        one = msgspec.structs.replace(report(2), defined=defined)
        (verdict,) = await judge_copies(tx, "host2", [one], True, None, new_ports)
        assert (verdict.guest is not None) is is_told

    run(body)


def test_a_host_is_asked_again_after_the_operation_that_is_under_way(run: Any) -> None:
    async def body(tx: Tx) -> None:
        await put(tx, {**HERE, "operation_id": "o"})
        await rows.put(tx, cell.servers, **server(**HERE, id="t", operation_id="p"))
        servers = await Watched.since_now(tx, cell.servers)
        await judge_copies(tx, "host2", [report(2)], True)
        assert [row["id"] for row in await servers.changed(tx)] == ["s"]

    run(body)


def test_of_an_unknown_server_anything_may_be_gone(run: Any) -> None:
    async def body(tx: Tx) -> None:
        assert await may_be_gone(tx, "host2", "s", 2)

    run(body)


@pytest.mark.parametrize(
    ("here", "held", "is_removed", "is_lost"),
    [(True, False, False, False), (True, True, True, False), (False, False, True, True), (False, True, True, True)],
)
def test_an_old_record_goes_if_the_copy_is_gone_or_set_aside(
    run: Any, here: bool, held: bool, is_removed: bool, is_lost: bool
) -> None:
    """A move cannot be reverted to a copy that is gone; it can to one in quarantine, once that is adopted."""

    async def body(tx: Tx) -> None:
        await put(tx, RESTORED, "whole", held=held)
        await rows.put(tx, cell.migrations, **zeros(cell.migrations, **MOVE))
        await correct_copies(tx, "host2", [report(2)] if here else [])
        assert (await rows.fetch_all(tx, cell.copies) == []) is is_removed
        (move,) = await rows.fetch_all(tx, cell.migrations)
        assert bool(move["source_gone"]) is is_lost

    run(body)


def test_the_record_of_a_copy_that_may_run_stays(run: Any) -> None:
    async def body(tx: Tx) -> None:
        await put(tx, {**RESTORED, "runner_host": "host2", "runner_copy": 2}, "whole", held=True)
        await correct_copies(tx, "host2", [])
        assert len(await rows.fetch_all(tx, cell.copies)) == 1

    run(body)


ON, OFF, HALF = report(2, "on"), report(3, "off"), report(4, "on", whole=False)
OTHERS = msgspec.structs.replace(report(9, "on"), server="t")


@pytest.mark.parametrize(
    ("unsettled", "reports", "copy"),
    [
        (LOST, [ON], 2),
        (LOST, [OFF], 3),
        (LOST, [ON, OFF, HALF, OTHERS], 2),
        (LOST, [HALF], None),
        (LOST, [OTHERS], None),
        (LOST, [OFF, report(5)], None),
        (LOST, [ON, report(5, "on")], None),
        (LOST, [], None),
        (LOST_IN_MOVE, [ON, OFF], 2),
        (LOST_IN_MOVE, [OFF], None),
    ],
)
def test_a_lost_server_is_its_only_whole_copy_that_runs(
    run: Any, unsettled: int, reports: list[CopyReport], copy: int | None
) -> None:
    lost = {**NOBODY, "host": "host2", "vm_state": ERROR, "unsettled": unsettled}

    async def body(tx: Tx) -> None:
        await put(tx, lost)
        await rows.put(tx, cell.servers, **server(**{**lost, "unsettled": 0}, id="t"))
        servers = await Watched.since_now(tx, cell.servers)
        assert await adopt_lost(tx, "host2", reports, 1.0) == ([] if copy is None else [("s", copy)])
        assert [row["id"] for row in await servers.changed(tx)] == ["s"]
        row = await rows.fetch(tx, cell.servers, id="s")
        assert row is not None and row["runner_copy"] == copy
        assert row["vm_state"] == (ERROR if copy is None else STOPPED if copy == 3 else ACTIVE)

    run(body)
