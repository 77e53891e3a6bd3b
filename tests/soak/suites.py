"""The general suites, run against a tree until the first failure. None of them knows of any mutation."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

WITHOUT_SERVERS = "not postgres and not nats"
PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-rfE", "-m", WITHOUT_SERVERS]
HISTORIES = ("--prefix=soak", "--count=80")
RESTORED = ("--prefix=restored", "--count=24")
CRASHES = ("--sample=8",)
LIMIT = 900.0  # seconds for one suite; what hangs is ended
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?(?:\[.*\])?)(?: - .*)?$", re.MULTILINE)

# Quick ones first. A suite that is not there yet is passed over.
FOLDERS = ["engine", "placement", "property", "store", "stories", "unit"]
SIMULATED = {"histories": HISTORIES, "crashes": CRASHES, "restored": RESTORED}
SIMULATED_PART = {"histories": "--seed", "crashes": "--at", "restored": "--seed"}
NAMED_ONLY = ["guests"]  # needs real servers: only the tests that a mutation names
ALL = [*FOLDERS, *SIMULATED]
RUNNING: set[subprocess.Popen[str]] = set()
# Without bytecode each of some hundred runs compiles the whole package.
INHERITED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True)
class Failure:
    suite: str
    name: str  # of the test, the seed, the crash point
    what: str
    again: tuple[str, ...]  # arguments that run just that

    def __str__(self) -> str:
        return f"{self.suite}: {self.what}"


@dataclass(frozen=True)
class Trial:
    """A suite, or a part of it."""

    suite: str
    part: tuple[str, ...] = ()  # arguments; none: all of it


def ordered(likely: str) -> list[Trial]:
    """What is likely to fail, then everything."""
    everything = [Trial(suite) for suite in ALL]
    suite, _, name = likely.partition(" ")
    if suite in ALL and not name:
        return [Trial(suite), *(trial for trial in everything if trial.suite != suite)]
    if suite in SIMULATED:
        return [Trial(suite, (f"{SIMULATED_PART[suite]}={name}",)), *everything]
    return [Trial(likely.partition("/")[0], (f"tests/{likely}",)), *everything]


def first_failure(tree: Path, trial: Trial, unsound: Iterable[Failure] = ()) -> Failure | None:
    """`unsound` are left out: they fail on the unchanged tree, too."""
    suite = trial.suite
    out = [failure.name for failure in unsound if failure.suite == suite]
    if suite in SIMULATED:
        part = trial.part or SIMULATED[suite]
        return _simulated(tree, suite, [*part, *(f"--except={name}" for name in out)])
    if not list((tree / "tests" / suite).glob("test_*.py")):
        return None
    part = trial.part or (f"tests/{suite}",)
    failure = _tested(tree, suite, [*part, *(f"--deselect={name}" for name in out)])
    if failure is not None and not failure.name and trial.part:
        return None  # that test is no longer there; the whole suite will tell
    return failure


def fails_again(tree: Path, failure: Failure) -> bool:
    if failure.suite in SIMULATED:
        return _simulated(tree, failure.suite, list(failure.again)) is not None
    return _tested(tree, failure.suite, list(failure.again)) is not None


def _tested(tree: Path, suite: str, arguments: list[str]) -> Failure | None:
    code, out = run(tree, [*PYTEST, *arguments])
    if code in (0, 5):  # 5: no test was selected
        return None
    found = _FAILED.search(out)
    if found is None:
        return Failure(suite, "", f"exit {code}: {out.strip()[-300:]}", tuple(arguments))
    test = found[1]
    return Failure(suite, test, test.removeprefix(f"tests/{suite}/"), (test,))


def _simulated(tree: Path, suite: str, arguments: list[str]) -> Failure | None:
    code, out = run(tree, [sys.executable, "-m", "tests.soak.simulated", suite, *arguments])
    if code == 0:
        return None
    with contextlib.suppress(ValueError, IndexError):
        told = json.loads(out.strip().splitlines()[-1])
        return Failure(suite, told["again"][1], f"{told['what']}: {told['found'][0]}", tuple(told["again"]))
    return Failure(suite, "", f"exit {code}: {out.strip()[-300:]}", tuple(arguments))


def run(tree: Path, command: list[str]) -> tuple[int, str]:
    """In that tree, with the modules of that tree and the libraries of this one."""
    environment = {**INHERITED, "PYTHONPATH": str(tree), "KILONOVA_VENV": sys.prefix, "PYTHONHASHSEED": "0"}
    process = subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    RUNNING.add(process)
    try:
        out, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        end(process)
        return 1, f"did not end within {LIMIT:.0f} s"
    finally:
        RUNNING.discard(process)
    return process.returncode, out


def end_all() -> None:
    for process in list(RUNNING):
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    """The process and all it started; it has a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def compile_tree(tree: Path) -> None:
    """Write the bytecode of the package, and of the tests as pytest rewrites them: copies of the tree have it too."""
    run(tree, [sys.executable, "-m", "compileall", "-q", "kilonova", "tests"])
    run(tree, [*PYTEST, "--collect-only", *(f"tests/{suite}" for suite in FOLDERS)])


def check_tree(tree: Path) -> None:
    """What runs there must be what lies there, not the installed package."""
    _, out = run(tree, [sys.executable, "-c", "import kilonova; print(kilonova.__file__)"])
    if not Path(out.strip()).is_relative_to(tree):
        raise RuntimeError(f"in {tree} `import kilonova` takes {out.strip()}")


class Stopwatch:
    def __init__(self) -> None:
        self.started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started
