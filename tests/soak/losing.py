"""A pytest plugin: run the chosen tests once, then again without one condition of the code at a time.

    python -m pytest -p tests.soak.losing --lose kilonova/hosts tests/engine tests/stories

The first run records which tests use which statement and which function. After it each condition is lost in a forked
process that runs the tests which use it, the quickest first, until one fails. A condition that nothing misses is
printed, unless equivalent.txt names it with the reason why its loss changes nothing.
"""

from __future__ import annotations

import itertools
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.soak.conditions import PACKAGE, ROOT, CannotBeLost, Condition, Statements, of_functions, relative
from tests.soak.mistakes import of_file

EQUIVALENT = Path(__file__).with_name("equivalent.txt")
SURVIVES, NOTICED, IMPOSSIBLE, UNUSED = 0, 1, 2, 3
JOBS = int(os.environ.get("KILONOVA_JOBS", min(2, os.cpu_count() or 1)))
STATEMENTS = Statements()  # before the modules are loaded that make some


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("losing conditions")
    group.addoption("--lose", action="append", default=[], help="only conditions whose place begins so")
    group.addoption("--lose-keys", action="store_true", help="only conditions of statements, and keys of rows")
    group.addoption("--lose-seconds", type=float, default=30.0, help="CPU time for the tests of one condition")
    group.addoption("--lose-record", type=Path, help="keep there which tests use what; add tests that it does not know")
    group.addoption("--mistakes", type=int, default=0, help="make so many mistakes of all kinds instead, at random")
    group.addoption("--mistakes-seed", default="1", help="which ones")
    group.addoption("--lose-share", type=float, default=1.0, help="try only this share of the conditions")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Losing(config), "losing-conditions")


