"""A simulated process of a cloud, and the ids that it makes."""

from __future__ import annotations

import asyncio
import random
import uuid
from dataclasses import dataclass, field
from typing import Any

from kilonova.engine.core import Engine
from kilonova.services.volume.service import Volumes
from kilonova.sim.loop.process import Process
from kilonova.store.open_stores import OpenStores
from kilonova.world import World


class SeededIds:
    """Ids of a seeded random source."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._source.getrandbits(128), version=4))


@dataclass
class SimulatedProcess:
    """A role of the cloud and what it was started with."""

    name: str
    process: Process
    world: World
    stores: OpenStores | None
    part: Any = None  # Conductor, Agent or None (the api)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    engine: Engine | None = None
    volumes: Volumes | None = None
