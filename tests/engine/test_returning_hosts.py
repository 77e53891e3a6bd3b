"""A host that comes back while an operation is under way with one of its servers: it hears in the end what should run
there, whoever has the step that is being done."""

import asyncio

from kilonova.engine.model import CONTROL, Step
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
