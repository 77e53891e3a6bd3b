"""A buried server is opened in cell0 once it has arrived there, in its own turn, and never if it is about to leave."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.server import ARRIVING, LEAVING, SHOWN
from kilonova.operations.steps.burial import open_in_cell0
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.test_restored import run as run
from tests.engine.test_restored import server
from tests.support.neighbours import put_neighbours


@pytest.mark.parametrize("hidden", [SHOWN, ARRIVING, LEAVING])
def test_only_what_arrived_is_opened(run: Any, hidden: int) -> None:
    async def body(tx: Tx) -> None:
        await put_neighbours(tx, cell.servers, server(turn=5, hidden=ARRIVING), id="t", turn=6)
        await rows.put(tx, cell.servers, **server(turn=5, hidden=hidden))
        store = SimpleNamespace(write=lambda written: written(tx))
        world = SimpleNamespace(db=SimpleNamespace(cell=lambda name: store))
        ctx: Any = SimpleNamespace(server_id="s", turn=5, world=world)
        await open_in_cell0(ctx)
        found = {row["id"]: row["hidden"] for row in await rows.fetch_all(tx, cell.servers)}
        assert found.pop("s") == (LEAVING if hidden == LEAVING else SHOWN)
        assert set(found.values()) == {ARRIVING}

    run(body)
