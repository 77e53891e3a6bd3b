"""Law 16: a time that decides is written and compared by one clock."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.conductor.leases import give_back, renew
from kilonova.domain.host import HostFacts, Observation, judge, longest
from kilonova.engine.core import Engine
from kilonova.engine.take import ready_operations
from kilonova.schema.tables.control import workers
from kilonova.schema.tables.journal import operations, steps
from kilonova.sim.lab.cloud import DATABASE_CLOCK
from kilonova.store import rows
from kilonova.world import Tx

DOWN_AFTER = 60.0


def test_an_observer_ahead_of_now_may_be_dead_and_proves_no_silence() -> None:
    """It died, and then the clock was set back: who listens to it would call down whoever was not heard lately."""
    now = 10_000.0
    dead, living = Observation(since=now + 100, until=now + 3600), Observation(since=now - 5, until=now)
    host = HostFacts(name="host1", last_seen=now - 70)
    assert longest([dead, living], now, DOWN_AFTER) == living
    assert judge(host, longest([dead], now, DOWN_AFTER), now, DOWN_AFTER).status == "unknown"
    assert judge(host, longest([dead, living], now, DOWN_AFTER), now, DOWN_AFTER).status == "unknown"


def test_a_host_seen_in_the_future_was_seen_now() -> None:
    state = judge(HostFacts(name="host1", last_seen=200.0), None, 100.0, DOWN_AFTER)
    assert (state.status, state.silent) == ("up", 0.0)


@pytest.mark.parametrize(("ahead", "lives"), [(-1.0, False), (10.0, True), (61.0, False), (3600.0, False)])
def test_a_lease_further_ahead_than_a_lease_can_be_is_over(cloud: Any, ahead: float, lives: bool) -> None:
    cloud = cloud(hosts=1)

    async def judged(engine: Engine) -> set[str]:
        async def other(tx: Tx) -> None:
            now = await tx.now()
            await rows.put(tx, workers, id="other", kind="conductor", started_at=now, lease_until=now + ahead)

        await engine.world.db.control.write(other)
        return await renew(engine, 30.0)

    assert ("other" in cloud.do(judged)) is lives


@pytest.mark.parametrize(("age", "given"), [(1.0, False), (7.0, True), (-5.0, True)])
def test_a_worker_gives_back_what_it_took_a_lease_ago_and_does_not_do(cloud: Any, age: float, given: bool) -> None:
    """Judged by the database's clock, however wrong the worker's own is; ahead of now: that clock was set back."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make()
    operation = cloud.submit("migrate", server).operation_id
    cloud.set_clock("api", 3600.0)

    async def held(engine: Engine) -> int:
        async def body(tx: Tx) -> None:
            values = {"host": "", "state": "taken", "worker": engine.worker, "taken_at": await tx.now() - age}
            await rows.change(tx, steps, values, operation_id=operation, open=1)

        journal = engine.world.db.cell("cell1")
        await journal.write(body)
        return await give_back(engine, journal, set())

    assert cloud.do(held) == int(given)


@pytest.mark.parametrize(("ahead", "due"), [(-1.0, True), (30.0, False), (61.0, True), (3600.0, True)])
def test_a_step_put_off_further_than_a_pause_can_be_is_due(cloud: Any, ahead: float, due: bool) -> None:
    """The database's clock was set back since."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make()
    for name in [name for name in cloud.roles if name != "api"]:
        cloud.kill(name)
    operation = cloud.submit("stop", server).operation_id

    async def ready(engine: Engine) -> list[str]:
        journal = engine.world.db.cell("cell1")

        async def put_off(tx: Tx) -> None:
            values = {"host": "", "not_before": await tx.now() + ahead}
            assert await rows.change(tx, steps, values, operation_id=operation, open=1)

        await journal.write(put_off)
        return await ready_operations(journal)

    assert (operation in cloud.do(ready)) is due


def test_the_journal_is_dated_by_the_database(cloud: Any) -> None:
    """An api an hour ahead, a conductor an hour behind: what the journal says of an operation still adds up."""
    cloud = cloud(hosts=2)
    for role, seconds in (("api", 3600.0), ("conductor1", -3600.0), (DATABASE_CLOCK, 0.0)):
        cloud.set_clock(role, seconds)
    began = cloud.clock.now()
    server, _ = cloud.make()
    over = cloud.clock.now()

    async def dates(engine: Engine) -> list[float]:
        async def body(tx: Tx) -> list[float]:
            found: list[float] = []
            for row in await rows.fetch_all(tx, operations, server_id=server):
                found += [row["created_at"], row["updated_at"], row["ended_at"]]
                for step in await rows.fetch_all(tx, steps, operation_id=row["id"]):
                    assert step["not_before"] == 0.0
                    found += [step["created_at"], step["taken_at"], step["ended_at"]]
            return found

        return [date for journal in engine.world.db.journals() for date in await journal.read(body)]

    found = cloud.do(dates)
    assert len(found) > 9 and all(began <= date <= over for date in found)
