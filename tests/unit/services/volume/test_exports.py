"""Exports that are opened, copied and paused at the same time; the processes are pretended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.domain.errors import Failed
from kilonova.domain.volume_opening import OpenedVolume, VolumeOpening
from kilonova.services.volume.export_files import Listening
from kilonova.services.volume.exports import Exports
from kilonova.services.volume.nbd import Nbd, Served
from kilonova.services.volume.volume import Volume
from kilonova.store.reserve import VOLUMES, DiskReserve
from tests.support.mappings import map_servers
from tests.support.servers import free_port
from tests.unit.control import Story, open_control
from tests.unit.services.volume.shop import BACKEND, OTHER, PROJECT, SERVER, Seal, Shop

Control = Callable[[Story], None]


@pytest.fixture
def control(tmp_path: Path) -> Control:
    return lambda story: asyncio.run(open_control(f"sqlite:///{tmp_path / 'control.db'}", story, 60.0))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for the paths of sockets."""
    with tempfile.TemporaryDirectory(prefix="kn-") as name:
        yield Path(name)


class PretendedNbd(Nbd):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.running: dict[str, str] = {}

    def prepare(self, name: str) -> Path:
        time.sleep(0.02)  # as long as a busy disk takes, so that others begin meanwhile
        return super().prepare(name)

    def _start(self, name: str, served: Served) -> None:
        self.prepare(name)
        self.running[name] = "runs"

    def _is_gone(self, name: str) -> bool:
        return name not in self.running

    def _answers(self, name: str, served: Served) -> bool:
        return name in self.running

    def _signal(self, name: str, number: int) -> None:
        if number == signal.SIGKILL:
            self.running.pop(name, None)
        elif name in self.running:
            self.running[name] = "stopped" if number == signal.SIGSTOP else "runs"

    async def _watch(self, name: str) -> None:
        await asyncio.Event().wait()


class Exporting(Shop):
    def __init__(self, store: Any, folder: Path) -> None:
        super().__init__(store, folder)
        self._turn, port = 0, free_port()
        listening = Listening("127.0.0.1", (port, port + 20))
        self.exports = Exports(store, Seal(), BACKEND, self.folder, folder / "exports", listening)
        self.nbd = self.exports._nbd = self.exports._stored._nbd = PretendedNbd(folder / "exports")

    async def open(self) -> None:
        await map_servers(self.store, SERVER, OTHER, project=PROJECT)
        await self.volumes.prepare()
        self._worker = self.volumes.worker(self.backing, self.images, self.exports)
        await self._worker.start(MemoryBus(MemoryHub(), "worker"))

    async def connected(self, volume: Volume) -> VolumeOpening:
        self._turn, servers = self._turn + 1, self.volumes.servers
        reserved = (SERVER, self._turn, 3)
        attachment = await servers.reserve(reserved, project_id=PROJECT, volume_id=volume.id)
        connection = await servers.connect((SERVER, self._turn, 4), attachment_id=attachment, host="host2")
        return VolumeOpening(attachment=attachment, secret=connection["data"]["auth_password"])

    async def opened(self, volume: Volume) -> OpenedVolume:
        return await self.exports.open(await self.connected(volume))

    @property
    def states(self) -> list[str]:
        return sorted(self.nbd.running.values())


@contextlib.asynccontextmanager
async def exporting(store: Any, folder: Path) -> AsyncIterator[Exporting]:
    here = Exporting(store, folder)
    try:
        await here.open()
        yield here
    finally:
        await here.close()


def test_volumes_that_are_opened_at_once_get_ports_of_their_own(control: Control, folder: Path) -> None:
    """The second process could not listen, and the first one answered for it."""

    async def story(store: Any) -> None:
        async with exporting(store, folder) as here:
            asked = [await here.connected(await here.volume()) for _ in range(4)]
            opened = await asyncio.gather(*map(here.exports.open, asked))
            assert len({one.port for one in opened}) == 4

    control(story)


def test_what_is_being_opened_is_not_taken_for_left_behind(control: Control, folder: Path) -> None:
    """`close` of another volume ended a directory that had no record of its export yet."""

    async def story(store: Any) -> None:
        async with exporting(store, folder) as here:
            volume, other = await here.volume(), await here.volume()
            asked, loop, write = await here.connected(volume), asyncio.get_running_loop(), here.exports._stored.write

            def meanwhile(name: str, export: Any) -> None:
                asyncio.run_coroutine_threadsafe(here.exports.close(other.id), loop).result(10)
                assert here.nbd.directory(name).is_dir()
                write(name, export)

            here.exports._stored.write = meanwhile  # type: ignore[method-assign]
            await here.exports.open(asked)
            assert here.states == ["runs"]

    control(story)


def test_writes_wait_until_the_last_copy_has_ended(control: Control, folder: Path) -> None:
    async def story(store: Any) -> None:
        async with exporting(store, folder) as here:
            volume = await here.volume()
            asked = await here.connected(volume)
            await here.exports.open(asked)
            async with here.exports.still(volume.id):
                async with here.exports.still(volume.id):
                    assert here.states == ["stopped"]
                await here.exports.pause(False)
                assert here.states == ["stopped"], "the first copy still runs"
                with pytest.raises(Failed, match="try again"):
                    await here.exports.open(asked)
                grown = asyncio.create_task(hold(here.exports, volume.id))
                await asyncio.sleep(0.05)
                assert here.states == ["stopped"] and not grown.done(), "its file is not replaced meanwhile"
            await grown
            assert here.states == ["runs"]

    control(story)


async def hold(exports: Exports, volume_id: str) -> None:
    async with exports.held(volume_id):
        pass


def test_a_stopped_process_that_dies_is_not_started_meanwhile(control: Control, folder: Path) -> None:
    async def story(store: Any) -> None:
        async with exporting(store, folder) as here:
            volume = await here.volume()
            await here.opened(volume)
            async with here.exports.still(volume.id):
                here.nbd.running.clear()
                await here.exports.settle(volume.id)
                assert here.states == []
            await here.exports.settle(volume.id)
            assert here.states == ["runs"]

    control(story)


def test_all_go_on_when_the_disk_has_space_again_though_one_is_ended_then(control: Control, folder: Path) -> None:
    """Those behind the one that ended stayed stopped for ever."""

    async def story(store: Any) -> None:
        async with exporting(store, folder) as here:
            for _ in range(3):
                await here.opened(await here.volume())
            free, send = [0], here.nbd.set_stopped
            reserve = DiskReserve(1, {VOLUMES: folder}, lambda _: free[0])
            reserve.look()
            minding = asyncio.create_task(here.exports.mind(reserve))
            await asyncio.sleep(0.1)
            assert here.states == ["stopped"] * 3
            last = [*here.exports._known][-1]

            async def and_end_another(name: str, stopped: bool) -> None:
                await send(name, stopped)
                if last in here.exports._known and name != last:
                    await here.exports._end(last)

            here.nbd.set_stopped = and_end_another  # type: ignore[method-assign]
            free[0] = 1
            reserve.look()
            await here.exports.pause(False)
            assert here.states == ["runs"] * 2 and not minding.done()
            minding.cancel()

    control(story)
