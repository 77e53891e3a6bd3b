"""The output of every command: tables for people, JSON, YAML and CSV for programs.

On a terminal tables fit its width and states have colours (not with NO_COLOR). Elsewhere a row is one line, so that it
can be searched, and rich is not loaded. What users wrote never steers the terminal (domain/visible.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from kilonova.cli.layout import GAP, folded, widths_of
from kilonova.cli.options import Form
from kilonova.cli.times import duration, iso, moment
from kilonova.domain.visible import is_visible, visible, visible_cell, visible_json

if TYPE_CHECKING:
    from rich.text import Text

Record = Mapping[str, Any]
Column = str | Callable[[Record], Any]  # the field of that name, or computed
Columns = Mapping[str, Column]  # by their headers
TIMES = (
    "last_seen",
    "away_since",
    "at",
    "began",
    "ended",
    "until",
)  # fields that have a time; so have those that end in _at
LONGEST = 90  # characters of a sentence in a table
COLOURS = {
    **dict.fromkeys(("done", "up", "active", "enabled", "current", "yes"), "green"),
    **dict.fromkeys(("failed", "error", "down", "undone", "no"), "red"),
    **dict.fromkeys(("waiting", "undoing", "unknown", "draining", "returning", "disabled", "cancelled"), "yellow"),
    **dict.fromkeys(("running", "accepted", "building", "resized", "taken"), "cyan"),
}


class At(float):
    """A time in a cell of a table."""


class Took(float):
    """A duration in a cell of a table."""


class Long(str):
    """A sentence that a table shows the beginning of; the record itself, and CSV, have all of it."""

    __slots__ = ()


def is_terminal() -> bool:
    return sys.stdout.isatty()


def print_list(records: Sequence[Record], columns: Columns, form: Form) -> None:
    """Print one row per record; JSON and YAML have every field of it."""
    if form in ("json", "yaml"):
        print_data(list(records), form)
        return
    rows = [[_value(record, column) for column in columns.values()] for record in records]
    if form == "csv":
        _print_csv([list(columns), *([_nested(cell) for cell in row] for row in rows)])
    else:
        print_table(list(columns), rows)


def print_record(record: Record, fields: Columns, form: Form) -> None:
    """Print one line per field; CSV is a header and one row."""
    if form in ("json", "yaml"):
        print_data(record, form)
        return
    cells = {name: _value(record, column) for name, column in fields.items()}
    if form == "csv":
        _print_csv([list(cells), [_nested(cell) for cell in cells.values()]])
        return
    texts = {name: _text(cell) for name, cell in cells.items() if cell not in (None, "")}
    width = max(map(len, texts), default=0)
    for name, text in texts.items():
        if is_terminal():
            _console().print(
                _joined(" " * GAP, [_coloured(name.ljust(width), "bold"), _coloured(text)]), soft_wrap=True
            )
        else:
            print(f"{name.ljust(width)}{' ' * GAP}{text}")


def print_outcome(sentences: Iterable[str], record: Record, form: Form) -> None:
    """Print the outcome of a request: sentences for people, the answer for programs."""
    if form == "table":
        print_lines(sentences)
    else:
        print_data(record, form)


def print_lines(lines: Iterable[str], out: TextIO | None = None) -> None:
    """Print sentences for people, each on one line, whatever names and reasons it contains."""
    print("\n".join(map(visible, lines)), file=out, flush=out is not None)


def print_data(data: Any, form: Form) -> None:
    """Print the whole response, with its times as text."""
    content = with_times(data)
    if form == "csv":
        _print_csv(_several(content) if isinstance(content, list) else _fields(content))
    elif form == "yaml":
        print(to_yaml(content), end="")
    else:
        import json

        print(visible_json(json.dumps(content, indent=2, ensure_ascii=False)))


def to_yaml(data: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    return text if is_visible(text) else str(yaml.safe_dump(data, sort_keys=False))


def _fields(record: Record) -> list[Sequence[Any]]:
    return [("field", "value"), *((name, _nested(value)) for name, value in record.items())]


def _several(records: Sequence[Record]) -> list[Sequence[Any]]:
    """A header and a row for each."""
    names = list(dict.fromkeys(name for record in records for name in record))
    return [names, *([_nested(record.get(name)) for name in names] for record in records)] if names else []


def _nested(value: Any) -> Any:
    """A value of CSV that may have others inside."""
    import json

    return json.dumps(with_times(value), ensure_ascii=False) if isinstance(value, dict | list) else _plain(value)


def with_times(data: Any, name: str = "") -> Any:
    if isinstance(data, Mapping):
        return {key: with_times(value, str(key)) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [with_times(one) for one in data]
    if isinstance(data, float) and (name in TIMES or name.endswith("_at")):
        return iso(data)
    return data


def print_table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print columns as wide as their widest cell; on a terminal where that is too wide, cells are folded at spaces."""
    texts = [[_text(cell) for cell in row] for row in rows]
    console = _console() if is_terminal() else None
    widths = widths_of([headers, *texts], None if console is None else console.width)
    gap = " " * GAP
    for number, row in enumerate((headers, *texts)):
        for cells in folded(row, widths):
            if console is None:
                print(gap.join(cells).rstrip())
            else:
                parts = [_coloured(cell, "bold" if number == 0 else "") for cell in cells]
                console.print(_joined(gap, parts), soft_wrap=True)


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False)


def _joined(gap: str, parts: Sequence[Text]) -> Text:
    from rich.text import Text

    line = Text(gap).join(parts)
    line.rstrip()
    return line


def _coloured(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style=style or COLOURS.get(text.partition(",")[0].strip().lower(), ""))


def _print_csv(rows: Iterable[Sequence[Any]]) -> None:
    import csv

    visible_rows = ([visible_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    csv.writer(sys.stdout, lineterminator="\n").writerows(visible_rows)


def _value(record: Record, column: Column) -> Any:
    if callable(column):
        return column(record)
    value = record.get(column)
    if isinstance(value, float) and (column in TIMES or column.endswith("_at")):
        return At(value)
    return value


def _text(cell: Any) -> str:
    if isinstance(cell, At):
        return moment(cell)
    if isinstance(cell, Took):
        return duration(cell)
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, Long):
        return visible(_shortened(cell)) or "-"
    return "-" if cell in (None, "") else visible(str(cell))


def _shortened(sentences: str) -> str:
    first = sentences.partition(". ")[0]
    return first if len(first) <= LONGEST else f"{first[:LONGEST].rpartition(' ')[0]} …"


def _plain(cell: Any) -> Any:
    """A value of CSV."""
    if isinstance(cell, At):
        return iso(cell)
    if isinstance(cell, Took):
        return f"{float(cell):.3f}"
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return "" if cell is None else cell
