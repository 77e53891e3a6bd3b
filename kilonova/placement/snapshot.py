"""All providers in memory, as numpy columns. SQL only loads it; it may propose, never refuse.

`sync` reads the changes since the last watermark. Every change of a provider, or of anything that belongs to it, marks
the provider's row, so those marks suffice, and a changed provider is read completely. A removed provider leaves a
record with its own mark (removal.py).
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kilonova.placement.names import CUSTOM
from kilonova.placement.snapshot_columns import Bits, Bools, ClassColumns, Ints, NameColumns, Places, grown, unpacked
from kilonova.placement.snapshot_reading import ALL, SnapshotChanges, read_changes
from kilonova.placement.snapshot_trees import Trees
from kilonova.world import Row, Store

__all__ = ["Bits", "Bools", "ClassColumns", "Ints", "PlacementSnapshot", "Places", "snapshot_of"]

FIRST_ROWS = 64
NOWHERE = -1  # as a parent: it is a root
COLUMNS = ("generation", "accepting", "updated_at", "root", "parent", "alive", "changed")

Names = tuple[str, ...]


class PlacementSnapshot:
    """Columns over providers; `index` gives a provider's place in each of them."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._begun = 0  # syncs begun so far
        self._seen = 0  # the newest sync whose rows are in
        self._taken = 0  # changes taken so far
        self.layout = 0  # raised whenever a provider gets or loses its place
        self._empty()

    def _empty(self) -> None:
        self.layout += 1
        self.index: dict[str, int] = {}
        self.uuids: list[str] = []
        self.names: list[str] = []
        self.traits: list[Names] = []
        self.aggregates: list[Names] = []
        self.generation: Ints = np.zeros(FIRST_ROWS, dtype=np.int64)
        self.accepting: Bools = np.zeros(FIRST_ROWS, dtype=np.bool_)
        self.updated_at: NDArray[np.float64] = np.zeros(FIRST_ROWS, dtype=np.float64)
        self.root: Places = np.zeros(FIRST_ROWS, dtype=np.int32)
        self.parent: Places = np.zeros(FIRST_ROWS, dtype=np.int32)
        self.alive: Bools = np.zeros(FIRST_ROWS, dtype=np.bool_)
        self.changed: Ints = np.zeros(FIRST_ROWS, dtype=np.int64)  # when it was last read, as a number that only grows
        self.classes: dict[str, ClassColumns] = {}
        self.with_trait = NameColumns(FIRST_ROWS)
        self.in_aggregate = NameColumns(FIRST_ROWS)
        self.watermark = 0
        self._free: list[int] = []  # places of providers that are gone
        self._sets: dict[str, Names] = {"": ()}  # as read: many providers have the same traits, and share one tuple
        self._trees: Trees | None = None

    def __len__(self) -> int:
        return len(self.index)

    @property
    def rows(self) -> int:
        """The number of places that are or were taken, which queries read."""
        return len(self.uuids)

    @property
    def trees(self) -> Trees:
        """The trees, computed again after a change in them; claims do not change them."""
        if self._trees is None:
            self._trees = Trees(self)
        return self._trees

    async def sync(self, store: Store) -> None:
        """Read the changes. Afterwards everything committed before this call is visible. Concurrent callers share one
        read."""
        begun = self._begun
        async with self._lock:
            if self._seen > begun:
                return  # a sync that began after this call has ended meanwhile
            self._begun = this = self._begun + 1
            changes = await read_changes(store, self.watermark)
            if ALL in changes.removed:
                await self._load_all(store)
            else:
                self.take(changes)
            self._seen = this

    async def reload(self, store: Store) -> None:
        """Load everything again, e.g. after a claim named a provider that is gone."""
        async with self._lock:
            await self._load_all(store)

    async def _load_all(self, store: Store) -> None:
        changes = await read_changes(store, 0)
        self._empty()  # only now: readers that run while we wait see the old columns, not none
        self.take(changes)

    def take(self, changes: SnapshotChanges) -> None:
        self._taken += 1
        for uuid in changes.removed:
            self._forget(uuid)
        if changes.providers:
            if len(changes.providers) > len(self.alive):
                self._grow(len(changes.providers))
            # all, before the first looks for its root
            places = [self._position(row["uuid"]) for row in changes.providers]
            self._set_columns(places, changes.providers)
            self._set_names(places, [row["traits"] for row in changes.providers], self.traits, self.with_trait)
            self._set_names(
                places, [row["aggregates"] for row in changes.providers], self.aggregates, self.in_aggregate
            )
            by_id = {row["id"]: at for row, at in zip(changes.providers, places, strict=True)}
            self._set_inventories(by_id, changes.inventories)
        for name in [name for name, columns in self.classes.items() if not columns.count]:
            del self.classes[name]  # no provider has it any more; perhaps it does not even exist
        self.watermark = changes.watermark

    def copied(self) -> PlacementSnapshot:
        """Return a copy that does not change while this one is brought up to date."""
        same = copy.copy(self)
        same.index, same._free, same._sets = dict(self.index), list(self._free), dict(self._sets)
        same.uuids, same.names = list(self.uuids), list(self.names)
        same.traits, same.aggregates = list(self.traits), list(self.aggregates)
        for name in COLUMNS:
            setattr(same, name, getattr(self, name).copy())
        same.classes = {name: columns.copy() for name, columns in self.classes.items()}
        same.with_trait, same.in_aggregate = self.with_trait.copy(), self.in_aggregate.copy()
        same._lock, same._trees = asyncio.Lock(), None
        return same

    def with_own_use(self, names: Iterable[str]) -> PlacementSnapshot:
        """Return a private snapshot to be filled on trial: the use of these classes is its own, all else is shared
        with this one, which must not change meanwhile."""
        trial = copy.copy(self)
        trial.classes = self.classes | {name: self.classes[name].copy() for name in names if name in self.classes}
        return trial

    def _position(self, uuid: str) -> int:
        at = self.index.get(uuid)
        if at is not None:
            return at
        if self._free:
            at = self._free.pop()
        else:
            at = len(self.uuids)
            for column in (self.uuids, self.names):
                column.append("")
            for names in (self.traits, self.aggregates):
                names.append(())
            if at >= len(self.alive):
                self._grow(at + at // 2)
        self.uuids[at] = uuid
        self.index[uuid] = at
        self.layout += 1
        return at

    def _set_columns(self, places: Sequence[int], rows: Sequence[Row]) -> None:
        self.generation[places] = [row["generation"] for row in rows]
        self.accepting[places] = [bool(row["accepting"]) for row in rows]
        self.updated_at[places] = [row["updated_at"] for row in rows]
        for at, row in zip(places, rows, strict=True):
            self.names[at] = row["name"]
        index = self.index
        roots = [index.get(row["root"], at) for row, at in zip(rows, places, strict=True)]
        parents = [NOWHERE if row["parent"] is None else index[row["parent"]] for row in rows]
        if not (self.alive[places].all() and (self.root[places] == roots).all()):
            self._trees = None
        self.root[places] = roots
        self.parent[places] = parents
        self.alive[places] = True
        self.changed[places] = self._taken

    def _set_names(
        self, places: Sequence[int], texts: Iterable[str | None], current: list[Names], columns: NameColumns
    ) -> None:
        moves: dict[
            tuple[int, int], tuple[Names, Names, list[int]]
        ] = {}  # by identity: most change from and to the same
        for at, text in zip(places, texts, strict=True):
            names, before = self._names(text), current[at]
            if names is not before:
                current[at] = names
                moves.setdefault((id(before), id(names)), (before, names, []))[2].append(at)
        for before, names, where in moves.values():
            for name in before:
                if name not in names:
                    columns.drop(name, where)
            for name in names:
                if name not in before:
                    columns.add(name, where)
        if moves:
            self._trees = None

    def _names(self, text: str | None) -> Names:
        shared = self._sets.get(text or "")
        if shared is None:
            names = tuple(sorted(text.split(","), key=_custom_last)) if text else ()
            shared = self._sets[text or ""] = self._sets.setdefault(",".join(names), names)
            if len(self._sets) > 2 * self.rows + FIRST_ROWS:  # mostly sets that no provider has any more
                self._sets = {",".join(each): each for each in {*self.traits, *self.aggregates, shared, ()}}
        return shared

    def _set_inventories(self, by_id: dict[int, int], rows: Sequence[Row]) -> None:
        for columns in self.classes.values():
            columns.clear(list(by_id.values()))
        by_class: dict[str, tuple[list[int], list[list[int]]]] = {}
        for row in rows:
            places, numbers = by_class.setdefault(row["name"], ([], []))
            places.append(by_id[row["provider_id"]])
            numbers.append([row[name] for name in ClassColumns.NAMES])
        for name, (places, numbers) in by_class.items():
            if name not in self.classes:
                self.classes[name] = ClassColumns(len(self.alive))
            self.classes[name].set(places, numbers)

    def _forget(self, uuid: str) -> None:
        at = self.index.pop(uuid, None)
        if at is None:
            return
        for columns in self.classes.values():
            columns.clear([at])
        self._set_names([at], [None], self.traits, self.with_trait)
        self._set_names([at], [None], self.aggregates, self.in_aggregate)
        self.alive[at] = self.accepting[at] = False
        self.root[at], self.parent[at] = at, NOWHERE
        self.uuids[at] = self.names[at] = ""
        self._free.append(at)
        self._trees = None
        self.layout += 1

    def _grow(self, rows: int) -> None:
        rows = max(rows, 2 * FIRST_ROWS)
        for name in COLUMNS:
            setattr(self, name, grown(getattr(self, name), rows))
        for columns in self.classes.values():
            columns.grow(rows)
        self.with_trait.grow(rows)
        self.in_aggregate.grow(rows)

    def truths(self, bits: Bits) -> Bools:
        return unpacked(bits, self.rows)


def _custom_last(name: str) -> tuple[bool, str]:
    """Return the sort key by which the original shows traits."""
    return name.startswith(CUSTOM), name


_SHARED: WeakKeyDictionary[Store, PlacementSnapshot] = WeakKeyDictionary()


def snapshot_of(store: Store) -> PlacementSnapshot:
    """Return the only snapshot of this database in this process: the scheduler and the API share it."""
    snapshot = _SHARED.get(store)
    if snapshot is None:
        snapshot = _SHARED[store] = PlacementSnapshot()
    return snapshot
