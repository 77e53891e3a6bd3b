"""Processes that serve volumes, with a stand-in for QEMU's: started, watched, stopped, found again, ended for sure."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from kilonova.domain.errors import Failed
from kilonova.services.volume import nbd as module
from kilonova.services.volume.nbd import GREETING, Nbd, Served
from tests.support.servers import free_port

PROGRAM = f"""#!{sys.executable} -SE
import os, socket, sys
sys.stderr.write("qemu-nbd: started\\n")
if "--fails" in sys.argv:
    sys.stderr.write("qemu-nbd: no such disk " + "x" * 400 + "\\n\\n")
    sys.exit(1)
if "--silent" in sys.argv:
    sys.exit(1)
paths = [each[9:] for each in sys.argv if each.startswith("--socket=")]
if paths:
    server = socket.socket(socket.AF_UNIX)
    server.bind(paths[0])
    server.listen()
else:
    assert (os.environ["LISTEN_FDS"], os.environ["LISTEN_PID"]) == ("1", str(os.getpid()))
    server = socket.socket(fileno=3)
while True:
    client, _ = server.accept()
    if "--mute" in sys.argv:
        client.recv(1)
    client.sendall(b"SOMETHINGELSE" if "--strange" in sys.argv else b"NBDMAGIC")
    client.close()
