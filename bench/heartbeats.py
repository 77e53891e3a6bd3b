"""Thousands of simulated hosts in one process, heartbeating to one conductor on SQLite FULL: what standing still costs.

Usage: python -m bench.heartbeats [HOSTS]
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile

import uvloop

from bench.cloud import Cloud, cloud, sqlite_urls
from bench.engine import until_ready
from bench.measure import Stopwatch, resident_mb
from bench.report import Report, median, rounds
from kilonova.sim.lab.settings import SIMULATED
from kilonova.store.hosts import judge_all
from kilonova.world import Tx

HOSTS = 10_000
AT_ONCE = 64  # registrations under way; all at once would only wait in one queue
SETTLING = 15.0
WINDOW = 30.0
WINDOWS = 3
OPTIONS = SIMULATED.default


async def start_hosts(running: Cloud, count: int) -> None:
    """As many at a time as a room full of machines that is switched on rack by rack."""
    free = asyncio.Semaphore(AT_ONCE)

    async def start(host: str) -> None:
        async with free:
            agent = await running.start_agent(host)
            while not agent.welcomed and agent.refused is None:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.05)

    await asyncio.gather(*(start(f"host{number}") for number in range(1, count + 1)))
    await until_ready(running.stores.cell("cell1"), count)


async def hosts_up(running: Cloud) -> int:
    async def body(tx: Tx) -> int:
        return sum(state.status == "up" for state in (await judge_all(tx, OPTIONS.service_down_time)).values())

    return await running.stores.cell("cell1").read(body)


async def measure(directory: str, count: int) -> Report:
    logging.basicConfig(level=logging.WARNING)
    report = Report("heartbeats")
    async with cloud(sqlite_urls(directory)) as running:
        await running.start_conductor()
        before = resident_mb()
        watch = Stopwatch.start()
        await start_hosts(running, count)
        report.add("hosts", count, note=f"report_interval {OPTIONS.report_interval:g} s")
        report.add("registering them all", watch.wall, "s", f"CPU {watch.cpu:.1f} s")
        await asyncio.sleep(SETTLING)
        shares, heard = [], running.beats
        for _ in range(WINDOWS):
            watch = Stopwatch.start()
            await asyncio.sleep(WINDOW)
            shares.append(watch.cpu / watch.wall * 100)
        beats = (running.beats - heard) / (WINDOWS * WINDOW)
        report.at_most(
            "CPU while they heartbeat", median(shares), "% of a core", 15.0, f"{rounds(shares, 1)}, {WINDOW:g} s each"
        )
        report.at_least("heartbeats per second", beats, "1/s", count / OPTIONS.report_interval * 0.95)
        report.add("CPU per heartbeat", median(shares) * 10_000 / beats, "µs", "with everything that stands behind it")
        report.exactly("hosts up at the end, by the database", await hosts_up(running), count)
        report.add("memory", resident_mb(), "MB", f"{(resident_mb() - before) / count * 1000:.0f} kB per host")
    return report


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else HOSTS
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as directory:
        return uvloop.run(measure(directory, count)).finish()


if __name__ == "__main__":
    sys.exit(main())
