"""The hosts of one request as columns beside the snapshot's."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from kilonova.placement.snapshot import Bools, ClassColumns, Ints, Snapshot

UP = "up"
PLACES = {name: place for place, name in enumerate(ClassColumns.NAMES)}


class HostView(msgspec.Struct, frozen=True):
    """A host as its cell knows it. States: up, disabled, unknown, down, draining, returning."""

    provider: str  # uuid of its root provider
    state: str
    state_sentence: str = ""


class Field:
    """All hosts considered, in the order of their names; every column has one element per host."""

    def __init__(self, snapshot: Snapshot, hosts: Mapping[str, HostView]) -> None:
        self.snapshot = snapshot
        self.names = sorted(hosts)
        self.views = [hosts[name] for name in self.names]
        index = snapshot.index
        self.rows: Ints = np.array([index.get(view.provider, -1) for view in self.views], dtype=np.int64)
        self.known: Bools = self.rows >= 0
        self.up: Bools = np.array([view.state == UP for view in self.views], dtype=np.bool_)
        self.accepting: Bools = snapshot.accepting[self.rows] & self.known
        self._columns: dict[str, Ints] = {}
        self._free: dict[str, Ints] = {}

    def __len__(self) -> int:
        return len(self.names)

    def column(self, resource_class: str, name: str) -> Ints:
        """One of the snapshot's columns for these hosts; 0 where a host has no such class."""
        kept = self._columns.get(resource_class)
        if kept is None:
            kept = self._columns[resource_class] = self._gather(resource_class)
        column: Ints = kept[PLACES[name]]
        return column

    def free(self, resource_class: str) -> Ints:
        kept = self._free.get(resource_class)
        if kept is None:  # a host may be over its capacity
            free: Ints = self.column(resource_class, "capacity") - self.column(resource_class, "used")
            kept = self._free[resource_class] = np.maximum(free, 0)
        return kept

    def _gather(self, resource_class: str) -> Ints:
        columns = self.snapshot.classes.get(resource_class)
        if columns is None:
            return np.zeros((len(PLACES), len(self)), dtype=np.int64)
        values: Ints = columns.table[:, self.rows]
        if not self.known.all():
            values[:, ~self.known] = 0
        return values
