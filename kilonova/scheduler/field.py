"""The field of one request: all hosts, what placement knows of them, and what surrounds the request."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from kilonova.placement.snapshot import Bits, Bools, ClassColumns, Ints, PlacementSnapshot
from kilonova.scheduler.hosts import Hosts
from kilonova.scheduler.surroundings import NOBODY, Surroundings

CAPACITY, USED = range(2)  # of ClassColumns.NAMES


FEW = 8  # hosts that are looked up one by one


class Field:
    """The hosts of a decision as columns: one element per host, in the order of their names."""

    def __init__(
        self,
        snapshot: PlacementSnapshot,
        hosts: Hosts,
        *,
        cells: Collection[str] | None = None,
        away: Collection[str] = (),
        around: Surroundings = NOBODY,
        host: str = "",
    ) -> None:
        """`away`: those of the cells whose databases do not answer. `host`: no other is considered."""
        self.snapshot = snapshot
        self.hosts = hosts
        self.around = around
        self.names = hosts.names
        self.rows: Ints = hosts.rows(snapshot)
        self.known: Bools = self.rows >= 0
        self.all_known = bool(self.known.all())
        self.here: Bools | None = None if cells is None else hosts.cells.judged(lambda cell: cell in cells)
        if host:
            self.here = self.only(host)
        # of a host in such a cell only the data in placement and control is known
        self.lit: Bools | None = hosts.cells.judged(lambda cell: cell not in away) if away else None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def considered(self) -> int:
        return len(self) if self.here is None else int(np.count_nonzero(self.here))

    def none(self) -> Bools:
        return np.zeros(len(self), dtype=np.bool_)

    def all(self) -> Bools:
        return np.ones(len(self), dtype=np.bool_)

    def only(self, name: str | None) -> Bools:
        """Return a mask of the one host of that name."""
        mask = self.none()
        if name is not None and name in self.hosts.index:
            mask[self.hosts.index[name]] = True
        return mask

    def places(self, hosts: Sequence[int]) -> Bools:
        """Return a mask of these places."""
        mask = self.none()
        mask[hosts] = True
        return mask

    def gathered(self, truths: Bools) -> Bools:
        """Convert a mask over the snapshot's places to one over the hosts; False if placement does not know a host."""
        if not len(truths):
            return self.none()
        mask: Bools = truths[self.rows]
        return mask if self.all_known else mask & self.known

    def of_providers(self, providers: Iterable[str]) -> Bools:
        """Return a mask of the hosts of these root providers."""
        truths: Bools = np.zeros(self.snapshot.rows, dtype=np.bool_)
        places = self.snapshot.index
        truths[[places[provider] for provider in providers if provider in places]] = True
        return self.gathered(truths)

    def with_names(self, bits: Bits) -> Bools:
        return self.gathered(self.snapshot.truths(bits))

    def fits(self, resource_class: str, amount: int) -> Bools:
        """Return a mask of the hosts whose own provider has that much free at once."""
        columns = self.snapshot.classes.get(resource_class)
        if columns is None:
            return self.none()
        if len(self) <= FEW:
            mask: Bools = columns.fits(amount, self.rows)
            return mask & self.known
        return self.gathered(columns.fits(amount, slice(self.snapshot.rows)))

    def free(self, resource_class: str, hosts: Ints | None = None) -> Ints:
        """Return the free amounts of these hosts, or of all; 0 if a host has none or is over its capacity."""
        columns = self.snapshot.classes.get(resource_class)
        rows = self.rows if hosts is None else self.rows[hosts]
        if columns is None:
            return np.zeros(len(rows), dtype=np.int64)
        capacity, used = columns.table[CAPACITY, rows], columns.table[USED, rows]
        free: Ints = np.maximum(capacity - used, 0)
        if not self.all_known:
            free[rows < 0] = 0
        return free

    def numbers(self, resource_class: str, at: int) -> list[int]:
        """Return the numbers of one host, in the order of `ClassColumns.NAMES`."""
        columns, row = self.snapshot.classes.get(resource_class), int(self.rows[at])
        if columns is None or row < 0:
            return [0] * len(ClassColumns.NAMES)
        numbers: list[int] = columns.table[:, row].tolist()
        return numbers

    def provider(self, at: int) -> str:
        return self.hosts.views[at].provider
