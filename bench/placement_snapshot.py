"""What asking for allocation candidates costs: inside the snapshot at 100,000 providers, and over HTTP below that."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import tempfile
import tracemalloc
from pathlib import Path

import uvloop

from bench.http import Client, Connection
from bench.measure import Stopwatch, cpu_of
from bench.providers import AGGREGATES_EACH, TRAITS_EACH, fill, uuid_of
from bench.report import Report, median, rounds
from kilonova.placement.candidates import CandidateQuery, Group, Options, find
from kilonova.placement.snapshot import PlacementSnapshot
from kilonova.runtime import SystemClock
from kilonova.store.open_stores import open_store
from kilonova.world import Store
from tests.support.program import Role
from tests.support.servers import free_port

MANY = 100_000
ROUNDS = 5
QUERIES = 200
REQUESTS = {10: 400, 1000: 40}  # by limit
LIMITS = {1_000: {10: 2.7, 1000: 12.0}, 10_000: {10: 4.0, 1000: 19.0}}  # ms, by providers and limit
WANTED = {"VCPU": 4, "MEMORY_MB": 8192, "DISK_GB": 100}
REQUIRED = ("COMPUTE_NODE", "CUSTOM_GOLD")
KILOBYTE = 1024


def query(limit: int | None = 10, resources: dict[str, int] | None = None) -> CandidateQuery:
    group = Group(
        resources=resources or WANTED,
        required=tuple(frozenset([name]) for name in REQUIRED),
        member_of=(frozenset([uuid_of(7, "a")]),),
    )
    return CandidateQuery(groups=(group,), limit=limit)


async def filled(folder: Path, count: int) -> Store:
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240 - nobody else waits here
    store = await open_store("placement", f"sqlite:///{folder}/placement.db", clock=SystemClock(), upgrading=True)
    await fill(store, count)
    return store


# -- in this process --------------------------------------------------------------------------------------------------


async def inside(folder: Path, report: Report) -> None:
    store = await filled(folder, MANY)
    try:
        snapshot = PlacementSnapshot()
        watch = Stopwatch.start()
        await snapshot.sync(store)
        report.add(
            "providers in the snapshot", len(snapshot), note=f"{TRAITS_EACH} traits, {AGGREGATES_EACH} aggregates"
        )
        report.add("first load, CPU", watch.cpu, "s")
        watch = Stopwatch.start()
        for _ in range(QUERIES):
            await snapshot.sync(store)
        report.add("a sync when nothing has changed, CPU", watch.cpu / QUERIES * 1000, "ms")
        tell_queries(snapshot, report)
        del snapshot
        report.at_most("memory per provider", await memory(store) / MANY, "bytes", KILOBYTE)
    finally:
        await store.close()


def tell_queries(snapshot: PlacementSnapshot, report: Report) -> None:
    found = len(find(snapshot, query(None), Options(), random.Random()).candidates)
    report.add("candidates in all", found)
    title = "resources, two traits, one member_of"
    cpu = [cost(snapshot, query()) for _ in range(ROUNDS)]
    report.at_most(f"{title}, limit=10: CPU", median(cpu), "ms", 2.0, rounds(cpu))
    nothing = query(resources={"VCPU": 4, "MEMORY_MB": 524288})
    assert not find(snapshot, nothing, Options(), random.Random()).candidates
    cpu = [cost(snapshot, nothing) for _ in range(ROUNDS)]
    report.at_most("the same where nothing fits: CPU", median(cpu), "ms", 2.0, rounds(cpu))
    plain = CandidateQuery(groups=(Group(resources=WANTED),), limit=10)
    cpu = [cost(snapshot, plain) for _ in range(ROUNDS)]
    report.add("resources only, limit=10: CPU", median(cpu), "ms", rounds(cpu))


def cost(snapshot: PlacementSnapshot, asked: CandidateQuery) -> float:
    chance, watch = random.Random(), Stopwatch.start()
    for _ in range(QUERIES):
        find(snapshot, asked, Options(), chance)
    return watch.cpu / QUERIES * 1000


async def memory(store: Store) -> int:
    """Bytes that a snapshot keeps once it is loaded; numpy tells tracemalloc of its arrays."""
    gc.collect()
    tracemalloc.start()
    snapshot = PlacementSnapshot()
    await snapshot.sync(store)
    _ = snapshot.trees
    await asyncio.sleep(0)  # the loop lets go of what it has read
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept


# -- over HTTP --------------------------------------------------------------------------------------------------------


async def over_http(folder: Path, count: int, report: Report) -> None:
    await (await filled(folder, count)).close()
    port = free_port()
    with Role("placement", "--data", folder, "--listen", f"127.0.0.1:{port}", "--auth", "noauth2") as role:
        async with Client(port, "admin").connections(1) as (connection,):
            for limit, target in LIMITS[count].items():
                cpu = [await request_cost(role, connection, port, limit) for _ in range(ROUNDS)]
                figure = f"{count:,} providers, limit={limit}: CPU of a request"
                report.at_most(figure, median(cpu), "ms", target, rounds(cpu))


async def request_cost(role: Role, connection: Connection, port: int, limit: int) -> float:
    wanted = ",".join(f"{name}:{amount}" for name, amount in WANTED.items())
    path = f"/allocation_candidates?resources={wanted}&required=COMPUTE_NODE&limit={limit}"
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "X-Auth-Token: admin", "Accept: application/json"]
    request = "\r\n".join([*lines, "OpenStack-API-Version: placement 1.36", "", ""]).encode()
    answer = await connection.ask(request)
    shown = len(answer.json["allocation_requests"])
    assert answer.status == 200 and shown > 0.5 * limit, (answer.status, shown)
    before = cpu_of(role.process.pid)
    for _ in range(REQUESTS[limit]):
        await connection.ask(request)
    return (cpu_of(role.process.pid) - before) / REQUESTS[limit] * 1000


async def measure(report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch:
        for count in LIMITS:
            await over_http(Path(scratch) / str(count), count, report)
        await inside(Path(scratch) / "many", report)


def main() -> int:
    report = Report("placement_snapshot")
    uvloop.run(measure(report))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
