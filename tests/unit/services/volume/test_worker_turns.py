"""One turn of the worker after the other: what it looks at and when, who is kept away from a file, how often it tries;
and nothing is done by records that are halted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.domain.errors import Failed
from kilonova.schema.tables.volume import snapshots, volume_backends, volume_files_to_remove, volumes
from kilonova.services.volume import worker as module
from kilonova.services.volume.volume import Snapshot, Volume
from kilonova.store import rows
from tests.unit.services.volume.bench import IMAGE, Working
from tests.unit.services.volume.records import snapshot, volume
from tests.unit.services.volume.shop import ADMIN, BACKEND, Story

Control = Callable[[Story], None]
UUID = "5e000000-0000-4000-8000-00000000000{}"


def run(control: Control, folder: Path, act: Callable[[Working], Awaitable[None]], **options: Any) -> None:
    control(lambda store: act(Working(store, folder, **options)))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (volume(work="create", source_id="v1"), ["close v1", "still v1", "end"]),
        *((volume(work=work), ["close v", "held v", "end"]) for work in ("extend", "revert", "reimage", "delete")),
        (volume(work="upload"), ["close v"]),
        (snapshot(work="create"), ["close v", "still v", "end"]),
        (snapshot(work="delete"), ["close v"]),
        (snapshot(work="upload"), ["close v", "still v", "end"]),
    ],
)
def test_who_is_kept_away_from_a_file(control: Control, tmp_path: Path, record: Any, expected: list[str]) -> None:
    async def story(here: Working) -> None:
        async with here.worker._exclusive(record):
            here.exports.seen.append("work")
        assert [word for word in here.exports.seen if word != "work"] == expected
        assert here.exports.seen[-1] == ("end" if "end" in expected else "work")
        here.worker._exports = None
        async with here.worker._exclusive(record):
            pass

    run(control, tmp_path, story)


# -- one piece ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of_snapshot", [False, True])
def test_a_piece_is_done_while_its_record_has_it(control: Control, tmp_path: Path, of_snapshot: bool) -> None:
    async def story(here: Working) -> None:
        record: Any = await (here.snapshot("create") if of_snapshot else here.volume("create"))
        await here.done(record)
        assert [words[0] for words in here.disk.asked] == ["make"] and here.exports.seen[-1] == "end"
        await here.done(record)
        assert [words[0] for words in here.disk.asked] == ["make"], "it was read before it ended"

    run(control, tmp_path, story)


def test_nothing_is_done_by_halted_records(control: Control, tmp_path: Path) -> None:
    async def story(here: Working) -> None:
        record = await here.volume("create")
        here.store.halted = "an older copy was put back"
        await here.done(record)
        await here.disk.make("volume-nobody", 1)
        here.disk.asked.clear()
        await here.worker._begin_day()
        await _one_turn(here)
        assert here.disk.asked == [] and here.exports.seen == [] and await here.rows(volume_backends) == []
        here.store.halted = ""
        await _one_turn(here)
        assert here.worker._has_swept and len(await here.rows(volume_backends)) == 1
        await here.until(lambda: ("make", "volume-v", 3, None) in here.disk.asked)
        here.store.halted = "while it ran"
        here.exports.seen.clear()
        await _one_turn(here)
        assert "settle" not in here.exports.seen, "it also stops in the middle"

    run(control, tmp_path, story)


def test_an_error_of_the_database_is_no_try(control: Control, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(here: Working) -> None:
        record = await here.volume("create")
        here.disk.fails = Failed("stopping", "the database is away", final=False)
        await here.done(record)
        assert here.slept == [module.LOOK_SECONDS] and await here.now() == record
        assert "volume v: retrying its create: the database is away" in caplog.text

    run(control, tmp_path, story)


@pytest.mark.parametrize("of_snapshot", [False, True])
def test_an_unknown_error_is_tried_a_few_times(control: Control, tmp_path: Path, of_snapshot: bool) -> None:
    async def story(here: Working) -> None:
        table = snapshots if of_snapshot else volumes
        about = {"work_tries": 0, "backend": BACKEND}
        record: Any = await (here.snapshot("create", **about) if of_snapshot else here.volume("create", **about))
        here.disk.fails = ZeroDivisionError()

        async def state() -> dict[str, tuple[int, str]]:
            return {row["id"]: (row["work_tries"], row["status"]) for row in await here.rows(table)}

        other = (0, "creating")
        for tries in range(1, module.MOST_TRIES):
            await here.done(record)
            assert await state() == {"0-other": other, record.id: (tries, "creating")}
            assert here.slept == [module.FIX_SECONDS] * tries
        await here.done(record)
        assert (await state())[record.id][1] == "error" and (await state())["0-other"] == other
        assert len(here.slept) == module.MOST_TRIES - 1
        await here.worker._count(record, ZeroDivisionError())
        assert (await state())[record.id] == (module.MOST_TRIES, "error"), "of a piece that is over none is counted"

    run(control, tmp_path, story)


def test_the_image_of_an_upload_that_is_over_stays(control: Control, tmp_path: Path) -> None:
    async def story(here: Working) -> None:
        await here.image()
        record = await here.volume("upload")
        await here.change(volumes, work="", work_id="")
        await here.worker._count(record, ZeroDivisionError())
        assert (await here.images.find(ADMIN, IMAGE)).status == "active"

    run(control, tmp_path, story)


def test_a_piece_that_takes_too_long_is_ended(control: Control, tmp_path: Path) -> None:
    async def story(here: Working) -> None:
        record = await here.volume("create")
        here.disk.may_go = asyncio.Event()
        await here.done(record)
        after = await here.now()
        assert (after.status, after.reason) == ("error", "Its create failed: it did not end within 0 s")

    run(control, tmp_path, story, file_task_timeout=0.05)


def test_the_next_piece_of_a_record_ends_the_one_before(control: Control, tmp_path: Path) -> None:
    async def story(here: Working) -> None:
        record = await here.volume("create")
        here.disk.may_go = asyncio.Event()
        here.worker._begin(record)
        await here.until(lambda: bool(here.disk.asked))
        first = here.worker._busy["v"].task
        here.worker._begin(record)
        await asyncio.sleep(0.01)
        assert here.worker._busy["v"].task is first and not first.done(), "the same piece once more"
        await here.change(volumes, work="delete", work_id="newer", status="deleting")
        here.worker._begin(await here.now())
        await asyncio.gather(first, return_exceptions=True)
        await asyncio.sleep(0)
        assert first.cancelled() and here.worker._busy == {} and here.worker._woken.is_set()
        assert (await here.now()).status == "deleting"

    run(control, tmp_path, story)


def test_an_error_of_the_worker_itself_is_logged(
    control: Control, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(here: Working) -> None:
        async def fails(_: object) -> bool:
            raise ZeroDivisionError

        monkeypatch.setattr(here.worker, "_count", lambda record, error: fails(record))
        here.disk.fails = ValueError()
        await here.done(await here.snapshot("create"))
        await asyncio.sleep(0)
        assert "snapshot s: its create failed unexpectedly" in caplog.text and here.worker._busy == {}

    run(control, tmp_path, story)


@pytest.mark.parametrize("work", ["create", "reimage"])
def test_the_copy_of_an_image_that_is_deleted_ends(control: Control, tmp_path: Path, work: str) -> None:
    async def story(here: Working) -> None:
        await here.image()
        record = await here.volume(work, image_id=IMAGE if work == "create" else "older", previous_status="in-use")
        here.disk.may_go = asyncio.Event()
        here.worker._begin(record)
        here.worker._begin(await here.snapshot("create"))
        await here.until(lambda: len(here.disk.asked) == 2)
        await _one_turn(here)
        assert here.worker._busy["v"].reason == "", "it is there"
        await here.images.delete(ADMIN, IMAGE, lambda _: None)
        task = here.worker._busy["v"].task
        await _one_turn(here)
        await _one_turn(here)
        await asyncio.gather(task, return_exceptions=True)
        after = await here.now()
        assert after.reason == f"Its {work} failed: image {IMAGE} was deleted" and after.work == ""
        assert after.status == ("error" if work == "create" else "in-use")
        assert "s" in here.worker._busy and "v" not in here.worker._busy
        await here.worker.stop()

    run(control, tmp_path, story)


# -- turns -------------------------------------------------------------------------------------------------------------


async def _one_turn(here: Working) -> None:
    here.worker._looking = asyncio.create_task(here.worker._look())
    paused = asyncio.Event()

    async def pause() -> None:
        paused.set()
        await asyncio.Event().wait()

    here.worker._pause = pause
    await paused.wait()
    here.worker._looking.cancel()


def test_when_it_looks_at_what(control: Control, tmp_path: Path) -> None:
    """A heartbeat each 15 seconds, what was set aside once an hour, connections and work always."""

    async def story(here: Working) -> None:
        await here.worker._begin_day()
        began, expired = here.clock.at, ("remove_expired", here.clock.at)

        async def turn(later: float) -> tuple[bool, bool, bool]:
            await here.change_backends(total_gb=0)
            here.clock.at = began + later
            here.disk.asked.clear()
            here.exports.seen.clear()
            here.worker.wake()
            await _one_turn(here)
            assert not here.worker._woken.is_set(), "it waits for the next one"
            (row,) = await here.rows(volume_backends)
            has_expired = any(words[0] == "remove_expired" for words in here.disk.asked)
            return row["total_gb"] > 0, has_expired, here.exports.seen[:1] == ["settle"]

        assert await turn(14.9) == (False, True, True) and expired
        assert await turn(15.0) == (True, False, True)
        assert await turn(29.9) == (False, False, True)
        assert await turn(14.9 + 3599.0) == (True, False, True)
        assert await turn(14.9 + 3600.0) == (False, True, True)

    run(control, tmp_path, story)


def test_a_turn_that_cannot_read_the_records_is_not_the_last(
    control: Control, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(here: Working) -> None:
        async def fails() -> None:
            raise Failed("unreachable", "the database is away")

        monkeypatch.setattr(here.exports, "settle", fails)
        await _one_turn(here)
        assert "volume tasks cannot be read: the database is away" in caplog.text

    run(control, tmp_path, story)


def test_it_waits_until_it_is_woken_but_not_for_ever(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 3600.0)

    async def story(here: Working) -> None:
        pausing = asyncio.create_task(here.worker._pause())
        await asyncio.sleep(0.01)
        assert not pausing.done()
        bus, other = MemoryBus(hub := MemoryHub(), "worker"), MemoryBus(hub, "api")
        await bus.start()
        await other.start()
        await here.worker.start(bus)
        here.worker._woken.clear()
        assert await other.call(module.SUBJECT, b"") == b""
        await asyncio.wait_for(pausing, 5)
        assert here.exports.seen[0] == "start"
        here.disk.stopped = False
        await here.worker.stop()
        assert here.disk.stopped and here.exports.seen[-1] == "stop" and here.worker._looking.done()
        monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
        here.worker._woken.clear()
        await asyncio.wait_for(here.worker._pause(), 5)

    run(control, tmp_path, story)


def test_a_worker_without_a_bus_or_exports_serves_nobody(control: Control, tmp_path: Path) -> None:
    async def story(here: Working) -> None:
        here.worker._exports = None
        bus = MemoryBus(MemoryHub(), "worker")
        await bus.start()
        for one in (None, bus):
            here.worker._has_swept = False
            await here.worker.start(one)
            assert here.worker._has_swept, "before the first request"
            await here.worker.stop()
        await _one_turn(here)

    run(control, tmp_path, story)


def test_only_its_own_records_are_worked_on(control: Control, tmp_path: Path) -> None:
    async def story(here: Working) -> None:
        for number, (backend, work) in enumerate(((BACKEND, "create"), ("another", "create"), (BACKEND, ""))):
            about = {"id": UUID.format(number), "status": "creating", "work": work}
            await here.put(volume(**about, backend=backend), snapshot(**about, backend=backend))
        pending = await here.worker._pending()
        assert [(type(one), one.id) for one in pending] == [(Volume, UUID.format(0)), (Snapshot, UUID.format(0))]

    run(control, tmp_path, story)


def test_a_start_cleans_up_after_the_one_before(control: Control, tmp_path: Path) -> None:
    """Files of its own records stay, also if one of another backend has the same name; the others are set aside."""

    async def story(here: Working) -> None:
        for number, backend in enumerate((BACKEND, "another")):
            about = {"id": UUID.format(number), "backend": backend}
            await here.put(volume(**about), snapshot(**about))
            await here.store.write(
                lambda tx, backend=backend: rows.put(
                    tx, volume_files_to_remove, backend=backend, file=f"volume-of-{backend}"
                )
            )
        kinds = ("volume", "snapshot")
        ours = {f"{kind}-{UUID.format(0)}" for kind in kinds}
        theirs = {f"{kind}-{UUID.format(1)}" for kind in kinds}
        unfinished = {f"{kind}-{UUID.format(7)}.part" for kind in kinds}
        here.disk.sizes = dict.fromkeys({*ours, *theirs, *unfinished, "volume-nobody"}, 1)
        await here.worker._begin_day()
        assert here.disk.lost.keys() == theirs | {"volume-nobody"}
        assert {words[1] for words in here.disk.asked} == unfinished | {f"volume-of-{BACKEND}"}
        assert [row["backend"] for row in await here.rows(volume_files_to_remove)] == ["another"]
        (beat,) = await here.rows(volume_backends)
        assert (beat["id"], beat["total_gb"], beat["free_gb"]) == (BACKEND, 7, 5)

    run(control, tmp_path, story)
