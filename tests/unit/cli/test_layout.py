"""Columns and folded cells of a table."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kilonova.cli.layout import GAP, folded, widths_of

CELLS = st.text(alphabet="ab- ", max_size=30).map(str.strip)
ROWS = st.integers(1, 4).flatmap(
    lambda columns: st.lists(st.lists(CELLS, min_size=columns, max_size=columns), min_size=1, max_size=5)
)


def test_the_widest_column_gives_way_first() -> None:
    rows = [["id", "why"], ["12345", "one two three four"]]
    assert widths_of(rows, None) == [5, 18]
    assert widths_of(rows, 16) == [5, 9]
    assert list(folded(rows[1], [5, 9])) == [["12345", "one two  "], ["     ", "three    "], ["     ", "four     "]]
    assert widths_of(rows, 8) == [5, 18], "even folded it does not fit"


@given(ROWS, st.integers(1, 80))
def test_no_word_is_cut_or_lost(rows: list[list[str]], most: int) -> None:
    widths = widths_of(rows, most)
    least = sum(max(len(word) for row in rows for word in row[at].split() or [""]) for at in range(len(widths)))
    gaps = GAP * (len(widths) - 1)
    assert sum(widths) + gaps <= most or least + gaps > most
    for row in rows:
        lines = list(folded(row, widths))
        assert all(len(cell) == width for line in lines for cell, width in zip(line, widths, strict=True))
        for at, cell in enumerate(row):
            assert " ".join(line[at] for line in lines).split() == cell.split()
