"""The columns of a snapshot: numbers per resource class, and which providers have a trait or are in an aggregate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Places = NDArray[np.int32]
Bools = NDArray[np.bool_]
Bits = NDArray[np.uint8]  # one bit per provider, the first one lowest

SPARSE = 512  # a name that fewer than one provider in 512 has costs less as a set of places than as bits
ONE_BY_ONE = 16  # below this number of places numpy does not pay


class ClassColumns:
    """One resource class over all providers; all zeros if a provider has none.

    It is one table with a row per name: its columns are taken out for the hosts of a request all at once.
    """

    NAMES = ("capacity", "used", "min_unit", "max_unit", "step_size")

    def __init__(self, rows: int) -> None:
        self.table: Ints = np.zeros((len(self.NAMES), rows), dtype=np.int64)
        self.count = 0  # providers that have it

    def set(self, places: Sequence[int], numbers: Sequence[Sequence[int]]) -> None:
        """Set the numbers of places that were cleared before."""
        self.table[:, places] = np.array(numbers, dtype=np.int64).T
        self.count += len(places)

    def clear(self, places: Sequence[int]) -> None:
        self.count -= int(np.count_nonzero(self.has(places)))
        self.table[:, places] = 0

    def has(self, places: Any = slice(None)) -> Bools:
        """Return which places have an inventory: its max_unit is never 0."""
        has: Bools = self.table[3, places] > 0
        return has

    def fits(self, amount: int, places: Any) -> Bools:
        """Room for that much in one piece."""
        capacity, used, min_unit, max_unit, step = self.table[:, places]
        fits: Bools = capacity - used >= amount
        fits &= min_unit <= amount
        fits &= max_unit >= amount
        coarse = np.flatnonzero(step > 1)  # a division for every provider would cost more than all the rest
        if len(coarse):
            fits[coarse] &= amount % step[coarse] == 0
        return fits

    def copy(self) -> ClassColumns:
        same = ClassColumns(0)
        same.table, same.count = self.table.copy(), self.count
        return same

    def grow(self, rows: int) -> None:
        larger: Ints = np.zeros((len(self.NAMES), rows), dtype=np.int64)
        larger[:, : self.table.shape[1]] = self.table
        self.table = larger


class NameColumns:
    """The places of each name: traits or aggregates. A name that no provider has is not here."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._columns: dict[str, Bits | set[int]] = {}
        self._counts: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterable[str]:
        return iter(self._columns)

    def add(self, name: str, places: Sequence[int]) -> None:
        """Add the name at places that did not have it."""
        count = self._counts[name] = self._counts.get(name, 0) + len(places)
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = set()
        if isinstance(column, set):
            column.update(places)
            if count * SPARSE >= self.rows:
                self._columns[name] = self._packed(column)
        elif len(places) < ONE_BY_ONE:
            for at in places:
                column[at >> 3] |= 1 << (at & 7)
        else:
            column |= self._packed(places)

    def drop(self, name: str, places: Sequence[int]) -> None:
        """Remove the name at places that had it."""
        count = self._counts[name] = self._counts[name] - len(places)
        if not count:
            del self._columns[name], self._counts[name]
            return
        column = self._columns[name]
        if isinstance(column, set):
            column.difference_update(places)
        else:
            for at in places:
                column[at >> 3] &= ~(1 << (at & 7)) & 0xFF

    def any_of(self, names: Iterable[str]) -> Bits:
        """A new column: the places that have at least one of the names."""
        bits: Bits = np.zeros(_bytes(self.rows), dtype=np.uint8)
        for name in names:
            column = self._columns.get(name)
            if isinstance(column, set):
                for at in column:
                    bits[at >> 3] |= 1 << (at & 7)
            elif column is not None:
                bits |= column
        return bits

    def places(self, name: str) -> list[int]:
        column = self._columns.get(name, ())
        if isinstance(column, np.ndarray):
            positions: list[int] = np.flatnonzero(unpacked(column, self.rows)).tolist()
            return positions
        return sorted(column)

    def copy(self) -> NameColumns:
        same = NameColumns(self.rows)
        same._columns = {name: column.copy() for name, column in self._columns.items()}
        same._counts = dict(self._counts)
        return same

    def grow(self, rows: int) -> None:
        self.rows = rows
        for name, column in self._columns.items():
            if isinstance(column, set):
                continue
            if self._counts[name] * SPARSE < rows:
                self._columns[name] = set(np.flatnonzero(unpacked(column, len(column) * 8)).tolist())
            else:
                self._columns[name] = grown(column, _bytes(rows))

    def _packed(self, places: Iterable[int]) -> Bits:
        truths: Bools = np.zeros(self.rows, dtype=np.bool_)
        truths[list(places)] = True
        return np.packbits(truths, bitorder="little")


def _bytes(rows: int) -> int:
    return (rows + 7) // 8


def unpacked(bits: Bits, rows: int) -> Bools:
    truths: Bools = np.unpackbits(bits, count=rows, bitorder="little").view(np.bool_)
    return truths


def grown(column: NDArray[Any], rows: int) -> NDArray[Any]:
    larger = np.zeros(max(rows, len(column)), dtype=column.dtype)
    larger[: len(column)] = column
    return larger
