"""What one placement decision costs: default filters, all hosts up and partly full, host columns kept between requests.

Counted is a whole question to the scheduler: its looks for news in placement and aggregates (there are none), filters,
weighers, and the verdicts that are kept. Loading, reading hosts again every second, and what it costs to count servers
that were promised a host and have not claimed it, are told apart.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import msgspec
import uvloop

from bench.measure import Stopwatch
from bench.providers import OFFERS, fill, uuid_of
from bench.report import Report, median, rounds
from kilonova.domain.server import Flavor
from kilonova.runtime import SystemClock
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.service import Scheduler
from kilonova.schema.tables.cell import hosts
from kilonova.settings import Default, Settings
from kilonova.store.open_stores import OpenStores, open_stores
from kilonova.store.statements import Sql, insert_row
from kilonova.world import Tx

LIMITS = {10_000: 3.0, 100_000: 20.0}  # ms of CPU for one decision
ROUNDS, DECISIONS = 5, 40
PROMISED = 50  # servers that are between their decision and their claim
NAMES = ("control", "placement", "cell0", "cell1")
SETTINGS = Settings(default=Default(service_down_time=3600.0))
REQUEST = ResourceRequest(flavor=Flavor(name="m1.large", vcpus=4, memory_mb=8192, disk_gb=80), project="lab")
NOTHING = ResourceRequest(flavor=Flavor(name="huge", vcpus=1, memory_mb=2 * OFFERS["MEMORY_MB"], disk_gb=1))


class Still:
    """Time stands still, so that hosts are read again only when the bench says so."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


async def cloud(folder: Path, count: int) -> OpenStores:
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240 - nobody else waits here
    urls = {name: f"sqlite:///{folder}/{name}.db" for name in NAMES}
    stores = await open_stores(urls, clock=SystemClock(), upgrading=True)
    await fill(stores.placement, count)
    statement = Sql(insert_row(hosts))

    async def body(tx: Tx) -> None:
        now = await tx.now()
        await tx.many(statement, [_host(number, now) for number in range(1, count + 1)])

    await stores.cell("cell1").write(body)
    return stores


def _host(number: int, now: float) -> dict[str, object]:
    flags = {
        "disabled": 0,
        "forced_down": 0,
        "draining": 0,
        "returning": 0,
        "epoch": 1,
        "failed_builds": 0,
        "registration": 0,
    }
    empty = dict.fromkeys(("disabled_reason", "fenced", "address", "storage", "hypervisor", "session", "session_since"))
    name = f"compute-{number:06}.example"
    ids = {"name": name, "id": uuid_of(number, "c"), "provider_id": uuid_of(number), "identity": name}
    return ids | flags | empty | {"last_seen": now, "created_at": now, "reported_at": now - 3600}


async def decisions(scheduler: Scheduler, request: ResourceRequest, *, fits: bool, count: int) -> list[float]:
    costs = []
    for _ in range(ROUNDS):
        watch = Stopwatch.start()
        for _ in range(count):
            placing = await scheduler.place(request, ["cell1"])
            assert (placing.decision.chosen is not None) == fits, placing.decision.sentence()
        costs.append(watch.cpu / count * 1000)
    return costs


async def measure(report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch:
        for count, limit in LIMITS.items():
            stores = await cloud(Path(scratch) / str(count), count)
            try:
                await tell(stores, report, count, limit)
            finally:
                await stores.close()


async def tell(stores: OpenStores, report: Report, count: int, limit: float) -> None:
    clock = Still()
    scheduler = Scheduler(stores, clock, random.Random(1), SETTINGS)
    watch = Stopwatch.start()
    first = await scheduler.place(REQUEST, ["cell1"])
    report.add(f"{count:,} hosts: first question, with loading, CPU", watch.cpu, "s")
    report.add(f"{count:,} hosts: fitting", first.decision.fitting)
    cpu = await decisions(scheduler, REQUEST, fits=True, count=DECISIONS)
    report.at_most(f"{count:,} hosts: one decision, CPU", median(cpu), "ms", limit, rounds(cpu))
    watch = Stopwatch.start()
    for _ in range(ROUNDS):
        clock.at += 10
        await scheduler.place(REQUEST, ["cell1"])
    report.add(f"{count:,} hosts: one that reads the hosts' news first, CPU", watch.cpu / ROUNDS * 1000, "ms")
    for number in range(PROMISED):
        await scheduler.place(msgspec.structs.replace(REQUEST, server=f"s{number}"), ["cell1"])
    cpu = await decisions(scheduler, REQUEST, fits=True, count=DECISIONS)
    what = f"{count:,} hosts: one decision with {PROMISED} promises outstanding, CPU"
    report.at_most(what, median(cpu), "ms", limit, rounds(cpu))
    cpu = await decisions(scheduler, NOTHING, fits=False, count=4)
    report.add(f"{count:,} hosts: a refusal, hosts read again, CPU", median(cpu), "ms", rounds(cpu))


def main() -> int:
    report = Report("scheduler")
    uvloop.run(measure(report))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
