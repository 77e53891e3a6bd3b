"""`kilonova serve` with three hosts and nothing to do: its CPU, its memory, and how long it takes until it is ready."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from bench.measure import cpu_of, resident_mb
from bench.report import Report, median, rounds
from tests.support.servers import ROOT, children, free_port

PROGRAM = ROOT / ".venv/bin/kilonova"
HOSTS = 3
SETTLING = 10.0
WINDOW = 30.0
WINDOWS = 2
STARTS = 3
PATIENCE = 60.0


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[tuple[int, float]]:
    """The process, and the seconds until /readyz said 200."""
    port = free_port()
    command = [str(PROGRAM), "serve", "--data", str(directory), "--listen", f"127.0.0.1:{port}", "--hosts", str(HOSTS)]
    with open(directory.parent / "log", "ab") as log:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_ready(process, f"http://127.0.0.1:{port}/readyz", directory.parent / "log")
        yield process.pid, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait(30)


def wait_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.01)
    raise RuntimeError(f"kilonova serve was not ready within {PATIENCE:g} s:\n{log.read_text()[-2000:]}")


def syncs_per_second(pid: int) -> float | None:
    """How often it waits for the disk; None where strace is missing or may not look."""
    tracer = shutil.which("strace")
    if tracer is None:
        return None
    command = [tracer, "-f", "-qq", "-e", "trace=fdatasync,fsync", "-p", str(pid)]
    tracing = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    time.sleep(WINDOW)
    tracing.terminate()
    lines = tracing.communicate()[1].splitlines()
    if any("denied" in line or "not permitted" in line for line in lines):
        return None
    return sum("sync(" in line for line in lines) / WINDOW


def resident_of_all(pid: int) -> float:
    return sum(resident_mb(each) for each in (pid, *children(pid)))


def measure(scratch: Path) -> Report:
    report = Report("idle")
    shares, memory, syncs = [], 0.0, None
    fresh, again = [], []
    for number in range(STARTS):
        with serving(scratch / f"data{number}") as (_, seconds):
            fresh.append(seconds)
        with serving(scratch / f"data{number}") as (pid, seconds):
            again.append(seconds)
            if number == STARTS - 1:
                time.sleep(SETTLING)
                for _ in range(WINDOWS):
                    cpu, at = cpu_of(pid), time.perf_counter()
                    time.sleep(WINDOW)
                    shares.append((cpu_of(pid) - cpu) / (time.perf_counter() - at) * 100)
                memory = resident_of_all(pid)
                syncs = syncs_per_second(pid)
    report.add("hosts", HOSTS)
    report.at_most("CPU while idle", median(shares), "% of a core", 1.0, f"{rounds(shares)}, {WINDOW:g} s each")
    report.at_most("memory", memory, "MB", 150.0)
    if syncs is not None:
        report.at_most("fdatasync while idle", syncs, "per second", 1.0, f"by strace, {WINDOW:g} s")
    report.at_most("ready, from an empty directory", median(fresh), "s", 7.0, rounds(fresh))
    report.at_most("ready, from an existing one", median(again), "s", 4.0, rounds(again))
    return report


def main() -> int:
    if not PROGRAM.exists() or not (ROOT / "kilonova/roles/serve.py").exists():
        report = Report("idle")
        report.not_run("there is no `kilonova serve` yet")
        return report.finish()
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch:
        return measure(Path(scratch)).finish()


if __name__ == "__main__":
    sys.exit(main())
