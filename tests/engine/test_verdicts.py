"""What a host may do with a copy, by the records alone: rows of one cell, without a cloud."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.host import judge
from kilonova.domain.server import ACTIVE, ERROR, LOST, RESIZED, SETTLED, SOFT_DELETED, STOPPED
from kilonova.engine.debts import owe_removal
from kilonova.hosts.lost_guests import adopt_lost
from kilonova.hosts.registration_end import _note_failed
from kilonova.hosts.verdicts import correct_copies, judge_copies, may_be_gone
from kilonova.operations.facts import CreateFacts
from kilonova.operations.steps.burial import close_server
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import findings
from kilonova.store import rows
from kilonova.store.hosts import facts_of
from kilonova.world import Tx
from tests.engine.test_restored import report, server, zeros
from tests.engine.test_restored import run as run

ELSEWHERE = {"turn": 5, "turn_floor": 0, "unsettled": 0, "runner_host": "host1", "runner_copy": 4}
NOBODY = {**ELSEWHERE, "runner_host": None, "runner_copy": None}
HERE = {**ELSEWHERE, "runner_host": "host2"}
DELETED = {**NOBODY, "deleted": 1}


async def put_copy(tx: Tx, state: str, copy: int = 2) -> None:
    keys = {"server_id": "s", "host": "host2", "copy": copy}
    await rows.put(tx, cell.copies, **keys, state=state, claim=None, operation_id="", created_at=0.0)


@pytest.mark.parametrize(
    ("of", "state", "may"),
    [
        (ELSEWHERE, None, True),
        (ELSEWHERE, "leaving", True),
        (ELSEWHERE, "making", False),
        (ELSEWHERE, "whole", False),
        ({**HERE, "runner_copy": 2}, None, False),
        ({**HERE, "runner_copy": 2}, "leaving", False),
        (DELETED, "whole", True),
    ],
)
def test_a_host_gives_up_only_what_the_records_have_given_up(run: Any, of: Any, state: str | None, may: bool) -> None:
    """Its word that a copy is gone counts for nothing else: not for one that is being made, either."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**of))
        if state is not None:
            await put_copy(tx, state)
        assert await may_be_gone(tx, "host2", "s", 2) is may

    run(body)


@pytest.mark.parametrize(
    ("of", "state", "word"),
    [
        (ELSEWHERE, None, "set_aside"),
        (DELETED, None, "set_aside"),
        (HERE, None, "destroy"),
        (NOBODY, None, "quarantine"),
        (ELSEWHERE, "leaving", "set_aside"),
        (ELSEWHERE, "making", "stop"),
    ],
)
def test_a_host_that_was_declared_gone_and_is_back(run: Any, of: Any, state: str | None, word: str) -> None:
    """Only what lies there from before that word, of a server that is elsewhere by now, is set aside."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**of))
        if state is not None:
            await put_copy(tx, state)
        gone: Any = {"ended_at": None}
        assert [one.action for one in await judge_copies(tx, "host2", [report(2)], True, gone)] == [word]

    run(body)


def test_a_host_that_owes_has_to_register_again(run: Any) -> None:
    """Else it would go on with its steps, and never hear of it. Until then it is not a destination, even if heard."""

    async def body(tx: Tx) -> None:
        texts = {"name": "host2", "id": "h", "provider_id": "p", "identity": "i"}
        await rows.put(tx, cell.hosts, **zeros(cell.hosts, **texts, epoch=7))
        await owe_removal(tx, "host2", "s", 2, "o", 0.0)
        row = await rows.fetch(tx, cell.hosts, name="host2")
        assert row is not None and row["epoch"] == 8
        assert judge(facts_of(row), None, row["last_seen"], 60.0).status == "returning"

    run(body)


async def owe(tx: Tx) -> None:
    texts = {"host": "host2", "server_id": "s", "copy": 2, "verb": "ensure_absent", "after": "{}"}
    await rows.put(tx, cell.debts, **texts, operation_id="", created_at=0.0)


async def leave_finding(tx: Tx) -> None:
    await rows.put(tx, findings, **zeros(findings, id="f", server_id="s", open=1))


async def nothing(tx: Tx) -> None:
    return None


class _OneTransaction:
    """In place of a context and its journal: `close_server` reads in the transaction of the test."""

    server_id = "s"

    def __init__(self, tx: Tx) -> None:
        self.tx, self.journal, self.closed = tx, self, False

    async def read(self, body: Any) -> Any:
        return await body(self.tx)

    def set_server(self, **columns: Any) -> None:
        self.closed = True


@pytest.mark.parametrize("left", [nothing, lambda tx: put_copy(tx, "leaving"), owe, leave_finding])
def test_a_server_is_buried_only_if_nothing_of_it_is_left(run: Any, left: Any) -> None:
    async def body(tx: Tx) -> None:
        await left(tx)
        ctx: Any = _OneTransaction(tx)
        ctx.facts = CreateFacts()
        await close_server(ctx)
        assert (ctx.facts.leaves, ctx.closed) == (left is nothing, left is nothing)

    run(body)


@pytest.mark.parametrize("at_work", [None, "operation"])
def test_records_of_copies_are_corrected_only_while_nothing_is_at_work(run: Any, at_work: str | None) -> None:
    """After a restore, of a copy that the host does not have: an operation that began since may be about to use it."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**{**ELSEWHERE, "turn_floor": 5}, operation_id=at_work))
        await put_copy(tx, "whole")
        await correct_copies(tx, "host2", [])
        assert bool(await rows.fetch_all(tx, cell.copies)) is (at_work is not None)

    run(body)


