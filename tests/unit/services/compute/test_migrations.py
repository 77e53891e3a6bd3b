"""Records of moves from all cells: the newest first, by what is asked for, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.schema.tables.cell import migrations
from kilonova.services.compute.migrations import MigrationFilter, find_move, read_moves
from tests.unit.services.compute.fleet import Fleet, Run

MOVE = {"kind": "resize", "status": "done", "source_host": "h1", "dest_host": "h2", "project_id": "p", "user_id": "u"}
MOVES: dict[str, tuple[str, dict[str, Any]]] = {
    "a": ("cell1", {"created_at": 1.0, "updated_at": 11.0, "server_id": "s"}),
    "b": ("cell2", {"created_at": 2.0, "updated_at": 12.0, "status": "failed"}),
    "c": ("cell1", {"created_at": 2.0, "updated_at": 13.0, "kind": "migration", "project_id": "q"}),
    "d": ("cell2", {"created_at": 2.0, "updated_at": 14.0, "source_host": "h2", "dest_host": "h3", "user_id": "v"}),
    "e": ("cell1", {"created_at": 3.0, "updated_at": 15.0, "dest_host": None}),
}


async def fill(fleet: Fleet) -> None:
    for number, (move, (cell, values)) in enumerate(MOVES.items()):
        await fleet.put(cell, migrations, **{"id": move, "number": number, "server_id": move, **MOVE, **values})


async def read(fleet: Fleet, limit: int | None = None, after: str = "", **filters: Any) -> str:
    marker = await find_move(fleet.stores, after) if after else None
    found = await read_moves(fleet.stores, MigrationFilter(**filters), limit=limit, after=marker)
    return "".join(row["id"] for row in found)


FILTERS: list[tuple[dict[str, Any], str]] = [
    ({}, "edcba"),
    ({"server": "s"}, "a"),
    ({"status": "failed"}, "b"),
    ({"kind": "migration"}, "c"),
    ({"host": "h2"}, "dcba"),
    ({"host": "h1"}, "ecba"),
    ({"host": "h3"}, "d"),
    ({"source": "h2"}, "d"),
    ({"project": "q"}, "c"),
    ({"user": "v"}, "d"),
    ({"since": 13.0}, "edc"),
    ({"before": 13.0}, "cba"),
    ({"since": 12.0, "before": 14.0, "user": "u"}, "cb"),
    ({"server": "s", "status": "failed"}, ""),
]


def test_each_filter(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        await fill(fleet)
        for filters, expected in FILTERS:
            assert await read(fleet, **filters) == expected, filters

    fleet(story)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_are_parts_of_the_list(fleet: Run, limit: int) -> None:
    async def story(fleet: Fleet) -> None:
        await fill(fleet)
        seen = ""
        while found := await read(fleet, limit, seen[-1:]):
            assert len(found) == min(limit, 5 - len(seen))
            seen += found
        assert seen == "edcba" and await read(fleet, limit=0) == ""
        assert await read(fleet, after="c") == "ba"

    fleet(story)


def test_one_is_found_in_any_cell(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        await fill(fleet)
        for move in MOVES:
            row = await find_move(fleet.stores, move)
            assert row is not None and row["id"] == move
        assert await find_move(fleet.stores, "f") is None

    fleet(story)


def test_moves_in_a_cell_that_is_away_are_left_out(fleet: Run) -> None:
    async def story(fleet: Fleet) -> None:
        await fill(fleet)
        fleet.lose("cell2")
        assert await read(fleet) == "eca"
        assert await find_move(fleet.stores, "b") is None and await find_move(fleet.stores, "c") is not None

    fleet(story)