"""
LOCAL = Served(("--first", "--second"))


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "qemu-nbd").write_text(PROGRAM)
    (tmp_path / "qemu-nbd").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.fixture
def nbd() -> Iterator[Nbd]:
    with TemporaryDirectory(prefix="kn-") as name:
        made = Nbd(Path(name) / "of" / "n")
        yield made
        for each in made.names():
            made._signal(each, signal.SIGKILL)


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before


def state(pid: int | None) -> str:
    """As the kernel shows it: T when it is stopped; empty when it is gone, or is only to be collected."""
    try:
        shown = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    return "" if shown == "Z" else shown


def is_there(pid: int | None) -> bool:
    """Also if it is only to be collected."""
    return Path(f"/proc/{pid}").exists()


async def until(look: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not look():  # noqa: ASYNC110  what the kernel shows makes no event
            await asyncio.sleep(0.005)


def greeting(address: Any) -> bytes:
    family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
    with socket.socket(family) as client:
        client.settimeout(5)
        client.connect(address)
        return client.recv(len(GREETING))


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_process_serves_by_a_socket_and_is_gone_when_it_ended(nbd: Nbd, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        assert nbd.names() == []
        served = Served(LOCAL.arguments, owner=(os.getuid(), os.getgid()))
        await nbd.ensure("a", served)
        pid = nbd._find("a")
        assert await asyncio.to_thread(greeting, str(nbd.directory("a") / "s")) == GREETING
        assert nbd.names() == ["a"] == [*nbd.watched]
        await nbd.ensure("a", served)
        assert nbd._find("a") == pid, "the same again starts no other"
        arguments = _arguments(pid)
        assert {"--persistent", "--shared=0", f"--pid-file={nbd.directory('a')}/pid", *LOCAL.arguments} < {*arguments}
        assert {path.name for path in _files(nbd)} == {"s", "lock", "log"}
        assert [folder.stat().st_mode & 0o777 for folder in (nbd.folder, nbd.directory("a"))] == [0o711] * 2
        assert os.getsid(pid or 0) == pid, "a signal for the service is none for it"
        assert {os.readlink(f"/proc/{pid}/fd/{number}") for number in (0, 1)} == {os.devnull}
        watching = nbd._watching["a"]
        nbd.keep("a", served)
        assert nbd._watching["a"] is watching, "one watch is enough"
        await asyncio.sleep(0.05)
        assert "has ended" not in caplog.text
        await nbd.end("a")
        assert not is_there(pid) and nbd.names() == [] and nbd.watched == set()
        await nbd.end("a")

    run(story)


def _arguments(pid: int | None) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def _files(nbd: Nbd) -> list[Path]:
    return [*nbd.directory("a").iterdir()]


def test_its_socket_is_the_users_who_may_open_it(nbd: Nbd, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Path, int, int]] = []
    monkeypatch.setattr(os, "chown", lambda *words: given.append(words))

    async def story() -> None:
        await nbd.ensure("a", Served(LOCAL.arguments, owner=(64055, 108)))
        assert given == [(nbd.directory("a") / "s", 64055, 108)]
        await nbd.ensure("b", LOCAL)
        assert len(given) == 1
        await nbd.end("a")
        await nbd.end("b")

    run(story)


def test_a_process_serves_at_a_port(nbd: Nbd) -> None:
    async def story() -> None:
        address = ("127.0.0.1", free_port())
        await nbd.ensure("a", Served((), address, (os.getuid(), os.getgid())))
        assert await asyncio.to_thread(greeting, address) == GREETING
        assert not any(each.startswith("--socket") for each in _arguments(nbd._find("a")))
        with pytest.raises(Failed, match="cannot listen there") as why:
            await nbd.ensure("b", Served((), address))
        assert why.value.code == "volume_unreachable"
        await nbd.kill("a")
        await nbd.ensure("a", Served((), address))
        await nbd.end("a")

    run(story)


def test_a_process_that_dies_is_started_again(nbd: Nbd, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        nbd.keep("a", LOCAL)
        await until(lambda: nbd._find("a"))
        await nbd.ensure("a", LOCAL)
        for _ in range(2):
            before = nbd._find("a")
            os.kill(before or 0, signal.SIGKILL)
            await until(lambda before=before: nbd._find("a") not in (None, before))
            await nbd.ensure("a", LOCAL)
            assert not is_there(before), "nothing of it is left"
        assert "its qemu-nbd process has ended; it is started again" in caplog.text
        await nbd.kill("a")
        await asyncio.sleep(0.05)
        assert nbd._find("a") is None and nbd.names() == ["a"], "ended for good, but its directory stays"

    run(story)


def test_requests_wait_while_a_process_is_stopped(nbd: Nbd) -> None:
    async def story() -> None:
        await nbd.ensure("a", LOCAL)
        pid = nbd._find("a")
        sent: list[int] = []
        signal_of = nbd._signal
        nbd._signal = lambda name, number: (sent.append(number), signal_of(name, number))  # type: ignore[method-assign,assignment]
        for stopped in (False, True, True):
            await nbd.set_stopped("a", stopped)
            assert nbd.is_stopped("a") == stopped
        await until(lambda: state(pid) == "T")
        await nbd.ensure("a", LOCAL)
        assert state(pid) == "T", "that it is asked for does not let it go on"
        os.kill(pid or 0, signal.SIGKILL)
        await until(lambda: nbd._is_gone("a"))
        with pytest.raises(Failed, match="started again when guests may write") as why:
            await nbd.ensure("a", LOCAL)
        assert why.value.code == "volume_busy"
        await nbd.set_stopped("a", False)
        assert sent == [signal.SIGSTOP, signal.SIGCONT] and not nbd.is_stopped("a")
        await nbd.ensure("a", LOCAL)
        await nbd.set_stopped("a", True)
        await nbd.end("a")
        assert not nbd.is_stopped("a"), "the next one of its name runs"

    run(story)


def test_processes_outlive_the_service_and_are_found_by_the_next(nbd: Nbd) -> None:
    async def story() -> None:
        await nbd.ensure("a", LOCAL)
        await nbd.ensure("aa", LOCAL)
        pid = nbd._find("a")
        await nbd.set_stopped("a", True)
        watching = [*nbd._watching.values()]
        await nbd.stop()
        assert nbd.watched == set() and all(task.done() for task in watching)
        nbd.keep("aa", LOCAL)
        assert nbd.watched == {"aa"}
        await nbd.stop()
        await until(lambda: state(pid) == "T")
        after = Nbd(nbd.folder)
        assert after.names() == ["a", "aa"]
        await after.set_stopped("aa", True)
        other = after._find("aa")
        await after.ensure("aa", LOCAL)
        await until(lambda: state(other) == "T")
        await asyncio.sleep(0.02)
        assert state(other) == "T", "that a former service stopped it is no reason to let it write during a copy"
        await after.ensure("a", LOCAL)
        assert (
            after._find("a") == pid and await asyncio.to_thread(greeting, str(after.directory("a") / "s")) == GREETING
        ), "it goes on, though the service died while it was stopped"
        await after.end("a")
        assert not state(pid) and after.names() == ["aa"]
        await after.end("aa")
        nbd._reap("a")
        nbd._reap("aa")

    run(story)


@pytest.mark.parametrize(
    ("argument", "why"),
    [("--fails", f"qemu-nbd: no such disk {'x' * 280}"), ("--silent", "qemu-nbd: started")],
)
def test_why_a_process_ended_is_told(nbd: Nbd, argument: str, why: str) -> None:
    async def story() -> None:
        with pytest.raises(Failed) as told:
            await nbd.ensure("a", Served((argument,)))
        assert told.value.code == "volume_unreachable" and not told.value.final
        assert told.value.message[-100:] == why[-100:] and len(told.value.message) <= 320
        assert nbd.watched == set(), "who asked for it is told, and asks again"
        (nbd.directory("a") / "log").unlink()
        assert nbd._last_lines("a") == "it ended without an error message"

    run(story)


@pytest.mark.parametrize("how", ["absent", "mute", "strange"])
def test_a_process_that_does_not_greet_is_not_ready(nbd: Nbd, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_SECONDS", 0.3)

    class Absent(Nbd):
        def _spawn(self, arguments: Any, files: Any) -> int:
            return os.posix_spawnp("sleep", ["sleep", "60"], os.environ, file_actions=list(files))

    async def story() -> None:
        here = Absent(nbd.folder) if how == "absent" else nbd
        try:
            with pytest.raises(Failed, match="does not answer within 0 s") as why:
                await here.ensure("a", Served((f"--{how}",)))
            assert why.value.code == "volume_unreachable"
        finally:
            if "a" in here._children:
                os.kill(here._children["a"], signal.SIGKILL)

    run(story)


def test_a_process_that_does_not_end_is_told(nbd: Nbd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "END_SECONDS", 0.05)

    async def story() -> None:
        await nbd.ensure("a", LOCAL)
        with monkeypatch.context() as patch:
            patch.setattr(nbd, "_signal", lambda *_: None)
            with pytest.raises(Failed, match="does not end within 0 s") as why:
                await nbd.end("a")
        assert (why.value.code, why.value.final) == ("volume_still_open", False)
        assert nbd.names() == ["a"], "its directory shows that it runs"
        await nbd.end("a")

    run(story)


def test_what_cannot_be_started_says_why(nbd: Nbd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def story() -> None:
        long = Nbd(tmp_path / ("x" * 100))
        with pytest.raises(Failed, match="longer than 107 bytes; use a shorter directory") as why:
            await long.ensure("a", LOCAL)
        assert (why.value.code, why.value.final) == ("path_too_long", True)
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(Failed, match="qemu-nbd is not installed") as why:
            await nbd.ensure("a", LOCAL)
        assert why.value.code == "no_qemu_nbd"

    run(story)
    exact = Nbd(Path("/" + "x" * (107 - len("//a/s"))))
    assert len(str(exact.directory("a") / "s")) == 107
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "mkdir", lambda *_, **__: None)
        patch.setattr(Path, "chmod", lambda *_: None)
        assert exact.prepare("a") == exact.directory("a")


def test_the_pauses_between_starts_become_longer(nbd: Nbd, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    class Failing(Nbd):
        async def _ensure(self, name: str, served: Served) -> None:
            if len(pauses) == 7:
                return
            raise Failed("volume_unreachable", "not now")

    async def story() -> None:
        failing, sleep = Failing(nbd.folder), asyncio.sleep

        async def noted(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 8:
                failing._wanted.clear()
            await sleep(0)

        found = iter([None] * 8 + [2**22 + 1])
        monkeypatch.setattr(failing, "_find", lambda _: next(found, None))
        failing._wanted["a"] = LOCAL
        with monkeypatch.context() as patch:
            patch.setattr(module.asyncio, "sleep", noted)
            watch = asyncio.create_task(failing._watch("a"))
            while len(pauses) < 7:
                await sleep(0.001)
            failing._wanted.clear()
            await watch
        assert pauses[:7] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]

    run(story)


def test_nobody_is_started_who_is_not_wanted_any_more(nbd: Nbd) -> None:
    """It was ended while its watch waited for the lock."""

    async def story() -> None:
        async with nbd._lock("a"):
            nbd.keep("a", LOCAL)
            await asyncio.sleep(0.05)
            nbd._wanted.clear()
        await until(lambda: nbd.watched == set())
        assert nbd._find("a") is None and nbd.names() == []

    run(story)
