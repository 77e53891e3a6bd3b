"""Every step of every operation fails once, after it has had its effect and said what to change in the server's record.

What can be undone is undone: the server is as it was. What cannot goes on. Either way nothing is left behind. The same
when the server's host loses its power in the middle of every step, and gets it back."""

import asyncio
import contextlib
import contextvars
import logging
from dataclasses import replace

import msgspec
import pytest

from kilonova.domain.errors import Failed
from kilonova.operations import REGISTRY
from kilonova.sim.crashes.outcomes import SERVER
from kilonova.sim.invariants.invariants import violations
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import is_idle, read_records
from kilonova.sim.lab.rest import come_to_rest
from tests.engine.test_cancel_everywhere import SCENES, STEPS

ENDED = ("done", "undone", "failed", "superseded")
# Of a server's record, what an operation that was undone has changed and given back.
AS_BEFORE = (
    *("name", "vm_state", "task_state", "power_state", "host", "copy", "runner_host", "runner_copy", "hidden"),
    *("image_ref", "flavor", "claimed", "network_info", "volume_info", "operation_id", "deleted"),
)


class Failure:
    """Fails the first time, once its work is done."""

    def __init__(self, work):
        self.work, self.failed = work, False

    async def do(self, ctx):
        result = await self.work(ctx)
        if not self.failed:
            self.failed = True
            raise Failed("broken", "it broke in the end", final=True)
        return result


def recorded(cloud):
    row = read_records(cloud).server(SERVER)
    if row is None:
        return None
    details = {name: value for name, value in msgspec.json.decode(row["details"]).items() if value}
    return {name: row[name] for name in AS_BEFORE} | {"details": details}


@pytest.fixture
def quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


class PowerCut:
    """The server's host loses its power the first time, once the work of a step is done, and gets it back."""

    def __init__(self, cloud, work, host):
        self.cloud, self.work, self.host, self.failed = cloud, work, host, False

    async def do(self, ctx):
        result = await self.work(ctx)
        host = self.host or getattr(ctx.facts, "destination", "")
        if host and not self.failed:
            self.failed = True
            loop = self.cloud.loop
            loop.call_later(0.0, self.cloud.hardware.switch_power, host, False, context=contextvars.Context())
            loop.call_later(5.0, self.cloud.hardware.switch_power, host, True, context=contextvars.Context())
            await asyncio.sleep(0.1)  # so that nobody hears what a step on that host has done
        return result


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("kind", "name"), STEPS, ids=[f"{kind} {name}" for kind, name in STEPS])
def test_a_step_that_fails_after_its_effect_leaves_nothing_behind(kind, name):
    with failing(kind, name, lambda cloud, work: Failure(work)) as (cloud, was, failure):
        assert failure.failed
        now, records = recorded(cloud), come_to_rest(cloud)
        assert {row["state"] for row in records.table("operations")} <= {*ENDED}
        undone = [row for row in records.table("operations") if (row["kind"], row["state"]) == (kind, "undone")]
        assert now == was or was is None or not undone
        assert kind == "adopt" or violations(records, cloud, at_rest=True) == []


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("kind", "name"), STEPS, ids=[f"{kind} {name}" for kind, name in STEPS])
def test_a_host_that_loses_its_power_in_the_middle_runs_what_it_should(kind, name):
    def cut(cloud, work):
        row = read_records(cloud).server(SERVER)
        return PowerCut(cloud, work, row and row["host"])

    with failing(kind, name, cut) as (cloud, _, _):
        records = come_to_rest(cloud)
        assert {row["state"] for row in records.table("operations")} <= {*ENDED}
        assert kind == "adopt" or violations(records, cloud, at_rest=True) == []


@contextlib.contextmanager
def failing(kind, name, make):
    """A cloud in which that step has failed, what was recorded of the server before, and the failure."""
    before, act, shape = SCENES.get(f"{kind} {name}") or SCENES[kind]
    cloud = SimCloud(replace(shape, conductors=1), seed=f"{kind} {name}")
    step = REGISTRY[kind].step(name)
    work = step.do
    try:
        cloud.start_all()
        cloud.loop.run_for(15.0)
        for prepare in before:
            prepare(cloud)
        was, failure = recorded(cloud), make(cloud, work)
        object.__setattr__(step, "do", failure.do)
        act(cloud)
        for _ in range(200):
            cloud.loop.run_for(1.0)
            if failure.failed and is_idle(cloud):
                break
        yield cloud, was, failure
    finally:
        object.__setattr__(step, "do", work)
        cloud.close()
