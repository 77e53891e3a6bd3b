"""The program without its imports: a server process has it loaded, and forks a role or a command for each start.

To load it takes a second of a processor, some hundred times in the tests; what runs is the program's own `main`, in a
process of its own with an output, environment and working directory as given. Tests of the start itself use
the command: the fixture `command_starts` (tests/conftest.py).

This module is both sides: `Loaded` starts processes, and run as a program it is the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
# Of other packages, what a role loads late; and what is for other programs or cannot be loaded everywhere.
LATE = ("argon2", "asyncpg", "encodings.idna", "nats.aio.client", "structlog.contextvars", "uvicorn.main", "uvloop")
LATE += ("uvicorn.protocols.http.httptools_impl", "uvicorn.protocols.websockets.websockets_sansio_impl")
LEFT_OUT = ("kilonova.__main__", "kilonova.schema.", "kilonova.sim.")
LONGEST = 1 << 18  # bytes of a request


class Loaded:
    """The server, as the tests use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        self._server = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self._codes: dict[int, int] = {}

    def start(self, arguments: Sequence[str], out: IO[str], errors: IO[str]) -> LoadedProcess:
        umask = os.umask(0o077)
        os.umask(umask)
        request = {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd(), "umask": umask}
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [out.fileno(), errors.fileno()])
            while (started := self._read()) is None:
                pass
        return LoadedProcess(self, started)

    def run(self, arguments: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            process = self.start(arguments, out, errors)
            try:
                code = process.wait(seconds)
            except BaseException:
                process.kill()
                raise
            out.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess([*arguments], code, out.read(), errors.read())

    def exit_code(self, pid: int) -> int | None:
        with self._lock:
            while pid not in self._codes and select.select([self._socket], [], [], 0)[0]:
                self._read()
            return self._codes.get(pid)

    def _read(self) -> int | None:
        """The process that was started, or None: another one has ended."""
        message = self._socket.recv(LONGEST)
        assert message, "the server of loaded programs has ended"
        word, pid, code = message.split()
        if word == b"started":
            return int(pid)
        self._codes[int(pid)] = int(code)
        return None

    def close(self) -> None:
        """Waits for it, so that the processor time of all its processes counts for this one."""
        self._socket.close()
        self._server.wait()


class LoadedProcess:
    """What tests use of subprocess.Popen."""

    def __init__(self, server: Loaded, pid: int) -> None:
        self.pid = pid
        self._server = server

    def poll(self) -> int | None:
        return self._server.exit_code(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        ends = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if ends is not None and time.monotonic() > ends:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


# -- the server ---------------------------------------------------------------------------------------------------


def load() -> None:
    import gc
    import importlib
    import pkgutil

    import kilonova

    own = [module.name for module in pkgutil.walk_packages(kilonova.__path__, "kilonova.")]
    for name in (*LATE, *(name for name in own if not name.startswith(LEFT_OUT) and "libvirt" not in name)):
        importlib.import_module(name)
    from kilonova.schema.render import render_upgrade

    for role in ("control", "placement", "cell"):
        for dialect in ("sqlite", "postgresql"):
            render_upgrade(role, dialect, None)
    gc.collect()
    gc.freeze()  # else its collector would write to all pages that a process shares with this one


def serve(connection: socket.socket) -> list[str] | None:
    """Fork until nobody asks any more; in a new process return its arguments."""
    awake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests: they end what they started
    while True:
        ready, _, _ = select.select([connection, awake], [], [])
        if awake in ready:
            os.read(awake, 1 << 16)
            report_ended(connection)
        if connection in ready:
            content, descriptors, _, _ = socket.recv_fds(connection, LONGEST, 2)
            if not content:
                return None
            if pid := os.fork():
                for descriptor in descriptors:
                    os.close(descriptor)
                connection.send(b"started %d 0" % pid)
                continue
            connection.detach()  # its number will be another file's
            request = json.loads(content)
            become(request, descriptors)
            return list(request["arguments"])


def report_ended(connection: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with contextlib.suppress(OSError):
                connection.send(b"ended %d %d" % (ended[0], os.waitstatus_to_exitcode(ended[1])))


def become(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """As after an exec: nothing of the server is left but the modules."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, number)
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    os.umask(request["umask"])
    sys.argv = [str(ROOT / ".venv/bin/kilonova"), *request["arguments"]]


if __name__ == "__main__":
    load()
    given = serve(socket.socket(fileno=int(sys.argv[1])))
    if given is not None:
        from kilonova.cli.main import main

        main(given)  # ends as the command does, with all that a process does at its end
