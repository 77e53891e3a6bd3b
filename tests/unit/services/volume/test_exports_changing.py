"""Exports of a volume that is copied, replaced or grown, and of a disk that is short of space."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.domain.errors import Failed, Refused
from kilonova.domain.volume_opening import GrownVolume, VolumeOpening
from kilonova.services.volume import exports as module
from kilonova.services.volume.export_requests import ask_to_close, ask_to_open, name_of
from kilonova.services.volume.records import fetch_volume
from kilonova.store.reserve import DiskReserve
from tests.unit.services.volume.shop import BACKEND, until
from tests.unit.services.volume.test_exports import folder as folder
from tests.unit.services.volume.test_exports_by_records import Run, Serving, code
from tests.unit.services.volume.test_exports_by_records import run as run


def test_nobody_has_a_volume_open_while_its_file_is_replaced(run: Run) -> None:
    async def story(here: Serving) -> None:
        for volume_id in ("v", "w"):
            await here.put(volume_id)
        names = await here.open("v", "w")
        async with here.exports.held("v"):
            assert here.runs == {"w": "runs"} and here.directories == {*names}
            assert await code(here.exports.open(await here.request())) == "volume_busy"
            await here.exports.settle("v")
            assert here.runs == {"w": "runs"}
            copying = asyncio.create_task(_copied(here))
            await asyncio.sleep(0.02)
            assert not copying.done(), "nor is it copied"
        await asyncio.wait_for(copying, 5)
        await here.exports.settle("v")  # the copy may have been the first
        assert here.runs == {"v": "runs", "w": "runs"}
        with pytest.raises(ZeroDivisionError):
            async with here.exports.held("v"):
                raise ZeroDivisionError
        assert here.runs["v"] == "runs", "also after an error"

    run(story)


async def _copied(here: Serving) -> None:
    async with here.exports.still("v"):
        pass


def test_guests_write_again_when_a_copy_failed(run: Run) -> None:
    async def story(here: Serving) -> None:
        for volume_id in ("v", "w"):
            await here.put(volume_id)
        await here.open("v", "w")
        with pytest.raises(ZeroDivisionError):
            async with here.exports.still("v"):
                assert here.runs == {"v": "stopped", "w": "runs"}
                raise ZeroDivisionError
        assert here.runs == {"v": "runs", "w": "runs"}
        held = asyncio.create_task(_held(here))
        await asyncio.wait_for(held, 5)

    run(story)


async def _held(here: Serving) -> None:
    async with here.exports.held("v"):
        pass


def test_an_error_after_a_hold_is_left_to_the_next_look(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(here: Serving) -> None:
        await here.put()
        await here.open()

        async def fails(*_: object) -> None:
            raise Failed("unreachable", "the database is away")

        with monkeypatch.context() as patch:
            async with here.exports.held("v"):
                patch.setattr(here.exports, "settle", fails)
        assert here.runs == {}
        await here.exports.settle()
        assert here.runs == {"v": "runs"}

    run(story)


def test_who_only_reads_does_not_wait_for_space(run: Run) -> None:
    async def story(here: Serving) -> None:
        await here.put("reads", mode="ro")
        await here.put("writes")
        await here.open("reads", "writes")
        await here.exports.pause(True)
        assert here.runs == {"reads": "runs", "writes": "stopped"}
        async with here.exports.still("reads"):
            assert here.runs == {"reads": "stopped", "writes": "stopped"}
        async with here.exports.still("writes"):
            pass
        assert here.runs == {"reads": "runs", "writes": "stopped"}
        await here.exports.pause(False)
        assert here.runs == {"reads": "runs", "writes": "runs"}

    run(story)


def test_the_watch_of_the_disk_outlives_an_error(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    asked: list[bool] = []

    async def story(here: Serving) -> None:
        enough = asyncio.Event()

        class Short(DiskReserve):
            def refuse(self, *folders: str) -> None:
                assert folders == ("volumes",)
                if len(asked) % 2:
                    raise Refused("storage_reserve", "full")

        async def pause(short: bool) -> None:
            asked.append(short)
            if len(asked) > 5:
                enough.set()
            if not short:
                raise ZeroDivisionError

        monkeypatch.setattr(here.exports, "pause", pause)
        minding = asyncio.create_task(here.exports.mind(Short(1)))
        await asyncio.wait_for(enough.wait(), 5)
        minding.cancel()
        assert asked[:4] == [False, True, False, True]
        assert "exports could not be paused or resumed" in caplog.text

    run(story)


class Host:
    """Where a volume is open: it is told of new sizes, and answers what it is to."""

    def __init__(self, *answers: str) -> None:
        self.told: list[int] = []
        self._answers = [*answers]
        self.knows = asyncio.Event()

    async def start(self, hub: MemoryHub, name: str = "host2") -> None:
        bus = MemoryBus(hub, name)
        await bus.start()
        await bus.serve(f"volume.grown.{name}", self._grown)

    async def _grown(self, body: bytes) -> bytes:
        news = msgspec.json.decode(body, type=GrownVolume)
        assert news.attachment == "v"
        self.told.append(news.size)
        answer = self._answers.pop(0) if self._answers else ""
        if not answer:
            self.knows.set()
        return msgspec.json.encode(answer)


async def on_a_bus(here: Serving, hub: MemoryHub) -> MemoryBus:
    bus = MemoryBus(hub, "worker")
    await bus.start()
    await here.exports.start(bus)
    return bus


def test_a_host_is_told_that_its_volume_has_grown(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it has shown the guest, and not once more after a restart of the worker."""
    monkeypatch.setattr(module, "ANNOUNCE_SECONDS", 0.001)

    async def story(here: Serving) -> None:
        hub, host = MemoryHub(), Host("not yet", "not yet")
        await on_a_bus(here, hub)
        await here.put(size=3)
        (name,) = await here.open()
        await here.exports.settle("v")
        assert here.exports._announcing == {}, "it has the size that it was opened with"
        await here.change_volume(size=5)
        await here.exports.settle("v")

        async def is_told() -> bool:
            return "does not show its new size yet" in caplog.text

        await until(is_told)  # nobody is there
        await host.start(hub)
        await asyncio.wait_for(host.knows.wait(), 5)
        await asyncio.gather(here.exports._announcing[name])
        assert host.told == [5, 5, 5] and "volume v: host host2 does not show" in caplog.text
        assert here.exports._stored.read(name).size == here.exports._known[name].size == 5  # type: ignore[union-attr]
        await here.exports.settle("v")
        await asyncio.sleep(0.01)
        assert host.told == [5, 5, 5]

    run(story)


