"""Servers evacuated and rebuilt through REST until they are ACTIVE, beside servers that are created in the same run.

A round creates servers, rebuilds them with another image, and switches off the hosts of some of them, which are then
evacuated. Ratios are taken within a round, so that they hold on a machine that others use too. CPU is that of
everything: in the fleet the database and the broker are counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import uvloop

from bench import api_create, fleet_create
from bench.api_create import check
from bench.callers import CALLERS, Watch, measured
from bench.fleet_create import Fleet
from bench.http import Client, Connection
from bench.measure import cpu_of
from bench.report import Report, median, rounds
from bench.served import Reached, Tenant, served, tenant
from tests.support.program import Cloud
from tests.support.servers import Nats, NotAvailable, Postgres

HOSTS = 20
SERVERS = {"one process": 300, "fleet": 90}  # created per round
WARM_UP = 60
ROUNDS = 3
EVACUATE_RATIO, REBUILD_RATIO, LEAST_EVACUATIONS = 1.2, 0.8, 50.0
PATIENCE = 300.0


@dataclass
class Bed:
    """A running cloud: how a server is seen to be ACTIVE, and how the cloud's CPU seconds are counted."""

    cloud: Reached
    watch: Callable[[], contextlib.AbstractAsyncContextManager[tuple[Watch, Callable[[], float]]]]
    owner: Tenant = field(init=False)

    def __post_init__(self) -> None:
        self.owner = tenant(self.cloud)
        images = self.cloud.http.ask("GET", "/image/v2/images?name=cirros-sim-alt").json["images"]
        self.other_image = images[0]["id"]

    @property
    def admin(self) -> Client:
        return Client(self.cloud.port, self.cloud.http.token)

    def hosts(self) -> list[str]:
        return [host["name"] for host in self.cloud.http.get("/hosts")["hosts"]]


@dataclass
class Figures:
    """Milliseconds of CPU each, and how many per second, one of a round."""

    cpu_ms: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)


async def load(bed: Bed, client: Client, requests: Sequence[bytes], figures: Figures) -> list[str]:
    """All requests, CALLERS at a time, each until its server is ACTIVE. Returns the servers."""
    done: list[str] = []
    async with bed.watch() as (watch, cpu):

        async def work(connection: Connection, request: bytes) -> None:
            answer = await connection.ask(request)
            if answer.status not in (200, 202):
                raise RuntimeError(f"{request[:80].decode()}: {answer.status} {answer.body.decode()}")
            is_action = b"/action" in request
            server = request.split(b"/servers/")[1][:36].decode() if is_action else answer.json["server"]["id"]
            await watch.until(server)
            done.append(server)

        found = await measured(client, watch, cpu, requests, work)
    figures.cpu_ms.append(found.cpu_ms)
    figures.per_second.append(found.per_second)
    return done


def actions(client: Client, servers: Sequence[str], action: dict[str, Any]) -> list[bytes]:
    return [client.request("POST", f"/compute/v2.1/servers/{one}/action", action) for one in servers]


async def one_round(bed: Bed, count: int, number: int, found: dict[str, Figures]) -> None:
    owner = bed.owner
    creates = [owner.client.request("POST", "/compute/v2.1/servers", owner.server_body(f"e-{n}")) for n in range(count)]
    servers = await load(bed, owner.client, creates, found["create"])
    rebuild = {"rebuild": {"imageRef": bed.other_image}}
    await load(bed, owner.client, actions(owner.client, servers, rebuild), found["rebuild"])
    hosts = bed.hosts()
    dead = hosts[number % 2 :: 2] if len(hosts) > 3 else [hosts[number % len(hosts)]]
    stranded = await asyncio.to_thread(_switch_off, bed, dead)
    await load(bed, bed.admin, actions(bed.admin, stranded, {"evacuate": {}}), found["evacuate"])
    await asyncio.to_thread(_switch_on, bed, dead)


def _switch_off(bed: Bed, hosts: Sequence[str]) -> list[str]:
    """The servers that are there."""
    http = bed.cloud.http
    servers = [
        one["id"]
        for host in hosts
        for one in http.ask("GET", f"/compute/v2.1/servers?all_tenants=1&host={host}").json["servers"]
    ]
    for host in hosts:
        http.post(f"/simulated/hosts/{host}", {"power": "off"})
        http.post(f"/hosts/{host}", {"forced_down": True})
    return servers


