"""Bad weather on the bus and bad luck at COMMIT, seeded, switched off when a history comes to rest."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from kilonova.compute.drivers.simulated.hardware import Hardware
from kilonova.domain.errors import CommitFailed, CommitUnknown

CALM: Sequence[float] = (0.0,)


class CommitFaults(Protocol):
    """`before_commit` may raise CommitFailed: nothing is written. `after_commit` may raise CommitUnknown, although it
    is."""

    def before_commit(self, store_name: str) -> None: ...

    def after_commit(self, store_name: str) -> None: ...


class Weather:
    """Messages get lost, come late, twice, or overtake each other; cut links carry nothing."""

    def __init__(self, seed: str, lost: float = 0.0, late: float = 0.0, doubled: float = 0.0) -> None:
        self._random = random.Random(f"{seed}:weather")
        self.lost, self.late, self.doubled = lost, late, doubled
        self.hardware: Hardware | None = None
        self.cut: set[str] = set()  # roles cut off from the bus
        self.side: set[str] = set()  # roles that reach only each other

    def fates(self, source: str, target: str, subject: str) -> Sequence[float]:
        if not self._carries(source) or not self._carries(target) or not self.joins(source, target):
            return ()
        if source == target or not (self.lost or self.late or self.doubled):
            return CALM
        chance = self._random.random()
        if chance < self.lost:
            return ()
        if chance < self.lost + self.late:
            return (self._random.uniform(0.0, 8.0),)
        if chance < self.lost + self.late + self.doubled:
            return (self._random.uniform(0.0, 0.5), self._random.uniform(0.0, 15.0))
        return (self._random.uniform(0.0, 0.02),)

    def joins(self, source: str, target: str) -> bool:
        return (source in self.side) == (target in self.side)

    def _carries(self, end: str) -> bool:
        if end in self.cut:
            return False
        return self.hardware is None or end not in self.hardware.hosts() or self.hardware.is_linked(end)

    def stop(self) -> None:
        self.lost = self.late = self.doubled = 0.0
        self.cut.clear()
        self.side.clear()


class CommitLuck:
    """Faults of COMMITs: some fail, some succeed without an answer."""

    def __init__(self, seed: str, failed: float = 0.0, unknown: float = 0.0) -> None:
        self._random = random.Random(f"{seed}:commits")
        self.failed, self.unknown = failed, unknown
        self.weather: Weather | None = None

    def before_commit(self, store_name: str) -> None:
        if self.failed and self._random.random() < self.failed:
            raise CommitFailed(f"{store_name}: injected")

    def after_commit(self, store_name: str) -> None:
        if self.unknown and self._random.random() < self.unknown:
            raise CommitUnknown(f"{store_name}: injected")

    def stop(self) -> None:
        self.failed = self.unknown = 0.0
        if self.weather is not None:
            self.weather.stop()