def test_a_host_that_cannot_show_it_yet_is_not_flooded(run: Run) -> None:
    async def story(here: Serving) -> None:
        hub, host = MemoryHub(), Host(*["not yet"] * 1000)
        await host.start(hub)
        await here.put(size=3)
        await here.open()
        await here.change_volume(size=5)
        await here.exports.settle("v")
        assert here.exports._announcing == {}, "without a bus nobody can be told"
        await on_a_bus(here, hub)
        await here.exports.settle("v")
        await asyncio.sleep(0.1)
        assert host.told == [5] or host.told == [5, 5]

    run(story)


def test_a_volume_that_is_closed_while_its_host_is_told(run: Run) -> None:
    async def story(here: Serving) -> None:
        hub, host = MemoryHub(), Host()
        await host.start(hub)
        await on_a_bus(here, hub)
        await here.put(size=3)
        (name,) = await here.open()
        call = here.exports._bus.call  # type: ignore[union-attr]

        async def and_close(*words: object, **more: object) -> bytes:
            answer = await call(*words, **more)  # type: ignore[arg-type]
            await here.exports._end(name)
            return answer

        here.exports._bus.call = and_close  # type: ignore[method-assign,union-attr,assignment]
        await here.change_volume(size=5)
        await here.exports.settle("v")
        await asyncio.wait_for(here.exports._announcing[name], 5)
        assert host.told == [5] and here.directories == set()

    run(story)


