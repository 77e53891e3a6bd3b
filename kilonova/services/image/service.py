"""The door to images."""

from __future__ import annotations

from pathlib import Path

from kilonova.world import Clock, Ids, Store


class Images:
    def __init__(self, control: Store, clock: Clock, ids: Ids, folder: Path) -> None:
        self._control, self._clock, self._ids = control, clock, ids
        self._folder = folder
