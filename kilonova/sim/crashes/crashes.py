"""A crash at every point of an operation. The event loop counts the points: each callback that a simulated process runs
is one. Before it, that process (or all of them) dies without running another line, and starts again. On real databases
only the points that differ are tried (moments.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kilonova.sim.crashes.moments import Moments, OpenDatabases
from kilonova.sim.invariants.invariants import violations
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import Records, is_idle, read_records
from kilonova.sim.lab.rest import come_to_rest_settled
from kilonova.sim.lab.shape import CloudShape
from kilonova.sim.loop.process import Process


@dataclass
class Scenario:
    """A state, an act, and what must be true however the act was interrupted."""

    name: str
    before: list[Callable[[SimCloud], None]]
    act: Callable[[SimCloud], None]
    outcome: Callable[[Records], Iterable[str]]
    shape: CloudShape


@dataclass
class Crash:
    """An interrupted run."""

    point: int
    who: str
    violations: list[str]


Fresh = Callable[[], OpenDatabases]  # empty databases of a real server


def count_points(scenario: Scenario, databases: Fresh | None = None, *, everyone: bool = False) -> int:
    """Return how many points there are between the request and rest; on real databases, how many moments."""
    if databases is None:
        cloud = _prepared(scenario)
        first = cloud.loop.points
        scenario.act(cloud)
        points = _until_ended(cloud) - first
    else:
        moments = Moments(everyone=everyone)
        cloud = _prepared(scenario, moments, databases)
        cloud.loop.crash_when(moments.at(0), _nobody)
        scenario.act(cloud)
        points = _until_ended(cloud, moments)
    cloud.close()
    return points


def play(scenario: Scenario) -> Records:
    """Run a scenario without a crash; return the records at its end."""
    cloud = _prepared(scenario)
    scenario.act(cloud)
    _until_ended(cloud)
    records = read_records(cloud)
    cloud.close()
    return records


def crash_at(scenario: Scenario, offset: int, *, everyone: bool, databases: Fresh | None = None) -> Crash:
    """Run it, crash at the given point or moment, let it come to rest, and look."""
    moments = Moments(everyone=everyone)
    cloud = _prepared(scenario, moments, databases)
    crashed = Crash(offset, "nobody", [])

    def strike(process: Process) -> None:
        crashed.who = "everyone" if everyone else process.name
        for name in [*cloud.roles] if everyone else [process.name]:
            cloud.crash(name)

    cloud.loop.crash_when(moments.at(offset) if databases else cloud.loop.points + offset, strike)
    scenario.act(cloud)
    _until_ended(cloud)
    records = come_to_rest_settled(cloud)
    crashed.violations = [*violations(records, cloud, at_rest=True), *scenario.outcome(records)]
    cloud.close()
    return crashed


def matrix(scenario: Scenario, offsets: Iterable[int], *, everyone: bool) -> Iterator[Crash]:
    for offset in offsets:
        yield crash_at(scenario, offset, everyone=everyone)


def _prepared(scenario: Scenario, moments: Moments | None = None, databases: Fresh | None = None) -> SimCloud:
    if moments is None or databases is None:
        cloud = SimCloud(scenario.shape, seed=scenario.name)
    else:
        opened = moments.watching(databases())
        cloud = SimCloud(scenario.shape, seed=scenario.name, open_databases=opened, weather=moments)
        moments.files, moments.hosts = cloud.files, frozenset(cloud.hardware.hosts())
    cloud.start_all()
    cloud.loop.run_for(15.0)
    for step in scenario.before:
        step(cloud)
    return cloud


def _nobody(process: Process) -> None:
    """Crash no process: the run only counts."""


def _until_ended(cloud: SimCloud, moments: Moments | None = None) -> int:
    """Let virtual time pass until no operation is under way; return the points, or moments, by then."""
    for _ in range(40):
        cloud.loop.run_for(1.0)
        count = cloud.loop.points if moments is None else moments.count
        if is_idle(cloud):
            break
    return count
