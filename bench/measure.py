"""CPU, memory and fsyncs of processes, from the kernel."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers import children

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Stopwatch:
    """CPU (user and system, all threads of this process) and wall time since it was made."""

    cpu_at: float
    wall_at: float

    @classmethod
    def start(cls) -> Stopwatch:
        return cls(time.process_time(), time.perf_counter())

    @property
    def cpu(self) -> float:
        return time.process_time() - self.cpu_at

    @property
    def wall(self) -> float:
        return time.perf_counter() - self.wall_at


def cpu_of(pid: int) -> float:
    """CPU seconds of a process, of all below it, and of those below it that have ended."""
    total = _ticks(pid, with_ended=True)
    total += sum(_ticks(child, with_ended=True) for child in children(pid))
    return total / TICK


def _ticks(pid: int, *, with_ended: bool) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(int(field) for field in fields[11 : 15 if with_ended else 13])


def resident_mb(pid: int | str = "self") -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6


def count_fsyncs(module: str, *arguments: str) -> tuple[dict[str, float] | None, str]:
    """Runs `python -m MODULE ARGUMENTS…` under strace. It prints, as one line of JSON, `begin` and `end` (seconds since
    the epoch) and what else it counted; that comes back with `fsyncs` between the two, or None and the reason."""
    strace = shutil.which("strace") or _install_strace()
    if strace is None:
        return None, "not counted: no strace here; the command that would help: apt-get install strace"
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch:
        log = Path(scratch) / "fsyncs"
        trace = [strace, "-f", "-ttt", "-e", "trace=fsync,fdatasync", "--seccomp-bpf", "-o", str(log)]
        command = [*trace, sys.executable, "-m", module, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            return None, f"not counted: {(done.stderr.strip().splitlines() or ['strace gave nothing'])[-1]}"
        calls = [float(at) for at in re.findall(r"^\d+ +(\d+\.\d+) f(?:data)?sync\(", log.read_text(), re.MULTILINE)]
    return {**found, "fsyncs": sum(found["begin"] <= at <= found["end"] for at in calls)}, ""


def _install_strace() -> str | None:
    if os.geteuid() == 0 and shutil.which("apt-get"):
        command = ["apt-get", "-qq", "-y", "--no-install-recommends", "install", "strace"]
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(command, env=quiet, capture_output=True, check=False)
    return shutil.which("strace")
