"""A row per figure: value, unit, target, and whether it passed; printed as a table and kept as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
Value = float | int | str


@dataclass
class Row:
    figure: str
    value: Value
    unit: str = ""
    target: str = ""
    passed: bool | None = None  # None: there is no target
    note: str = ""


@dataclass
class Report:
    name: str
    rows: list[Row] = field(default_factory=list)

    def add(self, figure: str, value: Value, unit: str = "", note: str = "") -> None:
        self.rows.append(Row(figure, value, unit, note=note))

    def at_most(self, figure: str, value: float, unit: str, limit: float, note: str = "") -> None:
        self.rows.append(Row(figure, value, unit, f"<= {limit:g}", value <= limit, note))

    def at_least(self, figure: str, value: float, unit: str, limit: float, note: str = "") -> None:
        self.rows.append(Row(figure, value, unit, f">= {limit:g}", value >= limit, note))

    def exactly(self, figure: str, value: Value, wanted: Value, unit: str = "", note: str = "") -> None:
        self.rows.append(Row(figure, value, unit, f"= {wanted}", value == wanted, note))

    def not_run(self, why: str) -> None:
        self.rows.append(Row("not run", why))

    def finish(self) -> int:
        """Prints and writes; the exit code of the bench."""
        RESULTS.mkdir(exist_ok=True)
        document = [{("pass" if key == "passed" else key): v for key, v in asdict(row).items()} for row in self.rows]
        (RESULTS / f"{self.name}.json").write_text(json.dumps(document, indent=1) + "\n")
        self._print()
        return 0 if all(row.passed is not False for row in self.rows) else 1

    def _print(self) -> None:
        load = " ".join(f"{number:.1f}" for number in os.getloadavg())
        print(f"\n{self.name}  ({os.cpu_count()} cores, load {load}, Python {platform.python_version()})")
        cells = [
            (row.figure, _shown(row.value), row.unit, row.target, _word(row.passed), row.note) for row in self.rows
        ]
        widths = [max(len(line[column]) for line in cells) for column in range(6)]
        for line in cells:
            left, value, *rest = (text.ljust(width) for text, width in zip(line, widths, strict=True))
            print("  ".join([left, value.strip().rjust(widths[1]), *rest]).rstrip())
        print(flush=True)


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return str(value)


def _word(passed: bool | None) -> str:
    return "" if passed is None else "pass" if passed else "MISSED"


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def rounds(values: Sequence[float], digits: int = 2) -> str:
    """What each round gave, for the note beside their median."""
    return "rounds " + " ".join(f"{value:.{digits}f}" for value in values)
