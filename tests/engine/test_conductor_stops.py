"""A conductor that is told to stop ends, whatever its libraries do with a cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

from kilonova.conductor.service import Conductor
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.shape import CloudShape


def test_a_loop_whose_cancellation_was_dropped_ends() -> None:
    """asyncio.wait_for of Python 3.11 returns its result and drops a cancellation that arrives at the same moment."""
    cloud = SimCloud(CloudShape(hosts=1))
    cloud.start_all()
    cloud.loop.run_for(15.0)
    conductor: Any = cloud.roles["conductor1"].part
    assert isinstance(conductor, Conductor)
    dropped = []

    async def drops_a_cancellation() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            dropped.append(True)

    async def add_loop() -> None:
        conductor._loops.append(asyncio.create_task(conductor._every(3600.0, drops_a_cancellation)))

    cloud.loop.spawn(cloud.roles["conductor1"].process, add_loop())
    cloud.loop.run_for(1.0)
    cloud.terminate("conductor1")
    cloud.loop.run_for(5.0)
    assert dropped and "conductor1" not in cloud.roles
    cloud.close()
