"""Six agents, two killed: one request for both, whose command and conductor are killed in the middle and asked again;
and the same without any request, by the failure watch and a real fence command."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fleet.fleet import Fleet, started
from tests.support.program import KILONOVA, until
from tests.support.servers import Nats, Postgres

DEAD = ("host1", "host2")
EACH = 4


class SixHosts(Fleet):
    host_names = tuple(f"host{number}" for number in range(1, 7))
    boot_seconds = 5.0  # an evacuation must last longer than the start of a command


@pytest.fixture(scope="module")
def fleet(postgres: Postgres, nats: Nats) -> Iterator[Fleet]:
    with started(SixHosts(postgres, nats)) as fleet:
        yield fleet


def evacuations(fleet: Fleet) -> list[Any]:
    found = fleet.http.get("/operations?limit=1000")["operations"]
    return [one for one in found if one["operation"] == "evacuate_host"]


def moves_of(fleet: Fleet, server: str) -> list[Any]:
    answer = fleet.http.ask(
        "GET", f"/compute/v2.1/os-migrations?instance_uuid={server}", headers={"OpenStack-API-Version": "compute 2.80"}
    )
    return [(one["migration_type"], one["status"]) for one in answer.json["migrations"]]


def test_the_command_is_killed_and_asked_again(fleet: Fleet) -> None:
    made = [fleet.http.create(host=host) for host in DEAD for _ in range(EACH)]
    servers = [one["server"] for one in made]
    for one in made:
        fleet.done(one["operation"])
    for host in DEAD:
        fleet.kill9(host)
    for host in DEAD:
        until(lambda host=host: _state(fleet, host) == "down", 60, f"{host} is down")  # type: ignore[misc]

    command = ["host", "evacuate", *DEAD, "--accept-unfenced", "--wait", "--data", str(fleet.directory / "api")]
    first = subprocess.Popen([str(KILONOVA), *command], stdout=subprocess.DEVNULL)
    until(lambda: _children(fleet) > 0, 60, lambda: str(evacuations(fleet)))
    first.kill()
    first.wait()
    again = subprocess.Popen([str(KILONOVA), *command], stdout=subprocess.PIPE, text=True)
    fleet.restart("conductor1")
    told, _ = again.communicate(timeout=120)
    assert again.returncode == 0, told
    assert told.splitlines()[-1].endswith(f": {len(servers)} moved; 0 failed; 0 impossible"), told

    (evacuation,) = evacuations(fleet)
    assert (evacuation["state"], evacuation["account"]["moved"]) == ("done", len(servers)), "one account"
    for server in servers:
        shown = fleet.http.server(server)
        assert shown["vm_state"] == "active" and shown["host"] not in DEAD
        assert moves_of(fleet, server) == [("evacuation", "done")], "nothing twice"
    for host in DEAD:
        fleet.start(host)
        fleet.await_state(host, "up")
    assert [host["debts"] for host in fleet.http.get("/hosts")["hosts"]] == [0] * 6
    for server in servers:
        fleet.done(fleet.http.submit("delete", server=server)["operation"])
    assert fleet.accounting() == []


def _state(fleet: Fleet, host: str) -> str:
    return str(fleet.http.get(f"/hosts/{host}")["host"]["state"])


def _children(fleet: Fleet) -> int:
    found = fleet.http.get("/operations?limit=1000")["operations"]
    return sum(1 for one in found if one["operation"] == "evacuate")


def test_a_dead_host_is_fenced_by_a_command_and_evacuated(fleet: Fleet) -> None:
    """The host is stopped, not dead: the fence command ends it. Two conductors watch."""
    server = fleet.created(host="host3")
    pid, noted = fleet.roles["host3"].process.pid, fleet.directory / "fenced"
    script = fleet.directory / "fence"
    script.write_text(
        f'#!/bin/sh\necho "$1" >> {noted}\ntest "$1" = host3 || exit 9\nkill -9 -{pid} 2>/dev/null || kill -9 {pid}\n'
        f"while kill -0 {pid} 2>/dev/null && ! grep -q Z /proc/{pid}/stat; do sleep 0.1; done\n"
        'echo "$1 is off"\n'
    )
    script.chmod(0o755)
    section = f'\n[ha]\nautomatic = true\nfence_timeout = 10\nfence_command = ["{script}", "{{host}}"]\n'
    fleet.config.write_text(fleet.config.read_text() + section)
    for name in ("conductor1", "conductor2"):
        fleet.restart(name)
    time.sleep(2 * fleet.down_seconds + 2)  # they must have listened
    subprocess.run(["kill", "-STOP", str(pid)], check=True)

    def is_done() -> bool:
        records = fleet.http.get("/ha")["ha"]["records"]
        return [(one["host"], one["state"]) for one in records] == [("host3", "done")]

    until(is_done, 90, lambda: str(fleet.http.get("/ha")) + fleet.roles["conductor1"].log()[-2000:])
    (record,) = fleet.http.get("/ha")["ha"]["records"]
    assert record["proof"].endswith("said of host3: host3 is off") and noted.read_text() == "host3\n"
    shown = fleet.http.server(server)
    assert shown["vm_state"] == "active" and shown["host"] != "host3"
    assert moves_of(fleet, server) == [("evacuation", "done")]
    fleet.roles.pop("host3").kill9()
    fleet.start("host3")
    fleet.await_state("host3", "up")
    fleet.done(fleet.http.submit("delete", server=server)["operation"])
    assert fleet.accounting() == []