def test_what_is_opened_while_directories_are_looked_at_is_served(run: Run) -> None:
    """Its directory was left behind by a process that died before the first file was in it."""

    async def story(here: Serving) -> None:
        await here.put()
        request, loop = await here.request(), asyncio.get_running_loop()
        (here.folder / "exports" / name_of("v", request.secret)).mkdir(parents=True)

        def meanwhile(_: str) -> None:
            asyncio.run_coroutine_threadsafe(here.exports.open(request), loop).result(10)

        here.exports._stored.read = meanwhile  # type: ignore[method-assign,assignment]
        await here.exports.settle()
        assert here.runs == {"v": "runs"}

    run(story)


def test_two_end_the_same_connection(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story(here: Serving) -> None:
        caplog.set_level("INFO")
        await here.put()
        (name,) = await here.open()
        await asyncio.gather(here.exports._end(name), here.exports._end(name))
        assert here.nbd.running == {} and caplog.text.count("volume connection closed") == 1

    run(story)


def test_only_the_latest_size_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANNOUNCE_SECONDS", 0.001)

    async def story(here: Serving) -> None:
        hub = MemoryHub()
        await on_a_bus(here, hub)
        await here.put(size=3)
        (name,) = await here.open()
        for size in (4, 5):
            await here.change_volume(size=size)
            await here.exports.settle("v")
            await asyncio.sleep(0.01)
        await (host := Host()).start(hub)
        await asyncio.wait_for(host.knows.wait(), 5)
        await asyncio.sleep(0.01)
        assert host.told == [5]
        await here.change_volume(size=6)
        await here.exports._end(name)
        await here.exports._announce_size(here.exports._bus, name, 6)  # type: ignore[arg-type]
        assert host.told == [5], "it is not open any more"

    run(story)


def test_a_worker_that_stops_tells_no_more(run: Run) -> None:
    async def story(here: Serving) -> None:
        await on_a_bus(here, MemoryHub())
        await here.put(size=3)
        (name,) = await here.open()
        await here.change_volume(size=4)
        await here.exports.settle("v")
        await here.exports.stop()
        await asyncio.sleep(0)
        assert here.exports._announcing[name].cancelling() and here.runs == {"v": "runs"}
        assert here.nbd.watched == set()

    run(story)


def test_hosts_ask_over_the_bus(run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def story(here: Serving) -> None:
        hub = MemoryHub()
        await on_a_bus(here, hub)
        host = MemoryBus(hub, "host2")
        await host.start()
        await here.put()
        opened = await ask_to_open(host, BACKEND, await here.request())
        assert opened.export == "v" and opened.port
        async with here.exports.still("v"):
            with pytest.raises(Failed) as why:
                await ask_to_open(host, BACKEND, await here.request())
            assert (why.value.code, why.value.final) == ("volume_busy", False)
            assert "volume v is in-use; try again" in why.value.message
        with pytest.raises(Failed) as why:
            await ask_to_open(host, BACKEND, VolumeOpening(attachment="v", secret="x"))
        assert (why.value.code, why.value.final) == ("volume_connection_closed", True)
        with monkeypatch.context() as patch:

            async def fails(_: str) -> None:
                raise Failed("volume_still_open", "it does not end")

            patch.setattr(here.exports, "close", fails)
            await ask_to_close(host, [(BACKEND, "v")])
            assert "not closed yet: it does not end" in caplog.text
        caplog.clear()
        await here.detach()
        await ask_to_close(host, [(BACKEND, "v")])
        assert here.runs == {} and "not closed yet" not in caplog.text
        assert (await here.store.read(lambda tx: fetch_volume(tx, "v"))).status == "in-use"

    run(story)
