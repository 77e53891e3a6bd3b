"""What a host may do with a copy, by the records alone: rows of one cell, without a cloud."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.host import judge
from kilonova.engine.debts import owe_removal
from kilonova.hosts.verdicts import correct_copies, judge_copies, may_be_gone
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
        assert [one.word for one in await judge_copies(tx, "host2", [report(2)], True, gone)] == [word]

    run(body)


def test_a_host_that_owes_has_to_register_again(run: Any) -> None:
    """Else it would go on with its steps, and never hear of it. Until then it is not a destination, even if heard."""

    async def body(tx: Tx) -> None:
        texts = {"name": "host2", "id": "h", "provider_id": "p", "identity": "i"}
        await rows.put(tx, cell.hosts, **zeros(cell.hosts, **texts, epoch=7))
        await owe_removal(tx, "host2", "s", 2, "o", 0.0)
        row = await rows.fetch(tx, cell.hosts, name="host2")
        assert row is not None and row["epoch"] == 8
        assert judge(facts_of(row), None, row["last_seen"], 60.0).word == "returning"

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
        assert await close_server(ctx) == {"leaves": left is nothing}
        assert ctx.closed is (left is nothing)

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
