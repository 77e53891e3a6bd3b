"""python -m tests.soak --minutes N [--only mutations|conditions|mistakes|histories|crashes|fuzz] [--mutation NAME…]
[--patches FOLDER] [--suite NAME…] [--likely] [--lose PLACE…] [--count N] [--seed WORD] [--record FILE]

Each mutation is made in forked processes that run the tests of its line. What is left is applied to a copy of the tree
and the general suites run against it until one fails; the failing test, seed or crash point must pass on the unchanged
copy, else it proves nothing. A mutation that nothing notices survives,
and a survivor is a failure of the suites. What is left of the time goes to fresh random histories and crashes, and a
quarter of it to requests that nobody in their right mind would send. On request (`--only conditions`) the code loses
one condition at a time, and with `--only mistakes` random small mistakes are made in it: see tests/soak/losing.py.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tests.soak.patches import MUTATIONS, Patch, Stale, copy_tree, load_all
from tests.soak.suites import (
    FOLDERS,
    PYTEST,
    Failure,
    Stopwatch,
    Trial,
    check_tree,
    compile_tree,
    end,
    end_all,
    fails_again,
    first_failure,
    ordered,
)

ROOT = Path(__file__).resolve().parents[2]
ROOMS_OF_MISTAKES = [
    f"kilonova/{room}/" for room in ("audit", "compute", "conductor", "engine", "placement", "services")
]
CONVERSATIONS = "tests/soak/conversations.py"
FUZZ_SHARE = 0.25  # of the time that the mutations leave
JOBS = int(os.environ.get("KILONOVA_JOBS", min(2, os.cpu_count() or 1)))


@dataclass(frozen=True)
class Tried:
    patch: Patch
    killer: Failure | None
    seconds: float
    stale: str = ""

    @property
    def verdict(self) -> str:
        return self.stale or (str(self.killer) if self.killer else "SURVIVES")


class Trials:
    """The unchanged tree, and a copy of it for each mutation while that is tried."""

    def __init__(self, scratch: Path, suites: Sequence[str]) -> None:
        self.scratch = scratch
        self.original = copy_tree(ROOT, scratch / "original")
        self.suites = suites
        self.unsound: list[Failure] = []
        self._fail_unchanged: dict[tuple[str, ...], bool] = {}
        check_tree(self.original)
        compile_tree(self.original)

    def attempt(self, patch: Patch, *, likely: bool) -> Tried:
        """Against what is likely to fail, or against all the rest."""
        watch = Stopwatch()
        with tempfile.TemporaryDirectory(dir=self.scratch, prefix=f"{patch.name}-") as folder:
            tree = copy_tree(self.original, Path(folder) / "tree")
            try:
                patch.apply(tree)
            except Stale as why:
                return Tried(patch, None, watch.seconds, f"STALE {why}")
            trials = ordered(patch.likely)
            return Tried(patch, self._killer(trials[:1] if likely else trials[1:], tree), watch.seconds)

    def _killer(self, trials: Sequence[Trial], tree: Path) -> Failure | None:
        """The first failure that is the mutation's doing."""
        for trial in trials:
            while not self.suites or trial.suite in self.suites:
                failure = first_failure(tree, trial, self.unsound)
                if failure is None:
                    break
                if not self._fails_unchanged(failure):
                    return failure
                if not failure.name:
                    break  # the suite as a whole cannot be run
        return None

    def _fails_unchanged(self, failure: Failure) -> bool:
        key = (failure.suite, *failure.again)
        if key not in self._fail_unchanged:
            self._fail_unchanged[key] = fails_again(self.original, failure)
            if self._fail_unchanged[key]:
                self.unsound.append(failure)
                print(f"fails on the unchanged tree: {failure}", flush=True)
        return self._fail_unchanged[key]


def _all(trials: Trials, patches: Sequence[Patch], width: int, *, likely: bool) -> Iterator[Tried]:
    pool = ThreadPoolExecutor(JOBS)
    try:
        for trying in as_completed([pool.submit(trials.attempt, patch, likely=likely) for patch in patches]):
            tried = trying.result()
            print(f"{tried.patch.name:<{width}}  {tried.seconds:>7.1f}  {tried.verdict}", flush=True)
            yield tried
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        end_all()


def mutations(
    folder: Path, names: Sequence[str], suites: Sequence[str], *, only_likely: bool = False, record: Sequence[str] = ()
) -> bool:
    patches = [patch for patch in load_all(folder) if not names or patch.name in names]
    number = len(patches)
    if not names and not suites:
        left_over = _not_noticed_in_forks([f"--patches={folder}", *record])
        patches = [patch for patch in patches if patch.name in left_over]
        if not patches:
            print(f"{number} mutations, all killed")
            return True
    width = max(len(patch.name) for patch in patches)
    print(f"{'mutation':<{width}}  {'seconds':>7}  killed by", flush=True)
    with tempfile.TemporaryDirectory(prefix="kilonova-soak-") as scratch:
        trials = Trials(Path(scratch), suites)
        left: list[Tried] = []
        # All of them against their likely killers first: what comes after takes a hundred times as long.
        for likely in (True,) if only_likely else (True, False):
            trying = patches if likely else [tried.patch for tried in left if not tried.stale]
            stale = [tried for tried in left if tried.stale]
            left = [*stale, *(tried for tried in _all(trials, trying, width, likely=likely) if tried.killer is None)]
    print(f"\n{number} mutations, {number - len(left)} killed")
    for tried in left:
        print(f"not killed: {tried.patch.name} ({tried.patch.why}) {tried.verdict}")
    for failure in trials.unsound:
        print(f"fails on the unchanged tree: {failure}")
    return not left and not trials.unsound


