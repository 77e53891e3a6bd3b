"""An older copy of a database is noticed by whoever saw a later mark; then nothing is written until the word ."""

from __future__ import annotations

import asyncio
import logging
import shutil
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Halted, Unreachable
from kilonova.engine.restored import begin_era
from kilonova.runtime import SystemClock
from kilonova.schema.tables.cell import hosts, servers
from kilonova.schema.tables.control import audits
from kilonova.store import rows
from kilonova.store.badges import DirectoryBadge, Sighting, read_directory_badge, write_directory_badge
from kilonova.store.marks import Marks, note_upkeep
from kilonova.store.open_stores import OpenStores, open_stores
from kilonova.world import Tx
from tests.store.conftest import WallClock
from tests.support.servers import Postgres

NAMES = ("control", "placement", "cell0", "cell1")


class Lab:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, story: Callable[[OpenStores, Marks], Awaitable[None]], **options: Any) -> None:
        async def opened() -> None:
            urls = {name: f"sqlite:///{self.folder}/{name}.db" for name in NAMES}
            stores = await open_stores(urls, self.folder, new_id=lambda: str(uuid.uuid4()), clock=WallClock())
            try:
                marks = Marks(stores, WallClock(), **options)  # type: ignore[arg-type]
                await marks.look()
                await story(stores, marks)
            finally:
                await stores.close()

        asyncio.run(opened())

    def copy(self, name: str, to: str = "old") -> None:
        shutil.copy(self.folder / f"{name}.db", self.folder / f"{name}.{to}")

    def put_back(self, *names: str) -> None:
        for name in names:
            shutil.copy(self.folder / f"{name}.old", self.folder / f"{name}.db")


async def change(store: Any) -> None:
    async def body(tx: Tx) -> None:
        table = audits if store.name == "control" else hosts
        await rows.remove(tx, table, **({"id": 0} if table is audits else {"name": "nobody"}))

    await store.write(body)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    async def nothing(stores: OpenStores, marks: Marks) -> None:
        pass

    lab = Lab(tmp_path)
    lab.run(nothing)
    for name in NAMES:
        lab.copy(name)
    return lab


async def busy(stores: OpenStores, marks: Marks) -> None:
    for _ in range(3):
        for name in ("cell1", "cell0"):
            await change(stores.cell(name))
        await change(stores.control)
        await marks.look()
    await marks.look()


def test_marks_grow_with_what_is_written_and_not_otherwise(lab: Lab) -> None:
    async def story(stores: OpenStores, marks: Marks) -> None:
        await marks.look()
        before = {name: badge.reached for name, badge in marks.badges.items()}
        commits = stores.cell("cell1").stats.commits  # type: ignore[attr-defined]
        await marks.look()
        assert {name: badge.reached for name, badge in marks.badges.items()} == before
        assert stores.cell("cell1").stats.commits == commits  # type: ignore[attr-defined]
        await change(stores.cell("cell1"))
        note_upkeep(stores.cell("cell1"))
        await marks.look()
        assert marks.badges["cell1"].reached == before["cell1"]
        await change(stores.cell("cell1"))
        await marks.look()
        assert marks.badges["cell1"].reached > before["cell1"]

    lab.run(story)


@pytest.mark.parametrize("name", ["cell1", "control"])
def test_a_database_that_was_put_back_halts_all(lab: Lab, name: str, caplog: pytest.LogCaptureFixture) -> None:
    lab.run(busy)
    lab.put_back(name)

    async def story(stores: OpenStores, marks: Marks) -> None:
        for store in (stores.control, stores.placement, stores.cell("cell0"), stores.cell("cell1")):
            with pytest.raises(Halted, match=f"{name} database: it was restored from an older copy"):
                await change(store)
            assert await store.read(lambda tx: tx.now())
        await marks.look()
        assert stores.halted

    for _ in range(2):  # also for the next process
        lab.run(story)
    assert [one.levelno for one in caplog.records if "restored" in one.message] == [logging.ERROR] * 2

    async def word(stores: OpenStores, marks: Marks) -> None:
        stores.halt("")
        await begin_era(stores)
        said = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
        assert "databases restored: era=2 operations_abandoned=0 servers_to_compare=0" in said
        await marks.look()
        assert not stores.halted and {badge.era for badge in marks.badges.values()} == {2}
        await change(stores.control)

    lab.run(word)


def test_the_whole_put_back_just_starts(lab: Lab) -> None:
    lab.run(busy)
    lab.put_back(*NAMES)

    async def story(stores: OpenStores, marks: Marks) -> None:
        await change(stores.control)

    lab.run(story)


