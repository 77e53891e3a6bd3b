"""An empty database takes a lost cell's place on an operator's word and not before (law 15). On both engines."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Any

import pytest

from kilonova.domain.errors import Refused, WrongStore
from kilonova.engine.lost_cell import remake
from kilonova.schema.tables import cell, control
from kilonova.store import lost_databases, rows
from kilonova.store.badges import look_at
from kilonova.store.lost_databases import refuse_while_conductors_work, replace_lost
from kilonova.store.marks import Marks
from kilonova.store.open_stores import OpenStores
from kilonova.store.upgrade import upgrade
from kilonova.world import Row, Tx
from tests.store.conftest import WallClock
from tests.store.test_belonging import Place, place, until

__all__ = ["place"]


async def give_word(place: Place, stores: OpenStores, name: str = "cell1", reason: str = "burnt") -> Row:
    url = place.urls.get(name, "")
    return await replace_lost(stores, name, url, reason, new_id=lambda: str(uuid.uuid4()), clock=WallClock())


async def words(stores: OpenStores) -> list[dict[str, Any]]:
    async def body(tx: Tx) -> list[dict[str, Any]]:
        return [dict(row) for row in await rows.fetch_all(tx, control.lost_stores)]

    return await stores.control.read(body)


def test_an_empty_database_is_used_after_the_word(place: Place) -> None:
    """A process of the fleet refuses it until its servers are recorded, and then uses it by itself."""

    async def story() -> None:
        async with place.opened() as stores:
            before = stores.roll.known["cell1"]
        await place.drop("cell1")
        async with (
            place.opened(goes_on=True, upgrading=False) as fleet,
            place.opened(goes_on=True, upgrading=False, new_id=None) as stores,
        ):
            word = await give_word(place, stores)
            assert (word["reason"], word["store_id"], word["era"]) == ("burnt", before.store, 2)
            await fleet.learn()
            await asyncio.sleep(1.2)
            outage = fleet.outage("cell1")
            assert outage is not None and outage.is_wrong, "it has its badge, and control does not list it"
            await remake(stores, word)
            await fleet.learn()
            await until(lambda: fleet.outage("cell1") is None)
            (recorded,) = await words(stores)
            assert recorded["ended_at"] is not None
        look = await look_at(place.urls["cell1"], "cell1")
        assert look.badge is not None and (look.badge.store, look.badge.era) == (word["replacement"], 2)
        async with place.opened() as stores:
            assert stores.outage("cell1") is None

    asyncio.run(story())


def test_a_command_that_was_cut_off_goes_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each of its steps: the word, the tables, the badge, the records."""
    steps = ("upgrade", "open_store", "stamp", "_note_time")

    async def killed(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    async def story() -> None:
        async with place.opened():
            pass
        await place.drop("cell1")
        ids = set()
        for step in steps:
            async with place.opened(goes_on=True, upgrading=False, new_id=None) as stores:
                with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
                    patched.setattr(lost_databases, step, killed)
                    await give_word(place, stores)
                ids |= {row["replacement"] for row in await words(stores)}
            with pytest.raises(WrongStore):
                async with place.opened():
                    pass
        async with place.opened(goes_on=True, upgrading=False, new_id=None) as stores:
            word = await give_word(place, stores, reason="another")
            assert {word["replacement"]} == ids and word["reason"] == "burnt"
            await remake(stores, word)
        async with place.opened() as stores:
            assert stores.outage("cell1") is None

    asyncio.run(story())


def test_conductors_are_stopped_first(place: Place) -> None:
    """They have the lost database open, and would write into the new tables."""

    async def body() -> None:
        async with place.opened() as stores:
            await refuse_while_conductors_work(stores)

            async def work(tx: Tx) -> None:
                until = await tx.now() + 6.0
                await rows.put(tx, control.workers, id="w", kind="conductor", lease_until=until, started_at=0.0)

            await stores.control.write(work)
            with pytest.raises(Refused, match="stop every api and conductor"):
                await refuse_while_conductors_work(stores)

    asyncio.run(body())


def test_nothing_else_is_replaced(place: Place) -> None:
    async def refused(match: str, name: str = "cell1", reason: str = "x") -> None:
        async with place.opened(goes_on=True, upgrading=False, new_id=None) as stores:
            with pytest.raises(Refused, match=match):
                await give_word(place, stores, name, reason)
            assert await words(stores) == []

    async def story() -> None:
        async with place.opened():
            pass
        await refused("nothing is lost, and nothing was changed")
        await refused("control lists no database of that name", "cell9")
        await refused("control lists no database of that name", "placement")
        right, place.urls["cell1"] = place.urls["cell1"], place.urls["cell0"]
        await refused(r"\(cell0\) of cloud .*; give an empty one in the lost one's place")
        place.urls["cell1"] = right
        await place.drop("cell1")
        await refused("use --reason TEXT", reason=" ")
        await upgrade(right, "cell")
        await fill(place)
        await refused("is not empty")

    asyncio.run(story())


async def fill(place: Place) -> None:
    from kilonova.store.open_stores import open_store

    store = await open_store("cell1", place.urls["cell1"], clock=WallClock(), upgrading=False)

    async def body(tx: Tx) -> None:
        columns = {c.name: 0 if "INT" in str(c.type) or "FLOAT" in str(c.type) else "x" for c in cell.hosts.c}
        await rows.put(tx, cell.hosts, **columns)

    try:
        await store.write(body)
    finally:
        await store.close()


def test_peers_learn_the_new_store(place: Place) -> None:
    """Else each look would find news about it, and write them."""

    async def story() -> None:
        async with place.opened() as stores:
            for _ in range(2):
                await Marks(stores, WallClock()).look()
        await place.drop("cell1")
        async with place.opened(goes_on=True, upgrading=False, new_id=None) as stores:
            word = await give_word(place, stores)
            await remake(stores, word)
        async with place.opened() as stores:
            await Marks(stores, WallClock()).look()
            look = await look_at(place.urls["placement"], "placement")
            assert look.known["cell1"].store == word["replacement"]
            assert stores.halted == ""

    asyncio.run(story())