def _not_noticed_in_forks(options: Sequence[str]) -> set[str]:
    """Make the mutations in forked processes first, which takes a hundredth of a copy of the tree and a start there."""
    folders = [f"tests/{suite}" for suite in FOLDERS]
    with tempfile.TemporaryDirectory(prefix="kilonova-soak-") as scratch:
        left = Path(scratch) / "left"
        lose = ["-p", "tests.soak.losing", f"--lose-patches={left}", *options]
        subprocess.run([*PYTEST, "-s", *lose, *folders], cwd=ROOT, check=True)
        return set(left.read_text().split())


def conditions(places: Sequence[str], suites: Sequence[str], *more: str) -> bool:
    """Lose each condition of these files (kilonova/hosts, kilonova/engine/take.py, …) once."""
    folders = [f"tests/{suite}" for suite in suites] or [*(f"tests/{suite}" for suite in FOLDERS), CONVERSATIONS]
    lose = [*(argument for place in places for argument in ("--lose", place)), *more]
    # -s: survivors are printed as they are found
    return subprocess.run([*PYTEST, "-s", "-p", "tests.soak.losing", *lose, *folders], cwd=ROOT).returncode == 0


def hunt(until: float, kind: str) -> bool:
    """Random histories and crashes of the tree as it is, on all the cores that are ours, until the time is over."""
    only = ["--kind", kind] if kind != "histories and crashes" else []
    return _search(kind, until, lambda seed: ["tests.soak.simulated", "hunt", "--prefix", seed, *only])


def fuzz(until: float) -> bool:
    """Every route, asked everything."""
    return _search("requests", until, lambda seed: ["tests.fuzz", "--seed", seed])


def _search(what: str, until: float, command: Callable[[str], list[str]]) -> bool:
    if time.time() >= until:
        print(f"no time is left for random {what}")
        return True
    seed = f"{time.time_ns()}"
    print(f"random {what}, seed {seed}, for {until - time.time():.0f} s", flush=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    commands = [[sys.executable, "-m", *command(f"{seed}-{number}"), "--until", str(until)] for number in range(JOBS)]
    running = [
        subprocess.Popen(c, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
        for c in commands
    ]
    try:
        outs = [process.communicate()[0] for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                end(process)
    return _account(running, outs)


def _account(ended: Sequence[subprocess.Popen[str]], outs: Sequence[str]) -> bool:
    total: dict[str, int] = {}
    for process, out in zip(ended, outs, strict=True):
        for line in out.splitlines():
            told = json.loads(line)
            for what, number in told.get("tried", {}).items():
                total[what] = total.get(what, 0) + number
            if "what" in told:
                print(f"FAILED {told['what']}\n  " + "\n  ".join(told["found"]))
        if process.returncode not in (0, 1):
            total["failed"] = total.get("failed", 0) + 1
            print(f"FAILED: a worker ended with {process.returncode}")
    print(", ".join(f"{number} {what}" for what, number in total.items()))
    return not total.get("failed")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    kinds = ("mutations", "conditions", "mistakes", "histories", "crashes", "fuzz")
    parser.add_argument("--only", choices=kinds)
    parser.add_argument("--mutation", nargs="*", default=[], help="only these")
    parser.add_argument("--patches", type=Path, default=MUTATIONS, help="folder of mutations")
    parser.add_argument("--suite", nargs="*", default=[], help="only these suites may kill")
    parser.add_argument("--lose", nargs="*", default=[], help="conditions of these files only")
    parser.add_argument("--count", type=int, default=40, help="how many random mistakes are made; 0: all")
    parser.add_argument("--seed", default="1", help="which random mistakes are made")
    parser.add_argument("--record", type=Path, help="file that keeps which tests use what")
    parser.add_argument("--likely", action="store_true", help="try each mutation only against its likely killer")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    until = time.time() + 60 * options.minutes
    good = True
    folder, kept = options.patches.resolve(), (f"--lose-record={options.record.resolve()}",) if options.record else ()
    if options.only in (None, "mutations"):
        good = mutations(folder, options.mutation, options.suite, only_likely=options.likely, record=kept)
    if options.only == "conditions":
        good = conditions(options.lose, options.suite, *kept)
    if options.only == "mistakes":
        rooms = options.lose or ROOMS_OF_MISTAKES
        good = conditions(rooms, options.suite, f"--mistakes={options.count}", f"--mistakes-seed={options.seed}", *kept)
    if options.only in (None, "histories", "crashes"):
        left = max(until - time.time(), 0.0)
        ends = until if options.only else until - FUZZ_SHARE * left
        good = hunt(ends, options.only or "histories and crashes") and good
    if options.only in (None, "fuzz"):
        good = fuzz(until) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
