"""The door to networks."""

from __future__ import annotations

from kilonova.world import Clock, Ids, Store


class Networks:
    def __init__(self, control: Store, clock: Clock, ids: Ids) -> None:
        self._control, self._clock, self._ids = control, clock, ids
