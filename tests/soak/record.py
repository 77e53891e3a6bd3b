"""Which tests use which line and which statement, and what each costs: kept in a file, so that it is found out once.

Lines are recorded by coverage.py, with a context for each test. They are those of the files as they were then: of a
file that has changed since, a line is looked up where the same text stood.
"""

from __future__ import annotations

import difflib
import os
import pickle
import sqlite3
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from _pytest.runner import runtestprotocol
from coverage import Coverage, CoverageData
from coverage.numbits import nums_to_numbits, register_sqlite_functions

from tests.soak.conditions import PACKAGE, ROOT, Lines, relative


class Kept(NamedTuple):
    """What is kept besides the lines."""

    users: dict[str, set[str]]  # of a statement, by its text
    seconds: dict[str, float]
    sources: dict[str, list[str]]


class Record:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept = Kept({}, {}, {})
        self._lines: sqlite3.Connection | None = None

    @property
    def seconds(self) -> dict[str, float]:
        return self.kept.seconds

    def load(self) -> None:
        if self.path.exists():
            self.kept = Kept(*pickle.loads(self.path.read_bytes()))
            self._lines = sqlite3.connect(self._coverage)
            register_sqlite_functions(self._lines)

    def users(self, used: Lines | str) -> set[str]:
        if not isinstance(used, Lines):
            return self.kept.users.get(used, set())
        if self._lines is None or used.path not in self.kept.sources:
            return set()
        lines = [before for line in range(used.first, used.last + 1) if (before := self._before(used.path).get(line))]
        bits = nums_to_numbits(lines or self._around(used))
        rows = self._lines.execute(
            "select context from line_bits join context on context.id = context_id join file on file.id = file_id"
            " where file.path = ? and numbits_any_intersection(numbits, ?)",
            (used.path, bits),
        )
        return {context for (context,) in rows if context}

    def _around(self, used: Lines) -> list[int]:
        """The lines of a function that is not the one that was recorded."""
        known = self._before(used.path)
        return [known[line] for line in range(used.top, used.bottom + 1) if line in known]

    @cache  # noqa: B019  one record in a process
    def _before(self, path: str) -> dict[int, int]:
        """Return each line's number in the recorded file; a line that is new has none."""
        now, then = (ROOT / path).read_text().splitlines(), self.kept.sources[path]
        blocks = difflib.SequenceMatcher(None, then, now, autojunk=False).get_matching_blocks()
        return {b + at + 1: a + at + 1 for a, b, size in blocks for at in range(size)}

    @property
    def _coverage(self) -> Path:
        return self.path.with_name(f"{self.path.name}.lines")

    def add(self, items: Sequence[pytest.Item], jobs: int) -> None:
        """Run the tests in processes of their own: threads that one began would be missing in forks of this one."""
        modules: defaultdict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            modules[item.nodeid.partition("::")[0]].append(item)
        shares: list[list[pytest.Item]] = [[] for _ in range(jobs)]
        for module in sorted(modules.values(), key=len, reverse=True):
            min(shares, key=len).extend(module)
        children = []
        for number, share in enumerate(shares):
            child = os.fork()
            if not child:
                code = 1
                try:
                    _Recording(self._part(number)).run(share)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            children.append(child)
        failed = [child for child in children if os.waitpid(child, 0)[1]]
        assert not failed, "the tests could not be recorded"
        self._combine(jobs)

    def _part(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _combine(self, jobs: int) -> None:
        lines = CoverageData(basename=str(self._coverage))
        lines.read()
        for part in map(self._part, range(jobs)):
            more = CoverageData(basename=f"{part}.lines")
            more.read()
            lines.update(more)
            found = Kept(*pickle.loads(part.read_bytes()))
            for key, names in found.users.items():
                self.kept.users.setdefault(key, set()).update(names)
            self.kept.seconds.update(found.seconds)
            part.unlink()
            Path(f"{part}.lines").unlink()
        lines.write()
        lines.close()
        for path in (ROOT / "kilonova").rglob("*.py"):
            self.kept.sources.setdefault(relative(str(path)), path.read_text().splitlines())
        self.path.write_bytes(pickle.dumps(tuple(self.kept)))


class _Recording:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.now: set[str] = set()

    def run(self, items: Sequence[pytest.Item]) -> None:
        self._watch_statements()
        coverage = Coverage(data_file=f"{self.path}.lines", config_file=False, include=[f"{PACKAGE}*"])
        coverage.set_option("run:relative_files", True)  # one record serves every copy of the tree
        kept = Kept(defaultdict(set), {}, {})
        coverage.start()
        for at, item in enumerate(items):
            coverage.switch_context(item.nodeid)
            self.now, began = set(), time.process_time()
            reports = runtestprotocol(item, log=False, nextitem=items[at + 1] if at + 1 < len(items) else None)
            if any(report.failed for report in reports):
                print(f"fails unchanged: {item.nodeid}", flush=True)
                continue
            kept.seconds[item.nodeid] = time.process_time() - began
            recorded, self.now = self.now, set()  # threads may still be at work
            for used in recorded:
                kept.users[used].add(item.nodeid)
        coverage.stop()
        coverage.save()
        self.path.write_bytes(pickle.dumps((dict(kept.users), kept.seconds, {})))
        sys.stdout.flush()

    def _watch_statements(self) -> None:
        from kilonova.store.sqlite_transactions import SqliteTx

        start, many = SqliteTx.start, SqliteTx.many

        def started(tx: Any, statement: Any, params: Any) -> Any:
            self.now.add(statement.sqlite[0])
            return start(tx, statement, params)

        async def of_many(tx: Any, statement: Any, rows: Any, /) -> None:
            self.now.add(statement.sqlite[0])
            await many(tx, statement, rows)

        SqliteTx.start = started  # type: ignore[method-assign]
        SqliteTx.many = of_many  # type: ignore[method-assign]
