"""A side of the comparison: where it answers, and what it has cost so far."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.measure import cpu_of, resident_mb
from kilonova.store.upgrade import upgrade_blocking
from tests.support.program import KILONOVA
from tests.support.servers import Postgres

PATIENCE = 60.0


@dataclass(frozen=True)
class Side:
    name: str
    port: int
    server_cpu: Callable[[], float]  # seconds
    database_cpu: Callable[[], float]
    database: tuple[str, Postgres] | None = None
    memory: Callable[[], float] = lambda: 0.0

    def cpu(self) -> float:
        return self.server_cpu() + self.database_cpu()


@contextlib.contextmanager
def ours(postgres: Postgres | None) -> Iterator[Side]:
    """`kilonova placement`, on SQLite or on that PostgreSQL."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch, contextlib.ExitStack() as opened:
        command = [str(KILONOVA), "placement", "--data", f"{scratch}/var", "--listen", f"127.0.0.1:{port}"]
        command += ["--auth", "noauth2", "--profile", "default"]
        if postgres is not None:
            url = postgres.create_database("ours")
            upgrade_blocking(url, "placement")
            command += ["--set", f"database.placement={url}"]
        log = opened.enter_context(open(Path(scratch) / "log", "wb"))
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            until_answers(port, process, Path(scratch) / "log")
            yield Side(
                "ours on SQLite" if postgres is None else "ours on PostgreSQL",
                port,
                lambda: cpu_of(process.pid),
                lambda: 0.0 if postgres is None else cpu_of(postgres.pid),
                memory=lambda: resident_mb(process.pid),
            )
        finally:
            process.terminate()
            process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def until_answers(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + PATIENCE
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).read()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > ends:
                sys.exit(f"it does not answer:\n{log.read_text()[-3000:]}")
            time.sleep(0.05)
