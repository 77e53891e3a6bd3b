"""All hosts in memory, as columns that stay between requests; only changes are written.

Most of a host's data hardly ever changes, and many hosts are alike: hosts of the same make (their driver's report) and
of the same kind (their aggregates) share one object, judged once for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kilonova.domain.guest import Hypervisor
from kilonova.placement.snapshot import Bools, Ints, PlacementSnapshot
from kilonova.scheduler.hardware import HardwareBook
from kilonova.services.compute.aggregates import Aggregate

UP = "up"
T = TypeVar("T", bound=Hashable)
Floats = NDArray[np.float64]
Memberships = tuple[Aggregate, ...]


class HostView(msgspec.Struct, frozen=True, kw_only=True):
    """A host as its cell knows it. States: up, disabled, unknown, down, draining, returning."""

    provider: str  # uuid of its root provider
    cell: str = ""
    state: str = UP
    state_sentence: str = ""
    hypervisor: Hypervisor = Hypervisor()
    address: str = ""
    failed_builds: int = 0  # since the last one that worked
    servers: int = 0
    busy: int = 0  # servers that keep its disks or its network busy
    devices: int = 0  # free PCI devices


class Odd(NamedTuple):
    """The state of a host that is not simply up."""

    state: str
    sentence: str


class Alike(Generic[T]):
    """The assignment of a few distinct values to hosts."""

    def __init__(self, values: Iterable[T]) -> None:
        numbers: dict[T, int] = {}
        self.number: NDArray[np.int32] = np.array(
            [numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int32
        )
        self.values: list[T] = list(numbers)

    def __getitem__(self, at: int) -> T:
        return self.values[int(self.number[at])]

    def judged(self, judge: Callable[[T], bool]) -> Bools | None:
        """Return one boolean per host; None: all pass."""
        truths = [judge(value) for value in self.values]
        return None if all(truths) else np.array(truths, dtype=np.bool_)[self.number]

    def valued(self, value: Callable[[T], float]) -> NDArray[np.float64]:
        return np.array([value(distinct) for distinct in self.values], dtype=np.float64)[self.number]


class AggregateSet(msgspec.Struct, frozen=True):
    """The aggregates that a host is in, by their numbers, as something to compare."""

    ids: tuple[int, ...] = ()


def _make(hypervisor: Hypervisor) -> bytes:
    """Return the key of a make: the hypervisor without its measurements, which differ everywhere."""
    return msgspec.json.encode(msgspec.structs.replace(hypervisor, metrics={}))


class Hosts:
    """Hosts in the order of their names; `index` gives a host's place in every column."""

    def __init__(self, views: Mapping[str, HostView] | None = None) -> None:
        self.layout = 0  # raised whenever hosts come or go
        self.hardware = HardwareBook()
        self.aggregates: dict[int, Aggregate] = {}
        self.load(views or {})

    def load(self, views: Mapping[str, HostView]) -> None:
        """Load all hosts again."""
        self.layout += 1
        self.names = sorted(views)
        self.views = [views[name] for name in self.names]
        self.index = {name: at for at, name in enumerate(self.names)}
        self.cells = Alike(view.cell for view in self.views)
        self.makes = Alike(_make(view.hypervisor) for view in self.views)
        self.hypervisors = [msgspec.json.decode(make, type=Hypervisor) for make in self.makes.values]
        self.odd = {at: Odd(v.state, v.state_sentence) for at, v in enumerate(self.views) if v.state != UP}
        self.up: Bools = np.array([view.state == UP for view in self.views], dtype=np.bool_)
        self.failed: Ints = np.array([view.failed_builds for view in self.views], dtype=np.int64)
        self.servers: Ints = np.array([view.servers for view in self.views], dtype=np.int64)
        self.busy: Ints = np.array([view.busy for view in self.views], dtype=np.int64)
        self.devices: Ints = np.array([view.devices for view in self.views], dtype=np.int64)
        self.image_values: dict[str, dict[tuple[str, str], int]] = {}  # by host: its servers' image properties, counted
        self.unclaimed: Counter[str] = Counter()  # by host: servers that are counted there without a claim
        self._metrics: dict[str, Floats] = {}
        self._rows: tuple[PlacementSnapshot | None, int, Ints] = (None, -1, np.zeros(0, dtype=np.int64))
        # The hosts joined last: a request that is waiting meanwhile decides with them.
        self.join(self.aggregates.values())

    def __len__(self) -> int:
        return len(self.names)

    def metric(self, name: str) -> Floats:
        """Return each host's measured value; NaN if it has none."""
        column = self._metrics.get(name)
        if column is None:
            measured = [view.hypervisor.metrics.get(name, np.nan) for view in self.views]
            column = self._metrics[name] = np.array(measured, dtype=np.float64)
        return column

    def hypervisor(self, at: int) -> Hypervisor:
        return self.hypervisors[int(self.makes.number[at])]

    def by_make(self, judge: Callable[[Hypervisor], bool]) -> Bools | None:
        truths = [judge(hypervisor) for hypervisor in self.hypervisors]
        return None if all(truths) else np.array(truths, dtype=np.bool_)[self.makes.number]

    def memberships(self, kind: AggregateSet) -> Memberships:
        return tuple(self.aggregates[number] for number in kind.ids)

    def join(self, aggregates: Iterable[Aggregate]) -> None:
        """Set the hosts' aggregates again."""
        self.aggregates = {aggregate.id: aggregate for aggregate in aggregates}
        ids: dict[str, list[int]] = {}
        for number in sorted(self.aggregates):
            for host in self.aggregates[number].hosts:
                ids.setdefault(host, []).append(number)
        nowhere = AggregateSet()
        self.kinds: Alike[AggregateSet] = Alike(
            AggregateSet(tuple(ids[name])) if name in ids else nowhere for name in self.names
        )

    def set_odd(self, cell: str, odd: Mapping[str, Odd]) -> None:
        """Set the hosts of a cell that are not simply up; all its other hosts are."""
        number = self.cells.values.index(cell) if cell in self.cells.values else -1
        for at in [at for at in self.odd if self.cells.number[at] == number and self.names[at] not in odd]:
            del self.odd[at]
            self.up[at] = True
        for name in odd.keys() & self.index.keys():
            self.odd[self.index[name]] = odd[name]
            self.up[self.index[name]] = False

    def set_counts(self, column: Ints, cell: str, counts: Mapping[str, int]) -> None:
        """`column` is one of failed, servers and busy; a host that is not in `counts` has none."""
        if cell in self.cells.values:
            column[self.cells.number == self.cells.values.index(cell)] = 0
        for name in counts.keys() & self.index.keys():
            column[self.index[name]] = counts[name]

    def rows(self, snapshot: PlacementSnapshot) -> Ints:
        """Return the place of each host's provider in the snapshot; -1 if placement does not know it."""
        of, layout, rows = self._rows
        if of is not snapshot or layout != snapshot.layout:
            places = snapshot.index
            rows = np.array([places.get(view.provider, -1) for view in self.views], dtype=np.int64)
            self._rows = (snapshot, snapshot.layout, rows)
        return rows

    def copied(self) -> Hosts:
        """Return a copy that does not change while this one follows the cells."""
        same = self.filled()
        same.odd, same.up, same.failed = dict(self.odd), self.up.copy(), self.failed.copy()
        same.image_values = {host: dict(counts) for host, counts in self.image_values.items()}
        return same

    def open(self, names: Iterable[str], snapshot: PlacementSnapshot) -> None:
        """Treat these hosts as up and accepting; this object and the snapshot must be the caller's own copies."""
        places = self.rows(snapshot)
        for at in [self.index[name] for name in names if name in self.index]:
            self.odd.pop(at, None)
            self.up[at] = True
            if places[at] >= 0:
                snapshot.accepting[places[at]] = True

    def only(self, at: int) -> Hosts:
        """Return a copy with only the host at this place."""
        same, name = object.__new__(Hosts), self.names[at]
        one = slice(at, at + 1)
        of, layout, rows = self._rows
        same.__dict__ = self.__dict__ | {
            **{"names": [name], "views": [self.views[at]], "index": {name: 0}},
            **{"cells": Alike([self.cells[at]]), "makes": Alike([self.makes[at]]), "kinds": Alike([self.kinds[at]])},
            **{"hypervisors": [self.hypervisor(at)], "odd": {0: self.odd[at]} if at in self.odd else {}},
            **{column: getattr(self, column)[one] for column in ("up", "failed", "servers", "busy", "devices")},
            **{"_metrics": {}, "_rows": (of, layout, rows[one])},
        }
        return same

    def filled(self) -> Hosts:
        """Return a copy with its own counts, to be filled on trial."""
        same = object.__new__(Hosts)
        own = {"servers": self.servers.copy(), "busy": self.busy.copy(), "unclaimed": self.unclaimed.copy()}
        same.__dict__ = self.__dict__ | own | {"hardware": self.hardware.filled()}
        return same
