"""The load: a number of callers, each asking for one operation at a time and waiting until it has ended."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from sqlalchemy import func, select

from bench.cloud import Cloud, ParentalEngine
from bench.measure import Stopwatch
from bench.operations import STEPS
from kilonova.domain.cause import Cause
from kilonova.domain.server import ACTIVE, POWER_RUNNING, Flavor, flavor_document
from kilonova.engine.accept import Ask, accept
from kilonova.schema.tables.cell import servers
from kilonova.schema.tables.journal import operations, steps
from kilonova.store.instruments import Stats
from kilonova.store.statements import Sql, insert_row
from kilonova.world import Store, Tx

CALLERS = 32
_INSERT = Sql(insert_row(servers))
_ENDED = Sql(select(func.count().label("number")).select_from(operations).where(operations.c.state == "done"))
_DONE = Sql(select(func.count().label("number")).select_from(steps).where(steps.c.state == "done"))

Submit = Callable[[ParentalEngine, Store, Ask], Awaitable[object]]


@dataclass
class Round:
    """What a number of operations cost."""

    operations: int
    cpu: float
    wall: float
    used: Stats

    @property
    def cpu_ms(self) -> float:
        return self.cpu / self.operations * 1000

    @property
    def per_second(self) -> float:
        return self.operations / self.wall

    def each(self, count: float) -> float:
        return count / self.operations


async def seed_servers(journal: Store, count: int, hosts: list[str]) -> list[str]:
    """Servers as `build` leaves them."""
    flavor = flavor_document(Flavor("m1.tiny", 1, 512, 1))
    ids = [str(uuid.uuid4()) for _ in range(count)]
    at = itertools.cycle(hosts)
    empty = {column.name: None if column.nullable else column.type.python_type() for column in servers.columns}
    rows = [
        {
            **empty,
            "id": server,
            "project_id": "demo",
            "user_id": "demo",
            "name": f"server-{number}",
            "turn": 1,
            "vm_state": ACTIVE,
            "power_state": POWER_RUNNING,
            "host": (host := next(at)),
            "copy": 1,
            "runner_host": host,
            "runner_copy": 1,
            "image_ref": "cirros-sim",
            "flavor": flavor,
            "details": "{}",
            "hidden": 0,
            "created_at": 0.0,
            "updated_at": 0.0,
            "deleted": 0,
        }
        for number, server in enumerate(ids)
    ]

    async def body(tx: Tx) -> None:
        await tx.many(_INSERT, rows)

    await journal.write(body)
    return ids


async def run_load(
    cloud: Cloud, engine: ParentalEngine, kind: str, server_ids: list[str], *, until_end: bool = True
) -> Round:
    """One operation on each server, CALLERS at a time. With `until_end` a caller goes on when its operation ended."""
    journal = cloud.stores.cell("cell1")
    before = cloud.stats()
    watch = Stopwatch.start()
    todo = enumerate(server_ids)
    await asyncio.gather(*(_caller(engine, journal, kind, todo, accept, until_end) for _ in range(CALLERS)))
    after = cloud.stats()
    used = Stats(
        after.commits - before.commits,
        after.transactions - before.transactions,
        after.statements - before.statements,
    )
    return Round(len(server_ids), watch.cpu, watch.wall, used)


async def load_alone(cloud: Cloud, engine: ParentalEngine, kind: str, server_ids: list[str]) -> Round:
    """What the callers themselves cost: the same loop in front of a cloud that does nothing."""

    async def answer_at_once(engine: ParentalEngine, journal: Store, ask: Ask) -> None:
        await asyncio.sleep(0)
        engine.tell(ask.parent_id or "")

    watch = Stopwatch.start()
    journal, todo = cloud.stores.cell("cell1"), enumerate(server_ids)
    await asyncio.gather(*(_caller(engine, journal, kind, todo, answer_at_once, True) for _ in range(CALLERS)))
    return Round(len(server_ids), watch.cpu, watch.wall, Stats())


async def _caller(
    engine: ParentalEngine,
    journal: Store,
    kind: str,
    todo: Iterator[tuple[int, str]],
    submit: Submit,
    until_end: bool,
) -> None:
    loop = asyncio.get_running_loop()
    for number, server_id in todo:
        parent = f"load-{number}"
        ended = engine.waiting[parent] = loop.create_future()
        cause = Cause(user_id="demo", project_id="demo", through="bench", request_id=f"req-{number}")
        ask = Ask(kind=kind, server_id=server_id, cause=cause, parent_id=parent)
        await submit(engine, journal, ask)
        if until_end:
            await ended


async def all_ended(journal: Store, count: int) -> bool:
    """The journal itself says so: so many operations done, with all their steps."""

    async def body(tx: Tx) -> bool:
        ended, done = await tx.one(_ENDED), await tx.one(_DONE)
        assert ended is not None and done is not None
        return bool(ended["number"] == count and done["number"] == count * STEPS)

    return await journal.read(body)
