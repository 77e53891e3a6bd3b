"""What the engine decides by one row is decided by no neighbour, which differs in one key of the statement only."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import KilonovaError, NotYet, Refused
from kilonova.domain.messages import Beat
from kilonova.domain.server import ARRIVING, LEAVING, Server, to_json
from kilonova.engine import abandon as abandoning
from kilonova.engine import accept, submit, take
from kilonova.engine import journal as log
from kilonova.engine.accept import Ask, IdempotencyKey
from kilonova.engine.children import require_forward
from kilonova.engine.core import load_server
from kilonova.engine.course import Go
from kilonova.engine.ending import _whole_or_error
from kilonova.engine.findings import Intervention, NewFinding, put_finding, put_intervention
from kilonova.engine.model import Target
from kilonova.engine.restored_copies import refuse_unless_settled
from kilonova.engine.run import postpone
from kilonova.engine.secrets import Seal, sealed
from kilonova.engine.tickets import SEND, Ticket, issue, redeem
from kilonova.operations import REGISTRY
from kilonova.schema.tables import cell, control, journal
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.rows_of_one import (
    CAUSE,
    COPY,
    MOVE,
    NOW,
    OPERATION,
    SERVER,
    STEP,
    Case,
    assert_it_decides,
    each_stale,
    engine_of,
    operation,
    play,
    put_around,
    put_itself,
    store_of,
)

STOP = REGISTRY["stop"]
KEY = IdempotencyKey("k", "route", "hash")
ASK = Ask(kind="stop", server_id="s", cause=CAUSE, key=KEY)
STEP_OF = {"operation_id": "0", "ordinal": 1}
AT_HOST = {**STEP, "host": "host1", "state": "taken", "not_before": 0.0}
DUE = {**STEP, "not_before": 0.0}


async def subject(tx: Tx) -> Any:
    return await accept.gather(engine_of(tx), tx, ASK, STOP)


async def gathered_server(tx: Tx) -> object:
    with contextlib.suppress(Refused):
        return (await subject(tx)).server is not None
    return False


async def gathered_migration(tx: Tx) -> object:
    return (await subject(tx)).migration


async def gathered_operation(tx: Tx) -> object:
    return (await subject(tx)).live


async def earlier(tx: Tx) -> object:
    return await accept._earlier(tx, Ask(kind="stop", server_id="s", cause=CAUSE), "o", NOW)


async def running_delete(tx: Tx) -> object:
    return await submit._running_delete(tx, Ask(kind="delete", server_id="s", cause=CAUSE), NOW)


async def mapping(tx: Tx) -> object:
    with contextlib.suppress(Refused):
        return await submit.find_mapping(engine_of(tx), "s")
    return None


class InCells:
    """Databases of which the test has one; the other says what it is told."""

    def __init__(self, tx: Tx, mine: str, other: Any) -> None:
        async def answer() -> Any:
            return other

        self.control = store_of(tx)
        self._stores = {mine: store_of(tx)}
        self._other: Any = SimpleNamespace(read=lambda body, **_: answer())

    def cells(self) -> list[str]:
        return ["cell0", "cell1"]

    def cell(self, name: str) -> Any:
        return self._stores.get(name, self._other)


async def owner(tx: Tx, mine: str, other: Any) -> str:
    engine: Any = SimpleNamespace(world=SimpleNamespace(db=InCells(tx, mine, other)))
    return await submit._owner(engine, "cell0", Ask(kind="delete", server_id="s", cause=CAUSE))


async def on_its_way(tx: Tx) -> object:
    return await owner(tx, "cell0", True) == "cell1"


async def still_there(tx: Tx) -> object:
    return await owner(tx, "cell1", "cell1") == "cell1"


async def has_its_step(tx: Tx) -> object:
    engine = engine_of(tx)
    engine.seal = Seal(b"c2ltdWxhdGVkLXNlYWwta2V5LTMyLWJ5dGVzLWxvbmc=")
    with contextlib.suppress(Refused):
        await redeem(engine, issue(engine.seal, Ticket("cell1", "o", 2, "host1", "i")), "i", SEND)
        return True
    return False


async def noted_before(tx: Tx) -> object:
    """Whether this word was noted earlier, so that nothing is noted now."""
    before = len(await rows.fetch_all(tx, journal.interventions))
    await put_intervention(tx, operation(), Intervention("resume", CAUSE), NOW)
    is_noted = len(await rows.fetch_all(tx, journal.interventions)) == before
    if not is_noted:
        await rows.remove(tx, journal.interventions, operation_id="o", ordinal=2)
    return is_noted


async def error_of_the_try(tx: Tx) -> object:
    await put_finding(
        tx,
        operation(ordinal=3),
        "stop",
        Go(step="plan", way="do", target=Target("", 0)),
        Intervention("abandon", CAUSE),
        LEFT,
        NOW,
    )
    (found,) = await rows.fetch_all(tx, journal.findings)
    await rows.remove(tx, journal.findings, id="f")
    return found["error"]


LEFT = NewFinding("f", "[]")


async def is_whole(tx: Tx) -> object:
    await rows.change(tx, cell.servers, {"vm_state": "active"}, id="s")
    await _whole_or_error(tx, operation())
    row = await rows.fetch(tx, cell.servers, id="s")
    return row is not None and row["vm_state"] == "active"


async def is_held(tx: Tx) -> object:
    row = await rows.fetch(tx, cell.servers, id="s")
    assert row is not None
    try:
        await refuse_unless_settled(tx, REGISTRY["migrate"], Server.from_row(row))
    except Refused:
        return True
    return False


async def is_called(tx: Tx) -> object:
    """Whether a child called the step back: then it is not put off."""
    await rows.change(tx, journal.steps, {"state": "taken", "not_before": 9.0}, operation_id="o", ordinal=2)
    await postpone(engine_of(tx), store_of(tx), "o", 2, NotYet("an answer", 20.0), {})
    row = await rows.fetch(tx, journal.steps, operation_id="o", ordinal=2)
    return row is not None and row["not_before"] == 9.0


async def goes_forward(tx: Tx) -> object:
    with contextlib.suppress(KilonovaError):
        await require_forward(tx, "o")
        return True
    return False


async def for_host(tx: Tx) -> object:
    return ("o", 2) in await take.open_for_host(tx, Beat(host="host1", session="s", epoch=1))


SEALED = {"operation_id": "o", "sealed": "x"}
KEY_ROW = {"key": "k", "user_id": "u", "project_id": "p", "route": "route", "body_hash": "hash", "operation_id": "o"}
MAPPING = {"server_id": "s", "cell": "cell1", "project_id": "p", "user_id": "u", "queued_for_delete": 0}
DELETING = {**OPERATION, "kind": "delete_unplaced"}
ON_ITS_WAY = {**SERVER, "hidden": ARRIVING, "runner_proof": to_json({"left": "cell1"})}
HELD = {"host": "host1", "server_id": "s", "copy": 1, "reason": "why", "power": "off", "ended_at": None}
FAILED = {**STEP, "state": "failed", "open": 0, "error": "{}"}
WHOLE = {**COPY, "state": "whole"}
SAID = {"operation_id": "o", "ordinal": 2, "number": 1, "verb": "resume", "user_id": "u", "request_id": "r"}
OF_SERVER = ((cell.servers, SERVER),)
OF_OPERATION = ((journal.operations, OPERATION),)
CASES = [
    Case("operation", journal.operations, OPERATION, {"id": "0"}, lambda tx: log.load(tx, "o")),
    Case(
        "unchanged operation",
        journal.operations,
        OPERATION,
        {"id": "0"},
        lambda tx: log.is_unchanged(tx, operation()),
        {"live": 0, "ordinal": 3, "turn": 6, "state": "undoing", "committed": 1},
    ),
    Case("parent", journal.operations, OPERATION, {"id": "0"}, goes_forward, {"state": "failed"}),
    Case("step", journal.steps, STEP, STEP_OF, lambda tx: log.fetch_step(tx, "o", 2)),
    Case(
        "server of an operation",
        cell.servers,
        SERVER,
        {"id": "0"},
        lambda tx: load_server(tx, store_of(tx), operation()),
    ),
    Case("secrets", journal.secrets, SEALED, {"operation_id": "0"}, lambda tx: sealed(tx, "o")),
    Case(
        "earlier request",
        journal.idempotency_keys,
        KEY_ROW,
        {"key": "0", "user_id": "0", "project_id": "0", "route": "0"},
        lambda tx: accept.known_key(tx, ASK),
    ),
    Case("own operation", journal.operations, OPERATION, {"id": "0"}, earlier),
    Case("server that is asked for", cell.servers, SERVER, {"id": "0"}, gathered_server, {"deleted": 1, "hidden": 1}),
    Case("live operation", journal.operations, OPERATION, {"id": "0"}, gathered_operation, {"live": 0}, OF_SERVER),
    Case(
        "open migration",
        cell.migrations,
        {**MOVE, "source_host": "host1"},
        {"server_id": "0", "open": 0},
        gathered_migration,
        also=OF_SERVER,
    ),
    Case(
        "delete that runs",
        journal.operations,
        DELETING,
        {"server_id": "0", "kind": "place", "live": 0},
        running_delete,
        database="control",
    ),
    Case(
        "mapping",
        control.server_mappings,
        MAPPING,
        {"server_id": "0"},
        mapping,
        {"queued_for_delete": 1},
        database="control",
    ),
    Case("server on its way", cell.servers, ON_ITS_WAY, {"id": "0"}, on_its_way, {"hidden": 0}),
    Case("server that leaves", cell.servers, {**SERVER, "hidden": LEAVING}, {"id": "0"}, still_there, {"hidden": 0}),
    Case(
        "operation of a ticket",
        journal.operations,
        OPERATION,
        {"id": "0"},
        has_its_step,
        {"live": 0, "ordinal": 3},
        ((journal.steps, AT_HOST),),
    ),
    Case(
        "step of a ticket",
        journal.steps,
        AT_HOST,
        STEP_OF,
        has_its_step,
        {"open": 0, "way": "undo", "host": "host2", "state": "ready"},
        OF_OPERATION,
    ),
    Case("word", journal.interventions, SAID, {"operation_id": "0", "ordinal": 1}, noted_before),
    Case("step that failed", journal.steps, FAILED, STEP_OF, error_of_the_try),
    Case(
        "whole copy",
        cell.copies,
        WHOLE,
        {"server_id": "0", "host": "host0", "copy": 0},
        is_whole,
        {"state": "making"},
        OF_SERVER,
    ),
    Case(
        "copy in quarantine",
        cell.quarantine,
        HELD,
        {"server_id": "0"},
        is_held,
        {"ended_at": 1.0},
        ((cell.servers, {**SERVER, "turn_floor": 5}),),
    ),
    Case(
        "step that is called",
        journal.steps,
        {**STEP, "state": "taken", "taken_at": 8.0},
        STEP_OF,
        is_called,
        {"taken_at": None},
        OF_OPERATION,
    ),
    Case(
        "step that is due",
        journal.steps,
        DUE,
        {},
        lambda tx: take.ready_operations(store_of(tx)),
        {"open": 0, "host": "host1", "state": "taken", "not_before": NOW + 1.0},
    ),
    Case("step of a host", journal.steps, AT_HOST, STEP_OF, for_host, {"open": 0, "host": "host2"}),
    Case(
        "host with work",
        journal.steps,
        AT_HOST,
        {},
        lambda tx: take.hosts_with_work(store_of(tx)),
        {"open": 0, "host": ""},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_only_the_row_itself_decides(tmp_path: Path, case: Case) -> None:
    assert_it_decides(tmp_path, case)


@pytest.mark.parametrize(("case", "column"), each_stale(CASES))
def test_a_row_that_is_another_now_decides_nothing(tmp_path: Path, case: Case, column: str) -> None:
    async def body(tx: Tx) -> None:
        stale = {column: case.stale[column]}
        await put_around(tx, case, **stale)
        await put_itself(tx, case, **stale)
        assert not await case.act(tx)

    play(tmp_path, body, case.database)


@pytest.mark.parametrize("column", ["operation_id", "ordinal", "state"])
def test_a_step_is_abandoned_unless_it_was_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str) -> None:
    """An unknown COMMIT is looked up by the step (law 12): not by another one that was abandoned earlier."""
    abandoned = {**STEP, "state": "abandoned", "open": 0}
    other = {"operation_id": "0", "ordinal": 1, "state": "done"}[column]
    done: list[int] = []

    async def seen(*_: Any) -> Any:
        return SimpleNamespace(op=operation(), step=SimpleNamespace(name="plan", claims=False))

    async def stand_for(*_: Any) -> None:
        done.append(1)

    async def opened(tx: Tx, *_: Any) -> Any:
        return operation(), STEP

    async def ignore(*_: Any) -> None: ...

    for name, new in {"_look": seen, "_abandon": stand_for, "_open": opened, "pass_on": ignore}.items():
        monkeypatch.setattr(abandoning, name, new)

    async def body(tx: Tx) -> None:
        engine = engine_of(tx)
        engine.world.ids = SimpleNamespace(uuid=lambda: "f")
        await put_itself(tx, Case("", journal.operations, OPERATION, {}, seen))
        await put_itself(tx, Case("", journal.steps, {**abandoned, column: other}, {}, seen))
        await abandoning.abandon(engine, store_of(tx), "o", CAUSE, "why")
        assert done == [1]
        await rows.change(tx, journal.steps, {"operation_id": "o", "ordinal": 2, "state": "abandoned"})
        await abandoning.abandon(engine, store_of(tx), "o", CAUSE, "why")
        assert done == [1], "our own COMMIT was unknown"

    play(tmp_path, body)
