"""How long a create takes when its conductor goes away in the middle, by SIGTERM and by kill -9."""

from __future__ import annotations

from typing import Any

from kilonova.settings import DEFAULTS
from tests.fleet.fleet import Fleet, started
from tests.support.servers import Nats, Postgres

CREATES = 6
NOISE = 10.0  # seconds that a busy machine may add
FOR_EVER = 120.0


def create_many(fleet: Fleet, name: str) -> list[Any]:
    return [fleet.http.create(f"{name}{number}") for number in range(CREATES)]


def slowest(fleet: Fleet, made: list[Any]) -> float:
    ended = [fleet.done(one["operation"], FOR_EVER) for one in made]
    return max(float(one["ended_at"] - one["created_at"]) for one in ended)


def test_a_conductor_that_stops_gives_its_steps_to_another(postgres: Postgres, nats: Nats) -> None:
    """With leases and polls that take for ever, so that nobody is rescued by them."""
    with started(Fleet(postgres, nats, lease=FOR_EVER, poll=FOR_EVER)) as fleet:
        for name in ("conductor1", "conductor2"):
            made = create_many(fleet, name)
            assert fleet.roles.pop(name).terminate(seconds=15.0) == 0
            assert slowest(fleet, made + create_many(fleet, f"after-{name}")) < 1.0 + NOISE
            fleet.start(name)
        assert fleet.accounting() == []


def test_a_killed_conductors_steps_go_on_within_ten_seconds(postgres: Postgres, nats: Nats) -> None:
    options = DEFAULTS.conductor
    with started(Fleet(postgres, nats, lease=options.lease_seconds, poll=options.poll_seconds)) as fleet:
        for name in ("conductor1", "conductor2"):
            made = create_many(fleet, name)
            fleet.kill9(name)
            assert slowest(fleet, made) < 10.0 + NOISE
            fleet.start(name)
        assert fleet.accounting() == []
