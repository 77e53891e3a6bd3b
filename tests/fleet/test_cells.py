"""A cell with a database server and a prefix of its own, made while the fleet runs; its server dies and returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fleet.fleet import Fleet
from tests.support.program import Role, kilonova, until
from tests.support.servers import Postgres

LISTED = "/compute/v2.1/servers/detail"
VERSION = {"OpenStack-API-Version": "compute 2.90"}


@pytest.fixture(scope="module")
def far() -> Iterator[Postgres]:
    with Postgres() as postgres:
        yield postgres


def cell(fleet: Fleet, *words: str) -> str:
    done = kilonova("cell", *words, "--data", fleet.directory / "api")
    assert done.returncode == 0, done.stderr
    return done.stdout


def start_agent(fleet: Fleet, host: str, name: str) -> Role:
    """Its bus has the prefix of its cell."""
    common = ("--config", fleet.config, "--data", fleet.directory / host)
    return Role("agent", "--host", host, "--cell", name, *common, "--set", f"bus.prefix={fleet.name}.{name}")


def statuses(fleet: Fleet) -> dict[str, str]:
    answer = fleet.http.ask("GET", LISTED, headers=VERSION)
    assert answer.status == 200, answer.body
    return {server["id"]: server["status"] for server in answer.json["servers"]}


def test_a_cell_is_made_dies_and_returns(fleet: Fleet, far: Postgres) -> None:
    """Only the api knows the address from its configuration; the conductors learn it from control, sealed."""
    address = far.create_database("far")
    fleet.config.write_text(f'{fleet.config.read_text()}\n[database.spare]\nremote = "{address}"\n')
    fleet.restart("api")
    made = cell(fleet, "create", "far", "--database", "remote", "--bus-prefix", "far")
    assert made.splitlines()[1].split()[:4] == ["far", "0", "0", "enabled"]
    refused = kilonova("cell", "create", "again", "--database", "remote", "--data", fleet.directory / "api")
    assert refused.returncode == 3 and "is the database of far" in refused.stderr
    agent = start_agent(fleet, "far1", "far")
    try:
        fleet.await_state("far1", "up")
        there, here = fleet.created(host="far1"), fleet.created(host="host1")
        assert statuses(fleet) == {there: "ACTIVE", here: "ACTIVE"}

        moving = fleet.http.create(host="far1")
        fleet.await_step(moving["operation"], "build_and_run_instance")
        far.kill9()
        _goes_on_without(fleet, there, here)
        fleet.restart("conductor1")  # which starts although the cell is away
        fleet.restart("api")
        _goes_on_without(fleet, there, here)
        assert "away since" in cell(fleet, "list")
        assert fleet.http.ask("GET", f"/compute/v2.1/servers/{there}").status == 503

        far.start()
        until(lambda: statuses(fleet)[there] == "ACTIVE", 60, lambda: f"{there} is back: {statuses(fleet)}")
        fleet.done(moving["operation"])
        fleet.await_state("far1", "up")
        for server in (there, here, moving["server"]):
            fleet.done(fleet.http.submit("delete", server=server)["operation"])
        assert fleet.accounting() == []
    finally:
        agent.kill9()


def _goes_on_without(fleet: Fleet, there: str, here: str) -> None:
    until(lambda: statuses(fleet).get(there) == "UNKNOWN", 30, lambda: f"{there} is unknown: {statuses(fleet)}")
    assert statuses(fleet)[here] == "ACTIVE"
    other = fleet.created()
    shown: Any = fleet.http.server(other)
    assert shown["cell"] == "cell1"
    fleet.done(fleet.http.submit("delete", server=other)["operation"])
