"""Servers created through REST until they are ACTIVE, in an empty cloud and in ones that have many already.

Sixteen callers; each asks for a server and asks for the next one when that is ACTIVE. When it is, they see in the
cell's own file, which costs the server nothing: what is measured is creating, not asking again and again.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench import callers, seed
from bench.books import differences, states
from bench.callers import CALLERS, measured
from bench.http import Connection
from bench.measure import cpu_of, resident_mb
from bench.report import Report, median, rounds
from bench.served import NETWORK, Tenant, served, tenant
from tests.support.program import Cloud

WARM_UP = 200
SERVERS = 1000  # per round
ROUNDS = 3
CLOUDS = ((40, 10_000), (400, 100_000))  # hosts, and servers in the end: 250 on a host
MOST_MS = {40: 8.0, 400: 12.0}  # of CPU per create, by hosts
LOOK_SECONDS = 0.005
PATIENCE = 60.0
FLAT = 1.25  # on a machine that others use too
_SETTLED = "SELECT id, vm_state FROM servers WHERE task_state IS NULL AND id IN (SELECT value FROM json_each(?))"
_LIVE = "SELECT count(*) FROM operations WHERE live = 1"


@dataclass
class Round(callers.Round):
    latency: float  # seconds, of the one in the middle


@dataclass
class Phase:
    """Rounds in a cloud that had so many servers before."""

    before: int
    rounds: list[Round]
    memory: float
    shown: int  # servers that REST shows as ACTIVE with one address

    @property
    def cpu_ms(self) -> float:
        return median([one.cpu_ms for one in self.rounds])


class Watch:
    """The states of servers, by the files of the running cloud."""

    def __init__(self, data: Path) -> None:
        self._control = sqlite3.connect(f"file:{data}/control.db?mode=ro", uri=True, isolation_level=None)
        self._cell = sqlite3.connect(f"file:{data}/cell1.db?mode=ro", uri=True, isolation_level=None)
        self._waiting: dict[str, tuple[str, asyncio.Future[None]]] = {}

    async def until(self, server: str, state: str = "active") -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting[server] = state, future
        await future

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            ids = '["' + '","'.join(self._waiting) + '"]'
            for server, found in self._cell.execute(_SETTLED, (ids,)):
                state, future = self._waiting[server]
                if found == "error":
                    raise RuntimeError(f"server {server} is in ERROR, not {state}")
                if found == state:
                    self._waiting.pop(server)
                    future.set_result(None)

    async def until_idle(self) -> None:
        """No operation is live any more, in either journal."""
        async with asyncio.timeout(PATIENCE):
            while any(db.execute(_LIVE).fetchone()[0] for db in (self._control, self._cell)):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)

    def close(self) -> None:
        self._control.close()
        self._cell.close()


def creating(
    owner: Tenant, watch: callers.Watch, took: dict[str, float]
) -> Callable[[Connection, int], Awaitable[None]]:
    """The work of a caller: one create until ACTIVE. `took` gets the server with its seconds."""

    async def create(connection: Connection, number: int) -> None:
        request = owner.client.request("POST", "/compute/v2.1/servers", owner.server_body(f"bench-{number}"))
        began = time.perf_counter()
        answer = await connection.ask(request)
        if answer.status != 202:
            raise RuntimeError(f"POST /servers: {answer.status} {answer.body.decode()}")
        server = answer.json["server"]["id"]
        await watch.until(server)
        took[server] = time.perf_counter() - began

    return create


async def one_round(cloud: Cloud, owner: Tenant, count: int) -> Round:
    took: dict[str, float] = {}
    with contextlib.closing(Watch(cloud.data)) as watch:
        work = creating(owner, watch, took)
        done = await measured(owner.client, watch, lambda: cpu_of(cloud.process.pid), range(count), work)
    return Round(done.cpu_ms, done.per_second, done.wall, median(list(took.values())))


async def active_shown(owner: Tenant) -> int:
    """As the owner sees it: page after page, until there is no next one."""
    count, marker = 0, ""
    async with owner.client.connections(1) as (connection,):
        while True:
            path = f"/compute/v2.1/servers/detail?limit=1000{marker}"
            page = (await connection.ask(owner.client.request("GET", path))).json["servers"]
            if not page:
                return count
            count += sum(one["status"] == "ACTIVE" and len(one["addresses"].get(NETWORK, ())) == 1 for one in page)
            marker = f"&marker={page[-1]['id']}"


async def phase(cloud: Cloud) -> Phase:
    owner = tenant(cloud)
    await one_round(cloud, owner, WARM_UP)
    done = [await one_round(cloud, owner, SERVERS) for _ in range(ROUNDS)]
    memory = resident_mb(cloud.process.pid)
    shown = await active_shown(owner)
    return Phase(shown - WARM_UP - ROUNDS * SERVERS, done, memory, shown)


def tell(report: Report, title: str, hosts: int, found: Phase) -> None:
    cpu, speed = [one.cpu_ms for one in found.rounds], [one.per_second for one in found.rounds]
    report.at_most(f"{title}: CPU per create", found.cpu_ms, "ms", MOST_MS[hosts], rounds(cpu, 1))
    report.at_least(f"{title}: creates per second", median(speed), "1/s", 60, rounds(speed, 0))
    report.add(f"{title}: until ACTIVE", median([one.latency for one in found.rounds]), "s")
    report.add(f"{title}: memory", found.memory, "MB")


def measure(report: Report, data: Path, hosts: int, full: int) -> None:
    """In a cloud of so many hosts, first empty, then with so many servers."""
    made = WARM_UP + ROUNDS * SERVERS
    with served(data, hosts) as cloud:
        empty = uvloop.run(phase(cloud))
    tell(report, f"{hosts} hosts", hosts, empty)
    report.exactly(f"{hosts} hosts: servers ACTIVE with an address, by REST", empty.shown, made)
    check(report, data, f"{hosts} hosts", made)
    seed.fill(data, full - made)
    title = f"{hosts} hosts, {full:,} servers"
    check(report, data, f"{title}, seeded", full)
    with served(data, hosts) as cloud:
        found = uvloop.run(phase(cloud))
    tell(report, title, hosts, found)
    report.at_most(f"{title}: cost per create, full to empty", found.cpu_ms / empty.cpu_ms, "", FLAT, "but for noise")
    check(report, data, f"{title} and more", full + made)


def check(report: Report, data: Path, when: str, count: int) -> None:
    """By the files of the stopped cloud: every server ACTIVE, every port bound, every allocation exact."""
    report.exactly(f"{when}: servers", str(dict(states(data))), str({"active": count}))
    wrong = differences(data)
    report.exactly(f"{when}: differences in the books", len(wrong), 0, note="; ".join(wrong[:3]))


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch:
        report = Report("api_create")
        report.add("callers at a time", CALLERS)
        report.add("creates per round", SERVERS, note="a network each")
        for hosts, full in CLOUDS:
            measure(report, Path(scratch) / str(hosts), hosts, full)
        return report.finish()


if __name__ == "__main__":
    sys.exit(main())