@pytest.mark.parametrize(
    ("of", "whole", "resumes", "word", "runs"),
    [
        ({"vm_state": ACTIVE}, True, True, "adopt", True),
        ({"vm_state": ACTIVE}, False, True, "adopt", False),
        ({"vm_state": ACTIVE}, True, False, "adopt", False),
        ({"vm_state": ACTIVE, "operation_id": "o"}, True, True, "adopt", False),
        ({"vm_state": RESIZED, "power_state": 1}, True, True, "adopt", True),
        ({"vm_state": RESIZED, "power_state": 1}, False, True, "adopt", False),
        ({"vm_state": RESIZED, "power_state": 4}, True, True, "adopt", False),
        ({"vm_state": ERROR}, True, True, "adopt", False),
        ({"vm_state": STOPPED}, True, True, "stop", False),
        ({"vm_state": SOFT_DELETED}, True, True, "stop", False),
    ],
)
def test_a_copy_that_may_run_is_started_only_if_it_should(
    run: Any, of: Any, whole: bool, resumes: bool, word: str, runs: bool
) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**{**HERE, "runner_copy": 2}, **of))
        await put_copy(tx, "whole")
        (verdict,) = await judge_copies(tx, "host2", [report(2, whole=whole)], resumes)
        assert (verdict.action, verdict.run) == (word, runs)

    run(body)


MOVE = {"id": "m", "server_id": "s", "source_host": "host2", "source_copy": 2, "open": 1}


@pytest.mark.parametrize("other", [{}, {"open": 0}, {"source_host": "host1"}, {"source_copy": 3}, {"server_id": "t"}])
def test_a_copy_from_before_the_restore_is_kept_only_for_an_open_move_from_it(run: Any, other: Any) -> None:
    """Any other may be the newest: an operator says what becomes of it."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**{**ELSEWHERE, "turn_floor": 5}))
        await put_copy(tx, "whole")
        await rows.put(tx, cell.migrations, **zeros(cell.migrations, **{**MOVE, **other}))
        (verdict,) = await judge_copies(tx, "host2", [report(2)], True)
        assert verdict.action == ("quarantine" if other else "stop")

    run(body)


LOST_HERE = {**NOBODY, "host": "host2", "vm_state": ERROR, "unsettled": LOST}


@pytest.mark.parametrize(
    "other",
    [{}, {"operation_id": "o"}, {"deleted": 1}, {"unsettled": SETTLED}, {"host": "host1"}, {"runner_host": "host1"}],
)
def test_a_guest_is_adopted_only_while_its_server_is_lost_and_nobody_is_at_it(run: Any, other: Any) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**{**LOST_HERE, **other}))
        before = await rows.fetch(tx, cell.servers, id="s")
        assert await adopt_lost(tx, "host2", [report(2, "on")], 0.0) == ([] if other else [("s", 2)])
        assert not other or await rows.fetch(tx, cell.servers, id="s") == before

    run(body)


@pytest.mark.parametrize("other", [{}, {"operation_id": "o"}, {"runner_host": "host1"}, {"runner_copy": 3}])
def test_a_start_that_failed_is_noted_only_where_nothing_else_is_under_way(run: Any, other: Any) -> None:
    """An operation says itself what it comes to; what a host says of others' copies is worth nothing."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.servers, **server(**{**HERE, "runner_copy": 2, **other}))
        await _note_failed(tx, "host2", "s", 2, "no such machine type")
        assert bool(await rows.fetch_all(tx, cell.faults)) is not bool(other)

    run(body)
