"""Who is served, by the records alone: the processes are pretended, and no worker interferes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.domain.errors import Failed, Refused
from kilonova.domain.volume_opening import VolumeOpening
from kilonova.schema.tables.volume import attachments, volumes
from kilonova.services.volume import exports as module
from kilonova.services.volume.attachment_steps import secret_of
from kilonova.services.volume.export_files import Listening
from kilonova.services.volume.export_requests import name_of
from kilonova.services.volume.exports import Exports
from kilonova.services.volume.records import fetch_attachment, insert
from kilonova.services.volume.volume import Attachment
from kilonova.store import rows
from tests.support.servers import free_port
from tests.unit.control import open_control
from tests.unit.services.volume.records import attachment, volume
from tests.unit.services.volume.shop import BACKEND, Seal
from tests.unit.services.volume.test_exports import PretendedNbd
from tests.unit.services.volume.test_exports import folder as folder

Act = Callable[["Serving"], Awaitable[None]]
Run = Callable[[Act], None]
CONNECTED = {"host": "host2", "connected_at": 1.0, "status": "attached"}


class Serving:
    """A worker's exports on a folder."""

    def __init__(self, store: Any, folder: Path, ports: int = 5) -> None:
        self.store, self.folder, first = store, folder, free_port()
        listening = Listening("127.0.0.1", (first, first + ports - 1), {"host1"})
        self.exports = Exports(store, Seal(), BACKEND, folder / "volumes", folder / "exports", listening)
        self.nbd = self.exports._nbd = self.exports._stored._nbd = PretendedNbd(folder / "exports")

    async def put(self, volume_id: str = "v", **values: Any) -> None:
        """A volume with one connected attachment, which has its name."""
        own = {**CONNECTED, **{name: values.pop(name) for name in tuple(values) if name in ("host", "mode")}}
        one = attachment(volume_id, volume_id=volume_id, **own)

        async def body(tx: Any) -> None:
            await insert(tx, volumes, volume(id=volume_id, **{"status": "in-use", **values}))
            await insert(tx, attachments, one)

        await self.store.write(body)

    async def change(self, volume_id: str = "v", **values: Any) -> None:
        await self.store.write(lambda tx: rows.change(tx, attachments, values, id=volume_id))

    async def change_volume(self, volume_id: str = "v", **values: Any) -> None:
        await self.store.write(lambda tx: rows.change(tx, volumes, values, id=volume_id))

    async def detach(self, volume_id: str = "v") -> None:
        await self.store.write(lambda tx: rows.remove(tx, attachments, id=volume_id))

    async def request(self, volume_id: str = "v") -> VolumeOpening:
        one: Attachment = await self.store.read(lambda tx: fetch_attachment(tx, volume_id))
        return VolumeOpening(attachment=volume_id, secret=secret_of(Seal(), one))

    async def open(self, *ids: str) -> list[str]:
        """Open these; return the names of their exports."""
        names = []
        for volume_id in ids or ("v",):
            request = await self.request(volume_id)
            await self.exports.open(request)
            names.append(name_of(volume_id, request.secret))
        return names

    @property
    def runs(self) -> dict[str, str]:
        """By volume."""
        return {self.exports._known[name].volume: state for name, state in self.nbd.running.items()}

    @property
    def directories(self) -> set[str]:
        return {path.name for path in (self.folder / "exports").iterdir()}


@pytest.fixture
def run(tmp_path: Path, folder: Path) -> Iterator[Callable[[Act], None]]:
    def on(act: Act) -> None:
        async def story(store: Any) -> None:
            here = Serving(store, folder)
            try:
                await act(here)
            finally:
                await here.exports.stop()

        asyncio.run(open_control(f"sqlite:///{tmp_path / 'control.db'}", story))

    return on


async def code(act: Awaitable[Any]) -> str:
    try:
        await act
    except (Refused, Failed) as why:
        return why.code
    return ""


def test_the_holder_of_the_secret_is_served(run: Run) -> None:
    async def story(here: Serving) -> None:
        await here.put(multiattach=True, mode="ro", size=7)
        first = await here.exports.open(await here.request())
        assert await here.exports.open(await here.request()) == first, "the same again is the same"
        assert (first.export, first.address, first.socket, here.runs) == ("v", "127.0.0.1", "", {"v": "runs"})
        (export,) = here.exports._known.values()
        assert (export.host, export.read_only, export.shared, export.size) == ("host2", True, True, 7)
        assert export.port == first.port
        await here.put("local", host="host1")
        opened = await here.exports.open(await here.request("local"))
        assert (opened.address, opened.port) == ("", 0) and opened.socket.startswith(str(here.folder / "exports"))

    run(story)


