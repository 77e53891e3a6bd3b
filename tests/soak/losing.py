"""A pytest plugin: run the chosen tests once, then again without one condition of the code at a time.

    python -m pytest -p tests.soak.losing --lose kilonova/hosts tests/engine tests/stories

The first run records which tests use which statement and which line (record.py). After it each condition is lost in a
forked process that runs the tests which use it, different ones first, until one fails. A condition that nothing misses
is printed, unless equivalent.txt names it with the reason why its loss changes nothing.
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import shutil
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from tests.soak.conditions import ROOT, CannotBeLost, Condition, Lines, Statements, functions, of_functions, relative
from tests.soak.mistakes import of_file
from tests.soak.patched import of_patch
from tests.soak.patches import MUTATIONS, load_all
from tests.soak.record import Record
from tests.support.loaded_program import Loaded

EQUIVALENT = Path(__file__).with_name("equivalent.txt")
SURVIVES, NOTICED, IMPOSSIBLE, UNUSED = 0, 1, 2, 3
JOBS = int(os.environ.get("KILONOVA_JOBS", min(2, os.cpu_count() or 1)))
Running = dict[int, tuple[Condition, str]]  # by process: what it does without, and where its files are
MOST_MEMORY = 4 * 1024**3  # bytes of a process; one that needs more does not end any more
STATEMENTS = Statements()  # before the modules are loaded that make some


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("losing conditions")
    group.addoption("--lose", action="append", default=[], help="only conditions whose place begins so")
    group.addoption("--lose-keys", action="store_true", help="only conditions of statements, and keys of rows")
    group.addoption("--lose-seconds", type=float, default=20.0, help="CPU time for the tests of one condition")
    group.addoption("--lose-record", type=Path, help="keep there which tests use what; add tests that it does not know")
    group.addoption("--mistakes", type=int, help="make so many mistakes of all kinds instead, at random; 0: all")
    group.addoption("--mistakes-seed", default="1", help="which ones")
    group.addoption(
        "--lose-patches", type=Path, help="the mutations of tests/mutations instead; who is left is written"
    )
    group.addoption("--patches", type=Path, default=MUTATIONS, help="where the mutations are")
    group.addoption("--lose-share", type=float, default=1.0, help="try only this share of the conditions")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Losing(config), "losing-conditions")


class Losing:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.statements = STATEMENTS
        self.items: dict[str, pytest.Item] = {}
        self.record = Record(Path())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed or session.config.option.collectonly:
            return False
        with tempfile.TemporaryDirectory() as scratch:
            self.record = Record(self.config.option.lose_record or Path(scratch) / "record")
            self.record.load()
            self.items = {item.nodeid: item for item in session.items}
            if missing := [item for name, item in self.items.items() if name not in self.record.seconds]:
                self.record.add(missing, JOBS)
                self.record.load()
            session.testsfailed = self._lose_all()
        return True

    def _users(self, condition: Condition) -> list[pytest.Item]:
        """The tests that use it: the likely ones first (or those named like its file), then one of each module, the
        quickest, then the next of each: the many cases of one test notice the same."""
        stem = Path(condition.where.partition(":")[0]).stem
        likely = condition.likely or f"/test_{stem}"
        names = [name for name in self.record.users(condition.used_by) if name in self.items]
        names = sorted((name for name in names if name in self.record.seconds), key=self.record.seconds.__getitem__)
        turns: Counter[str] = Counter()
        order: dict[str, tuple[bool, int, int]] = {}
        for name in names:
            module, function = name.partition("::")[0], name.partition("[")[0]
            order[name] = (likely not in name, turns[function], turns[module])
            turns[function] += 1
            turns[module] += turns[function] == 1
        names.sort(key=lambda name: (*order[name], self.record.seconds[name]))
        return [self.items[name] for name in names]

    def _conditions(self) -> Iterator[Condition]:
        option = self.config.option
        yield from self.statements.conditions()
        for path in sorted((ROOT / "kilonova").rglob("*.py")):
            if _is_chosen(str(path.relative_to(ROOT)), option.lose):
                yield from (one for one in of_functions(path) if one.is_key or not option.lose_keys)

    def _lose_all(self) -> int:
        """Return how many conditions nothing misses."""
        option = self.config.option
        if option.lose_patches:
            return self._attempt_patches(option.lose_patches)
        if option.mistakes is not None:
            return self._attempt_all(self._mistakes(option.mistakes, option.mistakes_seed))
        chosen = [one for one in self._conditions() if _is_chosen(one.where, option.lose) and not _is_equivalent(one)]
        tried = random.Random(1).sample(chosen, round(option.lose_share * len(chosen)))
        return self._attempt_all(sorted(tried, key=str))

    def _mistakes(self, number: int, seed: str) -> list[Condition]:
        """Of each kind equally many, as long as there are some; of number 0, all, file by file."""
        option, by_kind = self.config.option, defaultdict[str, list[Condition]](list)
        for condition in self._conditions():
            if _is_chosen(condition.where, option.lose) and not _is_equivalent(condition):
                by_kind["lost key" if condition.is_key else "lost condition"].append(condition)
        for path in sorted((ROOT / "kilonova").rglob("*.py")):
            if _is_chosen(relative(str(path)), option.lose):
                for kind, mistake in of_file(path):
                    if _is_chosen(mistake.where, option.lose) and not _is_equivalent(mistake):
                        by_kind[kind].append(mistake)
        if not number:
            return sorted(itertools.chain(*by_kind.values()), key=_position)
        chance = random.Random(seed)
        for mistakes in by_kind.values():
            chance.shuffle(mistakes)
        turns = itertools.zip_longest(*by_kind.values())
        return [one for turn in turns for one in turn if one is not None][:number]

    def _attempt_patches(self, left: Path) -> int:
        """Write the names of those that no test notices here, or that only a new process can show."""
        patches = {patch.name: of_patch(patch) for patch in load_all(self.config.option.patches)}
        made = [condition for condition in patches.values() if condition is not None]
        noticed = {condition.text for condition, verdict in self._attempts(made) if verdict == NOTICED}
        print(f"{len(noticed)} of {len(patches)} mutations noticed in forked processes", flush=True)
        left.write_text("".join(f"{name}\n" for name in patches if name not in noticed))
        return 0

    def _attempt_all(self, tried: Sequence[Condition]) -> int:
        """Return how many nothing misses."""
        count = {NOTICED: 0, IMPOSSIBLE: 0, SURVIVES: 0, UNUSED: 0}
        for number, (condition, verdict) in enumerate(self._attempts(tried), 1):
            count[verdict] += 1
            if number % 100 == 0:
                print(f"{number} of {len(tried)} tried", flush=True)
            if verdict in (SURVIVES, UNUSED):
                used = len(self._users(condition))
                line = condition.used_by.first if isinstance(condition.used_by, Lines) else "-"
                print(
                    f"{'SURVIVES' if used else 'UNUSED  '}  {condition}  (line {line}, {used} tests use it)", flush=True
                )
        print(
            f"\n{len(tried)} conditions: {count[NOTICED]} noticed, {count[SURVIVES]} survive, {count[UNUSED]} in code "
            f"that no test uses, {count[IMPOSSIBLE]} cannot be lost"
        )
        return count[SURVIVES] + count[UNUSED]

    def _attempts(self, conditions: Sequence[Condition]) -> Iterator[tuple[Condition, int]]:
        running: Running = {}
        functions()  # once, not in each of the processes
        for condition in conditions:
            items = self._users(condition)
            if not items:
                yield condition, UNUSED
                continue
            if len(running) >= JOBS:
                yield _ended(running)
            scratch = tempfile.mkdtemp(prefix="kilonova-mistake-")
            running[self._fork(condition, items, Path(scratch))] = condition, scratch
        while running:
            yield _ended(running)

    def _fork(self, condition: Condition, items: Sequence[pytest.Item], scratch: Path) -> int:
        child = os.fork()
        if child:
            return child
        try:
            # Its files go when it has ended: some thousand databases would fill the disk.
            tempfile.tempdir = str(scratch)
            self.config._tmp_path_factory._basetemp = scratch
            os._exit(self._run_without(condition, items))
        except BaseException:
            os._exit(NOTICED)

    def _run_without(self, condition: Condition, items: Sequence[pytest.Item]) -> int:
        limit = self.config.option.lose_seconds
        signal.signal(signal.SIGXCPU, lambda *_: os._exit(NOTICED))  # it does not end any more
        signal.signal(signal.SIGALRM, lambda *_: os._exit(NOTICED))
        resource.setrlimit(resource.RLIMIT_CPU, (int(2 * limit) + 10, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, resource.RLIM_INFINITY))
        signal.alarm(int(20 * limit) + 30)  # it shares the cores
        Loaded.__init__ = _no_other_process  # type: ignore[method-assign,assignment]
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


def _no_other_process(_: Loaded) -> None:
    """A program in a process of its own does not have the mistake, and to load it takes longer than most tests."""
    raise pytest.skip.Exception("needs another process")


@cache
def _equivalent() -> frozenset[str]:
    return frozenset(line.partition("  #")[0].strip() for line in EQUIVALENT.read_text().splitlines())


def _position(condition: Condition) -> tuple[str, int]:
    used_by = condition.used_by
    return condition.where.partition(":")[0], used_by.first if isinstance(used_by, Lines) else 0


def _is_equivalent(condition: Condition) -> bool:
    return str(condition) in _equivalent()


def _is_chosen(where: str, chosen: Sequence[str]) -> bool:
    """A file is chosen by its folder, by itself, and by one of its functions."""
    return not chosen or any(where.startswith(one) or one.startswith(f"{where}:") for one in chosen)


def _ended(running: Running) -> tuple[Condition, int]:
    child, status = os.waitpid(-1, 0)
    condition, scratch = running.pop(child)
    shutil.rmtree(scratch, ignore_errors=True)
    code = os.waitstatus_to_exitcode(status)
    return condition, code if code >= 0 else NOTICED  # killed: it took all the memory, or crashed
