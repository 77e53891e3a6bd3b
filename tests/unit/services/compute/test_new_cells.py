"""Cells that are made, listed, disabled and deleted in a cloud whose databases are files of one directory."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.bus import CELLS_CHANGED
from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.domain.errors import Refused, StoreError
from kilonova.schema.tables.control import cells, host_mappings, server_mappings
from kilonova.schema.tables.stores import known_stores, this_store
from kilonova.services.compute.cells import Cell, Cells, keep_cell
from kilonova.store import rows
from kilonova.store.cell_store import Outage
from kilonova.store.open_stores import OpenStores, file_url, open_stores
from kilonova.world import Tx
from tests.support.neighbours import zeros
from tests.unit.control import Clock, Ids

FIRST = ("control", "placement", "cell0", "cell1")


class Sealed:
    def close_text(self, text: str) -> str:
        return text[::-1]


class Awaited(Clock):
    """Lets time pass when the test says so."""

    def __init__(self) -> None:
        super().__init__(7.0)
        self.rounds: asyncio.Queue[None] = asyncio.Queue()
        self.slept: asyncio.Queue[float] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        self.slept.put_nowait(seconds)
        await self.rounds.get()


class Bench:
    """One process of the cloud, and the bus that it has with the others."""

    def __init__(self, stores: OpenStores, hub: MemoryHub, spare: dict[str, str]) -> None:
        self.stores, self.hub, self.clock = stores, hub, Awaited()
        self.cells = Cells(stores, self.clock, Ids(), MemoryBus(hub, "api"), Sealed(), spare)

    async def row(self, table: Any, **keys: Any) -> Any:
        return await self.stores.control.read(lambda tx: rows.fetch(tx, table, **keys))

    async def put(self, table: Any, **values: Any) -> None:
        await self.stores.control.write(lambda tx: rows.put(tx, table, **zeros(table, **values)))

    async def listening(self) -> asyncio.Queue[bytes]:
        """What another process is told."""
        heard: asyncio.Queue[bytes] = asyncio.Queue()

        async def hear(message: bytes) -> bytes:
            heard.put_nowait(message)
            return b""

        await MemoryBus(self.hub, "another").serve(CELLS_CHANGED, hear)
        return heard

    async def names(self) -> list[str]:
        return [cell.name for cell in await self.cells.all()]


Story = Callable[[Bench], Awaitable[None]]


def play(tmp_path: Path, story: Story, *, badges: bool = True, fleet: bool = False, **spare: str) -> None:
    """Run the story in a cloud with these names in [database.spare]."""

    async def whole() -> None:
        addresses = {name: f"sqlite:///{tmp_path / address}" for name, address in spare.items()}
        stores = await open_stores(
            {name: file_url(tmp_path, name) for name in FIRST},
            None if fleet else tmp_path,
            lambda sealed: sealed[::-1],
            new_id=Ids().uuid if badges else None,
            clock=Clock(),
        )
        try:
            async with asyncio.timeout(10):
                bench = Bench(stores, MemoryHub(), addresses)
                await bench.cells.prepare()
                await story(bench)
        finally:
            await stores.close()

    asyncio.run(whole())


def test_cells_of_the_configuration_are_listed_once(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        first = await bench.cells.all()
        assert [(cell.name, cell.configured, cell.reachable, cell.disabled) for cell in first] == [
            ("cell0", True, True, False),
            ("cell1", True, True, False),
        ]
        assert first[1].database == f"sqlite:///{tmp_path}/cell1.db" and first[1].created_at == 7.0
        await bench.cells.prepare()  # the next start
        assert await bench.cells.all() == first

    play(tmp_path, story)


def test_a_start_learns_what_other_processes_did(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.put(cells, name="far", id="f", sealed_url="", bus_prefix="east")
        await bench.stores.control.write(lambda tx: rows.change(tx, cells, {"disabled": 1}, name="cell1"))
        await bench.cells.prepare()
        assert list(bench.stores.destinations()) == ["far"] and bench.stores.bus_prefix("far") == "east"

    play(tmp_path, story)


def test_a_new_cell_is_used_at_once_and_listed_with_its_store(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        made = await bench.cells.create("far", prefix="east.one")
        expected = Cell(
            name="far",
            id=made.id,
            database=f"sqlite:///{tmp_path}/far.db",
            bus_prefix="east.one",
            disabled=False,
            configured=False,
            hosts=0,
            servers=0,
            reachable=True,
            away_since=None,
            away_because=None,
            created_at=7.0,
        )
        assert made == expected == await bench.cells.find("far")
        assert await bench.names() == ["cell0", "cell1", "far"]
        assert bench.stores.cell("far").name == "far" and (await bench.row(cells, name="far"))["sealed_url"] == ""
        badge = await bench.stores.cell("far").read(lambda tx: rows.fetch(tx, this_store))
        known = await bench.row(known_stores, name="far")
        assert badge["store_id"] == known["store_id"] != ""
        with pytest.raises(Refused, match="cell far: a cell or database of this name exists"):
            await bench.cells.create("far")

    play(tmp_path, story)


def test_in_a_cloud_without_badges_no_store_is_listed(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.cells.create("far")
        assert await bench.row(known_stores, name="far") is None and "far" in await bench.names()

    play(tmp_path, story, badges=False)


def test_the_address_of_a_database_of_the_configuration_is_sealed(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        made = await bench.cells.create("far", "near")
        assert made.database == f"sqlite:///{tmp_path}/spare.db" and made.reachable
        assert (await bench.row(cells, name="far"))["sealed_url"] == f"sqlite:///{tmp_path}/spare.db"[::-1]

    play(tmp_path, story, near="spare.db")


def test_a_cell_that_another_process_just_made_is_known(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.put(cells, name="far", id="f", sealed_url="", bus_prefix="")
        with pytest.raises(Refused, match="cell far: a cell or database of this name exists"):
            await bench.cells.create("far")

    play(tmp_path, story)


def test_every_process_is_told_of_a_change(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        heard = await bench.listening()
        changes = (
            lambda: bench.cells.create("far"),
            lambda: bench.cells.set_disabled("far", True),
            lambda: bench.cells.delete("far"),
        )
        for change in changes:
            await change()
            assert await heard.get() == b""

    play(tmp_path, story)


def test_a_cell_of_another_process_is_learnt_by_a_wake_up_and_without_one_in_time(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        learning = asyncio.create_task(bench.cells.keep_learning(3.0))
        assert await bench.clock.slept.get() == 3.0
        await bench.put(cells, name="far", id="f", sealed_url="", bus_prefix="")
        await MemoryBus(bench.hub, "another").call(CELLS_CHANGED, b"")
        assert list(bench.stores.cells()) == ["cell0", "cell1", "far"]
        await bench.put(cells, name="farther", id="g", sealed_url="", bus_prefix="")
        assert list(bench.stores.cells()) == ["cell0", "cell1", "far"]
        bench.clock.rounds.put_nowait(None)
        assert await bench.clock.slept.get() == 3.0
        assert list(bench.stores.cells()) == ["cell0", "cell1", "far", "farther"]
        learning.cancel()

    play(tmp_path, story)


def test_cells_that_cannot_be_read_are_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(bench: Bench) -> None:
        async def away() -> None:
            raise StoreError("it is away")

        bench.stores.learn = away  # type: ignore[method-assign]
        learning = asyncio.create_task(bench.cells.keep_learning(3.0))
        for _ in range(2):
            await bench.clock.slept.get()
            bench.clock.rounds.put_nowait(None)
        await bench.clock.slept.get()
        assert "the cells could not be read: it is away" in caplog.text and not learning.done()
        learning.cancel()

    play(tmp_path, story)


def test_a_cell_that_cannot_be_opened_is_listed_as_unreachable(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.put(cells, name="far", id="f", sealed_url="", bus_prefix="")
        (tmp_path / "far.db").write_text("not a database, but long enough for a first look at its bytes " * 20)
        await bench.stores.learn()
        far = await bench.cells.find("far")
        assert (far.reachable, far.database, far.configured, far.away_because) == (False, "", False, None)

    play(tmp_path, story)


def test_a_cell_that_does_not_answer_is_listed_with_the_reason(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        bench.stores.outage = {"cell0": None, "cell1": Outage(5.0, "refused")}.__getitem__  # type: ignore[method-assign]
        shown = [(cell.reachable, cell.away_since, cell.away_because) for cell in await bench.cells.all()]
        assert shown == [(True, None, None), (False, 5.0, "refused")]

    play(tmp_path, story)


def test_hosts_and_servers_are_counted_by_cell(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        for host, cell in (("h1", "cell1"), ("h2", "cell1"), ("h3", "far")):
            await bench.put(host_mappings, host=host, cell=cell)
        for server, cell, queued in (("a", "cell1", 0), ("b", "cell1", 1), ("c", None, 0), ("d", "cell0", 0)):
            await bench.put(server_mappings, server_id=server, cell=cell, queued_for_delete=queued)
        counted = [(cell.name, cell.hosts, cell.servers) for cell in await bench.cells.all()]
        assert counted == [("cell0", 0, 1), ("cell1", 2, 1)]

    play(tmp_path, story)


def test_a_cell_is_disabled_and_enabled_again(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.cells.create("far")
        for disabled in (True, False):
            changed = await bench.cells.set_disabled("far", disabled)
            assert changed == await bench.cells.find("far") and changed.disabled is disabled
            assert list(bench.stores.destinations()) == (["cell1"] if disabled else ["cell1", "far"])

    play(tmp_path, story)


def test_a_deleted_cell_is_forgotten_alone_and_its_database_is_left(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.cells.create("far")
        await bench.cells.create("near")
        far = await bench.cells.find("far")
        assert await bench.cells.delete("far") == far
        assert await bench.names() == ["cell0", "cell1", "near"] == list(bench.stores.cells())
        assert await bench.row(known_stores, name="far") is None and (tmp_path / "far.db").exists()
        assert await bench.row(known_stores, name="near") is not None

    play(tmp_path, story)


@pytest.mark.parametrize(("table", "row"), [(host_mappings, {"host": "h"}), (server_mappings, {"server_id": "s"})])
def test_a_cell_in_use_stays(tmp_path: Path, table: Any, row: dict[str, str]) -> None:
    async def story(bench: Bench) -> None:
        await bench.cells.create("far")
        await bench.cells.create("near")
        await bench.put(table, cell="far", **row)
        with pytest.raises(Refused, match=r"cell far: it has \d hosts and \d servers; delete the servers") as why:
            await bench.cells.delete("far")
        assert why.value.code == "cell_in_use" and "far" in bench.stores.cells()
        await bench.cells.delete("near")

    play(tmp_path, story)


Act = Callable[[Cells], Awaitable[object]]
REFUSED: dict[str, tuple[Act, str, str]] = {
    "find": (lambda service: service.find("x" * 90), "not_found", f"cell {'x' * 80}: not found"),
    "disable none": (lambda service: service.set_disabled("far", True), "not_found", "cell far: not found"),
    "disable cell0": (lambda service: service.set_disabled("cell0", True), "bad_request", "cell0: it has no hosts"),
    "delete none": (lambda service: service.delete("far"), "not_found", "cell far: not found"),
    "delete": (lambda service: service.delete("cell1"), "cell_configured", "cell1: it is in the configuration"),
    "name": (lambda service: service.create("A"), "bad_request", "'A' is not a valid cell name"),
    "long name": (lambda service: service.create("a" * 63), "bad_request", "is not a valid cell name"),
    "prefix": (lambda service: service.create("far", prefix="a..b"), "bad_request", "'a..b' is not a valid bus prefix"),
    "taken": (lambda service: service.create("placement"), "exists", "cell placement: a cell or database"),
    "cell0": (lambda service: service.create("cell0"), "exists", "cell cell0: a cell or database of this name exists"),
    "unknown": (
        lambda service: service.create("far", "nean"),
        "bad_request",
        r"'nean' \(did you mean near\?\): no such name in \[database.spare\]; it has mine, near, strange$",
    ),
    "far from all": (
        lambda service: service.create("far", "sqlite://secret"),
        "bad_request",
        r"database 'sqlite': no such name in \[database.spare\]; it has mine, near, strange$",
    ),
    "in use": (
        lambda service: service.create("far", "mine"),
        "cell_database",
        "is the database of cell1; a cell needs",
    ),
    "of another kind": (
        lambda service: service.create("far", "strange"),
        "cell_database",
        "it has 1 tables of another",
    ),
}


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "strange.db").execute("CREATE TABLE theirs (a)").connection.close()

    async def story(bench: Bench) -> None:
        heard = await bench.listening()
        before = await bench.cells.all()
        for act, code, text in REFUSED.values():
            with pytest.raises(Refused, match=text) as why:
                await act(bench.cells)
            assert why.value.code == code and await bench.cells.all() == before
            assert not (tmp_path / "far.db").exists()
        await bench.cells.bus.cast(CELLS_CHANGED, b"the first word")
        assert await heard.get() == b"the first word"

    play(tmp_path, story, near="spare.db", mine="cell1.db", strange="strange.db")


async def _nothing(bench: Bench) -> None: ...


@pytest.mark.parametrize(
    ("database", "says"), [("", "needs --database NAME, a name of"), ("x", "database 'x': no such")]
)
def test_a_cell_of_a_fleet_needs_a_database_of_the_configuration(tmp_path: Path, database: str, says: str) -> None:
    async def story(bench: Bench) -> None:
        with pytest.raises(Refused, match=f"{says}.*; it is empty"):
            await bench.cells.create("far", database)

    play(tmp_path, story, fleet=True)


def test_the_cell_of_another_cloud_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    play(other, _nothing)
    before = (other / "cell1.db").read_bytes()

    async def story(bench: Bench) -> None:
        with pytest.raises(Refused, match=r"it belongs to cloud .*, not to cloud") as why:
            await bench.cells.create("far", "theirs")
        assert why.value.code == "cell_database" and (other / "cell1.db").read_bytes() == before

    play(tmp_path, story, theirs="other/cell1.db")


def test_only_the_cell_of_that_name_keeps_a_host(tmp_path: Path) -> None:
    async def story(bench: Bench) -> None:
        await bench.cells.create("far")

        async def keep(tx: Tx) -> None:
            await keep_cell(tx, bench.stores, "far")

        await bench.stores.control.write(keep)
        await bench.stores.control.write(lambda tx: rows.remove(tx, cells, name="far"))
        with pytest.raises(Refused, match="cell far: it was deleted") as why:
            await bench.stores.control.write(keep)
        assert why.value.code == "no_such_cell"
        await bench.stores.control.write(lambda tx: rows.remove(tx, cells, name="cell1"))
        await bench.stores.control.write(lambda tx: keep_cell(tx, bench.stores, "cell1"))  # of the configuration

    play(tmp_path, story)
