"""The layout of a table: the width of each column, and which cells are folded.

No word is cut, since most are names and ids. A table that is too wide even with every cell folded is left to the
terminal to wrap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap

GAP = 2
Row = Sequence[str]


def widths_of(rows: Sequence[Row], most: int | None) -> list[int]:
    """Return the width of each column, in at most `most` characters together; None: without a limit."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    least = [max(len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    gaps = GAP * (len(widths) - 1)
    if most is None or sum(least) + gaps > most:
        return widths
    while (excess := sum(widths) + gaps - most) > 0:
        widest = max((at for at in range(len(widths)) if widths[at] > least[at]), key=lambda at: widths[at])
        widths[widest] = max(least[widest], widths[widest] - excess)
    return widths


def folded(row: Row, widths: Sequence[int]) -> Iterator[list[str]]:
    """The lines of a row; each has a text for every column, as wide as that one."""
    cells = [
        [cell] if len(cell) <= width else wrap(cell, width, break_long_words=False, break_on_hyphens=False)
        for cell, width in zip(row, widths, strict=True)
    ]
    for line in zip_longest(*cells, fillvalue=""):
        yield [text.ljust(width) for text, width in zip(line, widths, strict=True)]
