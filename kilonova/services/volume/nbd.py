"""qemu-nbd processes, each in its own directory: started, watched, restarted when they die, ended for certain.

They outlive this process: guests go on while the program that started them is restarted, and the next one finds them.
Each process holds the lock of its directory open. If another process can take that lock, the first has ended with all
its threads, and none of its writes is still under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kilonova.domain.errors import Failed
from kilonova.threads import FILES

logger = logging.getLogger(__name__)
PROGRAM = "qemu-nbd"
SOCKET, LOCK, LOG, KEYS = "s", "lock", "log", "keys.psk"
PASSABLE = 0o711  # QEMU may run as another user: it passes to the socket, and sees nothing else
START_SECONDS, END_SECONDS = 20.0, 10.0
LOOK_SECONDS = 0.01
RETRY_SECONDS, LONGEST_RETRY = 0.1, 2.0  # QEMU waits a minute for its server
LONGEST_PATH = 107  # bytes that Linux takes as the path of a socket
GREETING = b"NBDMAGIC"
BACKLOG = 16
# A process finds its listening socket as systemd would pass it. That names the process that shall take it.
WITH_SOCKET = ("sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"', "sh")
PASSED, LOCKED, FIRST_FREE = 3, 4, 5  # the numbers of that socket and of the lock in the process


class Served(NamedTuple):
    """The arguments of a process. They have no secret in them: every user may read the arguments of a process."""

    arguments: tuple[str, ...]
    address: tuple[str, int] | None = None  # None: a socket in its directory
    owner: tuple[int, int] | None = None  # user and group that may open the socket


class Nbd:
    """The processes of one folder, by name. Bound to one event loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._wanted: dict[str, Served] = {}
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._children: dict[str, int] = {}
        self._stopped: set[str] = set()

    @property
    def watched(self) -> set[str]:
        """Return the names of the processes that are started again when they die."""
        return {name for name, task in self._watching.items() if not task.done()}

    def directory(self, name: str) -> Path:
        return self.folder / name

    def names(self) -> list[str]:
        """Return the names of all processes that have a directory."""
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []

    def prepare(self, name: str) -> Path:
        """Return the directory of the process; create it if it is missing."""
        directory = self.directory(name)
        if len(os.fsencode(directory / SOCKET)) > LONGEST_PATH:
            text = f"socket {directory / SOCKET}: its path is longer than {LONGEST_PATH} bytes; use a shorter directory"
            raise Failed("path_too_long", text, final=True)
        for folder in (self.folder, directory):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(PASSABLE)
        return directory

    async def ensure(self, name: str, served: Served) -> None:
        """Start the process if needed and wait until it answers. Restart it when it dies."""
        self._wanted[name] = served
        async with self._lock(name):
            await self._ensure(name, served)
        self.keep(name, served)

    def keep(self, name: str, served: Served) -> None:
        """Watch the process: start it soon, and restart it when it dies."""
        self._wanted[name] = served
        if name not in self._watching:
            self._watching[name] = asyncio.create_task(self._watch(name))

    async def end(self, name: str) -> None:
        """End the process and remove its directory. Raise `Failed` if it does not end."""
        await self.kill(name)
        await FILES.run(shutil.rmtree, self.directory(name), True)

    async def kill(self, name: str) -> None:
        """End the process as `end` does, but keep its directory."""
        self._wanted.pop(name, None)
        self._stopped.discard(name)
        if (watching := self._watching.pop(name, None)) is not None:
            watching.cancel()
        async with self._lock(name):
            ends = time.monotonic() + END_SECONDS
            while not await FILES.run(self._is_gone, name):
                await FILES.run(self._signal, name, signal.SIGKILL)
                if time.monotonic() > ends:
                    text = f"the {PROGRAM} process of {self.directory(name)} does not end within {END_SECONDS:.0f} s"
                    raise Failed("volume_still_open", text)
                await asyncio.sleep(LOOK_SECONDS)
            await FILES.run(self._reap, name)

    def is_stopped(self, name: str) -> bool:
        return name in self._stopped

    async def set_stopped(self, name: str, stopped: bool) -> None:
        """Stop or continue the process. Requests wait while it is stopped. If it dies then, it is started again on
        continue."""
        if stopped == (name in self._stopped):
            return
        (self._stopped.add if stopped else self._stopped.discard)(name)
        async with self._lock(name):
            await FILES.run(self._signal, name, signal.SIGSTOP if stopped else signal.SIGCONT)

    async def stop(self) -> None:
        """Watch no longer. The processes go on."""
        tasks = [*self._watching.values()]
        self._watching.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- one process ------------------------------------------------------------------------------------------------

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _watch(self, name: str) -> None:
        pause = RETRY_SECONDS
        while served := self._wanted.get(name):
            if (pid := await FILES.run(self._find, name)) is not None:
                await _until_gone(pid)
                logger.warning("%s: its %s process has ended; it is started again", self.directory(name), PROGRAM)
            try:
                async with self._lock(name):
                    if name in self._wanted:
                        await self._ensure(name, served)
                pause = RETRY_SECONDS
            except Failed as why:
                logger.warning("%s: %s", self.directory(name), why.message)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_RETRY)

    async def _ensure(self, name: str, served: Served) -> None:
        if await FILES.run(self._is_gone, name):
            await FILES.run(self._reap, name)
            if name in self._stopped:
                text = f"the {PROGRAM} process has ended; it is started again when guests may write"
                raise Failed("volume_busy", text)
            # Not cancellable: the next holder of the lock must see the process, or it is never ended.
            await FILES.run_to_its_end(self._start, name, served)
        elif name not in self._watching and name not in self._stopped:
            await FILES.run(self._signal, name, signal.SIGCONT)  # a former worker may have left it stopped
        await self._until_it_answers(name, served)

    def _start(self, name: str, served: Served) -> None:
        directory = self.prepare(name)
        (directory / SOCKET).unlink(missing_ok=True)
        arguments = [PROGRAM, "--persistent", "--shared=0", self._marker(name), *served.arguments]
        if served.address is None:
            arguments.append(f"--socket={directory / SOCKET}")
        with contextlib.ExitStack() as closing:
            nothing = _opened(closing, os.devnull, os.O_RDWR)
            files = [(os.POSIX_SPAWN_DUP2, nothing, number) for number in (0, 1)]
            log = _opened(closing, directory / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            files.append((os.POSIX_SPAWN_DUP2, log, 2))
            if served.address is not None:
                arguments = [*WITH_SOCKET, *arguments]
                listening = closing.enter_context(_listening(served.address))
                files.append((os.POSIX_SPAWN_DUP2, listening.fileno(), PASSED))
            # Held by the process from now on, for as long as one of its threads lives. Another process that is started
            # meanwhile must not inherit it, or this one never counts as gone.
            lock = _opened(closing, directory / LOCK, os.O_RDWR | os.O_CREAT)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            files.append((os.POSIX_SPAWN_DUP2, lock, LOCKED))
            self._children[name] = self._spawn(arguments, files)

    def _spawn(self, arguments: Sequence[str], files: Sequence[tuple[int, int, int]]) -> int:
        if shutil.which(PROGRAM) is None:
            raise Failed("no_qemu_nbd", f"{PROGRAM} is not installed; it is in Debian's package qemu-utils")
        return os.posix_spawnp(arguments[0], list(arguments), os.environ, file_actions=list(files), setsid=True)

    async def _until_it_answers(self, name: str, served: Served) -> None:
        ends = time.monotonic() + START_SECONDS
        while True:
            answers = await FILES.run(self._answers, name, served)
            if await FILES.run(self._is_gone, name):  # another process may answer at its port
                raise Failed("volume_unreachable", f"{PROGRAM}: {await FILES.run(self._last_lines, name)}")
            if answers:
                return
            if time.monotonic() > ends:
                raise Failed("volume_unreachable", f"{PROGRAM} does not answer within {START_SECONDS:.0f} s")
            await asyncio.sleep(LOOK_SECONDS)

    def _answers(self, name: str, served: Served) -> bool:
        path = self.directory(name) / SOCKET
        family = socket.AF_UNIX if served.address is None else _family(served.address[0])
        with socket.socket(family) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(served.address or str(path))
                # Its socket is open before its file is, and its port before it was started.
                if name not in self._stopped and probe.recv(len(GREETING)) != GREETING:
                    return False
            except OSError:
                return False
        if served.address is None and served.owner is not None:
            os.chown(path, *served.owner)
        return True

    def _last_lines(self, name: str) -> str:
        with contextlib.suppress(OSError):
            lines = (self.directory(name) / LOG).read_text(errors="replace").split("\n")
            for line in reversed(lines):
                if line.strip():
                    return line.strip().removeprefix(f"{PROGRAM}: ")[-300:]
        return "it ended without an error message"

    def _is_gone(self, name: str) -> bool:
        try:
            lock = os.open(self.directory(name) / LOCK, os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        return True

    def _reap(self, name: str) -> None:
        if (pid := self._children.pop(name, None)) is not None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _signal(self, name: str, number: signal.Signals) -> None:
        if (pid := self._find(name)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _marker(self, name: str) -> str:
        return f"--pid-file={self.directory(name) / 'pid'}"

    def _find(self, name: str) -> int | None:
        """Find the process by its arguments: the number in a file may belong to another process by now."""
        marker = self._marker(name).encode()
        return next((pid for pid, arguments in _processes() if marker in arguments), None)


def _processes() -> Iterator[tuple[int, list[bytes]]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(entry.name), Path(entry.path, "cmdline").read_bytes().split(b"\0")


async def _until_gone(pid: int) -> None:
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(file, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(file)
        os.close(file)


def _opened(closing: contextlib.ExitStack, path: os.PathLike[str] | str, flags: int) -> int:
    """Open a file for the process, above the numbers that its own files get."""
    opened = os.open(path, flags, 0o600)
    try:
        number = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE)
    finally:
        os.close(opened)
    closing.callback(os.close, number)
    return number


def _listening(address: tuple[str, int]) -> socket.socket:
    """Return a listening socket whose accepted connections inherit TCP_NODELAY, which Debian 12's qemu-nbd does not
    set.

    Without it the kernel would hold the second of several replies back until the first is acknowledged, which takes 40
    ms.
    """
    listener = socket.socket(_family(address[0]))
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        text = f"{address[0]}, port {address[1]}: cannot listen there: {error.strerror}"
        raise Failed("volume_unreachable", text) from error
    return listener


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
