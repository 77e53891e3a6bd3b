"""`kilonova sim histories | replay | crashes`: what the simulator's commands do."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable

import msgspec

from kilonova.domain.errors import Refused
from kilonova.sim.crashes.crashes import Scenario, count_points, matrix
from kilonova.sim.crashes.scenarios import SCENARIOS
from kilonova.sim.histories.acts import History, draw
from kilonova.sim.histories.histories import HistoryResult, run, shrink


def histories(first: int, count: int, length: int) -> int:
    """Run random histories, one seed after the other; print a failing seed with the command that replays it."""
    _at_least(1, count=count, length=length)
    logging.disable(logging.WARNING)
    bad = operations = 0
    for number in range(first, first + count):
        result = run(draw(str(number), length))
        operations += result.operations
        if result.violations:
            bad += 1
            print(f"seed {number} fails: kilonova sim replay {number} --length {length}")
            _print(result)
    print(f"{count} histories, {operations} operations, {bad} failed")
    return 4 if bad else 0


def replay(seed: str, length: int, *, shrinking: bool = True) -> int:
    """Run one history again, exactly as it was; shrink a failing one to the acts that matter."""
    _at_least(1, length=length)
    logging.disable(logging.WARNING)
    history = draw(seed, length)
    result = run(history)
    print(f"seed {seed}: {result.operations} operations, journals sha256 {result.digest}")
    if not result.violations:
        print("all invariants hold")
        return 0
    _print(result)
    if shrinking:
        smallest = shrink(history, fails)
        print(f"shrunk to {len(smallest.acts)} of {len(history.acts)} acts:")
        for act in smallest.acts:
            print("  " + msgspec.json.encode(act).decode())
    return 4


def fails(history: History) -> bool:
    return bool(run(history).violations)


def crashes(names: Iterable[str] = (), sample: int = 0, seed: int = 0) -> int:
    """A crash at every point (or a seeded sample) of each operation; prints the count of points per operation."""
    known = {scenario.name: scenario for scenario in SCENARIOS}
    wanted = list(dict.fromkeys(names)) or list(known)
    if unknown := [name for name in wanted if name not in known]:
        raise Refused("usage", f"operation {', '.join(unknown)}: not known here; use one of {', '.join(known)}")
    _at_least(0, sample=sample)
    logging.disable(logging.WARNING)
    bad = sum(_crash_scenario(known[name], sample, seed) for name in wanted)
    return 4 if bad else 0


def _at_least(least: int, **given: int) -> None:
    for name, number in given.items():
        if number < least:
            raise Refused("usage", f"--{name} {number}: must be {least} or more")


def _crash_scenario(scenario: Scenario, sample: int, seed: int) -> int:
    points = count_points(scenario)
    offsets = chosen_points(scenario.name, points, sample, seed)
    failures = [c for everyone in (False, True) for c in matrix(scenario, offsets, everyone=everyone) if c.violations]
    print(f"{scenario.name}: {points} points, {2 * len(offsets)} crashes tried, {len(failures)} failed")
    for crash in failures:
        print(f"  at point {crash.point} ({crash.who}): {'; '.join(crash.violations)}")
    return len(failures)


def chosen_points(name: str, points: int, sample: int, seed: int) -> list[int]:
    everything = range(1, points + 1)
    if not sample or sample >= points:
        return list(everything)
    return sorted(random.Random(f"{name}:{seed}").sample(everything, sample))


def _print(result: HistoryResult) -> None:
    for sentence in result.violations:
        print(f"  {sentence}")
