"""The scheduler of an API that plans."""

from __future__ import annotations

from kilonova.engine.core import Engine


def with_scheduler(engine: Engine) -> Engine:
    """Return the engine with a scheduler. The API has none until one is needed: it costs memory and start-up time."""
    if engine.scheduler is None:
        from kilonova.scheduler.service import Scheduler

        world = engine.world
        engine.scheduler = Scheduler(world.db, world.clock, world.random, world.settings)
    return engine
