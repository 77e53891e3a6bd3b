"""Real servers for tests, bench and soak: PostgreSQL and NATS, each a context manager on loopback.

    with Postgres() as postgres:
        url = postgres.create_database("cell1")

Programs come through scripts/need. A server lives in a directory of its own below the temporary directory, and both go
when the `with` ends or this process does, however it ends: a small guard process waits for that (see `Guard`).
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[2]


class NotAvailable(Exception):
    """The server's program is not to be had here; the text says why and what would help."""


def need(name: str) -> Path:
    found = subprocess.run([ROOT / "scripts/need", name], capture_output=True, text=True, check=False)
    if found.returncode:
        raise NotAvailable((found.stderr.strip().splitlines() or [f"scripts/need {name} ended {found.returncode}"])[-1])
    return Path(found.stdout.strip())


class Server:
    """A process with a port, a directory and a log, which can be stopped, killed and started again."""

    _end_signal: signal.Signals  # the gentle end
    _guard_signal: signal.Signals  # the quick end, when nobody is left to wait

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.dir = Path(tempfile.mkdtemp(prefix="kilonova-"))
        self._guard = Guard(self.dir, self._guard_signal)
        try:
            self._prepare()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._guard.close()  # which removes the directory

    def start(self) -> None:
        """Starts it, on the same port as before, and returns when it answers."""
        assert self._process is None, "it runs already"
        first = self.port == 0
        for _ in range(20):  # another process may take the port between our look and the server's
            self.port = self.port or free_port()
            if self._try_start():
                return
            if first:
                self.port = 0
            time.sleep(0.1)
        raise RuntimeError(f"{type(self).__name__} did not start:\n{self.log()[-3000:]}")

    def stop(self) -> None:
        self._end(self._end_signal)

    def kill9(self) -> None:
        """Crashes it: all its processes at once, without a last word."""
        self._end(signal.SIGKILL)

    def log(self) -> str:
        return (self.dir / "log").read_text(errors="replace") if (self.dir / "log").exists() else ""

    def _prepare(self) -> None:
        """Makes what must be there before the first start."""

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _answers(self, pid: int) -> bool:
        raise NotImplementedError

    def _identity(self) -> tuple[int, int] | None:
        """The user and group to run as, when not our own."""
        return None

    def _try_start(self) -> bool:
        process = self._spawn(self._command())
        self._guard.watch(process.pid)
        if wait_until(lambda: process.poll() is not None or self._answers(process.pid), 60) and process.poll() is None:
            self._process = process
            return True
        process.kill()
        process.wait()
        self._guard.watch(0)
        return False

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        user, group = self._identity() or (None, None)
        with open(self.dir / "log", "ab") as log:
            # A session of its own: Ctrl-C is for us, and we end the server afterwards.
            return subprocess.Popen(
                command,
                cwd=self.dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=user,
                group=group,
                extra_groups=None if user is None else [],
            )

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        family = children(process.pid)
        process.send_signal(number)
        if number == signal.SIGKILL:
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # PostgreSQL's own children may outlive it by a moment, and would keep the next start from the directory.
        wait_until(lambda: not any(alive(pid) for pid in family), 10)
        self._guard.watch(0)


