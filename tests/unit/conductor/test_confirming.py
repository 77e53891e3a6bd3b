"""Which finished moves are confirmed by themselves: by the database's clock, and none that anything else is about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.conductor import confirming
from kilonova.domain.server import ACTIVE, RESIZED
from kilonova.schema.tables import cell
from kilonova.settings import Default, Settings
from kilonova.store import rows
from kilonova.store.open_stores import open_store
from kilonova.world import Store, Tx
from tests.engine.test_restored import server
from tests.support.neighbours import Watched, put_neighbours, zeros

NOW, WINDOW = 10_000.0, 600.0
MOVE = {"id": "m", "server_id": "s", "status": "finished", "open": 1, "dest_copy": 3, "finished_seen_at": NOW - WINDOW}


class StandingClock:
    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead

    def now(self) -> float:
        return NOW + self.ahead


Story = Callable[[Any, Store], Awaitable[None]]


def play(path: Path, monkeypatch: pytest.MonkeyPatch, story: Story, ahead: float = 0.0) -> list[str]:
    """Return the servers whose moves the story confirmed."""
    asked: list[str] = []

    async def submit(engine: Any, ask: Any) -> None:
        asked.append(ask.server_id)

    async def whole() -> None:
        store = await open_store("cell1", f"sqlite:///{path}/cell1.db", clock=StandingClock())
        world = SimpleNamespace(clock=StandingClock(ahead), ids=SimpleNamespace(uuid=lambda: "id"))
        settings = Settings(default=Default(resize_confirm_window=WINDOW))
        engine: Any = SimpleNamespace(world=world, settings=settings, write=lambda journal, body: journal.write(body))
        try:
            await story(engine, store)
        finally:
            await store.close()

    monkeypatch.setattr(confirming, "submit", submit)
    asyncio.run(whole())
    return asked


def confirmed(path: Path, monkeypatch: pytest.MonkeyPatch, of: Any, move: Any, ahead: float = 0.0) -> list[str]:
    async def put(tx: Tx) -> None:
        row = {"vm_state": RESIZED, "operation_id": None, "turn_floor": None, **of}
        await rows.put(tx, cell.servers, **server(**row))
        await rows.put(tx, cell.migrations, **zeros(cell.migrations, **{**MOVE, **move}))

    async def story(engine: Any, store: Store) -> None:
        await store.write(put)
        await confirming.confirm_forgotten(engine, store)

    return play(path, monkeypatch, story, ahead)


@pytest.mark.parametrize(
    ("of", "move", "is_confirmed"),
    [
        ({}, {}, True),
        ({}, {"finished_seen_at": NOW - WINDOW + 1}, False),
        ({}, {"finished_seen_at": None}, False),
        ({}, {"finished_seen_at": NOW + 1}, False),
        ({}, {"status": "reverting"}, False),
        ({}, {"open": 0}, False),
        ({"vm_state": ACTIVE}, {}, False),
        ({"operation_id": "o"}, {}, False),
        ({"turn_floor": 3}, {}, False),
        ({"turn_floor": 2}, {}, True),
    ],
)
def test_a_move_that_its_owner_has_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: Any, move: Any, is_confirmed: bool
) -> None:
    assert confirmed(tmp_path, monkeypatch, of, move) == ["s"] * is_confirmed


@pytest.mark.parametrize("ahead", [-1e6, 1e6])
@pytest.mark.parametrize(("seen_at", "is_confirmed"), [(NOW - WINDOW, True), (NOW - WINDOW + 1, False)])
def test_the_clock_of_the_conductor_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: float, seen_at: float, is_confirmed: bool
) -> None:
    """Law 16: what the database wrote is compared by the database's clock."""
    move = {"finished_seen_at": seen_at}
    assert confirmed(tmp_path, monkeypatch, {}, move, ahead) == ["s"] * is_confirmed


@pytest.mark.parametrize("seen_at", [None, NOW + 1])
def test_the_window_of_finished_moves_alone_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen_at: float | None
) -> None:
    """One that is still under way would be confirmed too early once it has finished; one that has ended, or was seen
    before, keeps its time."""
    move = {**MOVE, "finished_seen_at": seen_at}
    others = {"status": "migrating", "open": 0, "finished_seen_at": NOW - 1}

    async def story(engine: Any, store: Store) -> None:
        async def put(tx: Tx) -> Watched:
            await put_neighbours(tx, cell.migrations, move, **others)
            await rows.put(tx, cell.migrations, **zeros(cell.migrations, **move))
            return await Watched.since_now(tx, cell.migrations)

        before = await store.write(put)
        await confirming.confirm_forgotten(engine, store)
        assert [row["id"] for row in await store.read(before.changed)] == ["m"]

    play(tmp_path, monkeypatch, story)


def test_a_move_that_finishes_after_the_look_is_left_to_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look_only(engine: Any, journal: Store) -> None: ...

    monkeypatch.setattr(confirming, "_see", look_only)
    assert confirmed(tmp_path, monkeypatch, {}, {"finished_seen_at": None}) == []
