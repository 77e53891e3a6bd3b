"""Servers created in a fleet until they are ACTIVE: an api, two conductors and three agents on PostgreSQL and NATS.

CPU is that of all these processes together, the database and the broker included. The same load is given to a cloud in
one process in the same run, so that the ratio of the two holds on a slow machine too.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from pathlib import Path

import asyncpg
import uvloop

from bench import api_create
from bench.callers import CALLERS, Round, measured
from bench.measure import cpu_of
from bench.report import Report, median, rounds
from bench.served import ROOM, Tenant, served, tenant
from kilonova.runtime import new_key
from tests.support.program import Cloud, Http, Role, kilonova
from tests.support.servers import Nats, NotAvailable, Postgres, free_port

WARM_UP = 100
SERVERS = 300  # per round
ROUNDS = 3
HOSTS = ("host1", "host2", "host3")
LOOK_SECONDS = 0.02
PATIENCE = 300.0
MOST_MS, MOST_RATIO = 45.0, 8.0
_SETTLED = "SELECT id, vm_state FROM cell1.servers WHERE task_state IS NULL AND id = ANY($1)"
_LIVE = (
    "SELECT (SELECT count(*) FROM control.operations WHERE live = 1)"
    " + (SELECT count(*) FROM cell1.operations WHERE live = 1)"
)

CONFIGURATION = """
[simulated]
vcpus = {vcpus}
memory_mb = {memory_mb}
disk_gb = {disk_gb}
[bus]
url = "{nats}"
[secrets]
key_file = "{key}"
[database]
control = "{database}?schema=control"
placement = "{database}?schema=placement"
[database.cells]
cell0 = "{database}?schema=cell0"
cell1 = "{database}?schema=cell1"
"""


class Fleet:
    """The processes of a fleet, as an operator starts them."""

    def __init__(self, scratch: Path, postgres: Postgres, nats: Nats) -> None:
        self.database = postgres.create_database("fleet")
        self.port = free_port()
        self.data = scratch / "api"
        key, self.config = scratch / "seal.key", scratch / "fleet.toml"
        key.write_text(new_key())
        key.chmod(0o600)
        self.config.write_text(CONFIGURATION.format(nats=nats.url, key=key, database=self.database, **ROOM))
        self._servers = (postgres.pid, nats.pid)
        self.roles: list[Role] = []
        self.http = Http(f"http://127.0.0.1:{self.port}")

    def start(self, scratch: Path) -> None:
        done = kilonova("db", "upgrade", "--config", self.config)
        if done.returncode:
            raise RuntimeError(done.stderr)
        common = ("--config", self.config, "--data")
        listen = ("--listen", f"127.0.0.1:{self.port}")
        self.roles = [Role("api", *listen, *common, self.data, wait=False)]
        self.roles += [Role("conductor", *common, scratch / name, wait=False) for name in ("one", "two")]
        self.roles += [Role("agent", "--host", host, *common, scratch / host, wait=False) for host in HOSTS]
        for role in self.roles:
            role.wait_until_it_works(PATIENCE)
        self.http.log_in(self.data)
        ends = time.monotonic() + PATIENCE
        while [one["state"] for one in self.http.get("/hosts")["hosts"]] != ["up"] * len(HOSTS):
            if time.monotonic() > ends:
                raise RuntimeError("not every host is up")
            time.sleep(0.1)

    def cpu(self) -> float:
        return sum(cpu_of(pid) for pid in (*self._servers, *(role.process.pid for role in self.roles)))

    def stop(self) -> None:
        for role in reversed(self.roles):
            with contextlib.suppress(Exception):
                role.terminate()
            role.kill9()


class Watch:
    """Look into the cell's database for servers that are ACTIVE. Its own connection's CPU is not the fleet's."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._waiting: dict[str, tuple[str, asyncio.Future[None]]] = {}
        self.pid = connection.get_server_pid()

    async def until(self, server: str, state: str = "active") -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting[server] = state, future
        await future

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for server, found in await self._connection.fetch(_SETTLED, list(self._waiting)) if self._waiting else ():
                state, future = self._waiting[server]
                if found == "error":
                    raise RuntimeError(f"server {server} is in ERROR, not {state}")
                if found == state:
                    self._waiting.pop(server)
                    future.set_result(None)

    async def until_idle(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while await self._connection.fetchval(_LIVE):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)


async def one_round(fleet: Fleet, owner: Tenant, count: int) -> Round:
    database = await asyncpg.connect(fleet.database)
    watch = Watch(database)
    work = api_create.creating(owner, watch, {})
    done = await measured(owner.client, watch, lambda: fleet.cpu() - cpu_of(watch.pid), range(count), work)
    await database.close()
    return done


async def in_the_fleet(fleet: Fleet) -> list[Round]:
    owner = tenant(fleet)
    await one_round(fleet, owner, WARM_UP)
    return [await one_round(fleet, owner, SERVERS) for _ in range(ROUNDS)]


async def in_one_process(cloud: Cloud) -> list[float]:
    owner = tenant(cloud)
    await api_create.one_round(cloud, owner, WARM_UP)
    return [(await api_create.one_round(cloud, owner, SERVERS)).cpu_ms for _ in range(ROUNDS)]


def measure(report: Report, scratch: Path, postgres: Postgres, nats: Nats) -> None:
    with served(scratch / "embedded", len(HOSTS)) as cloud:
        alone = uvloop.run(in_one_process(cloud))
    fleet = Fleet(scratch, postgres, nats)
    try:
        fleet.start(scratch)
        done = uvloop.run(in_the_fleet(fleet))
    finally:
        fleet.stop()
    cpu, speed = [one.cpu_ms for one in done], [one.per_second for one in done]
    ratio = median(cpu) / median(alone)
    report.add("one process: CPU per create", median(alone), "ms", rounds(alone, 1))
    report.add("fleet: CPU per create", median(cpu), "ms", rounds(cpu, 1))
    report.add("fleet: creates per second", median(speed), "1/s", rounds(speed, 0))
    met = "yes" if median(cpu) <= MOST_MS or ratio <= MOST_RATIO else "no"
    report.add("fleet to one process", ratio, "")
    report.exactly(f"at most {MOST_MS:g} ms, or {MOST_RATIO:g} times one process", met, "yes")


def main() -> int:
    report = Report("fleet_create")
    report.add("callers at a time", CALLERS)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="kilonova-bench-") as scratch,
            Postgres() as postgres,
            Nats() as nats,
        ):
            measure(report, Path(scratch), postgres, nats)
    except NotAvailable as why:
        report.not_run(str(why))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
