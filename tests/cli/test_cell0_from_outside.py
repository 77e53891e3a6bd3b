"""Stories C1 to C9 from outside: a running cloud, the Compute API, hosts switched off and on."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import Answer, Cloud, Http, kilonova, until

HOSTS = ("host1", "host2")
WITNESS = "host3"  # takes no servers; while it is heard, the silence of the others proves something
OPTIONS = ("--hosts", 3, "--set", "DEFAULT.report_interval=0.2", "--set", "DEFAULT.service_down_time=2")
FILES = [{"path": "/etc/motd", "contents": base64.b64encode(b"hello").decode()}]
NOVAS_WORDS = "is in an invalid state for 'rebuild'"


class Running:
    """One cloud for all of them; it can be killed and started again."""

    def __init__(self, data: Path) -> None:
        self.cloud = Cloud(data, *OPTIONS)
        self.image = self.done("GET", "/image/v2/images?name=cirros-sim")["images"][0]["id"]
        self.other_image = self.done("GET", "/image/v2/images?name=cirros-sim-alt")["images"][0]["id"]
        self.network = self.done("GET", "/network/v2.0/networks?name=shared")["networks"][0]["id"]
        self.demo = Http(self.http.url)
        self.demo.log_in(data, "kilonova-demo")
        assert self.http.ask("POST", f"/kilonova/v1/hosts/{WITNESS}", {"disabled": True}).status == 200

    @property
    def http(self) -> Http:
        return self.cloud.http

    def kill_and_start(self) -> None:
        token, port, data = self.http.token, self.cloud.port, self.cloud.data
        self.cloud.kill9()
        self.cloud = Cloud(data, *OPTIONS, port=port)
        self.cloud.http.token = token

    def ask(self, method: str, path: str, body: Any = None, version: str = "2.105") -> Answer:
        return self.http.ask(method, path, body, {"OpenStack-API-Version": f"compute {version}, volume 3.44"})

    def done(self, method: str, path: str, body: Any = None, version: str = "2.105") -> Any:
        found = self.ask(method, path, body, version)
        assert found.status < 300, (method, path, body, found.status, found.body)
        return found.json if found.body else None

    def create(self, version: str = "2.105", hints: Any = None, **more: Any) -> str:
        server = {"name": "patient", "flavorRef": "1", "imageRef": self.image, "networks": "none", **more}
        body = {"server": server, **({"os:scheduler_hints": hints} if hints else {})}
        return str(self.done("POST", "/compute/v2.1/servers", body, version)["server"]["id"])

    def buried(self, **more: Any) -> str:
        made = self.create(**more)
        self.until(made, "ERROR")
        return made

    def server(self, server: str) -> Any:
        return self.done("GET", f"/compute/v2.1/servers/{server}")["server"]

    def until(self, server: str, status: str) -> Any:
        until(lambda: self.server(server)["status"] == status, 60.0, lambda: str(self.server(server)))
        return self.server(server)

    def rebuild(self, server: str, version: str = "2.105", by: Http | None = None, **more: Any) -> Answer:
        body = {"rebuild": {"imageRef": self.image, **more}}
        headers = {"OpenStack-API-Version": f"compute {version}"}
        return (by or self.http).ask("POST", f"/compute/v2.1/servers/{server}/action", body, headers)

    def plan_rebuild(self, server: str, image: str = "") -> Any:
        return self.http.post("/plans", {"operation": "rebuild", "server": server, "image": image or self.image})[
            "plan"
        ]

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return kilonova(*arguments, "--url", self.http.url, "--data", self.cloud.data)

    def delete(self, server: str) -> None:
        assert self.ask("DELETE", f"/compute/v2.1/servers/{server}").status == 204
        until(lambda: self.ask("GET", f"/compute/v2.1/servers/{server}").status == 404, 60.0, "it is gone")

    def switch(self, power: str) -> None:
        for host in HOSTS:
            self.http.post(f"/simulated/hosts/{host}", {"power": power})
        state = "down" if power == "off" else "up"
        until(
            lambda: all(one["state"] == state for one in self.http.get("/hosts")["hosts"] if one["name"] != WITNESS),
            60.0,
            lambda: f"{state}: {self.http.get('/hosts')}",
        )

    def volume(self, **more: Any) -> str:
        volumes = f"/volume/v3/{self.project}/volumes"
        made = self.done("POST", volumes, {"volume": {"size": 1, **more}})["volume"]["id"]
        until(lambda: self.volume_status(made) == "available", 60.0, "the volume is there")
        return str(made)

    def volume_status(self, volume: str) -> str:
        return str(self.done("GET", f"/volume/v3/{self.project}/volumes/{volume}")["volume"]["status"])

    @property
    def project(self) -> str:
        found = self.done("GET", "/identity/v3/projects?name=admin")["projects"]
        return str(found[0]["id"])

    def unplaced(self) -> dict[str, Any]:
        return {one["server"]: one for one in self.http.get("/unplaced")["unplaced"]}

    def actions(self, server: str) -> list[tuple[str, str | None]]:
        found = self.done("GET", f"/compute/v2.1/servers/{server}/os-instance-actions")["instanceActions"]
        return [(one["action"], one["message"]) for one in reversed(found)]

    def held(self, server: str) -> Any:
        return self.done("GET", f"/placement/allocations/{server}")["allocations"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("cloud") / "var")
    yield running
    running.cloud.kill9()


@pytest.fixture
def off(running: Running) -> Iterator[Running]:
    """No host answers; afterwards all of them do."""
    running.switch("off")
    yield running
    running.switch("on")


def test_c1_rebuilt_when_there_is_room_and_c2_not_below_our_version(off: Running) -> None:
    running = off
    running.done("POST", "/compute/v2.1/os-keypairs", {"keypair": {"name": "mine", "type": "ssh", "public_key": KEY}})
    port = running.done("POST", "/network/v2.0/ports", {"port": {"network_id": running.network}})["port"]
    group = {"server_group": {"name": "apart", "policy": "anti-affinity"}}
    group_id = running.done("POST", "/compute/v2.1/os-server-groups", group)["server_group"]["id"]
    server = running.buried(
        version="2.56",
        networks=[{"port": port["id"]}],
        personality=FILES,
        metadata={"colour": "red"},
        tags=["blue"],
        key_name="mine",
        config_drive=True,
        hints={"group": group_id},
    )
    assert running.unplaced()[server]["failure"] == "no_valid_host"
    below = running.rebuild(server, "2.104")
    assert below.status == 409 and NOVAS_WORDS in below.json["conflictingRequest"]["message"], below.body
    assert running.rebuild(server, by=running.demo).status == 404, "another project does not find it"
    plan = running.plan_rebuild(server)
    assert (plan["operation"], plan["problem"]["code"]) == ("rebuild_in_cell0", "no_valid_host")
    running.switch("on")
    plan, shown = running.plan_rebuild(server, running.other_image), running.server(server)
    assert (plan["problem"], plan["failure"], shown["status"]) == (None, "no_valid_host", "ERROR"), "it was not tried"
    planned = plan["outlook"]
    assert planned["disks"] == [{"disk": "root", "fate": "created", "from_image": running.other_image}]
    assert planned["host"] in HOSTS and planned["claims"].keys() == {planned["host"]} and planned["ends"] == "active"
    assert [one["port_id"] for one in plan["ports"]] == [port["id"]]
    printed = running.command("plan", "rebuild", server, "--image", running.other_image).stdout.splitlines()
    assert printed[:2] == [
        f"it would be on {planned['host']}, active",
        f"disk root: created from image {running.other_image}",
    ]
    accepted = running.rebuild(server)
    assert (accepted.status, accepted.json["server"]["status"]) == (202, "BUILD")
    shown = running.until(server, "ACTIVE")
    assert (shown["metadata"], shown["tags"], shown["key_name"]) == ({"colour": "red"}, ["blue"], "mine")
    assert (shown["config_drive"], shown["server_groups"]) == ("True", [group_id])
    given = running.done("GET", f"/network/v2.0/ports/{port['id']}")["port"]
    assert (given["device_id"], given["fixed_ips"]) == (server, port["fixed_ips"])
    assert running.actions(server) == [("create", "Error"), ("rebuild", None)]
    running.delete(server)


def test_c3_failed_for_another_reason(running: Running) -> None:
    for host in HOSTS:
        order = {"verb": "ensure_power", "times": 1, "how": "error"}
        running.http.post(f"/simulated/hosts/{host}", {"fail": order})
    volume = running.volume()
    device = {"source_type": "volume", "destination_type": "volume", "uuid": volume, "boot_index": -1}
    local = {"source_type": "image", "destination_type": "local", "uuid": running.image, "boot_index": 0}
    server = running.buried(block_device_mapping_v2=[local, device], tags=["blue"])
    assert running.server(server)["fault"]["message"] == "Exceeded maximum number of retries."
    assert running.volume_status(volume) == "available" and not running.held(server)
    listed = running.unplaced()[server]
    assert (listed["failure"], listed["retryable"], listed["rebuildable"]) == ("retries_exhausted", True, False)
    assert listed["host"] in HOSTS and listed["reason"] == "Exceeded maximum number of retries."
    refused = running.rebuild(server)
    said = refused.json["conflictingRequest"]["message"]
    assert refused.status == 409 and "it did not fail for lack of a host, but for retries_exhausted" in said
    below = running.rebuild(server, "2.104")
    assert below.status == 409 and NOVAS_WORDS in below.json["conflictingRequest"]["message"]
    body = {"operation": "rebuild", "server": server, "image": running.image}
    planned = running.http.ask("POST", "/kilonova/v1/plans", body)
    assert (planned.status, planned.json["error"]["message"]) == (409, said), "refused with the same words"
    plan = running.http.post("/plans", {"operation": "retry", "server": server})["plan"]
    assert (plan["problem"], plan["failure"], plan["servers"][0]["host"]) == (None, "retries_exhausted", listed["host"])
    assert [(one["disk"], one["fate"]) for one in plan["outlook"]["disks"]] == [
        ("root", "created"),
        ("/dev/vdb", "kept"),
    ]
    retry = {"operation": "retry", "server": server}
    assert running.demo.ask("POST", "/kilonova/v1/operations", retry).status == 403
    running.http.submit("retry", server=server)
    assert running.until(server, "ACTIVE")["tags"] == ["blue"]
    assert running.volume_status(volume) == "in-use"
    assert running.actions(server) == [("create", "Error"), ("rebuild", None)]
    running.delete(server)


def test_c3_a_failed_build_is_changed_and_deleted_like_any_other(running: Running) -> None:
    for host in HOSTS:
        running.http.post(f"/simulated/hosts/{host}", {"fail": {"verb": "ensure_power", "times": 1, "how": "error"}})
    server = running.buried()
    path = f"/compute/v2.1/servers/{server}"
    running.done("PUT", path, {"server": {"name": "renamed"}})
    running.done("PUT", f"{path}/tags/red")
    assert [one["name"] for one in running.done("GET", "/compute/v2.1/servers?status=ERROR")["servers"]] == ["renamed"]
    running.delete(server)
    assert server not in running.unplaced()


def test_c4_rebuilt_without_room_is_buried_again(off: Running) -> None:
    server = off.buried()
    assert off.rebuild(server).status == 202
    until(lambda: off.actions(server) == [("create", "Error"), ("rebuild", "Error")], 60.0, "it was tried")
    off.until(server, "ERROR")
    assert off.unplaced()[server]["rebuildable"]
    off.delete(server)


def test_c5_killed_while_it_is_rebuilt(off: Running) -> None:
    server = off.buried()
    off.switch("on")
    assert off.rebuild(server).status == 202
    off.kill_and_start()
    off.until(server, "ACTIVE")
    assert len([one for one in off.done("GET", "/compute/v2.1/servers")["servers"] if one["id"] == server]) == 1
    assert len(off.held(server)) == 1
    off.delete(server)


def test_c6_deleted_while_it_is_rebuilt(off: Running) -> None:
    server = off.buried()
    off.switch("on")
    assert off.rebuild(server).status == 202
    off.delete(server)
    until(lambda: not off.held(server), 60.0, "it holds nothing")


def test_c7_quota_is_asked_again(off: Running) -> None:
    server, quotas = off.buried(), f"/compute/v2.1/os-quota-sets/{off.project}"
    off.done("PUT", quotas, {"quota_set": {"cores": 0, "force": True}})
    refused = off.rebuild(server)
    assert refused.status == 403 and "Quota exceeded" in refused.json["forbidden"]["message"]
    assert off.server(server)["status"] == "ERROR"
    off.done("PUT", quotas, {"quota_set": {"cores": 20}})
    off.delete(server)


def test_c8_everything_is_there_and_a_volume_that_is_gone_is_said(off: Running) -> None:
    running = off
    certified = running.buried(version="2.63", trusted_image_certificates=["0b5d2c72-12cc-4ba6-a8d7-3ff5cc1d8cb8"])
    boot, data = running.volume(imageRef=running.image), running.volume()
    devices = [
        {"source_type": "volume", "destination_type": "volume", "uuid": boot, "boot_index": 0},
        {"source_type": "volume", "destination_type": "volume", "uuid": data, "boot_index": -1},
    ]
    more = {"personality": FILES, "config_drive": True, "block_device_mapping_v2": devices, "imageRef": ""}
    server = running.buried(version="2.56", **more)
    assert {running.volume_status(boot), running.volume_status(data)} == {"available"}
    lost = running.volume()
    poor = running.buried(block_device_mapping_v2=[local_disk(running), {**devices[1], "uuid": lost}])
    running.done("DELETE", f"/volume/v3/{running.project}/volumes/{lost}")
    until(lambda: running.ask("GET", f"/volume/v3/{running.project}/volumes/{lost}").status == 404, 60.0, "it is gone")
    running.switch("on")
    for one in (server, certified):
        assert running.rebuild(one).status == 202, one
        running.until(one, "ACTIVE")
    attached = running.done("GET", f"/compute/v2.1/servers/{server}/os-volume_attachments")["volumeAttachments"]
    assert [one["volumeId"] for one in attached] == [boot, data]
    assert running.server(server)["config_drive"] == "True"
    assert running.server(certified)["trusted_image_certificates"] == ["0b5d2c72-12cc-4ba6-a8d7-3ff5cc1d8cb8"]
    assert running.rebuild(poor).status == 400
    assert running.server(poor)["status"] == "ERROR"
    for one in (server, certified, poor):
        running.delete(one)


def local_disk(running: Running) -> dict[str, Any]:
    return {"source_type": "image", "destination_type": "local", "uuid": running.image, "boot_index": 0}


def test_c9_all_are_listed_with_what_would_fit_and_tried(off: Running) -> None:
    servers = sorted(off.buried() for _ in range(3))

    def ask(*arguments: object) -> str:
        done = kilonova("unplaced", *arguments, "--url", off.http.url, "--data", off.cloud.data)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert [line.split()[0] for line in ask("list").splitlines()] == ["server", *servers]
    page = off.http.get(f"/unplaced?limit=1&marker={servers[0]}")["unplaced"]
    assert [one["server"] for one in page] == servers[1:2]
    assert "ComputeFilter" in page[0]["why_not"] and page[0]["host"] is None
    assert off.http.get("/unplaced?marker=zzzz")["unplaced"] == []
    assert off.http.ask("GET", "/kilonova/v1/unplaced?colour=red").status == 400
    assert off.demo.ask("GET", "/kilonova/v1/unplaced").status == 403
    assert off.http.ask("POST", "/kilonova/v1/operations", {"operation": "retry", "server": "nothing"}).status == 404
    assert off.http.ask("POST", "/kilonova/v1/plans", {"operation": "retry", "server": "nothing"}).status == 404
    off.switch("on")
    until(lambda: all(one["host"] for one in off.unplaced().values()), 60.0, "hosts are open again")
    assert sorted(line.split()[0] for line in ask("retry", "--all").splitlines()[1:]) == servers
    for one in servers:
        off.until(one, "ACTIVE")
    assert json.loads(ask("list", "-f", "json")) == []
    for one in servers:
        off.delete(one)


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ6r8wVcM5Ohz4Vd8Uxkq8Wm3Y1Qk6S5T2Lw0r1g2h3i me"
