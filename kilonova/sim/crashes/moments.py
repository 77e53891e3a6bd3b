"""The moments at which crashes differ.

On a real database a process has four times as many points as on SQLite, since it waits for every statement. But a
process that dies between two statements of one transaction leaves the same as one that died before the first. So a
crash is tried once per moment: a point of a process before which, since its last one, something irreversible was done.
That is a COMMIT on its way or answered, a message, any action of a host, a volume's file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kilonova.domain.json import Json
from kilonova.services.volume.files import NoBytes
from kilonova.sim.lab.faulty_store import FaultyStore
from kilonova.sim.loop.event_loop import SimLoop
from kilonova.sim.loop.process import Process

OpenDatabases = Callable[[SimLoop], Mapping[str, Any]]


class Moments:
    """Weather of the bus and faults of the databases that do no harm: they only observe. With `everyone`, the next
    process does not matter, since all die."""

    def __init__(self, *, everyone: bool) -> None:
        self.everyone = everyone
        self.files: NoBytes | None = None
        self.hosts: frozenset[str] = frozenset()
        self.count = 0
        self._passed = 0
        self._seen: dict[str, Json] = {}

    def watching(self, opened: OpenDatabases) -> OpenDatabases:
        def watched(loop: SimLoop) -> Mapping[str, Any]:
            return {name: FaultyStore(store, faults=self) for name, store in opened(loop).items()}

        return watched

    def at(self, number: int) -> Callable[[Process], bool]:
        """Return a condition that is checked before each point: is it the moment with this number, counted from
        here?"""
        wanted = self.count + number
        return lambda process: self._is_new(process) and self.count == wanted

    def _is_new(self, process: Process) -> bool:
        if process.name in self.hosts:
            self._passed += 1
        who, now = "" if self.everyone else process.name, (self._passed, self._written())
        if self._seen.get(who) == now:
            return False
        self._seen[who] = now
        self.count += 1
        return True

    def _written(self) -> tuple[int, int]:
        sizes = self.files.sizes if self.files is not None else {}
        return len(sizes), sum(sizes.values())

    def before_commit(self, store_name: str) -> None:
        self._passed += 1

    def after_commit(self, store_name: str) -> None:
        self._passed += 1

    def fates(self, source: str, target: str, subject: str) -> Sequence[float]:
        self._passed += 1
        return (0.0,)
