"""python -m tests.soak.simulated histories|restored|crashes|hunt: run inside the tree that is being tried.

A failure is one line of JSON: what, what was found, and the arguments that run just that again."""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import kilonova
from kilonova.sim.commands import chosen_points
from kilonova.sim.crashes.crashes import Scenario, count_points, crash_at
from kilonova.sim.crashes.scenarios import SCENARIOS
from kilonova.sim.histories.acts import NEMESES
from kilonova.sim.histories.histories import draw, run
from kilonova.sim.histories.restores import run_restored

LENGTHS = (30, 60, 60, 100)
HISTORIES_PER_CRASH = 4
HISTORIES_PER_RESTORE = 4
RESTORED_LENGTH = 60
GONE = (NEMESES["gone"], 40)  # how often hosts are declared gone before databases are put back


def try_history(seed: str, length: int) -> list[str]:
    try:
        return run(draw(seed, length)).violations
    except Exception as error:  # the simulator gave up: a livelock, a deadlock, a broken rule of the engine
        return [f"{type(error).__name__}: {error}"]


def try_crash(scenario: Scenario, point: int, everyone: bool) -> list[str]:
    try:
        return crash_at(scenario, point, everyone=everyone).violations
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


def tell(what: str, found: list[str], again: list[str]) -> None:
    print(json.dumps({"what": what, "found": found, "again": again}), flush=True)


def histories(asked: argparse.Namespace) -> int:
    seeds = asked.seed or [f"{asked.prefix}-{number}" for number in range(asked.count)]
    for seed in (seed for seed in seeds if seed not in asked.left_out):
        found = try_history(seed, asked.length)
        if found:
            tell(f"seed {seed}", found, ["--seed", seed, "--length", str(asked.length)])
            return 1
    return 0


def restored(asked: argparse.Namespace) -> int:
    """Histories in which databases are put back."""
    seeds = asked.seed or [f"{asked.prefix}-{number}" for number in range(asked.count)]
    for seed in (seed for seed in seeds if seed not in asked.left_out):
        found = run_restored(draw(seed, RESTORED_LENGTH, gone=asked.gone)).violations
        if found:
            tell(f"seed {seed}", found, ["--seed", seed, "--gone", str(asked.gone)])
            return 1
    return 0


def crashes(asked: argparse.Namespace) -> int:
    for scenario, point, everyone in _sampled(asked):
        name = f"{scenario.name}:{point}:{'everyone' if everyone else 'one'}"
        found = try_crash(scenario, point, everyone) if name not in asked.left_out else []
        if found:
            tell(f"crash at {name}", found, ["--at", name])
            return 1
    return 0


def _sampled(asked: argparse.Namespace) -> Iterator[tuple[Scenario, int, bool]]:
    if asked.at:
        name, point, who = asked.at.split(":")
        yield next(s for s in SCENARIOS if s.name == name), int(point), who == "everyone"
        return
    for scenario in SCENARIOS:
        try:
            points = count_points(scenario)
        except Exception:  # it cannot even be prepared: the first point will say why
            points = 1
        for point in chosen_points(scenario.name, points, asked.sample, seed=1):
            for everyone in (False, True):
                yield scenario, point, everyone


def hunt(asked: argparse.Namespace) -> int:
    """Fresh ones until the time is over; goes on after a failure and tells how many there were."""
    source, points = random.Random(asked.prefix), {s.name: count_points(s) for s in SCENARIOS}
    tried = {"histories": 0, "operations": 0, "restores": 0, "crashes": 0, "failed": 0}
    while time.time() < asked.until:
        if asked.kind != "crashes":
            tried["failed"] += _hunt_history(f"{asked.prefix}-{tried['histories']}", source, tried)
        if asked.kind != "histories" and tried["histories"] % HISTORIES_PER_CRASH == 0:
            tried["failed"] += _hunt_crash(source, points, tried)
    print(json.dumps({"tried": tried}), flush=True)
    return 1 if tried["failed"] else 0


def _hunt_history(seed: str, source: random.Random, tried: dict[str, int]) -> bool:
    """Every few of them have databases that are put back (law 15)."""
    is_restored = tried["histories"] % HISTORIES_PER_RESTORE == HISTORIES_PER_RESTORE - 1
    length = RESTORED_LENGTH if is_restored else source.choice(LENGTHS)
    gone = source.choice(GONE) if is_restored else GONE[0]
    try:
        told = (run_restored if is_restored else run)(draw(seed, length, gone=gone))
        found, operations = told.violations, told.operations
    except Exception as error:
        found, operations = [f"{type(error).__name__}: {error}"], 0
    tried["histories"] += 1
    tried["operations"] += operations
    tried["restores"] += is_restored
    if found and is_restored:
        tell(f"python -m tests.soak.simulated restored --seed {seed} --gone {gone}", found, [])
    elif found:
        tell(f"kilonova sim replay {seed} --length {length}", found, [])
    return bool(found)


def _hunt_crash(source: random.Random, points: dict[str, int], tried: dict[str, int]) -> bool:
    scenario, everyone = source.choice(SCENARIOS), source.random() < 0.5
    point = source.randint(1, points[scenario.name])
    found = try_crash(scenario, point, everyone)
    tried["crashes"] += 1
    if found:
        who = "everyone" if everyone else "one"
        tell(f"python -m tests.soak.simulated crashes --at {scenario.name}:{point}:{who}", found, [])
    return bool(found)


def main() -> int:
    logging.disable(logging.CRITICAL)
    if not Path(kilonova.__file__ or "").is_relative_to(Path.cwd()):
        print(f"kilonova is {kilonova.__file__}, not the one in {Path.cwd()}", file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("histories", "restored", "crashes", "hunt"))
    parser.add_argument("--prefix", default="soak")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--seed", action="append")
    parser.add_argument("--gone", type=int, default=GONE[0], help="how often hosts are declared gone: a weight")
    parser.add_argument("--sample", type=int, default=8)
    parser.add_argument("--at", help="scenario:point:everyone or scenario:point:one")
    parser.add_argument("--except", action="append", default=[], dest="left_out")
    parser.add_argument("--until", type=float, default=0.0)
    parser.add_argument("--kind", choices=("histories", "crashes"))
    asked = parser.parse_args()
    return {"histories": histories, "restored": restored, "crashes": crashes, "hunt": hunt}[asked.what](asked)


if __name__ == "__main__":
    sys.exit(main())
