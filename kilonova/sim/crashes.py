"""A crash at every point of an operation. The points are counted by the event loop: each callback that a simulated
process runs is one; before it, that process (or all of them) dies without running another line, and starts again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kilonova.sim.cloud import CloudShape, SimCloud
from kilonova.sim.invariants import violations
from kilonova.sim.loop import Process
from kilonova.sim.records import Records, is_idle
from kilonova.sim.rest import come_to_rest


@dataclass
class Scenario:
    """What is there before, what is asked, and what must be true however it was interrupted."""

    name: str
    before: list[Callable[[SimCloud], None]]
    act: Callable[[SimCloud], None]
    outcome: Callable[[Records], Iterable[str]]
    shape: CloudShape


@dataclass
class Crash:
    """One interrupted run."""

    point: int
    who: str
    found: list[str]


OpenDatabases = Callable[[], Any]


def count_points(scenario: Scenario, databases: OpenDatabases | None = None) -> int:
    """How many points there are between the request and rest."""
    cloud = _prepared(scenario, databases)
    first = cloud.loop.points
    scenario.act(cloud)
    last = _until_ended(cloud)
    cloud.close()
    return last - first


def crash_at(scenario: Scenario, offset: int, *, everyone: bool, databases: OpenDatabases | None = None) -> Crash:
    """Run it, crash at the given point, let it come to rest, and look."""
    cloud = _prepared(scenario, databases)
    crashed = Crash(offset, "nobody", [])

    def strike(process: Process) -> None:
        crashed.who = "everyone" if everyone else process.name
        for name in [*cloud.roles] if everyone else [process.name]:
            cloud.crash(name)

    cloud.loop.crash_when(cloud.loop.points + offset, strike)
    scenario.act(cloud)
    _until_ended(cloud)
    records = come_to_rest(cloud)
    crashed.found = [*violations(records, cloud, at_rest=True), *scenario.outcome(records)]
    cloud.close()
    return crashed


def matrix(
    scenario: Scenario, offsets: Iterable[int], *, everyone: bool, databases: OpenDatabases | None = None
) -> Iterator[Crash]:
    for offset in offsets:
        yield crash_at(scenario, offset, everyone=everyone, databases=databases)


def _prepared(scenario: Scenario, databases: OpenDatabases | None) -> SimCloud:
    opened = databases() if databases is not None else None
    cloud = SimCloud(scenario.shape, seed=scenario.name, open_databases=opened)
    cloud.start_all()
    cloud.loop.run_for(15.0)
    for step in scenario.before:
        step(cloud)
    return cloud


def _until_ended(cloud: SimCloud) -> int:
    """Virtual time goes on until no operation is under way; returns the points by then."""
    for _ in range(40):
        cloud.loop.run_for(1.0)
        points = cloud.loop.points
        if is_idle(cloud):
            break
    return points
