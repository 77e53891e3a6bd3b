"""A fleet goes on without a database that is not its own, and says so (law 15). On both engines."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.audit.reading import read_all
from kilonova.domain.errors import Unreachable, WrongStore
from kilonova.schema.tables.control import server_mappings
from kilonova.store import rows
from kilonova.store.badges import DirectoryBadge, look_at, write_directory_badge
from kilonova.store.open_stores import OpenStores, open_stores
from kilonova.store.upgrade import upgrade
from kilonova.world import Tx
from tests.store.conftest import WallClock
from tests.support.servers import Postgres

NAMES = ("control", "placement", "cell0", "cell1")


class Place:
    """Where a cloud's databases are, and how one is lost or exchanged."""

    def __init__(self, url: Callable[[str], str], drop: Callable[[str], Awaitable[None]]) -> None:
        self.urls = {name: url(name) for name in NAMES}
        self.drop = drop

    @contextlib.asynccontextmanager
    async def opened(self, **options: Any) -> Any:
        given = {"new_id": lambda: str(uuid.uuid4()), "cell_timeout": 2.0, **options}
        stores = await open_stores(self.urls, clock=WallClock(), **given)
        try:
            yield stores
        finally:
            await stores.close()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":

        async def unlink(name: str) -> None:
            (tmp_path / f"{name}.db").unlink()

        return Place(lambda name: f"sqlite:///{tmp_path}/{name}.db", unlink)
    server: Postgres = request.getfixturevalue("postgres")
    database = server.create_database(f"belonging_{uuid.uuid4().hex[:8]}")

    async def drop(name: str) -> None:
        import asyncpg

        connection = await asyncpg.connect(database)
        await connection.execute(f"DROP SCHEMA {name} CASCADE")
        await connection.close()

    return Place(lambda name: f"{database}?schema={name}", drop)


async def map_server(stores: OpenStores) -> None:
    async def body(tx: Tx) -> None:
        row = {"project_id": "p", "user_id": "u", "vcpus": 1, "memory_mb": 1, "queued_for_delete": 0, "counted": 1}
        await rows.put(tx, server_mappings, server_id="s", cell="cell1", **row, created_at=0.0)

    await stores.control.write(body)


def test_a_lost_cell_counts_as_away(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing about its servers is known, so nothing of theirs is freed; an empty one with tables is no better."""

    async def story() -> None:
        async with place.opened() as stores:
            await map_server(stores)
        await place.drop("cell1")
        for again in range(2):
            async with place.opened(goes_on=True, upgrading=False) as stores:
                outage = stores.outage("cell1")
                assert outage is not None and outage.is_wrong and "it is empty (store none)" in outage.why
                assert stores.outage("cell0") is None
                with pytest.raises(Unreachable, match="cell1 is not the right one"):
                    await stores.cell("cell1").read(lambda tx: tx.now())
                reading = await read_all(stores)
                assert "cell1" in reading.unreachable and reading.is_unknown("s")
            if not again:
                await upgrade(place.urls["cell1"], "cell")
        with pytest.raises(WrongStore, match=r"cell1 database .* it is empty"):
            async with place.opened():
                pass

    asyncio.run(story())
    assert "cell1: its database is not the one this cloud knows, the rest of the cloud continues" in caplog.text


def test_lost_placement_counts_as_away(place: Place) -> None:
    async def story() -> None:
        async with place.opened():
            pass
        await place.drop("placement")
        async with place.opened(goes_on=True, upgrading=False) as stores:
            with pytest.raises(Unreachable):
                await stores.placement.read(lambda tx: tx.now())
            assert await stores.control.read(lambda tx: tx.now())

    asyncio.run(story())


def test_the_right_one_is_used_again(place: Place) -> None:
    """Exchanged while it was away: another database answers, and is not used; the right one is."""

    async def story() -> None:
        async with place.opened() as stores:
            await map_server(stores)
        right, place.urls["cell1"] = place.urls["cell1"], place.urls["cell0"]
        async with place.opened(goes_on=True, upgrading=False) as stores:
            outage = stores.outage("cell1")
            assert outage is not None and "(cell0), but cloud" in outage.why
        place.urls["cell1"] = right
        async with place.opened(goes_on=True, upgrading=False) as stores:
            assert stores.outage("cell1") is None
            cell = stores._cells["cell1"]
            known = stores.roll.known["cell1"]
            stores.roll.known["cell1"] = stores.roll.known["cell0"]  # as if another one answered from now on
            cell.lose(Unreachable("restarted"))
            await until(lambda: stores.outage("cell1").is_wrong)
            stores.roll.known["cell1"] = known
            await until(lambda: stores.outage("cell1") is None)

    asyncio.run(story())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.02)


def test_a_control_database_without_a_cloud(place: Place) -> None:
    """A role of a fleet begins no cloud; `kilonova db upgrade` does."""

    async def story() -> None:
        for name, url in place.urls.items():
            await upgrade(url, name if name in ("control", "placement") else "cell")
        with pytest.raises(WrongStore, match="it belongs to no cloud yet; run `kilonova db upgrade`"):
            async with place.opened(goes_on=True, upgrading=False):
                pass

    asyncio.run(story())


def test_a_lost_control_database_is_not_replaced(place: Place) -> None:
    async def story() -> None:
        async with place.opened() as stores:
            cloud = stores.cloud
        await place.drop("control")
        with pytest.raises(WrongStore, match=rf"it is new and would begin cloud .*, but placement .* to cloud {cloud}"):
            async with place.opened():
                pass
        assert (await look_at(place.urls["control"], "control")).badge is None

    asyncio.run(story())


def test_directories_and_hosts_of_another_cloud(place: Place) -> None:
    async def story() -> None:
        for witness in ("images directory /x", "memory of host1"):
            with pytest.raises(WrongStore, match=f"but {witness} belong to cloud other"):
                async with place.opened(witnesses={witness: "other"}):
                    pass
        async with place.opened() as stores:
            cloud = stores.cloud
        with pytest.raises(
            WrongStore, match=f"belongs to cloud {cloud}, but images directory /x belong to cloud other"
        ):
            async with place.opened(witnesses={"images directory /x": "other"}):
                pass

    asyncio.run(story())


def test_a_directory_is_expected_once_it_was_listed(place: Place, tmp_path: Path) -> None:
    """Control lists it after the start has succeeded: until then an empty one may take its place."""
    folder = tmp_path / "images"

    async def story() -> None:
        async with place.opened() as stores:
            stores.roll.claim_directory(folder, "images", "here")
            shutil.rmtree(folder)
        async with place.opened() as stores:
            stores.roll.claim_directory(folder, "images", "here")
            await stores.list_stores()
        async with place.opened() as stores:
            stores.roll.claim_directory(folder, "images", "here")
            shutil.rmtree(folder)
            with pytest.raises(WrongStore, match="mount it or put it back from a backup"):
                stores.roll.claim_directory(folder, "images", "here")
            assert not folder.exists()
            write_directory_badge(folder, DirectoryBadge(cloud=stores.cloud, store="another", name="images"))
            with pytest.raises(WrongStore, match="it is store another of cloud"):
                stores.roll.claim_directory(folder, "images", "here")
            write_directory_badge(
                folder, DirectoryBadge(cloud="other", store=stores.roll.known["images here"].store, name="")
            )
            with pytest.raises(WrongStore, match="of cloud other"):
                stores.roll.claim_directory(folder, "images", "here")

    asyncio.run(story())
