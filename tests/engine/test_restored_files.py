"""After a restore no file is made, replaced or removed because an old record asks for it (law 15)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.engine.restored import begin_era
from kilonova.engine.restored_files import end_file_work
from kilonova.schema.tables import cell
from kilonova.schema.tables.image import image_files_to_remove, images
from kilonova.schema.tables.volume import snapshots, volume_files_to_remove, volumes
from kilonova.services.volume.volume import CREATE, DELETE, EXTEND, REIMAGE, RESTORING, REVERT, UNDER_WAY, UPLOAD
from kilonova.store import rows
from kilonova.store.open_stores import open_store
from kilonova.world import Tx
from tests.engine.test_restored import zeros
from tests.engine.test_restored_records import restore
from tests.store.conftest import WallClock

TEXTS = ("reason", "marker", "backend", "type_id", "project_id", "user_id")
ENDED = {CREATE: "error", REVERT: "error", REIMAGE: "error", DELETE: "error", UPLOAD: "in-use"}


def volume(work: str, **values: Any) -> dict[str, Any]:
    asked = {"id": work, "work": work, "work_id": "w", "work_value": "x", "status": UNDER_WAY[work]}
    return (
        zeros(volumes) | dict.fromkeys((*TEXTS, "zone"), "") | asked | {"previous_status": "in-use", "size": 1} | values
    )


def snapshot(name: str, work: str, status: str) -> dict[str, Any]:
    asked = {"id": name, "volume_id": "v", "work": work, "work_id": "w" if work else "", "status": status}
    return zeros(snapshots) | dict.fromkeys((*TEXTS, "progress"), "") | asked


def image(name: str, status: str, file: str | None) -> dict[str, Any]:
    return zeros(images) | {"id": name, "status": status, "visibility": "private", "file": file}


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Callable[[Tx], Awaitable[None]]], None]:
    def runs(body: Callable[[Tx], Awaitable[None]]) -> None:
        async def story() -> None:
            store = await open_store("control", f"sqlite:///{tmp_path}/control.db", clock=WallClock())
            try:
                await store.write(body)
            finally:
                await store.close()

        asyncio.run(story())

    return runs


@pytest.mark.parametrize("work", ENDED)
def test_work_on_a_volume_is_ended_and_says_why(run: Any, work: str) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, volumes, **volume(work))
        (said,) = await end_file_work(tx, 5.0)
        assert said == f"volume {work}: {work} was under way; ended, the volume is {ENDED[work]}"
        row = await rows.fetch(tx, volumes, id=work)
        assert row is not None
        assert (row["work"], row["work_id"], row["work_value"], row["previous_status"]) == ("", "", "", "")
        assert row["status"] == ENDED[work] and "the records were restored" in row["reason"]
        assert await end_file_work(tx, 6.0) == []

    run(body)


def test_a_volume_that_grows_goes_on(run: Any) -> None:
    """A file never becomes shorter, and no byte of it is changed."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, volumes, **volume(EXTEND, work_value="2"))
        assert await end_file_work(tx, 5.0) == []
        assert await rows.fetch(tx, volumes, id=EXTEND, work=EXTEND, status="extending") is not None

    run(body)


def test_what_an_administrator_said_of_a_volume_stays(run: Any) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, volumes, **volume(CREATE, status="maintenance"))
        await end_file_work(tx, 5.0)
        assert await rows.fetch(tx, volumes, id=CREATE, work="", status="maintenance") is not None

    run(body)


def test_work_on_snapshots_is_ended(run: Any) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, snapshots, **snapshot("made", CREATE, "creating"))
        await rows.put(tx, snapshots, **snapshot("removed", DELETE, "deleting"))
        await rows.put(tx, snapshots, **snapshot("x", "", "restoring"))  # its volume goes back to it
        await rows.put(tx, volumes, **volume(REVERT))
        assert len(await end_file_work(tx, 5.0)) == 3
        states = {row["id"]: (row["status"], row["work"]) for row in await rows.fetch_all(tx, snapshots)}
        assert states == {"made": ("error", ""), "removed": ("error", ""), "x": ("available", "")}
        row = await rows.fetch(tx, snapshots, id="removed")
        assert row is not None and row["reason"].endswith("if it is still unwanted, delete the snapshot")

    run(body)


