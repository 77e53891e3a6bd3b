"""Rows of one operation on one server, for tests of what is written and read by their keys alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Table

from kilonova.domain.cause import Cause
from kilonova.domain.server import to_json
from kilonova.engine.journal import Op, op_from
from kilonova.operations import REGISTRY
from kilonova.schema.tables.cell import servers
from kilonova.schema.tables.journal import operations, steps
from kilonova.store import rows
from kilonova.store.open_stores import open_store
from kilonova.world import Tx
from tests.support.distinct import distinct_settings
from tests.support.neighbours import put_neighbours, zeros

NOW = 10_000.0
ERA = 2_000_000
CAUSE = Cause(user_id="u", project_id="p", through="api", request_id="r")


def server(**values: Any) -> dict[str, Any]:
    """A server that runs, by records that were restored."""
    text = {"project_id": "p", "user_id": "u", "name": "n", "vm_state": "active", "image_ref": "", "details": "{}"}
    flavor = '{"name": "f", "vcpus": 1, "memory_mb": 1, "disk_gb": 1}'
    runs = {"host": "host1", "copy": 1, "runner_host": "host1", "runner_copy": 1, "power_state": 1}
    given = {"id": "s", "turn": ERA, "turn_floor": ERA, "unsettled": 1, "flavor": flavor, **text, **runs, **values}
    return zeros(servers) | given


SERVER = dict.fromkeys(servers.c.keys()) | server(turn=5, operation_id="o", turn_floor=None, unsettled=0)
_TEXTS = {"course": "{}", "params": "{}", "facts": "{}", "cause": to_json(CAUSE), "request_id": "r"}
OPERATION = dict.fromkeys(operations.c.keys()) | zeros(
    operations, id="o", kind="stop", server_id="s", turn=5, state="running", ordinal=2, live=1, created_at=NOW, **_TEXTS
)
_PLACED = {"name": "plan", "way": "do", "host": "", "heir_of": None, "server_id": "s", "turn": 5}
STEP = zeros(steps, operation_id="o", ordinal=2, state="ready", worker=None, open=1, not_before=7.0, **_PLACED)
MOVE = {"id": "m", "server_id": "s", "operation_id": "o", "kind": "migration", "status": "migrating", "open": 1}
COPY = {"server_id": "s", "host": "host1", "copy": 1, "state": "making", "claim": None, "operation_id": "o"}


class Case(NamedTuple):
    """What is written to one row, or found by it, among rows that are others in one column."""

    name: str
    table: Table
    row: dict[str, Any]
    others: dict[str, Any]  # of its neighbours: the columns of the key
    act: Callable[[Tx], Awaitable[object]]
    stale: dict[str, Any] = {}  # each of them: the row was changed since it was read
    also: tuple[tuple[Table, dict[str, Any]], ...] = ()
    database: str = "cell1"

    def __str__(self) -> str:
        return self.name


class StandingClock:
    def now(self) -> float:
        return NOW


def operation(**values: Any) -> Op:
    return op_from({**OPERATION, **values})  # type: ignore[arg-type]


def play(path: Path, body: Callable[[Tx], Awaitable[None]], name: str = "cell1") -> None:
    """Run the body in a transaction of a new database of this name."""

    async def whole() -> None:
        store = await open_store(name, f"sqlite:///{path}/{name}.db", clock=StandingClock())
        try:
            await store.write(body)
        finally:
            await store.close()

    asyncio.run(whole())


def store_of(tx: Tx, name: str = "cell1") -> Any:
    """A store that has this transaction only."""
    return SimpleNamespace(name=name, write=lambda body, **_: body(tx), read=lambda body, **_: body(tx))


def saying(answer: Any) -> Any:
    """A database of which only the answer is known."""

    async def say(*_: Any, **__: Any) -> Any:
        return answer

    return SimpleNamespace(name="another", read=say, write=say)


def engine_of(tx: Tx) -> Any:
    """An engine whose databases have this transaction only."""

    async def wake(*_: Any) -> None: ...

    db = SimpleNamespace(control=store_of(tx, "control"), cell=lambda name: store_of(tx, name), cells=lambda: ["cell1"])
    return SimpleNamespace(
        world=SimpleNamespace(clock=StandingClock(), db=db),
        settings=distinct_settings(),
        worker="me",
        write=lambda _, body: body(tx),
        operation=REGISTRY.__getitem__,
        on_mine=None,
        wake=wake,
        wake_in=lambda *_: None,
        waiting=SimpleNamespace(add=lambda *_: None),
    )


async def put_around(tx: Tx, case: Case, **stale: Any) -> None:
    """Put all rows of the case but the one that it is about."""
    for table, row in case.also:
        await rows.put(tx, table, **zeros(table, **row))
    await put_neighbours(tx, case.table, {**case.row, **stale}, **case.others)


async def put_itself(tx: Tx, case: Case, **stale: Any) -> None:
    await rows.put(tx, case.table, **zeros(case.table, **{**case.row, **stale}))


def each_stale(cases: list[Case]) -> list[Any]:
    """Each case with each column in which its row may be another than it was."""
    return [pytest.param(case, column, id=f"{case}-{column}") for case in cases for column in case.stale]


def assert_it_decides(tmp_path: Path, case: Case) -> None:
    """Only the row itself, not its neighbours."""

    async def body(tx: Tx) -> None:
        await put_around(tx, case)
        assert not await case.act(tx)
        await put_itself(tx, case)
        assert await case.act(tx)

    play(tmp_path, body, case.database)