class Losing:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.statements = STATEMENTS
        self.users: defaultdict[object, set[pytest.Item]] = defaultdict(set)
        self.seconds: dict[pytest.Item, float] = {}
        self.now: set[Any] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed or session.config.option.collectonly:
            return False
        with tempfile.TemporaryDirectory() as scratch:
            record = self.config.option.lose_record or Path(scratch) / "record"
            items = {item.nodeid: item for item in session.items}
            if record.exists():
                self._load(record, items)
            if missing := [item for item in session.items if item not in self.seconds]:
                self._record_in_child(missing, record)
                self._load(record, items)
        session.testsfailed = self._lose_all()
        return True

    def _record_in_child(self, items: Sequence[pytest.Item], record: Path) -> None:
        """Here no test has run: threads that one began would be missing in every process that is forked later."""
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        try:
            self._record(items)
            self._save(record)
        finally:
            os._exit(0)

    def _save(self, record: Path) -> None:
        """Add what was recorded to the file: it may know tests that this run did not select."""
        users, seconds = pickle.loads(record.read_bytes()) if record.exists() else ({}, {})
        for used, items in self.users.items():
            users.setdefault(used, set()).update(item.nodeid for item in items)
        seconds.update((item.nodeid, cost) for item, cost in self.seconds.items())
        finished = record.with_name(f"{record.name}.{os.getpid()}")
        finished.write_bytes(pickle.dumps((users, seconds)))
        finished.replace(record)

    def _load(self, record: Path, items: dict[str, pytest.Item]) -> None:
        users, seconds = pickle.loads(record.read_bytes())
        for used, names in users.items():
            self.users[used] = {items[name] for name in names if name in items}
        self.seconds = {items[name]: cost for name, cost in seconds.items() if name in items}

    def _record(self, items: Sequence[pytest.Item]) -> None:
        self._watch_statements()
        for at, item in enumerate(items):
            following = items[at + 1] if at + 1 < len(items) else None
            self.now, began = set(), time.process_time()
            sys.settrace(self._trace)
            threading.settrace(self._trace)
            reports = runtestprotocol(item, log=False, nextitem=following)
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            if any(report.failed for report in reports):
                print(f"fails unchanged: {item.nodeid}", flush=True)
                continue
            self.seconds[item] = time.process_time() - began
            recorded, self.now = self.now, set()  # threads may still be at work
            for used in recorded:
                self.users[used].add(item)

    def _watch_statements(self) -> None:
        from kilonova.store.sqlite_transactions import SqliteTx

        start, many = SqliteTx.start, SqliteTx.many

        def started(tx: Any, statement: Any, params: Any) -> Any:
            self.now.add(self.statements.key(statement))
            return start(tx, statement, params)

        async def of_many(tx: Any, statement: Any, rows: Any, /) -> None:
            self.now.add(self.statements.key(statement))
            await many(tx, statement, rows)

        SqliteTx.start = started  # type: ignore[method-assign]
        SqliteTx.many = of_many  # type: ignore[method-assign]

    def _trace(self, frame: Any, event: str, arg: Any) -> None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            self.now.add((relative(code.co_filename), code.co_qualname))

    def _conditions(self) -> Iterator[Condition]:
        option = self.config.option
        yield from self.statements.conditions()
        for path in sorted((ROOT / "kilonova").rglob("*.py")):
            if _is_chosen(str(path.relative_to(ROOT)), option.lose):
                yield from (one for one in of_functions(path) if one.is_key or not option.lose_keys)

    def _lose_all(self) -> int:
        """Return how many conditions nothing misses."""
        option = self.config.option
        if option.mistakes:
            return self._attempt_all(self._mistakes(option.mistakes, option.mistakes_seed))
        known = {line.partition("  #")[0].strip() for line in EQUIVALENT.read_text().splitlines()}
        chosen = [one for one in self._conditions() if _is_chosen(one.where, option.lose) and str(one) not in known]
        tried = random.Random(1).sample(chosen, round(option.lose_share * len(chosen)))
        return self._attempt_all(sorted(tried, key=str))

    def _mistakes(self, number: int, seed: str) -> list[Condition]:
        """So many of each kind, as long as there are some."""
        option, by_kind = self.config.option, defaultdict[str, list[Condition]](list)
        for condition in self._conditions():
            if _is_chosen(condition.where, option.lose):
                by_kind["lost key" if condition.is_key else "lost condition"].append(condition)
        for path in sorted((ROOT / "kilonova").rglob("*.py")):
            if _is_chosen(relative(str(path)), option.lose):
                for kind, mistake in of_file(path):
                    by_kind[kind].append(mistake)
        chance = random.Random(seed)
        for mistakes in by_kind.values():
            chance.shuffle(mistakes)
        turns = itertools.zip_longest(*by_kind.values())
        return [one for turn in turns for one in turn if one is not None][:number]

    def _attempt_all(self, tried: Sequence[Condition]) -> int:
        """Return how many nothing misses."""
        count = {NOTICED: 0, IMPOSSIBLE: 0, SURVIVES: 0, UNUSED: 0}
        for condition, verdict in self._attempts(tried):
            count[verdict] += 1
            if verdict in (SURVIVES, UNUSED):
                used = len(self.users.get(condition.used_by, ()))
                print(f"{'SURVIVES' if used else 'UNUSED  '}  {condition}  ({used} tests use it)", flush=True)
        print(
            f"\n{len(tried)} conditions: {count[NOTICED]} noticed, {count[SURVIVES]} survive, {count[UNUSED]} in code "
            f"that no test uses, {count[IMPOSSIBLE]} cannot be lost"
        )
        return count[SURVIVES] + count[UNUSED]

    def _attempts(self, conditions: Sequence[Condition]) -> Iterator[tuple[Condition, int]]:
        running: dict[int, Condition] = {}
        for condition in conditions:
            items = sorted(self.users.get(condition.used_by, ()), key=lambda item: self.seconds[item])
            if not items:
                yield condition, UNUSED
                continue
            if len(running) >= JOBS:
                yield _ended(running)
            running[self._fork(condition, items)] = condition
        while running:
            yield _ended(running)

    def _fork(self, condition: Condition, items: Sequence[pytest.Item]) -> int:
        child = os.fork()
        if child:
            return child
        try:
            os._exit(self._run_without(condition, items))
        except BaseException:
            os._exit(NOTICED)

    def _run_without(self, condition: Condition, items: Sequence[pytest.Item]) -> int:
        limit = self.config.option.lose_seconds
        signal.signal(signal.SIGXCPU, lambda *_: os._exit(NOTICED))  # it does not end any more
        signal.signal(signal.SIGALRM, lambda *_: os._exit(NOTICED))
        resource.setrlimit(resource.RLIMIT_CPU, (int(2 * limit) + 10, resource.RLIM_INFINITY))
        signal.alarm(int(8 * limit))
        try:
            condition.lose()
        except CannotBeLost as why:
            print(f"CANNOT    {condition}  ({why})", flush=True)
            return IMPOSSIBLE
        began = time.process_time()
        for item in items:
            if time.process_time() - began > limit:
                break
            if hasattr(item, "_initrequest"):
                item._initrequest()
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=None)):
                return NOTICED
        return SURVIVES


def _is_chosen(where: str, chosen: Sequence[str]) -> bool:
    """A file is chosen by its folder, by itself, and by one of its functions."""
    return not chosen or any(where.startswith(one) or one.startswith(f"{where}:") for one in chosen)


def _ended(running: dict[int, Condition]) -> tuple[Condition, int]:
    child, status = os.waitpid(-1, 0)
    return running.pop(child), os.waitstatus_to_exitcode(status)
