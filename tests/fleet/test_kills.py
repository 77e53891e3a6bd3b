"""Create, migrate and evacuate over processes, with a kill -9 of each role; the last test reads the books."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.fleet.fleet import HOSTS, SERVICE_DOWN_TIME, Fleet
from tests.support.creates import IMAGE, NEWEST, create_body
from tests.support.program import kilonova, until

OTHER_CONDUCTOR = {"conductor1": "conductor2", "conductor2": "conductor1"}


def test_create_migrate_confirm_revert_delete(fleet: Fleet) -> None:
    http = fleet.http
    server = fleet.created(host="host1")
    http.post(f"/simulated/servers/{server}/write", {"text": "note"})

    fleet.done(http.submit("migrate", server=server, host="host2")["operation"])
    assert http.server(server)["vm_state"] == "resized"
    fleet.done(http.submit("confirm_resize", server=server)["operation"])
    assert (http.server(server)["host"], http.server(server)["vm_state"]) == ("host2", "active")
    assert f"root=image:{IMAGE}+note" in _console(fleet, server), "the disk came along"

    fleet.done(http.submit("migrate", server=server)["operation"])
    assert http.server(server)["host"] != "host2"
    fleet.done(http.submit("revert_resize", server=server)["operation"])
    assert (http.server(server)["host"], http.server(server)["vm_state"]) == ("host2", "active")

    fleet.done(http.submit("delete", server=server)["operation"])
    assert http.ask("GET", f"/kilonova/v1/servers/{server}").status == 404
    assert fleet.accounting() == []


def test_the_agent_is_killed_in_the_middle_of_a_create(fleet: Fleet) -> None:
    made = fleet.http.create()
    fleet.restart(fleet.await_step(made["operation"], "build_and_run_instance"))
    fleet.done(made["operation"])
    assert fleet.accounting() == []


@pytest.mark.parametrize("step", ["prep_resize", "resize_instance", "finish_resize"])
@pytest.mark.parametrize("role", ["agent", "conductors"])
def test_a_role_is_killed_in_the_middle_of_a_migration(fleet: Fleet, step: str, role: str) -> None:
    http = fleet.http
    server = fleet.created()
    http.post(f"/simulated/servers/{server}/write", {"text": "note"})
    moving = http.submit("migrate", server=server)["operation"]
    where = _near(fleet, moving, step)
    if role == "agent":
        fleet.restart(where)
    else:  # one after the other: each time the work is in the hands of the one that is left
        for name in OTHER_CONDUCTOR:
            fleet.restart(name)
    fleet.done(moving)
    fleet.done(http.submit("revert_resize" if role == "agent" else "confirm_resize", server=server)["operation"])
    assert http.server(server)["vm_state"] == "active"
    assert f"root=image:{IMAGE}+note" in _console(fleet, server)
    assert fleet.accounting() == []


def _console(fleet: Fleet, server: str) -> str:
    return fleet.http.ask("GET", f"/kilonova/v1/simulated/servers/{server}/console").body.decode()


def _near(fleet: Fleet, operation: str, step: str) -> str:
    """Where the step runs, taken or just over."""

    def look() -> str:
        steps = [one for one in fleet.http.operation(operation)["steps"] if one["name"] == step]
        return str(steps[-1]["on"]) if steps and steps[-1]["state"] != "ready" else ""

    return str(until(look, 60, lambda: f"{step}: {fleet.http.operation(operation)}"))


def test_one_conductor_dies_in_the_middle_of_many_creates(fleet: Fleet) -> None:
    """The other one takes over what it held, after its lease."""
    killed = itertools.cycle(OTHER_CONDUCTOR)
    made = []
    for number in range(16):
        made.append(fleet.http.create(f"many{number}"))
        if number % 5 == 4:
            fleet.kill9(name := next(killed))
            assert OTHER_CONDUCTOR[name] in fleet.roles
            fleet.start(name, wait=False)
    for one in made:
        fleet.done(one["operation"])
    assert all(fleet.http.server(one["server"])["vm_state"] == "active" for one in made)
    assert fleet.accounting() == []
    for one in made:
        fleet.done(fleet.http.submit("delete", server=one["server"])["operation"])
    assert fleet.accounting() == []


def test_the_api_is_killed_and_the_request_repeated(fleet: Fleet) -> None:
    """What was acknowledged goes on without it; with the same key the repeated request is the same operation."""
    ask = ("POST", "/kilonova/v1/operations", create_body("once"), {"Idempotency-Key": "once", **NEWEST})
    first = fleet.http.ask(*ask)
    assert first.status == 202
    fleet.restart("api")
    again = fleet.http.ask(*ask)
    assert (again.status, again.json) == (202, first.json)
    fleet.done(first.json["operation"])


@pytest.mark.parametrize("how", ["stop", "kill9"])
def test_nats_is_restarted_in_the_middle(fleet: Fleet, how: str) -> None:
    http = fleet.http
    moved = fleet.created()
    moving = http.submit("migrate", server=moved)["operation"]
    made = [http.create(f"nats{number}") for number in range(4)]
    getattr(fleet.nats, how)()
    made.append(http.create("accepted without a bus"))
    time.sleep(1)
    fleet.nats.start()
    for operation in [moving, *(one["operation"] for one in made)]:
        fleet.done(operation)
    for host in HOSTS:
        fleet.await_state(host, "up")
    fleet.done(http.submit("confirm_resize", server=moved)["operation"])
    assert fleet.accounting() == []


def test_nats_is_away_under_load_for_longer_than_a_host_may_be_silent(fleet: Fleet) -> None:
    """Story A4: nobody is taken for dead, all that was under way ends, and no guest was started twice."""
    http = fleet.http
    moved, gone = fleet.created(), fleet.created()
    load = [http.create(f"load{number}") for number in range(8)]
    others = [http.submit("migrate", server=moved)["operation"], http.submit("delete", server=gone)["operation"]]
    fleet.nats.stop()
    time.sleep(3 * SERVICE_DOWN_TIME)
    assert "down" not in {one["state"] for one in http.get("/hosts")["hosts"]}, "silence proves nothing to the deaf"
    fleet.nats.start()
    for operation in [*(one["operation"] for one in load), *others]:
        fleet.done(operation)
    for host in HOSTS:
        fleet.await_state(host, "up")
    assert all("boot=1 " in _console(fleet, one["server"]) for one in load)
    fleet.done(http.submit("confirm_resize", server=moved)["operation"])
    assert fleet.accounting() == []


def test_evacuate_from_a_dead_host_with_a_kill_of_each_role(fleet: Fleet) -> None:
    http = fleet.http
    server = fleet.created(host="host1")
    bystander = fleet.created(host="host1")
    assert http.ask("POST", "/kilonova/v1/operations", {"operation": "evacuate", "server": server}).status == 400

    http.post("/simulated/hosts/host1", {"power": "off"})
    fleet.kill9("host1")
    fleet.await_state("host1", "down")
    moving = http.submit_once_proven("evacuate", server=server)["operation"]
    destination = fleet.await_step(moving, "rebuild_instance")
    fleet.restart(destination)
    for name in OTHER_CONDUCTOR:
        fleet.restart(name)
    fleet.restart("api")
    fleet.done(moving)
    assert http.server(server)["host"] == destination
    assert fleet.accounting() == [], "the source's share is still held"

    left = [one["id"] for one in http.get("/servers")["servers"] if one["host"] == "host1"]
    assert bystander in left
    whole = http.submit_once_proven("evacuate_host", host="host1")[
        "operation"
    ]  # new conductors: they must listen first
    account = fleet.done(whole)["account"]
    assert (account["moved"], account["failed"], account["impossible"], account["refused"]) == (len(left), {}, {}, {})
    assert account["proof"]["host1"]["proven_by"] == "silence"
    assert all(http.server(one)["host"] != "host1" for one in left)
    assert http.get("/hosts/host1")["host"]["debts"] == len(left) + 1

    fleet.start("host1")
    http.post("/simulated/hosts/host1", {"power": "on"})
    fleet.await_state("host1", "up")
    until(lambda: http.get("/hosts/host1")["host"]["debts"] == 0, 30, "host1 paid")
    assert fleet.accounting() == []


def test_a_second_agent_of_the_same_name_is_refused(fleet: Fleet) -> None:
    """Its key is another one: the name alone proves nothing."""
    done = kilonova("agent", "--host", "host1", "--config", fleet.config, "--data", fleet.directory / "impostor")
    assert done.returncode == 3, done.stderr
    assert "host1 is known with another key" in done.stderr
    fleet.await_state("host1", "up")


def test_at_the_end_the_books_balance_and_every_server_is_where_its_record_says(fleet: Fleet) -> None:
    assert [one for one in fleet.http.get("/operations")["operations"] if one["ended_at"] is None] == []
    assert fleet.accounting() == []
    assert set(fleet.stop_all().values()) == {0}
    assert fleet.misplaced() == []
