"""A cell is deleted while a host joins it: one of the two is refused, and never both are done. On both engines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.domain.errors import Refused
from kilonova.schema.tables.control import cells, host_mappings
from kilonova.services.compute.cells import Cells, keep_cell
from kilonova.store import rows
from kilonova.store.open_stores import OpenStores
from kilonova.store.postgres import PostgresStore
from kilonova.world import Tx
from tests.support.locks import Locking
from tests.unit.control import Clock, Ids

Run = Callable[[Any], None]
ROUNDS = 6


class Seal:
    def close_text(self, text: str) -> str:
        return text


class Learnt(OpenStores):
    """Of a process that knows the cell of old."""

    def may_go(self, name: str) -> bool:
        return True


async def put(store: Any, name: str) -> None:
    row = {"name": name, "id": name, "sealed_url": "", "bus_prefix": "", "disabled": 0, "created_at": 0.0}
    await store.write(lambda tx: rows.put(tx, cells, **row))


async def join(store: Any, stores: OpenStores, cell: str) -> None:
    async def body(tx: Tx) -> None:
        await keep_cell(tx, stores, cell)
        if isinstance(store, PostgresStore):  # SQLite has one writer: nobody comes between
            await asyncio.sleep(0.02)
        await rows.put(tx, host_mappings, host=f"host-of-{cell}", cell=cell)

    await store.write(body)


async def left(store: Any, name: str) -> tuple[bool, bool]:
    """Whether the cell is there, and a host in it."""

    async def body(tx: Tx) -> tuple[bool, bool]:
        found = await rows.fetch(tx, cells, name=name), await rows.fetch(tx, host_mappings, cell=name)
        return found[0] is not None, found[1] is not None

    there: tuple[bool, bool] = await store.read(body)
    return there


def of(store: Any) -> tuple[Learnt, Cells]:
    stores = Learnt(store, store)
    return stores, Cells(stores, Clock(), Ids(), MemoryBus(MemoryHub(), "api"), Seal())  # type: ignore[arg-type]


def test_a_host_that_joins_first_keeps_its_cell(control: Run) -> None:
    async def story(store: Any) -> None:
        stores, service = of(store)
        await put(store, "far")
        await join(store, stores, "far")
        with pytest.raises(Refused, match="cell far: it has 1 hosts and 0 servers"):
            await service.delete("far")
        assert await left(store, "far") == (True, True)

    control(story)


def test_a_cell_that_is_gone_takes_no_host(control: Run) -> None:
    async def story(store: Any) -> None:
        stores, service = of(store)
        await put(store, "far")
        await service.delete("far")
        with pytest.raises(Refused, match="cell far: it was deleted"):
            await join(store, stores, "far")
        assert await left(store, "far") == (False, False)

    control(story)


def test_at_the_same_moment_one_of_them_is_refused(control: Run) -> None:
    async def story(store: Any) -> None:
        stores, service = of(store)
        for number in range(ROUNDS):
            name = f"far{number}"
            await put(store, name)
            both = [join(store, stores, name), service.delete(name)]
            done = await asyncio.gather(*(both if number % 2 else reversed(both)), return_exceptions=True)
            assert sum(isinstance(one, Refused) for one in done) == 1, done
            assert len(set(await left(store, name))) == 1

    control(story)


def test_a_host_that_joins_and_a_delete_wait_for_each_other(control: Run) -> None:
    async def story(store: Any) -> None:
        for act in ("join", "delete"):
            await put(store, "far")
            locking: Any = Locking(store)
            stores, service = of(locking)
            await (join(locking, stores, "far") if act == "join" else service.delete("far"))
            assert locking.locked == [("cells", {"name": "far"})]
            await store.write(lambda tx: rows.remove(tx, host_mappings, cell="far"))
            await store.write(lambda tx: rows.remove(tx, cells, name="far"))

    control(story)
