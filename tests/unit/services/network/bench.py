"""A Networks of its own on a fresh control database; the same stories run on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.domain.errors import Refused
from kilonova.domain.network import WantedPort
from kilonova.records.kinds import Record
from kilonova.services.network.service import Networks
from kilonova.sim.lab.faulty_store import FaultyStore
from kilonova.store.postgres import PostgresStore
from kilonova.store.sqlite import SqliteStore
from kilonova.store.upgrade import upgrade
from kilonova.world import Body, Row, Tx
from tests.support.mappings import map_servers
from tests.unit.services.network.lock_watch import LockWatch

PROJECT, OTHER = "project-a", "project-b"
ADMINS = "project-admins"
Story = Callable[["Bench"], Awaitable[None]]


class Uuids:
    def uuid(self) -> str:
        return str(uuid.uuid4())


class WallClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def caller(project: str = PROJECT, *roles: str) -> Caller:
    return Caller(
        user=IdentityRef("u", "u"), project=IdentityRef(project, project), roles=roles or ("member", "reader")
    )


ADMIN = caller(ADMINS, "admin", "manager", "member", "reader")


class Bench:
    def __init__(self, store: Any) -> None:
        self.store = store
        self.net = Networks(store, WallClock(), Uuids())

    def again(self, **options: Any) -> Networks:
        """Another process on the same database."""
        return Networks(self.store, WallClock(), Uuids(), **options)

    async def one(self, noun: str, project: str = PROJECT, viewer: str | None = None, **wish: Any) -> Record:
        return (await self.net.nouns[noun].create(viewer, [{"project_id": project, **wish}]))[0]

    async def network(self, cidr: str = "10.0.0.0/24", project: str = PROJECT, **wish: Any) -> tuple[Record, Record]:
        network = await self.one("network", project, **wish)
        return network, await self.one("subnet", project, network_id=network["id"], cidr=cidr)

    async def port(self, network: Record, project: str = PROJECT, **wish: Any) -> Record:
        return await self.one("port", project, network_id=network["id"], **wish)

    async def allocate(self, fence: tuple[str, int, int], *wanted: WantedPort, **options: Any) -> Any:
        await map_servers(self.store, fence[0], project=PROJECT)
        told = {"project_id": PROJECT, "user_id": "u", "security_groups": [], "host": "host1", **options}
        return await self.net.allocate(fence, wanted=list(wanted), **told)

    def meanwhile(self, body: Body[object], network: Record) -> None:
        """Run it when the next request waits for this network's lock: another writer was faster."""
        self.store._store.meanwhile = network["id"], body

    async def rows(self, table: Any) -> Sequence[Row]:
        from kilonova.store import rows

        async def body(tx: Tx) -> Sequence[Row]:
            return await rows.fetch_all(tx, table)

        found: Sequence[Row] = await self.store.read(body)
        return found


async def refusal(asked: Awaitable[Any]) -> str:
    """The code."""
    try:
        told = await asked
    except Refused as why:
        assert why.message
        return why.code
    raise AssertionError(f"it was not refused: {told}")


def addresses(port: Record) -> list[str]:
    return [fixed["ip_address"] for fixed in port["fixed_ips"]]


class Kind:
    """Which engine a test runs on."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, story: Story, seconds: float = 60.0) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(seconds):
                await upgrade(self.url, "control")
                if self.url.startswith("sqlite"):
                    path = self.url.removeprefix("sqlite:///")
                    store: Any = SqliteStore("control", path, threaded=True, clock=WallClock(), synchronous="OFF")
                else:
                    store = PostgresStore("control", self.url)
                try:
                    await story(Bench(FaultyStore(LockWatch(store))))
                finally:
                    await store.close()

        asyncio.run(bounded())
