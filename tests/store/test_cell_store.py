"""A cell's database that goes away: said once, heard at once by everybody, found again by itself."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import pytest

from kilonova.domain.errors import StoreError, Unreachable
from kilonova.sim.lab.faulty_store import FaultyStore
from kilonova.sim.lab.outages import HANGS, Outages
from kilonova.store import cell_store
from kilonova.store.cell_store import CellStore
from kilonova.store.open_stores import open_cell, open_store, open_stores
from kilonova.world import Tx
from tests.store.conftest import WallClock


async def look(tx: Tx) -> float:
    return await tx.now()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_store, "PAUSE", 0.01)


async def back(cell: CellStore) -> None:
    async with asyncio.timeout(10):
        while cell.outage is not None:  # noqa: ASYNC110 - what is looked for is that it happens by itself
            await asyncio.sleep(0.01)


def test_it_is_away_and_returns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        outages = Outages()
        store = await open_store("cell1", f"sqlite:///{tmp_path}/a.db", clock=WallClock())
        cell = CellStore("cell1", WallClock(), FaultyStore(store, outages))
        assert await cell.read(look) > 0
        outages.begin("cell1")
        for _ in range(3):
            for ask in (cell.read, cell.write):
                with pytest.raises(Unreachable):
                    await ask(look)
        assert cell.outage is not None and cell.outage.since <= time.time()
        outages.end("cell1")
        await back(cell)
        assert await cell.write(look) > 0
        await cell.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert [record.message.split(",")[0] for record in caplog.records] == [
        "cell1: its database does not answer",
        "cell1: its database answers again",
    ]


def test_while_it_hangs_only_the_first_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kilonova.sim.lab.outages.HANGING_SECONDS", 0.5)

    async def story() -> None:
        outages = Outages()
        store = await open_store("cell1", f"sqlite:///{tmp_path}/a.db", clock=WallClock())
        cell = CellStore("cell1", WallClock(), FaultyStore(store, outages))
        outages.begin("cell1", HANGS)
        with pytest.raises(Unreachable):
            await cell.read(look)
        began = time.monotonic()
        for _ in range(100):
            with pytest.raises(Unreachable):
                await cell.read(look)
        assert time.monotonic() - began < 0.4
        await cell.close()

    asyncio.run(story())


def test_a_cloud_opens_although_a_cell_hangs(tmp_path: Path) -> None:
    """A server that takes connections and says nothing: the other cells are there, and this one joins them later."""

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(100):
            pass
        writer.close()

    async def story() -> None:
        server = await asyncio.start_server(silence, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("control", "placement", "cell0", "cell1")}
        urls["cell2"] = f"postgresql://me:secret@127.0.0.1:{port}/x"
        began = time.monotonic()
        stores = await open_stores(urls, clock=WallClock(), cell_timeout=0.3)
        assert time.monotonic() - began < 5
        assert stores.cells() == ("cell0", "cell1", "cell2")
        assert list(stores.destinations()) == ["cell1", "cell2"], "nobody knows what could be built in cell2"
        outage = stores.outage("cell2")
        assert outage is not None and "did not answer within 0.3 seconds" in outage.why and "secret" not in outage.why
        assert await stores.cell("cell1").read(look) > 0
        with pytest.raises(Unreachable):
            await stores.cell("cell2").read(look)
        await stores.close()
        server.close()

    asyncio.run(story())


def test_one_that_may_not_be_used_is_refused_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        await (await open_store("control", f"sqlite:///{tmp_path}/a.db", clock=WallClock())).close()
        await open_cell("cell1", f"sqlite:///{tmp_path}/a.db", clock=WallClock())

    with pytest.raises(StoreError, match="is a control database"):
        asyncio.run(story())