def test_images_are_queued_again_and_notes_are_forgotten(run: Any) -> None:
    """The files are in no record then: the next start sets them aside."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, images, **image("half", "saving", "f1"))
        await rows.put(tx, images, **image("whole", "active", "f2"))
        await rows.put(tx, image_files_to_remove, file="f3")
        await rows.put(tx, volume_files_to_remove, backend="b", file="volume-1")
        (said,) = await end_file_work(tx, 5.0)
        assert "image half: an upload was under way" in said and "f1" in said
        found = {row["id"]: (row["status"], row["file"]) for row in await rows.fetch_all(tx, images)}
        assert found == {"half": ("queued", None), "whole": ("active", "f2")}
        assert not await rows.fetch_all(tx, image_files_to_remove)
        assert not await rows.fetch_all(tx, volume_files_to_remove)

    run(body)


# -- with a cloud -----------------------------------------------------------------------------------------------------


def change(cloud: Any, database: str, table: Any, values: dict[str, Any], **keys: Any) -> None:
    """As a database from before has it."""

    async def body(tx: Tx) -> None:
        assert await rows.change(tx, table, values, **keys)

    async def work(stores: Any) -> None:
        await (stores.control if database == "control" else stores.cell(database)).write(body)

    cloud.alone(work, "the old records", faulty=False)


def test_the_word_ends_the_work_and_says_so(cloud: Any, caplog: pytest.LogCaptureFixture) -> None:
    lab = cloud(hosts=1, addresses=8, volumes=1)
    asked = {"work": CREATE, "work_id": "w", "status": "creating"}
    change(lab, "control", volumes, asked, id=lab.stock.volumes[0])
    logging.disable(logging.NOTSET)
    with caplog.at_level(logging.WARNING):
        (said,) = restore(lab)["control"].files
    assert f"volume {lab.stock.volumes[0]}: create was under way" in said
    assert f"file work ended: {said}" in caplog.text
    (row,) = lab.records().table("volumes")
    assert (row["status"], row["work"]) == ("error", "")


def test_an_old_fence_proves_nothing(cloud: Any) -> None:
    """The host may have been switched on since the backup, and cut off again."""
    lab = cloud(hosts=2)
    change(lab, "cell1", cell.hosts, {"fenced": "proof"}, name="host1")
    for name in list(lab.roles):
        lab.kill(name)
    lab.alone(begin_era, "a new era", faulty=False)
    (row,) = [row for row in lab.records().table("hosts") if row["name"] == "host1"]
    assert row["fenced"] is None


def test_each_record_is_ended_by_itself(run: Any) -> None:
    """A snapshot that a volume was being set back to was only read; one that was being restored otherwise stays."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, volumes, **volume(REVERT, work_value="read"))
        await rows.put(tx, volumes, **volume(UPLOAD, previous_status=""))
        await rows.put(tx, volumes, **volume(CREATE, work_value="of another"))
        await rows.put(tx, volumes, **idle())
        for name, status in (("read", RESTORING), ("of another", RESTORING), ("was reset", "error")):
            await rows.put(tx, snapshots, **snapshot(name, "", status))
        await end_file_work(tx, 5.0)
        found = {row["id"]: row["status"] for row in await rows.fetch_all(tx, volumes)}
        assert found == {REVERT: "error", UPLOAD: "available", CREATE: "error", "idle": "in-use"}
        found = {row["id"]: row["status"] for row in await rows.fetch_all(tx, snapshots)}
        assert found == {"read": "available", "of another": RESTORING, "was reset": "error"}
        times = {row["id"]: row["updated_at"] for row in await rows.fetch_all(tx, volumes)}
        assert times.pop("idle") != 5.0 and set(times.values()) == {5.0}

    run(body)


def idle() -> dict[str, Any]:
    return {**volume(CREATE), "id": "idle", "work": "", "status": "in-use"}


def test_a_snapshot_that_was_reset_meanwhile_stays_as_it_is(run: Any) -> None:
    async def body(tx: Tx) -> None:
        await rows.put(tx, volumes, **volume(REVERT, work_value="reset"))
        await rows.put(tx, snapshots, **snapshot("reset", "", "error"))
        await end_file_work(tx, 5.0)
        assert [row["status"] for row in await rows.fetch_all(tx, snapshots)] == ["error"]

    run(body)