class Postgres(Server):
    """A cluster of its own. With `fsync=False` it is several times faster and still keeps what it acknowledged when it
    is killed, since the kernel has it; only a crash of the machine would lose it."""

    _end_signal = signal.SIGINT  # "fast": open connections are closed
    _guard_signal = signal.SIGQUIT  # "immediate"
    user = "kilonova"

    def __init__(self, fsync: bool = True) -> None:
        super().__init__()
        self.bin = need("postgres")
        self.fsync = fsync

    @property
    def pid(self) -> int:
        """Of the server itself: its children are the connections."""
        return int((self.dir / "data/postmaster.pid").read_text().split()[0])

    def url(self, dbname: str = "postgres") -> str:
        return f"postgresql://{self.user}@127.0.0.1:{self.port}/{quote(dbname, safe='')}"

    @property
    def socket_url(self) -> str:
        return f"postgresql://{self.user}@/postgres?host={quote(str(self.dir), safe='')}&port={self.port}"

    def local_url(self, dbname: str) -> str:
        """By its socket file, which processes in other network namespaces reach too."""
        return f"postgresql://{self.user}@{quote(str(self.dir), safe='')}:{self.port}/{quote(dbname, safe='')}"

    def create_database(self, name: str, template: str = "template1") -> str:
        """Makes a database and gives its URL. From a `template` that has the tables already, it takes ~50 ms."""
        self.sql(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def drop(self, name: str) -> None:
        self.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def sql(self, statement: str, dbname: str = "postgres") -> str:
        """Through psql, so that it works with and without an event loop around it."""
        command = [str(self.bin / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", self.url(dbname), "-c", statement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{statement}: {done.stderr.strip()}")
        return done.stdout.strip()

    def _prepare(self) -> None:
        if identity := self._identity():
            os.chown(self.dir, *identity)
        command = [str(self.bin / "initdb"), "-D", str(self.dir / "data"), "-U", self.user, "--auth=trust"]
        if self._spawn([*command, "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]).wait():
            raise RuntimeError(f"initdb failed:\n{self.log()[-3000:]}")

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.dir,
            "fsync": "on" if self.fsync else "off",
            "synchronous_commit": "on",
            "full_page_writes": "on" if self.fsync else "off",
            "max_connections": 200,
            "log_min_messages": "fatal",
            "log_checkpoints": "off",
            "timezone": "UTC",
        }
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [str(self.bin / "postgres"), "-D", str(self.dir / "data"), *options]

    def _answers(self, pid: int) -> bool:
        """The server's own pid file says so; after a crash the file is the old one, with another pid."""
        with contextlib.suppress(OSError):
            lines = (self.dir / "data/postmaster.pid").read_text().splitlines()
            return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"
        return False

    def _identity(self) -> tuple[int, int] | None:
        """PostgreSQL refuses to run as root."""
        if os.geteuid() != 0:
            return None
        for name in ("postgres", "nobody"):
            with contextlib.suppress(KeyError):
                entry = pwd.getpwnam(name)
                return entry.pw_uid, entry.pw_gid
        raise NotAvailable(
            "not run: PostgreSQL refuses to run as root, and there is no user postgres or nobody; "
            "the command that would help: useradd --system postgres"
        )


class Nats(Server):
    """Core NATS only: nothing durable."""

    _end_signal = signal.SIGTERM
    _guard_signal = signal.SIGKILL

    def __init__(self) -> None:
        super().__init__()
        self.program = need("nats")

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        # The name tells our server from another one that took the port.
        return [str(self.program), "--addr", "127.0.0.1", "--port", str(self.port), "--name", self.dir.name]

    def _answers(self, pid: int) -> bool:
        with contextlib.suppress(OSError, ValueError):
            with (
                socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection,
                connection.makefile() as text,
            ):
                word, _, info = text.readline().partition(" ")
            return word == "INFO" and json.loads(info)["server_name"] == self.dir.name
        return False


class Guard:
    """Ends a server and removes its directory once our end of a pipe is closed: by us, or because we are gone.

    The kernel's parent-death signal would not do: it comes when the *thread* that started the server ends, and it
    leaves the directory behind.
    """

    _SCRIPT = """
        while read -r line; do pid=$line; done
        if [ "${pid:-0}" != 0 ]; then
          kill -s "$2" "$pid"
          for _ in $(seq 100); do kill -0 "$pid" || break; sleep 0.1; done
          kill -s KILL "$pid"
        fi 2>/dev/null
        rm -rf "$1"
    """

    def __init__(self, directory: Path, number: signal.Signals) -> None:
        command = ["sh", "-c", self._SCRIPT, "guard", str(directory), number.name.removeprefix("SIG")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._directory = directory

    def watch(self, pid: int) -> None:
        """This is the process to end; 0 for none."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"%d\n" % pid)
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def free_port() -> int:
    """A port below those that the kernel gives to outgoing connections, so that nobody takes it during a restart."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    top = min(low, 65536) if low > 12000 else 65536
    for port in random.SystemRandom().sample(range(10000, top), 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port on 127.0.0.1")


def children(pid: int) -> list[int]:
    """All processes below `pid`."""
    parents = {int(entry.name): _stat(entry.name)[1] for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    found = [pid]
    for above in found:
        found += [child for child, parent in parents.items() if parent == str(above)]
    return found[1:]


def alive(pid: int) -> bool:
    return _stat(pid)[0] not in "ZX"


def _stat(pid: int | str) -> list[str]:
    """State and parent of a process; the name before them may hold anything, also blanks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return ["X", ""]


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
