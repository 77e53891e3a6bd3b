"""Volumes served over NBD by qemu-nbd: who has lost a volume writes nothing more, and who has it finds it again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.compute.drivers.libvirt.volumes import HostVolumes
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestVolume
from kilonova.domain.volume_opening import VolumeOpening
from kilonova.services.volume.export_files import Listening
from kilonova.services.volume.export_requests import ask_to_close, ask_to_open
from kilonova.services.volume.exports import Exports
from kilonova.services.volume.nbd import Nbd
from kilonova.services.volume.nbd import Served as ServedByNbd
from kilonova.services.volume.volume import Volume, VolumeType
from kilonova.store.reserve import VOLUMES, DiskReserve
from tests.guests.daemon import need
from tests.support.mappings import map_servers
from tests.support.nbd import NbdClient
from tests.support.servers import free_port, wait_until
from tests.unit.control import Story, open_control
from tests.unit.services.volume.shop import ADMIN, BACKEND, OTHER, PROJECT, SERVER, Seal, Shop, refusal, until

Control = Callable[[Story], None]
WRITES = 1000
READ_ONLY_FLAG = 2


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for the paths of sockets; what still runs in it at the end is ended."""
    need("libvirt")  # for qemu-nbd
    with tempfile.TemporaryDirectory(prefix="kn-") as name:
        yield Path(name)
        end_processes(Path(name))


def end_processes(folder: Path) -> None:
    for exports in folder.glob("*/"):
        nbd = Nbd(exports)
        for process in nbd.names():
            nbd._signal(process, signal.SIGKILL)


@pytest.fixture
def control(tmp_path: Path) -> Control:
    """Runs a story on an empty control database."""
    return lambda story: asyncio.run(open_control(f"sqlite:///{tmp_path / 'control.db'}", story, 120.0))


class Served(Shop):
    """With exports: host1 is this machine, others come over TLS."""

    def __init__(self, store: Any, folder: Path) -> None:
        self.hub, self._turn = MemoryHub(), 0
        self.bus = MemoryBus(self.hub, "host")

        async def close(closing: Any) -> None:
            await ask_to_close(self.bus, closing)

        super().__init__(store, folder, close=close)
        port = free_port()
        listening = Listening("127.0.0.1", (port, port + 20), ["host1"])
        self.exports = Exports(store, Seal(), BACKEND, self.folder, folder / "exports", listening)

    async def open(self) -> None:
        await map_servers(self.store, SERVER, OTHER, project=PROJECT)
        await self.volumes.prepare()
        self._worker = self.volumes.worker(self.backing, self.images, self.exports)
        await self._worker.start(MemoryBus(self.hub, "worker"))

    async def attached(self, volume: Volume, host: str = "host1", server: str = SERVER, **how: str) -> tuple[str, Any]:
        self._turn, servers = self._turn + 1, self.volumes.servers
        turn = self._turn
        attachment = await servers.reserve((server, turn, 3), project_id=PROJECT, volume_id=volume.id, **how)
        return attachment, await servers.connect((server, turn, 4), attachment_id=attachment, host=host)

    async def socket(self, connection: Any) -> str:
        opened = await ask_to_open(self.bus, BACKEND, opening(connection))
        assert opened.socket
        return opened.socket


def opening(connection: Any) -> VolumeOpening:
    data = connection["data"]
    return VolumeOpening(attachment=data["attachment_id"], secret=data["auth_password"])


@contextlib.asynccontextmanager
async def served(store: Any, folder: Path) -> AsyncIterator[Served]:
    here = Served(store, folder)
    try:
        await here.open()
        yield here
    finally:
        await here.close()


def processes(folder: Path) -> list[list[str]]:
    """The arguments of every qemu-nbd of this folder."""
    words = [path.read_bytes().decode().split("\0") for path in map(cmdline, os.listdir("/proc")) if path.exists()]
    return [one for one in words if one[0].endswith("qemu-nbd") and any(str(folder) in word for word in one)]


