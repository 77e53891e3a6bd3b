"""A host that comes back while an operation is under way with one of its servers: it hears in the end what should run
there, whoever has the step that is being done."""

import asyncio

from kilonova.engine.model import CONTROL, Step
from kilonova.hosts.states import declare_down, declare_up
from kilonova.operations import REGISTRY
from kilonova.operations.start import Start
from kilonova.sim.invariants.invariants import check


def test_during_the_last_step_of_a_conductor(cloud, monkeypatch):
    """The conductor read the server's record before the host came back."""

    async def think(ctx):
        await asyncio.sleep(50.0)

    class Slow(Start):
        steps = [*Start.steps, Step("think", think, on=CONTROL)]

    monkeypatch.setitem(REGISTRY, "start", Slow())
    cloud = cloud(hosts=1)
    server, _ = cloud.make(host="host1")
    cloud.submit("stop", server)
    cloud.loop.run_for(10.0)
    operation = cloud.submit("start", server).operation_id
    cloud.loop.run_for(10.0)
    cloud.hardware.switch_power("host1", False)
    cloud.loop.run_for(2.0)
    cloud.hardware.switch_power("host1", True)
    cloud.loop.run_for(20.0)
    assert cloud.hardware.running(server) == [], "only the operation says what its power shall be"
    cloud.loop.run_for(60.0)
    assert cloud.operation(operation)["state"] == "done"
    assert cloud.hardware.running(server) == [("host1", 1)]
    assert check(cloud) == []


def test_a_host_answers_since_its_agent_was_started(cloud):
    """Not since it registered last: it does that again whenever the records have something to tell it."""
    cloud = cloud(hosts=1)

    def standing():
        (row,) = cloud.records().table("hosts")
        return row["session"], row["session_since"], row["epoch"]

    session, since, epoch = standing()
    cloud.do(lambda engine: declare_down(engine, "host1"))
    cloud.do(lambda engine: declare_up(engine, "host1"))
    cloud.loop.run_for(60.0)
    assert standing()[:2] == (session, since) and standing()[2] > epoch
    cloud.hardware.switch_power("host1", False)
    cloud.loop.run_for(5.0)
    cloud.hardware.switch_power("host1", True)
    cloud.loop.run_for(30.0)
    assert standing()[0] != session and standing()[1] > since
