"""Who does a CONTROL step: one conductor as long as it lives, another one when it is gone, and somebody in the end."""

import asyncio

import pytest

from kilonova.conductor import leases
from kilonova.domain.errors import StoreError
from kilonova.engine import run
from kilonova.engine.model import CONTROL, Step
from kilonova.operations import REGISTRY
from kilonova.operations.migrate import Migrate
from kilonova.schema.tables.journal import steps
from kilonova.services.compute.hosts import forget_worker, read_workers
from kilonova.sim.invariants.invariants import check
from kilonova.sim.loop.process import current_process
from kilonova.store import rows


@pytest.fixture
def slow(cloud, monkeypatch):
    """Two conductors, a server, and a migration whose first step takes 50 seconds; `done` says who began and ended."""
    done = []

    async def think(ctx):
        who = current_process().name
        done.append(f"{who} begins")
        await asyncio.sleep(50.0)
        done.append(f"{who} ends")
        return {}

    class Slow(Migrate):
        steps = [Step("think", think, on=CONTROL), *Migrate.steps]

    monkeypatch.setitem(REGISTRY, "migrate", Slow())
    cloud = cloud(conductors=2)
    server, _ = cloud.make()
    operation = cloud.submit("migrate", server).operation_id
    cloud.loop.run_for(10.0)
    return cloud, server, operation, done


def test_a_living_conductor_keeps_its_step(slow):
    cloud, server, operation, done = slow
    cloud.loop.run_for(120.0)
    worker = done[0].split()[0]
    assert done == [f"{worker} begins", f"{worker} ends"]
    assert cloud.operation(operation)["state"] == "done"
    assert cloud.server(server)["vm_state"] == "resized"


def test_the_step_of_a_conductor_that_is_gone_is_done_by_another(slow):
    cloud, server, _, done = slow
    worker = done[0].split()[0]
    cloud.kill(worker)
    cloud.loop.run_for(3.0)
    assert len(done) == 1, "its lease has not run out yet"
    cloud.loop.run_for(120.0)
    other = {"conductor1": "conductor2", "conductor2": "conductor1"}[worker]
    assert done[1:] == [f"{other} begins", f"{other} ends"]
    assert cloud.server(server)["vm_state"] == "resized"


def test_a_conductor_that_stood_still_has_lost_its_step_and_does_no_harm(slow):
    cloud, server, operation, done = slow
    process = cloud.roles[done[0].split()[0]].process
    cloud.loop.freeze(process)
    cloud.loop.run_for(150.0)
    assert cloud.server(server)["vm_state"] == "resized"
    before = cloud.steps(operation)
    cloud.loop.thaw(process)
    cloud.loop.run_for(60.0)
    assert cloud.steps(operation) == before
    assert check(cloud) == []


def test_a_step_that_got_lost_between_taking_and_doing_is_done_later(cloud, monkeypatch):
    """The database was away for a moment, say; the conductor lives and its lease never runs out."""
    prepare, failures = run.prepare, iter([True])

    async def fails_once(*args):
        if next(failures, False):
            raise StoreError("the line went dead")
        return await prepare(*args)

    monkeypatch.setattr(run, "prepare", fails_once)
    cloud = cloud()
    server, _ = cloud.make(wait=120.0)
    assert cloud.server(server)["vm_state"] == "active"
    assert check(cloud) == []


def test_a_step_that_another_took_over_meanwhile_is_not_given_back(slow):
    """Between the look and the write: else a third one would begin beside the second."""
    cloud, _, operation, done = slow
    engine = cloud.roles[done[0].split()[0]].engine
    journal = engine.world.db.cell("cell1")

    class TakenOver:
        write = journal.write

        async def read(self, body):
            found = await journal.read(body)
            assert [one[0] for one in found] == [operation]
            await journal.write(
                lambda tx: rows.change(tx, steps, {"worker": "another"}, operation_id=operation, open=1)
            )
            return found

    assert cloud.do(lambda _: leases.give_back(engine, TakenOver(), set())) == 0
    (step,) = [row for row in cloud.records().table("steps") if row["operation_id"] == operation and row["open"]]
    assert (step["state"], step["worker"]) == ("taken", "another")


def test_a_conductor_that_died_is_listed_as_down_for_a_while(cloud, monkeypatch):
    monkeypatch.setattr(leases, "LISTED_AFTER_DEATH", 600.0)
    cloud = cloud(conductors=2)

    def listed():
        workers = cloud.do(lambda engine: read_workers(engine.world.db, engine.settings.conductor.lease_seconds))
        return [worker.is_up for worker in workers]

    assert listed() == [True, True]
    cloud.kill("conductor2")
    cloud.loop.run_for(60.0)
    assert listed() == [True, False]
    cloud.loop.run_for(500.0)
    assert listed() == [True, False]
    cloud.loop.run_for(200.0)
    assert listed() == [True]


def test_the_record_of_a_dead_conductor_can_be_deleted_and_that_of_a_living_one_cannot(cloud):
    cloud = cloud(conductors=2)
    cloud.kill("conductor2")
    cloud.loop.run_for(60.0)
    living, dead = cloud.do(lambda engine: read_workers(engine.world.db, engine.settings.conductor.lease_seconds))
    assert not cloud.do(lambda engine: forget_worker(engine.world.db, living.id))
    assert cloud.do(lambda engine: forget_worker(engine.world.db, dead.id))
    assert not cloud.do(lambda engine: forget_worker(engine.world.db, dead.id))
    (left,) = cloud.do(lambda engine: read_workers(engine.world.db, engine.settings.conductor.lease_seconds))
    assert (left.id, left.is_up) == (living.id, True)