def cmdline(entry: str) -> Path:
    return Path("/proc", entry, "cmdline") if entry.isdigit() else Path("/proc/none")


def kill(folder: Path) -> None:
    for one in processes(folder):
        marker = next(word for word in one if word.startswith("--pid-file="))
        place = Path(marker.removeprefix("--pid-file=")).parent
        Nbd(place.parent)._signal(place.name, signal.SIGKILL)


async def writes(client: NbdClient, count: int) -> int:
    """How many of so many succeed."""
    return await asyncio.to_thread(lambda: sum(client.write(4096 * n, b"\xbb" * 512) for n in range(count)))


def head_of(path: Path, written: bytes = b"") -> bytes:
    """The first bytes, once these are written."""
    with path.open("r+b") as file:
        file.write(written)
        file.seek(0)
        return file.read(65536)


@pytest.mark.parametrize("how", ["released", "connected elsewhere", "forced", "reset"])
def test_who_lost_a_volume_writes_nothing_more(control: Control, folder: Path, how: str) -> None:
    async def story(store: Any) -> None:
        async with served(store, folder) as here:
            volume = await here.volume()
            attachment, connection = await here.attached(volume)
            path = await here.socket(connection)
            client = await asyncio.to_thread(NbdClient, path, volume.id)
            busy = await asyncio.to_thread(NbdClient, path, volume.id)
            assert await writes(client, 10) == 10
            under_way = asyncio.create_task(writes(busy, 20_000))  # as many as it can, all the time
            servers, attachments = here.volumes.servers, here.volumes.attachments
            if how == "released":
                await servers.release((SERVER, 9, 9), attachment_id=attachment)
            elif how == "forced":
                await attachments.detach(ADMIN, volume.id, attachment, force=True)
            elif how == "reset":
                from kilonova.services.volume.changing import Said

                await here.volumes.changes.reset(ADMIN, volume.id, Said(attach_status="detached"))
            else:
                await servers.connect((SERVER, 9, 9), attachment_id=attachment, host="host2")
            next_one = await asyncio.to_thread(head_of, here.path(volume), b"\xcc" * 4096)  # what it writes stays
            assert await writes(client, WRITES) == 0
            with pytest.raises(OSError):
                NbdClient(path, volume.id)
            assert await refusal(here.exports.open(opening(connection))) == "volume_connection_closed"
            assert await asyncio.to_thread(head_of, here.path(volume)) == next_one
            await under_way
            assert not processes(folder), "nothing serves it any more"

    control(story)


def test_a_keeper_that_dies_before_it_drops_a_connection_does_so_when_it_is_back(
    control: Control, folder: Path
) -> None:
    async def story(store: Any) -> None:
        async with served(store, folder) as here:
            volume = await here.volume()
            attachment, connection = await here.attached(volume)
            client = await asyncio.to_thread(NbdClient, await here.socket(connection), volume.id)
            here.hub.detach("worker")
            await here.close()  # the process goes on serving: a guest does not end with the worker
            assert await writes(client, 10) == 10
            await here.volumes.servers.release((SERVER, 9, 9), attachment_id=attachment)  # nobody is there to drop it
            _, other = await here.attached(volume, server=OTHER)
            with pytest.raises(Failed, match="does not answer"):
                await here.socket(other)
        async with served(store, folder) as here:
            assert await writes(client, WRITES) == 0
            with await asyncio.to_thread(NbdClient, await here.socket(other), volume.id) as new:
                assert await writes(new, 10) == 10

    control(story)


