"""Servers created through REST until they are ACTIVE, over 10,000 hosts that all send their heartbeats meanwhile."""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from pathlib import Path

import uvloop

from bench.api_create import ROUNDS, SERVERS, WARM_UP, Phase, check, phase
from bench.report import Report, median, rounds
from bench.served import served

HOSTS = 10_000
_USED = "SELECT count(DISTINCT host) FROM servers WHERE host IS NOT NULL"


def used_hosts(data: Path) -> int:
    with sqlite3.connect(data / "cell1.db") as cell:
        found: tuple[int] = cell.execute(_USED).fetchone()
    return found[0]


def tell(report: Report, found: Phase) -> None:
    cpu, speed = [one.cpu_ms for one in found.rounds], [one.per_second for one in found.rounds]
    report.at_least("creates per second", median(speed), "1/s", 50, rounds(speed, 0))
    report.add("CPU per create, heartbeats included", median(cpu), "ms", rounds(cpu, 1))
    report.add("until ACTIVE", median([one.latency for one in found.rounds]), "s")
    report.add("memory", found.memory, "MB", "simulated hosts and their agents included")


def main() -> int:
    report = Report("many_hosts")
    report.add("hosts", HOSTS)
    report.add("creates per round", SERVERS)
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch:
        data = Path(scratch) / "var"
        with served(data, HOSTS, room={}) as cloud:
            found = uvloop.run(phase(cloud))
        tell(report, found)
        check(report, data, "at the end", WARM_UP + ROUNDS * SERVERS)
        report.add("hosts that have a server", used_hosts(data))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
