"""Each removal of the purge takes the rows of the given servers or operations, and nothing that is still an operator's,
even if that came up since the purge looked."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Table

from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import findings, steps
from kilonova.store import rows
from kilonova.store.purge import _removal
from kilonova.world import Tx
from tests.engine.test_restored import run as run
from tests.engine.test_restored import server
from tests.support.neighbours import Watched, put_neighbours, zeros

TEXTS = {"server_id": "s", "operation_id": "o", "host": "h"}
FINDING = {**TEXTS, "id": "f", "open": 0}
HELD = {"server_id": "s", "host": "h", "copy": 1, "reason": "", "power": "off", "ended_at": 1.0}
MOVE = {"server_id": "s", "id": "m", "source_host": "h", "open": 0}
STEP = {**TEXTS, "ordinal": 1, "name": "n", "way": "do", "host": "", "state": "done"}


@pytest.mark.parametrize(
    ("table", "column", "row", "others"),
    [
        (findings, "server_id", FINDING, {"server_id": "t", "open": 1}),
        (findings, "operation_id", FINDING, {"operation_id": "p", "open": 1}),
        (cell.quarantine, "server_id", HELD, {"server_id": "t"}),
        (cell.migrations, "server_id", MOVE, {"server_id": "t"}),
        (cell.servers, "id", server(deleted=1), {"id": "t"}),
        (steps, "operation_id", {name: STEP[name] for name in STEP if name != "host"}, {"operation_id": "p"}),
    ],
)
def test_only_what_was_named_goes(run: Any, table: Table, column: str, row: dict[str, Any], others: Any) -> None:
    async def body(tx: Tx) -> None:
        await put_neighbours(tx, table, row, **others)
        await rows.put(tx, table, **zeros(table, **row))
        before = await Watched.since_now(tx, table)
        name, statement = _removal(table, column)
        assert name == table.name and await tx.run(statement, ids=[row[column], "nobody"]) == 1
        (gone,) = await before.changed(tx)
        assert {key: gone[key] for key in row} == row

    run(body)


def test_a_copy_that_is_in_quarantine_stays_there(run: Any) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, cell.quarantine, **zeros(cell.quarantine, **{**HELD, "ended_at": None}))
        assert await tx.run(_removal(cell.quarantine, "server_id")[1], ids=["s"]) == 0

    run(body)