def test_a_directory_has_seen_a_later_mark(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    write_directory_badge(folder, DirectoryBadge(cloud="c", store="s", name="images"))
    lab.run(busy, directories=[folder])
    badge = read_directory_badge(folder)
    assert badge is not None and badge.seen["cell1"] > Sighting(1, 2)
    lab.put_back(*NAMES)

    async def story(stores: OpenStores, marks: Marks) -> None:
        with pytest.raises(Halted, match="images directory saw"):
            await change(stores.control)

    lab.run(story, directories=[folder])


def test_a_directory_remembers_the_others_while_control_is_away(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    write_directory_badge(folder, DirectoryBadge(cloud="c", store="s", name="images"))

    async def story(stores: OpenStores, marks: Marks) -> None:
        read = stores.control.read
        stores.control.read = _away  # type: ignore[method-assign]
        await change(stores.cell("cell1"))
        await marks.look()
        badge = read_directory_badge(folder)
        assert badge is not None and badge.seen["cell1"] == marks.badges["cell1"].reached
        assert badge.era == 1
        stores.control.read = read  # type: ignore[method-assign]

    lab.run(story, directories=[folder])


async def _away(*_: Any, **__: Any) -> Any:
    raise Unreachable("control", "away")


def test_who_cannot_look_once_looks_again(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    async def look(self: Marks) -> None:
        looks.append(self)
        raise KeyError("a mistake of ours")

    async def story(stores: OpenStores, marks: Marks) -> None:
        monkeypatch.setattr(Marks, "look", look)
        marks.clock = SystemClock()
        keeping = asyncio.create_task(marks.keep())
        await asyncio.sleep(0.2)
        assert len(looks) > 1 and not keeping.done()
        keeping.cancel()

    monkeypatch.setattr("kilonova.store.marks.SECONDS", 0.01)
    lab.run(story)


def test_two_hosts_are_believed(lab: Lab) -> None:
    later = {"cell1": Sighting(1, 900), "control": Sighting(1, 0)}

    async def story(stores: OpenStores, marks: Marks) -> None:
        await _put_hosts(stores, 3)
        await marks.hear("host1", "cell1", {"cell1": Sighting(1, 1), "elsewhere": Sighting(9, 9)})
        for _ in range(2):  # the same word again is no second one
            with pytest.raises(Halted):
                await marks.hear("host1", "cell1", later)
        assert not stores.halted
        await change(stores.control)
        with pytest.raises(Halted, match=r"host1 and host2 saw 1\.900"):
            await marks.hear("host2", "cell1", later)
        with pytest.raises(Halted):
            await change(stores.control)

    lab.run(story)


@pytest.mark.parametrize("witness", ["hosts", "directory"])
def test_one_word_is_enough_when_hosts_know_a_later_era(lab: Lab, tmp_path: Path, witness: str) -> None:
    """All databases are of an era that ended before the one that hosts or directories have seen."""
    later = {name: Sighting(4, 900) for name in NAMES}
    folder = tmp_path / "images"
    write_directory_badge(folder, DirectoryBadge(cloud="c", store="s", name="images"))

    async def story(stores: OpenStores, marks: Marks) -> None:
        if witness == "hosts":
            with pytest.raises(Halted):
                await marks.hear("host1", "cell1", {name: later[name] for name in ("control", "cell1")})
        else:
            badge = DirectoryBadge(cloud="c", store="s", name="images", seen=later)
            write_directory_badge(folder, badge)
            await marks.look()
        assert stores.halted
        stores.halt("")
        assert {one.era for one in await begin_era(stores)} == {5}
        await marks.look()
        assert not stores.halted
        await marks.hear("host1", "cell1", later)

    lab.run(story, directories=[folder])


@pytest.mark.parametrize("witness", ["hosts", "directory"])
def test_a_later_witness_is_recorded_while_all_is_halted(lab: Lab, tmp_path: Path, witness: str) -> None:
    """Else the new era would not be above what that one saw, and a second word would be needed."""
    folder = tmp_path / "images"
    write_directory_badge(folder, DirectoryBadge(cloud="c", store="s", name="images"))
    later = {name: Sighting(7, 3) for name in ("placement", "cell1")}

    async def story(stores: OpenStores, marks: Marks) -> None:
        await _put_hosts(stores, 3)
        for host in ("host1", "host2"):
            with pytest.raises(Halted):
                await marks.hear(host, "cell1", {"cell1": Sighting(4, 900)})
        assert stores.halted
        if witness == "hosts":
            for host in ("host2", "host3"):
                with pytest.raises(Halted):
                    await marks.hear(host, "cell1", later)
        else:
            write_directory_badge(folder, DirectoryBadge(cloud="c", store="s", name="images", seen=later))
        await marks.look()
        with pytest.raises(Halted):
            await change(stores.control)
        written = [stats.transactions for stats in _stats(stores)]
        for _ in range(3):  # what is recorded is not written again
            await marks.look()
            with pytest.raises(Halted):
                await marks.hear("host3", "cell1", later)
        assert [stats.transactions for stats in _stats(stores)] == written
        stores.halt("")
        assert {one.era for one in await begin_era(stores)} == {8}
        await marks.look()
        assert not stores.halted
        await marks.hear("host1", "cell1", later)

    lab.run(story, directories=[folder])


def _stats(stores: OpenStores) -> list[Any]:
    return [store.stats for store in (stores.control, stores.placement, stores.cell("cell1"))]  # type: ignore[attr-defined]


@pytest.mark.parametrize("cell", ["cell1", ""])
@pytest.mark.parametrize(("hosts", "halts"), [(1, True), (2, False)])
def test_the_only_host_is_believed(lab: Lab, cell: str, hosts: int, halts: bool) -> None:
    """Also one that does not know its cell when it registers."""

    async def story(stores: OpenStores, marks: Marks) -> None:
        await _put_hosts(stores, hosts)
        with pytest.raises(Halted):
            await marks.hear("host1", cell, {"control": Sighting(1, 900)})
        assert bool(stores.halted) == halts

    lab.run(story)


def test_no_mark_is_raised_before_hosts_had_their_word(lab: Lab) -> None:
    """Else a copy that is one mark behind would have caught up before the first of them was heard."""

    async def story(stores: OpenStores, marks: Marks) -> None:
        marks.began = asyncio.get_running_loop().time()
        before = marks.badges["cell1"].mark
        await change(stores.cell("cell1"))
        await marks.look()
        assert marks.badges["cell1"].mark == before

    lab.run(story, grace=60.0)


async def _put_hosts(stores: OpenStores, count: int) -> None:
    zeros = {column.name: 0 for column in hosts.c if not column.nullable}

    async def body(tx: Tx) -> None:
        for number in range(1, count + 1):
            values = {**zeros, "name": f"host{number}", "id": "i", "provider_id": "p", "identity": f"{number}"}
            await rows.put(tx, hosts, **values)

    await stores.cell("cell1").write(body)


def test_turns_begin_above_all_earlier_ones(lab: Lab) -> None:
    async def story(stores: OpenStores, marks: Marks) -> None:
        text = {"id": "s", "project_id": "p", "user_id": "u", "name": "n", "vm_state": "building", "image_ref": ""}
        values = {column.name: 0 for column in servers.c if not column.nullable} | text

        async def put(tx: Tx) -> None:
            flavor = '{"name": "f", "vcpus": 1, "memory_mb": 1, "disk_gb": 1}'
            await rows.put(tx, servers, **{**values, "flavor": flavor, "details": "{}", "turn": 7})

        await stores.cell("cell1").write(put)
        accounts = {one.name: one for one in await begin_era(stores)}
        assert accounts["cell1"].servers == 1 and accounts["control"].era == 2

        async def read(tx: Tx) -> Any:
            row = await rows.fetch(tx, servers, id="s")
            assert row is not None
            return row["turn"], row["turn_floor"], row["unsettled"], row["vm_state"]

        assert await stores.cell("cell1").read(read) == (2_000_000, 2_000_000, 1, "error")

    lab.run(story)


@pytest.mark.parametrize("which", [("cell",), ("cell", "rest")], ids=["D3", "D4b"])
def test_on_postgres(postgres: Postgres, tmp_path: Path, which: tuple[str, ...]) -> None:
    """The cell alone is noticed by the other databases, all together by the directory."""
    names = {one: f"marks_{one}_{uuid.uuid4().hex[:8]}" for one in ("cell", "rest")}
    urls = {one: postgres.create_database(name) for one, name in names.items()}
    addresses = {name: f"{urls['cell' if name == 'cell1' else 'rest']}?schema={name}" for name in NAMES}
    folder = tmp_path / "images"
    write_directory_badge(folder, DirectoryBadge(cloud="c", store="s", name="images"))

    def run(story: Callable[[OpenStores, Marks], Awaitable[None]]) -> None:
        async def opened() -> None:
            stores = await open_stores(addresses, new_id=lambda: str(uuid.uuid4()), clock=WallClock())
            try:
                marks = Marks(stores, WallClock(), directories=[folder])  # type: ignore[arg-type]
                await marks.look()
                await story(stores, marks)
            finally:
                await stores.close()

        asyncio.run(opened())

    async def halted(stores: OpenStores, marks: Marks) -> None:
        with pytest.raises(Halted, match="it was restored from an older copy"):
            await change(stores.control)
        stores.halt("")
        assert {one.era for one in await begin_era(stores)} == {2}
        await marks.look()
        assert not stores.halted
        await change(stores.control)

    run(busy)
    for name in names.values():
        postgres.create_database(f"{name}_old", template=name)
    run(busy)
    for one in which:
        postgres.drop(names[one])
        postgres.create_database(names[one], template=f"{names[one]}_old")
    run(halted)
