"""The columns of a snapshot hold what plain sets and dicts would hold, however many places there are."""

from __future__ import annotations

import random
from collections.abc import Collection

import numpy as np
import pytest

from kilonova.placement.snapshot_columns import ONE_BY_ONE, SPARSE, ClassColumns, NameColumns, unpacked

NAMES = ("COMMON", "SOME", "RARE")
Model = dict[str, set[int]]


def assert_same(columns: NameColumns, model: Model, rows: int) -> None:
    assert set(columns) == {name for name, places in model.items() if places}
    for name, places in model.items():
        assert (name in columns) is bool(places)
        assert columns.places(name) == sorted(places)
    for asked in ((), ("RARE",), ("COMMON", "SOME"), NAMES, ("NOBODY", "SOME")):
        bits = columns.any_of(asked)
        assert set(np.flatnonzero(unpacked(bits, rows)).tolist()) == set().union(*(model.get(n, ()) for n in asked))
        bits |= 0xFF  # a new column: what is done to it changes nothing
    assert columns.places("SOME") == sorted(model["SOME"])


def some(chance: random.Random, places: Collection[int], most: int) -> list[int]:
    return chance.sample(sorted(places), min(chance.randint(1, most), len(places)))


@pytest.mark.parametrize("seed", range(12))
def test_names_are_at_the_places_where_they_were_put(seed: int) -> None:
    """With few places and with many, so that a name changes between a set and bits; neighbours share a byte."""
    chance = random.Random(seed)
    rows = chance.choice([9, 64, SPARSE - 1, SPARSE, SPARSE + 1, 3 * SPARSE + 5])
    columns = NameColumns(rows)
    model: Model = {name: set() for name in NAMES}
    for _ in range(60):
        name = chance.choice(NAMES)
        most = {"COMMON": rows, "SOME": 2 * ONE_BY_ONE, "RARE": 2}[name]
        there, missing = model[name], set(range(rows)) - model[name]
        match chance.randrange(8):
            case 0 | 1 | 2 | 3 if missing:
                columns.add(name, places := some(chance, missing, most))
                there.update(places)
            case 4 | 5 | 6 if there:
                columns.drop(name, places := some(chance, there, most))
                there.difference_update(places)
            case 7 if rows < 8 * SPARSE:
                columns.grow(rows := rows + chance.randint(1, rows))
        assert_same(columns, model, rows)


@pytest.mark.parametrize("places", [[0], [1, 6, 7, 8, 15], list(range(40)), list(range(0, 1200, 3))])
def test_a_copy_of_names_does_not_change(places: list[int]) -> None:
    columns = NameColumns(1200)
    columns.add("A", places)
    same = columns.copy()
    columns.drop("A", places[:1])
    columns.add("B", [3])
    same.add("C", [4])
    assert (same.places("A"), same.places("B"), same.places("C")) == (places, [], [4])
    assert (columns.places("A"), columns.places("B"), columns.places("C")) == (places[1:], [3], [])


def test_a_rare_name_is_a_set_of_places_and_a_common_one_is_bits() -> None:
    """What a name costs does not depend on how the number of its places came about."""
    for rows, count, is_bits in (
        (SPARSE, 1, True),
        (SPARSE + 1, 1, False),
        (2 * SPARSE, 2, True),
        (2 * SPARSE, 1, False),
    ):
        columns = NameColumns(rows)
        columns.add("A", list(range(count)))
        assert isinstance(columns._columns["A"], np.ndarray) is is_bits
        grown_to = NameColumns(1)
        grown_to.grow(count)
        grown_to.add("A", list(range(count)))
        grown_to.grow(rows)
        assert isinstance(grown_to._columns["A"], np.ndarray) is is_bits


def test_no_name_is_left_where_all_places_were_dropped() -> None:
    columns = NameColumns(8)
    columns.add("A", [1, 2])
    columns.drop("A", [1])
    columns.drop("A", [2])
    assert "A" not in columns and list(columns) == []
    columns.add("A", [3])
    assert columns.places("A") == [3]


INVENTORY = {"capacity": 10, "used": 3, "min_unit": 2, "max_unit": 6, "step_size": 2}


def one_class(**values: int) -> ClassColumns:
    columns = ClassColumns(3)
    columns.set([1], [[{**INVENTORY, **values}[name] for name in ClassColumns.NAMES]])
    return columns


@pytest.mark.parametrize(
    ("values", "amount", "fits"),
    [
        ({}, 2, True),
        ({}, 1, False),  # less than the smallest
        ({"step_size": 1}, 3, True),
        ({}, 3, False),  # between two steps
        ({}, 4, True),
        ({}, 6, True),
        ({"used": 4}, 6, True),  # exactly what is left
        ({"used": 5}, 6, False),
        ({"used": 20}, 2, False),
        ({"max_unit": 5}, 6, False),
        ({"min_unit": 3, "step_size": 1}, 3, True),
    ],
)
def test_an_amount_fits_into_what_is_left_in_units_and_steps(values: dict[str, int], amount: int, fits: bool) -> None:
    columns = one_class(**values)
    assert columns.fits(amount, slice(None)).tolist() == [False, fits, False]
    assert columns.fits(amount, [2, 1, 1]).tolist() == [False, fits, fits]
    if fits:
        assert columns.fits(amount, [0]).tolist() == [False], "nothing is offered there"


def test_inventories_are_counted_set_cleared_and_copied() -> None:
    columns = one_class()
    assert (columns.count, columns.has().tolist(), columns.has([1, 0]).tolist()) == (
        1,
        [False, True, False],
        [True, False],
    )
    same = columns.copy()
    columns.set([0, 2], [[1, 0, 1, 1, 1], [2, 0, 1, 2, 1]])
    assert (columns.count, columns.has().tolist()) == (3, [True, True, True])
    columns.clear([0, 1])
    assert (columns.count, columns.table[0].tolist()) == (1, [0, 0, 2])
    columns.clear([0, 1])
    assert columns.count == 1, "nothing was left there"
    assert (same.count, same.table[0].tolist()) == (1, [0, 10, 0])
    same.grow(5)
    assert same.table[0].tolist() == [0, 10, 0, 0, 0]