@pytest.mark.parametrize(
    "change", [{"connected_at": 2.0}, {"connected_at": None}, {"status": "detaching"}, {"id": "another"}]
)
def test_a_secret_that_is_void_opens_nothing(run: Run, change: dict[str, Any]) -> None:
    async def story(here: Serving) -> None:
        await here.put()
        old = await here.request()
        await here.exports.open(old)
        await here.change(**change)
        assert await code(here.exports.open(old)) == "volume_connection_closed"
        if "id" not in change:
            assert here.nbd.running == {} and here.directories == set(), "and what it had opened is closed"
        await here.put("b")
        wrong = VolumeOpening(attachment="b", secret="guess")
        assert await code(here.exports.open(wrong)) == "volume_connection_closed"

    run(story)


def test_of_two_connections_only_the_later_one_is_served(run: Run) -> None:
    async def story(here: Serving) -> None:
        await here.put()
        (before,) = await here.open()
        await here.change(connected_at=2.0, host="host3")
        (after,) = await here.open()
        assert [*here.nbd.running] == [after] and here.directories == {after} and before != after

    run(story)


def test_a_secret_is_compared_though_its_name_is_the_same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is a short digest: that another secret has the same one is not enough."""
    monkeypatch.setattr(module, "name_of", lambda attachment, secret: "same")

    async def story(here: Serving) -> None:
        await here.put()
        assert await code(here.exports.open(VolumeOpening(attachment="v", secret="x"))) == "volume_connection_closed"
        assert here.nbd.running == {}

    run(story)


@pytest.mark.parametrize("work", ["", "create", "extend", "upload", "reimage", "revert", "delete"])
def test_a_volume_whose_file_is_replaced_is_not_served(run: Run, work: str) -> None:
    async def story(here: Serving) -> None:
        await here.put()
        await here.change_volume(work=work)
        is_replaced = work in ("reimage", "revert", "delete")
        assert await code(here.exports.open(await here.request())) == ("volume_busy" if is_replaced else "")
        assert here.runs == ({} if is_replaced else {"v": "runs"})
        here.nbd.running.clear()
        await here.exports.settle("v")
        assert here.runs == ({} if is_replaced else {"v": "runs"}), "nor is it by the way"

    run(story)


def test_halted_records_open_and_end_nothing(run: Run) -> None:
    async def story(here: Serving) -> None:
        await here.put()
        await here.open()
        await here.detach()
        here.store.halted = "an older copy was put back"
        with pytest.raises(Failed, match="an older copy") as why:
            await here.exports.open(VolumeOpening(attachment="v", secret="s"))
        assert why.value.code == "halted"
        bus = MemoryBus(MemoryHub(), "worker")
        await bus.start()
        await here.exports.start(bus)
        assert here.runs == {"v": "runs"}
        here.store.halted = ""
        await here.exports.start(MemoryBus(MemoryHub(), "worker"))
        assert here.nbd.running == {}

    run(story)


def test_a_connection_that_goes_while_it_is_opened_is_not_served(run: Run) -> None:
    async def story(here: Serving) -> None:
        await here.put()
        request, ensure = await here.request(), here.nbd.ensure

        async def and_detach(name: str, served: Any) -> None:
            await ensure(name, served)
            await here.detach()

        here.nbd.ensure = and_detach  # type: ignore[method-assign]
        assert await code(here.exports.open(request)) == "volume_connection_closed"
        assert here.nbd.running == {} and here.directories == set()

    run(story)


def test_what_cannot_be_prepared_keeps_no_port(run: Run) -> None:
    async def story(here: Serving) -> None:
        await here.put()
        with pytest.MonkeyPatch.context() as patch:

            def fails(*_: object) -> None:
                raise Failed("path_too_long", "too long", final=True)

            patch.setattr(here.exports._stored, "prepare", fails)
            assert await code(here.exports.open(await here.request())) == "path_too_long"
        assert here.exports._known == {} and await here.open()

    run(story)


@pytest.mark.parametrize("others", [0, 2])
def test_a_look_ends_and_serves_by_the_records(run: Run, others: int, caplog: pytest.LogCaptureFixture) -> None:
    async def story(here: Serving) -> None:
        caplog.set_level("INFO")
        ids = ["v", *(f"w{number}" for number in range(others))]
        for volume_id in ids:
            await here.put(volume_id)
        names = dict(zip(ids, await here.open(*ids), strict=True))
        for values in ({"status": "detaching"}, {"connected_at": None}, {"connected_at": 2.0}, None):
            await (here.change(**values) if values else here.detach())
            await here.exports.settle()
            assert here.runs == dict.fromkeys(ids[1:], "runs"), values
            assert "volume connection closed: volume=v attachment=v host=host2" in caplog.text
            caplog.clear()
            if values:
                await here.change(**{"status": "attached", "connected_at": 1.0})
                assert await here.open() == [names["v"]]
        await here.put("v9")
        await here.open("v9")
        await here.nbd.stop()
        here.nbd.running.clear()
        await here.exports.settle()
        assert here.runs == dict.fromkeys([*ids[1:], "v9"], "runs"), "those that died while nobody watched run again"

    run(story)


def test_without_an_address_it_serves_this_machine(run: Run) -> None:
    async def story(here: Serving) -> None:
        exports = Exports(here.store, Seal(), BACKEND, here.folder / "volumes", here.folder / "exports")
        exports._nbd = exports._stored._nbd = here.nbd
        await here.put()
        opened = await exports.open(await here.request())
        assert opened.address == "127.0.0.1" and 10809 <= opened.port <= 11832
        await exports.stop()

    run(story)


def test_a_look_waits_for_nobody_who_needs_nothing(run: Run) -> None:
    """Of a volume that is being opened or copied, for example."""

    async def story(here: Serving) -> None:
        for volume_id in ("v", "w"):
            await here.put(volume_id)
        _, ended = await here.open("v", "w")
        await here.detach("w")
        here.nbd._watching.pop(ended).cancel()
        async with here.exports._lock("v"):
            await asyncio.wait_for(here.exports.settle(), 5)
        assert here.runs == {"v": "runs"}

    run(story)


def test_one_that_does_not_end_keeps_no_other(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(here: Serving) -> None:
        for volume_id in ("v", "w"):
            await here.put(volume_id)
        stuck, _ = await here.open("v", "w")
        end = here.nbd.end

        async def ends(name: str) -> None:
            if name == stuck:
                raise Failed("volume_still_open", "it does not end")
            await end(name)

        monkeypatch.setattr(here.nbd, "end", ends)
        for volume_id in ("v", "w"):
            await here.detach(volume_id)
        await here.exports.settle()
        assert here.runs == {"v": "runs"} and "volume v: it does not end" in caplog.text
        assert await code(here.exports.close("v")) == "volume_still_open", "who asks for it is told"
        monkeypatch.undo()
        await here.exports.close("v")
        assert here.runs == {}

    run(story)


def test_closing_ends_only_what_is_gone(run: Run) -> None:
    async def story(here: Serving) -> None:
        for volume_id in ("v", "w"):
            await here.put(volume_id)
        await here.open("v", "w")
        await here.detach("w")
        await here.exports.close("v")
        assert here.runs == {"v": "runs", "w": "runs"}
        await here.detach("v")
        await here.exports.close("v")
        assert here.runs == {"w": "runs"}
        await here.detach("w")
        await here.store.write(lambda tx: rows.remove(tx, volumes, id="w"))
        await here.exports.settle("w")
        assert here.nbd.running == {}, "the volume is gone, too"

    run(story)


def test_exports_of_a_former_process_are_served_on_or_ended(run: Run) -> None:
    """By `settle`, `close` and `held` alike; a directory without an export was never served."""

    async def story(here: Serving) -> None:
        for volume_id in ("v", "w"):
            await here.put(volume_id)
        kept, _ = await here.open("v", "w")
        await here.detach("w")
        (here.folder / "exports" / "begun").mkdir()
        for act in ("settle", "close", "held"):
            after = Serving(here.store, here.folder)
            after.nbd.running = here.nbd.running
            if act == "settle":
                await after.exports.start(MemoryBus(MemoryHub(), "worker"))
                assert [*after.nbd.running] == [kept] and after.directories == {kept}
                assert kept in after.nbd.watched
            elif act == "close":
                await after.exports.close("v")
                assert after.exports._known.keys() == {kept}
            else:
                async with after.exports.held("v"):
                    assert after.nbd.running == {}
                assert [*after.nbd.running] == [kept]
            await after.exports.stop()

    run(story)