def test_one_that_does_not_end_keeps_others_from_the_volume_and_nobody_else_waits(
    control: Control, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(store: Any) -> None:
        async with served(store, folder) as here:
            volume, another = await here.volume(), await here.volume()
            attachment, connection = await here.attached(volume)
            client = await asyncio.to_thread(NbdClient, await here.socket(connection), volume.id)
            with monkeypatch.context() as patched:
                patched.setattr("kilonova.services.volume.nbd.END_SECONDS", 0.3)
                patched.setattr(Nbd, "_signal", lambda *_: None)  # as a process in the kernel's hands
                await here.volumes.servers.release((SERVER, 9, 9), attachment_id=attachment)
                _, other = await here.attached(volume, server=OTHER)
                with pytest.raises(Failed, match="does not end"):
                    await here.socket(other)
                _, third = await here.attached(another, server=OTHER)
                with await asyncio.to_thread(NbdClient, await here.socket(third), another.id) as new:
                    assert await writes(new, 10) == 10
            await here.socket(other)
            assert await writes(client, WRITES) == 0

    control(story)


def test_a_killed_server_is_there_again_and_a_grown_or_new_file_is_served(control: Control, folder: Path) -> None:
    async def story(store: Any) -> None:
        async with served(store, folder) as here:
            volume = await here.volume()
            attachment, connection = await here.attached(volume)
            path = await here.socket(connection)
            await asyncio.to_thread(NbdClient, path, volume.id)
            kill(folder)
            await until(lambda: asyncio.to_thread(size_of, path, volume.id))
            await here.volumes.servers.complete((SERVER, 9, 5), attachment_id=attachment)
            await here.volumes.changes.extend(ADMIN, volume.id, 2, attached=True)
            assert (await here.settled(volume.id)).size == 2
            assert await until(lambda: asyncio.to_thread(size_of, path, volume.id)) == 2 * 1024**3
            image = await here.image(b"a new system".ljust(512, b"!"))
            await here.volumes.servers.reimage((SERVER, 9, 6), attachment_id=attachment, image_id=image.id)
            await here.settled(volume.id)
            assert await until(lambda: asyncio.to_thread(size_of, path, volume.id)) == 2 * 1024**3
            with await asyncio.to_thread(NbdClient, path, volume.id) as client:
                assert client.read(0, 512) == b"a new system".ljust(512, b"!")
            (words,) = processes(folder)
            assert connection["data"]["auth_password"] not in " ".join(words)

    control(story)


def size_of(path: str, export: str) -> int:
    with contextlib.suppress(OSError), NbdClient(path, export) as client:
        return client.size
    return 0


def test_modes_and_several_writers(control: Control, folder: Path) -> None:
    async def story(store: Any) -> None:
        async with served(store, folder) as here:
            volume = await here.volume()
            _, connection = await here.attached(volume, mode="ro")
            with await asyncio.to_thread(NbdClient, await here.socket(connection), volume.id) as client:
                assert client.flags & READ_ONLY_FLAG and await writes(client, 10) == 0
            shared = VolumeType(id="", name="shared", extra_specs={"multiattach": "<is> True"})
            await here.volumes.types.create(shared)
            both = await here.volume(type=shared.name)
            (_, one), (gone, other) = [await here.attached(both, server=server) for server in (SERVER, OTHER)]
            first, second = [
                await asyncio.to_thread(NbdClient, await here.socket(each), both.id) for each in (one, other)
            ]
            assert await writes(first, 10) == await writes(second, 10) == 10
            await here.volumes.servers.release((OTHER, 9, 9), attachment_id=gone)
            assert (await writes(second, WRITES), await writes(first, 10)) == (0, 10)

    control(story)


def test_writes_wait_while_the_disk_has_only_its_reserve_or_a_snapshot_is_taken(control: Control, folder: Path) -> None:
    async def story(store: Any) -> None:
        async with served(store, folder) as here:
            volume = await here.volume()
            _, connection = await here.attached(volume)
            client = await asyncio.to_thread(NbdClient, await here.socket(connection), volume.id)
            free = [0]
            reserve = DiskReserve(1, {VOLUMES: folder}, lambda _: free[0])
            reserve.look()
            minding = asyncio.create_task(here.exports.mind(reserve))
            await asyncio.sleep(0.2)
            waiting = asyncio.create_task(writes(client, 10))
            await asyncio.sleep(0.5)
            assert not waiting.done()
            free[0] = 1
            reserve.look()
            assert await waiting == 10
            minding.cancel()
            async with here.exports.still(volume.id):
                waiting = asyncio.create_task(writes(client, 10))
                await asyncio.sleep(0.3)
                assert not waiting.done()
            assert await waiting == 10

    control(story)


@pytest.mark.parametrize("is_remote", [False, True], ids=["socket", "port"])
def test_one_that_cannot_serve_its_file_says_why(folder: Path, is_remote: bool) -> None:
    """A connection proves nothing: its socket is open before its file is."""

    async def story() -> None:
        nbd = Nbd(folder / "exports")
        served = ServedByNbd((str(folder / "no-file"),), ("127.0.0.1", free_port()) if is_remote else None)
        with pytest.raises(Failed, match=r"qemu-nbd: .*no-file.*No such file or directory"):
            await nbd.ensure("a", served)
        await nbd.end("a")
        assert not nbd.names()

    asyncio.run(story())


def refused_by(address: str) -> str:
    """What qemu-img says of a server that it cannot open."""
    told = subprocess.run(["qemu-img", "info", address], capture_output=True, text=True, check=False)
    assert told.returncode
    return told.stderr


def modes_of(folder: Path, name: str) -> list[int]:
    return [path.stat().st_mode & 0o777 for path in folder.glob(f"*/*/{name}")]


def test_another_host_comes_over_tls_through_its_relay(control: Control, folder: Path) -> None:
    async def nobody() -> None:
        return None

    async def story(store: Any) -> None:
        async with served(store, folder) as here:
            volume = await here.volume()
            attachment, connection = await here.attached(volume, "host2")
            guest_volume = GuestVolume(attachment=attachment, volume=volume.id, connection=connection)
            assert connection["data"]["auth_password"] not in repr(guest_volume)
            host = HostVolumes(here.bus, folder / "relays", nobody)
            opened = (await host.open("server", 1, guest_volume)).connection["data"]
            assert "auth_password" not in opened
            client = await asyncio.to_thread(NbdClient, opened["socket"], volume.id)
            assert await writes(client, 10) == 10
            opened_at = await ask_to_open(here.bus, BACKEND, opening(connection))
            address = f"nbd://127.0.0.1:{opened_at.port}/{volume.id}"
            assert "TLS" in await asyncio.to_thread(refused_by, address), "without the key nobody comes in"
            for words in processes(folder):
                assert connection["data"]["auth_password"] not in " ".join(words)
            assert await asyncio.to_thread(modes_of, folder, "keys.psk") == [0o600] * 2

            await host.stop()  # the agent is killed, then relay and server are: it is there again
            kill(folder)
            host = HostVolumes(here.bus, folder / "relays", nobody)
            await host.start()
            assert await until(lambda: asyncio.to_thread(size_of, opened["socket"], volume.id)) == 1024**3
            client = await asyncio.to_thread(NbdClient, opened["socket"], volume.id)
            assert await writes(client, 10) == 10

            again = await here.volumes.servers.connect((SERVER, 9, 8), attachment_id=attachment, host="host3")
            again = await here.volumes.servers.connect((SERVER, 9, 9), attachment_id=attachment, host="host2")
            new = GuestVolume(attachment=attachment, volume=volume.id, connection=again)
            renewed = (await host.open("server", 1, new)).connection["data"]["socket"]
            assert renewed != opened["socket"], "connected again, it is another one"
            await host.release("server", 1, keep=[new])
            assert len(await asyncio.to_thread(modes_of, folder, "keys.psk")) == 2, "nothing is left of the first"
            client = await asyncio.to_thread(NbdClient, renewed, volume.id)
            assert await writes(client, 10) == 10

            await here.volumes.servers.release((SERVER, 9, 10), attachment_id=attachment)
            answers: list[int] = []
            asking = threading.Thread(target=lambda: answers.append(sum(client.write(0, b"x") for _ in range(WRITES))))
            asking.start()
            await host.release("server", 1)
            await asyncio.to_thread(asking.join, 30)
            assert answers == [0]
            assert wait_until(lambda: not processes(folder), 10)
            await host.stop()

    control(story)