def _switch_on(bed: Bed, hosts: Sequence[str]) -> None:
    """Until the old copies are removed. The next round measures nothing of it."""
    http, ends = bed.cloud.http, time.monotonic() + PATIENCE
    for host in hosts:
        http.post(f"/simulated/hosts/{host}", {"power": "on"})
    for host in hosts:
        while http.get(f"/hosts/{host}")["host"]["state"] != "up":
            http.ask("POST", f"/kilonova/v1/hosts/{host}", {"forced_down": False})  # refused while it owes something
            if time.monotonic() > ends:
                raise RuntimeError(f"{host} did not come back: {http.get(f'/hosts/{host}')}")
            time.sleep(0.1)


async def all_rounds(bed: Bed, count: int) -> dict[str, Figures]:
    warm: dict[str, Figures] = {name: Figures() for name in ("create", "rebuild", "evacuate")}
    await one_round(bed, WARM_UP, 0, warm)
    found: dict[str, Figures] = {name: Figures() for name in warm}
    for number in range(ROUNDS):
        await one_round(bed, count, number + 1, found)
    return found


# -- where ----------------------------------------------------------------------------------------------------------


def in_one_process(cloud: Cloud) -> Bed:
    @contextlib.asynccontextmanager
    async def watch() -> AsyncIterator[tuple[Watch, Callable[[], float]]]:
        looking = api_create.Watch(cloud.data)
        try:
            yield looking, lambda: cpu_of(cloud.process.pid)
        finally:
            looking.close()

    return Bed(cloud, watch)


def in_the_fleet(fleet: Fleet) -> Bed:
    @contextlib.asynccontextmanager
    async def watch() -> AsyncIterator[tuple[Watch, Callable[[], float]]]:
        database = await asyncpg.connect(fleet.database)
        looking = fleet_create.Watch(database)
        try:
            yield looking, lambda: fleet.cpu() - cpu_of(looking.pid)
        finally:
            await database.close()

    return Bed(fleet, watch)


def tell(report: Report, where: str, found: dict[str, Figures], *, targets: bool) -> None:
    for name, figures in found.items():
        report.add(f"{where}: CPU per {name}", median(figures.cpu_ms), "ms", rounds(figures.cpu_ms, 1))
    for name, limit in (("evacuate", EVACUATE_RATIO), ("rebuild", REBUILD_RATIO)):
        pairs = zip(found[name].cpu_ms, found["create"].cpu_ms, strict=True)
        ratios = [one / create for one, create in pairs]
        figure, value = f"{where}: {name} to create", median(ratios)
        if targets:
            report.at_most(figure, value, "", limit, rounds(ratios))
        else:
            report.add(figure, value, "", rounds(ratios))
    speed = found["evacuate"].per_second
    figure = f"{where}: evacuations per second"
    if targets:
        report.at_least(figure, median(speed), "1/s", LEAST_EVACUATIONS, rounds(speed, 0))
    else:
        report.add(figure, median(speed), "1/s", rounds(speed, 0))


def fleet_figures(scratch: Path) -> dict[str, Figures]:
    with Postgres() as postgres, Nats() as nats:
        fleet = Fleet(scratch, postgres, nats)
        try:
            fleet.start(scratch)
            return uvloop.run(all_rounds(in_the_fleet(fleet), SERVERS["fleet"]))
        finally:
            fleet.stop()


def main() -> int:
    report = Report("evacuate")
    report.add("callers at a time", CALLERS)
    with tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch:
        data = Path(scratch) / "one"
        with served(data, HOSTS) as cloud:
            found = uvloop.run(all_rounds(in_one_process(cloud), SERVERS["one process"]))
        tell(report, "one process", found, targets=True)
        check(report, data, "one process", WARM_UP + ROUNDS * SERVERS["one process"])
        try:
            tell(report, "fleet", fleet_figures(Path(scratch)), targets=False)
        except NotAvailable as why:
            report.not_run(str(why))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
