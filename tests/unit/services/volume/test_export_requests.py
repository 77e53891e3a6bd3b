"""What hosts, and those who change records, ask of the worker of a volume's file; and what it keeps for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.domain.errors import Failed
from kilonova.domain.volume_opening import OpenedVolume, VolumeOpening
from kilonova.services.volume.export_requests import ask_to_close, ask_to_open, escaped, name_of, write_private

REQUEST = VolumeOpening(attachment="a", secret="s")


def on_a_bus(story: Callable[[MemoryBus, MemoryBus], Awaitable[None]]) -> None:
    async def run() -> None:
        worker, api = MemoryBus(hub := MemoryHub(), "worker"), MemoryBus(hub, "api")
        await worker.start()
        await api.start()
        await story(worker, api)

    asyncio.run(run())


def test_each_connection_has_an_export_of_its_own() -> None:
    names = {name_of(attachment, secret) for attachment in ("a", "b") for secret in ("s", "t")}
    assert len(names) == 4 and {len(name) for name in names} == {16}
    assert name_of("a", "s") == name_of("a", "s")


def test_who_changed_a_record_asks_for_its_connections_to_be_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """A worker that is away drops them before it serves anybody: that is told, and waited for by nobody."""
    asked: list[str] = []

    async def story(worker: MemoryBus, api: MemoryBus) -> None:
        async def answer(body: bytes) -> bytes:
            asked.append(msgspec.json.decode(body, type=str))
            return msgspec.json.encode("it does not end" if asked[-1] == "v2" else "")

        await worker.serve("volume.close.b1", answer)
        await ask_to_close(api, [("b1", "v1"), ("b1", "v2"), ("away", "v3"), ("b1", "v4")])

    on_a_bus(story)
    assert asked == ["v1", "v2", "v4"]
    told = [record.getMessage() for record in caplog.records if "old connections" in record.getMessage()]
    assert [text.split(":")[0] for text in told] == ["volume v2", "volume v3"]
    assert told[0].endswith("are not closed yet: it does not end")


def test_a_host_asks_for_a_volume() -> None:
    opened = OpenedVolume(export="v", address="10.0.0.1", port=1)
    answers = {
        "served": opened,
        "busy": OpenedVolume(code="volume_busy", message="later"),
        "closed": OpenedVolume(code="volume_connection_closed", message="gone", final=True),
    }

    async def story(worker: MemoryBus, api: MemoryBus) -> None:
        for backend, told in answers.items():

            async def answer(body: bytes, told: OpenedVolume = told) -> bytes:
                assert msgspec.json.decode(body, type=VolumeOpening) == REQUEST
                return msgspec.json.encode(told)

            await worker.serve(f"volume.open.{backend}", answer)
        assert await ask_to_open(api, "served", REQUEST) == opened
        for backend, code, final in (
            ("busy", "volume_busy", False),
            ("closed", "volume_connection_closed", True),
            ("away", "volume_unreachable", False),
        ):
            with pytest.raises(Failed) as why:
                await ask_to_open(api, backend, REQUEST)
            assert (why.value.code, why.value.final) == (code, final)
        assert "attachment a: the service that has the volume does not answer" in why.value.message

    on_a_bus(story)


def test_a_comma_in_a_path_is_none_of_qemus() -> None:
    assert escaped(Path("/a,b/c,,d")) == "/a,,b/c,,,,d"


def test_only_its_owner_may_read_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its first byte on, also after a crash left the half of one; and it is there whole or not at all."""
    seen: list[tuple[int, bytes]] = []
    write = Path.write_bytes

    def noted(path: Path, content: bytes) -> int:
        seen.append((path.stat().st_mode & 0o777, path.read_bytes()))
        return write(path, content)

    (tmp_path / "key.part").write_bytes(b"half")
    (tmp_path / "key.part").chmod(0o644)
    monkeypatch.setattr(Path, "write_bytes", noted)
    for content in (b"one", b"two"):
        write_private(tmp_path / "key", content)
        assert (tmp_path / "key").read_bytes() == content and (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert seen == [(0o600, b"")] * 2 and [path.name for path in tmp_path.iterdir()] == ["key"]
