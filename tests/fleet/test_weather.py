"""Stories D9 and "everything dies": whoever was promised a server gets it, whatever is restarted meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.fleet.fleet import Fleet, started
from tests.fleet.test_cells import cell, start_agent
from tests.fleet.weather import Load, Storm, calm, settle
from tests.support.creates import flavor_body
from tests.support.program import until
from tests.support.servers import Nats, Postgres

FULL = bool(os.environ.get("KILONOVA_FULL"))
SECONDS = float(os.environ.get("KILONOVA_STORM", "600" if FULL else "20"))
SEEDS = range(3) if FULL else range(1)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """One that may be killed: no other test is on it."""
    with Postgres(fsync=False) as postgres:
        yield postgres


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with Nats() as nats:
        yield nats


class RoomyFleet(Fleet):
    vcpus = 128  # each host has room for the servers of all users: the others may be down


@pytest.fixture(scope="module")
def fleet(postgres: Postgres, nats: Nats) -> Iterator[Fleet]:
    with started(RoomyFleet(postgres, nats)) as fleet:
        yield fleet


@pytest.mark.parametrize("how", ["stop", "kill9"])
def test_postgres_is_restarted_under_creates(fleet: Fleet, postgres: Postgres, how: str) -> None:
    with Load(fleet, seed=1) as load:
        until(lambda: len(load.created) > 5, 30, lambda: f"creates: {load.created}")
        before = len(load.created)
        getattr(postgres, how)()
        time.sleep(2.0)
        postgres.start()
        until(lambda: len(load.created) > before + 5, 30, lambda: f"creates: {load.created}")
    settle(fleet, load)


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_dies_at_random(fleet: Fleet, postgres: Postgres, seed: int) -> None:
    storm = Storm(fleet, postgres, seed)
    try:
        with Load(fleet, seed) as load:
            storm.rage(SECONDS)
            calm(fleet)
        assert load.created
        settle(fleet, load)
    except BaseException:
        print("\n".join(storm.strikes))
        raise


def test_creates_while_one_of_two_cells_is_away(fleet: Fleet) -> None:
    """Those that fit elsewhere do not wait; those that do not, wait for the cell and get their servers."""
    http = fleet.http
    with Postgres(fsync=False) as far:
        spare = f'\n[database.spare]\nremote = "{far.create_database("far")}"\n'
        fleet.config.write_text(fleet.config.read_text() + spare)
        fleet.restart("api")
        cell(fleet, "create", "far", "--database", "remote", "--bus-prefix", "far")
        agent = start_agent(fleet, "far1", "far")
        try:
            fleet.await_state("far1", "up")
            there = fleet.created(host="far1")
            far.kill9()
            until(lambda: http.ask("GET", f"/compute/v2.1/servers/{there}").status == 503, 30, "far is away")
            here = [fleet.created() for _ in range(3)]
            assert {http.server(one)["cell"] for one in here} == {"cell1"}
            waiting = http.create(host="far1")
            until(
                lambda: "database of far to answer" in (http.operation(waiting["operation"])["waiting_for"] or ""),
                30,
                lambda: str(http.operation(waiting["operation"])),
            )
            assert http.ask("POST", "/compute/v2.1/flavors", flavor_body("giant", 10_000)).status == 200
            giant = http.create(host="far1", flavor="giant")
            assert http.ended(giant["operation"])["state"] == "undone", "placement knows that it never fits"
            far.start()
            fleet.done(waiting["operation"])
            for server in (there, waiting["server"], giant["server"], *here):
                fleet.done(http.submit("delete", server=server)["operation"])
            assert fleet.accounting() == []
        finally:
            agent.kill9()
