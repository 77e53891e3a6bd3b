"""Follow operations until they end: live on a terminal, a line per change elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from kilonova.cli.exits import DONE, FAILED, TIMED_OUT
from kilonova.cli.operation_text import children_of, outcome, step_line, title
from kilonova.cli.options import Form
from kilonova.cli.output import is_terminal, print_data, print_lines
from kilonova.cli.rest import Cloud, segment
from kilonova.cli.times import duration
from kilonova.domain.answers import WholeOperation
from kilonova.domain.errors import Failed
from kilonova.domain.visible import visible

if TYPE_CHECKING:
    from rich.live import Live

PAUSE = 0.3  # seconds between two looks
NOT_MOVED = ("failed", "impossible", "refused", "not_begun")  # of the account of whole hosts


def follow(cloud: Cloud, operations: Sequence[str], timeout: float, form: Form, end: str = "done") -> int:
    """Show progress until all have ended. Return the exit code: done if all did so in the state `end`, failed, or 5 for
    one that still runs."""
    view = _Terminal() if form == "table" and is_terminal() else _Lines(sys.stdout if form == "table" else sys.stderr)
    stops, records = time.monotonic() + timeout, list[WholeOperation]()
    try:
        with view:
            while True:
                records = _look(cloud, operations) or records
                view.update(records)
                if (records and all(one["ended_at"] is not None for one in records)) or time.monotonic() > stops:
                    break
                time.sleep(PAUSE)
    except KeyboardInterrupt:
        timeout = -1
    code = _conclude(records, timeout, end)
    if form != "table":
        print_data(records[0] if len(records) == 1 else records, form)
    return code


def _look(cloud: Cloud, operations: Sequence[str]) -> list[WholeOperation] | None:
    """Return the operations; None if the cloud does not answer now. They go on meanwhile."""
    try:
        return [cloud.get(f"/operations/{segment(one)}")["operation"] for one in operations]
    except Failed:
        return None


def _conclude(records: Sequence[WholeOperation], timeout: float, end: str) -> int:
    running = [one for one in records if one["ended_at"] is None]
    for one in running:
        waited = f"after {duration(timeout)}" if timeout >= 0 else "and goes on"
        text = f"operation {one['id']} is still {one['state']} {waited}; watch it: kilonova op watch {one['id']}"
        print(f"kilonova: {text}", file=sys.stderr)
    if running or not records:
        return TIMED_OUT
    return DONE if all(_has_ended_well(one, end) for one in records) else FAILED


def _has_ended_well(operation: WholeOperation, end: str = "done") -> bool:
    """Return True if everything requested was done: for whole hosts, every server too."""
    account = (operation["account"] or {}) if end == "done" else {}
    return operation["state"] == end and not any(account.get(kind) for kind in NOT_MOVED)


class _Lines:
    """A line for each step that changed, each new reason to wait, and each server that was moved."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._printed = set[tuple[Any, ...]]()

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def update(self, operations: Sequence[WholeOperation]) -> None:
        for one in operations:
            for step in one["steps"]:
                self._print((one["id"], step["ordinal"], step["state"]), step_line(step))
            if one["waiting_for"]:
                self._print((one["id"], "waiting", one["waiting_for"]), f"  waiting for {one['waiting_for']}")
            if children := children_of(one):
                self._print((one["id"], "children", children), f"  {children}")
            if one["ended_at"] is not None:
                self._print((one["id"], "ended"), outcome(one))

    def _print(self, key: tuple[Any, ...], line: str) -> None:
        if key not in self._printed:
            self._printed.add(key)
            print_lines([line], self._out)


class _Terminal:
    """The steps of each operation, redrawn in place."""

    def __enter__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live: Live = Live(console=Console(highlight=False), refresh_per_second=8)
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, operations: Sequence[WholeOperation]) -> None:
        from rich.console import Group

        self._live.update(Group(*(part for one in operations for part in self._parts(one))), refresh=True)

    def _parts(self, one: WholeOperation) -> list[Any]:
        from rich.spinner import Spinner
        from rich.text import Text

        ended = one["ended_at"] is not None
        head = (
            Text(visible(outcome(one)), style="green" if _has_ended_well(one) else "red")
            if ended
            else Spinner("dots", title(one))
        )
        steps = [(visible(step_line(step)), step["state"] == "done") for step in one["steps"]]
        lines = [Text(line, style="dim" if is_done else "") for line, is_done in steps]
        waiting = [Text(visible(f"  waiting for {one['waiting_for']}"), style="yellow")] if one["waiting_for"] else []
        return [*lines, *waiting, *self._children(one), head]

    def _children(self, one: WholeOperation) -> list[Any]:
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        text, progress = children_of(one), one.get("progress")
        if progress is None:
            return []
        counts = progress["children"]
        bar = ProgressBar(total=counts["planned"] or 1, completed=counts["done"] + counts["failed"], width=40)
        return [bar, Text(f"  {text}")]
