"""A crash at every point of each operation: a seeded sample here, all of them in `make test-all`."""

import os
from functools import cache

import pytest

from kilonova.sim.commands import chosen_points
from kilonova.sim.crashes.crashes import count_points, crash_at
from kilonova.sim.crashes.scenarios import SCENARIOS

SAMPLE = 0 if os.environ.get("KILONOVA_FULL") else 10


@cache  # one run of each scenario is enough: they are the same for one role and for all
def points_of(name):
    return count_points(next(scenario for scenario in SCENARIOS if scenario.name == name))


def points_for(everyone, points):
    """Of a sample one role dies at half of the points, all roles at the other half; each at all of the full matrix."""
    return points[everyone::2] if SAMPLE else points


@pytest.mark.parametrize("everyone", [False, True], ids=["one role", "all roles"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_a_crash_at_any_point_leaves_nothing_behind(scenario, everyone):
    points = points_of(scenario.name)
    assert points > 15, "the scenario does nothing"
    tried = points_for(everyone, chosen_points(scenario.name, points, SAMPLE, seed=1))
    print(f"{scenario.name}: {points} points, {len(tried)} tried")
    failed = [c for c in (crash_at(scenario, point, everyone=everyone) for point in tried) if c.violations]
    assert not failed, "\n".join(f"at point {c.point} ({c.who}): {c.violations}" for c in failed)


def test_crashes_do_strike():
    """Negative control: with the crash in the middle the run differs, so the matrix does interrupt something."""
    scenario = SCENARIOS[0]
    struck = {
        crash_at(scenario, point, everyone=False).who for point in chosen_points("x", count_points(scenario), 24, 2)
    }
    assert struck - {"nobody"}, "no crash ever struck"
    assert len(struck) > 1, f"only {struck} was ever struck"
