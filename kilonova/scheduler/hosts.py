"""The hosts of one request as columns beside the snapshot's."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from kilonova.placement.snapshot import Bools, Ints, Snapshot

UP = "up"


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
        self._columns: dict[tuple[str, str], Ints] = {}

    def __len__(self) -> int:
        return len(self.names)

    def column(self, resource_class: str, name: str) -> Ints:
        """One of the snapshot's columns, or `free`, for these hosts; 0 where a host has no such class."""
        kept = self._columns.get((resource_class, name))
        if kept is None:
            kept = self._columns[resource_class, name] = self._gather(resource_class, name)
        return kept

    def free(self, resource_class: str) -> Ints:
        return self.column(resource_class, "free")

    def _gather(self, resource_class: str, name: str) -> Ints:
        if name == "free":  # a host may be over its capacity
            free: Ints = self.column(resource_class, "capacity") - self.column(resource_class, "used")
            return free.clip(min=0)
        columns = self.snapshot.classes.get(resource_class)
        if columns is None:
            return np.zeros(len(self), dtype=np.int64)
        values: Ints = getattr(columns, name)[self.rows]
        values[~self.known] = 0
        return values
