"""Related providers: trees, and sharing providers that reach other trees through a common aggregate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kilonova.placement.snapshot_columns import Bools, Places

if TYPE_CHECKING:
    from kilonova.placement.snapshot import PlacementSnapshot

SHARES = "MISC_SHARES_VIA_AGGREGATE"


class Trees:
    def __init__(self, snapshot: PlacementSnapshot) -> None:
        self._snapshot = snapshot
        rows = snapshot.rows
        self._root: Places = snapshot.root[:rows]
        alive: Bools = snapshot.alive[:rows]
        size = np.bincount(self._root[alive], minlength=rows)
        self.nested = bool((size > 1).any())
        self.single: Bools = alive & (size == 1) & (self._root == np.arange(rows))
        self.sharing: list[int] = snapshot.with_trait.places(SHARES)
        self._reached: dict[int, Places] = {}

    def reached(self, at: int) -> Places:
        """Return the roots of all trees that share an aggregate with this sharing provider, and its own tree unless the
        provider is in no aggregate."""
        roots = self._reached.get(at)
        if roots is None:
            snapshot = self._snapshot
            together = snapshot.truths(snapshot.in_aggregate.any_of(snapshot.aggregates[at]))
            roots = self._reached[at] = np.unique(self._root[together])
        return roots
