"""A cell restored alone from a backup (D3), and all databases without directories and hosts (D4b), on SQLite."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.compute.drivers.hardware import Found, Hardware
from tests.support.program import Answer, Cloud, kilonova, until
from tests.support.sparse import copy_tree

SLOW = ("--set", "simulated.copy_seconds=600")
CHANGED = ("created", "deleted", "moved", "reverted", "copying")


class Scene:
    """A cloud whose databases were copied, and in which every kind of change happened since."""

    def __init__(self, var: Path) -> None:
        self.var, self.backup = var, var.with_name("backup")
        self.ids: dict[str, str] = {}

    def before(self) -> None:
        with Cloud(self.var) as cloud:
            for name in ("kept", *CHANGED[1:]):
                self.create(cloud, name)
            write(cloud, self.ids["moved"], "before")
            cloud.terminate()
        copy_tree(self.var, self.backup)

    def since(self) -> None:
        with Cloud(self.var) as cloud:
            self.create(cloud, "created")
            done(cloud, "delete", server=self.ids["deleted"])
            for name, end in (("moved", "confirm_resize"), ("reverted", "revert_resize")):
                done(cloud, "migrate", server=self.ids[name])
                if name == "moved":
                    write(cloud, self.ids[name], "since")
                done(cloud, end, server=self.ids[name])
            cloud.terminate()
        with Cloud(self.var, *SLOW) as cloud:
            moving = cloud.http.submit("migrate", server=self.ids["copying"])["operation"]
            until(lambda: any(step["name"] == "resize_instance" for step in steps(cloud, moving)), 60, "mid-copy")
            cloud.terminate()

    def create(self, cloud: Cloud, name: str) -> None:
        made = cloud.http.create(name)
        assert cloud.http.ended(made["operation"])["state"] == "done"
        self.ids[name] = made["server"]

    def survey(self) -> list[Found]:
        """Every copy on every host; only while the program is stopped."""
        hardware = Hardware(persist=self.var / "simulated.db")
        try:
            for host in ("host1", "host2", "host3"):
                hardware.add_host(host)
            return hardware.survey()
        finally:
            hardware.close()

    def disks(self) -> set[tuple[str, str, int, str]]:
        return {(one.host, one.server, one.copy, one.marker) for one in self.survey() if one.whole}


def steps(cloud: Cloud, operation: str) -> Any:
    return cloud.http.operation(operation)["steps"]


def done(cloud: Cloud, operation: str, **params: Any) -> None:
    shown = cloud.http.ended(cloud.http.submit(operation, **params)["operation"])
    assert shown["state"] == "done", shown


def act(cloud: Cloud, server: str, action: str) -> Answer:
    if action == "delete":
        return cloud.http.ask("POST", "/kilonova/v1/operations", {"operation": "delete", "server": server})
    body = {"type": "HARD"} if action == "reboot" else None
    return cloud.http.ask("POST", f"/compute/v2.1/servers/{server}/action", {action: body})


def write(cloud: Cloud, server: str, text: str) -> None:
    found = cloud.http.ask("POST", f"/kilonova/v1/simulated/servers/{server}/write", {"disk": "root", "text": text})
    assert found.status < 300, found.body


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    scene = Scene(tmp_path_factory.mktemp("restored") / "var")
    scene.before()
    scene.since()
    return scene


@pytest.fixture
def scene(origin: Scene, tmp_path: Path) -> Iterator[Scene]:
    copy = Scene(copy_tree(origin.var, tmp_path / "var"))
    copy.backup, copy.ids = origin.backup, origin.ids
    yield copy


def put_back(scene: Scene, *names: str) -> None:
    for name in names:
        shutil.copy(scene.backup / f"{name}.db", scene.var / f"{name}.db")


@pytest.mark.parametrize("names", [("cell1",), ("control", "placement", "cell0", "cell1")], ids=["D3", "D4b"])
def test_nothing_happens_until_the_word(scene: Scene, names: tuple[str, ...]) -> None:
    before = scene.disks()
    put_back(scene, *names)
    said = kilonova("db", "check", "--data", scene.var)
    assert said.returncode == 3 and "an older copy than the rest" in said.stderr, said.stderr
    with Cloud(scene.var) as cloud:
        listed = cloud.http.ask("GET", "/compute/v2.1/servers").json["servers"]
        assert scene.ids["deleted"] in {one["id"] for one in listed}  # reads are answered from what there is
        for server in (scene.ids["kept"], scene.ids["moved"]):
            for answer in (act(cloud, server, "os-stop"), act(cloud, server, "delete")):
                assert answer.status == 503 and b"kilonova db restored" in answer.body, answer.body
        assert cloud.http.ask("GET", "/readyz").status == 503
        assert "it was restored from an older copy" in cloud.log()
        assert cloud.terminate() == 0
    assert scene.disks() == before

    for _ in range(2):  # it may be repeated
        word = kilonova("db", "restored", "--data", scene.var)
        assert word.returncode == 0, word.stderr
    assert kilonova("db", "check", "--data", scene.var).returncode == 0
    with Cloud(scene.var) as cloud:
        http = cloud.http
        until(lambda: http.ask("GET", "/readyz").status == 200, 60, lambda: str(http.ask("GET", "/readyz").body))
        until(lambda: http.server(scene.ids["moved"])["vm_state"] == "error", 60, "the moved one in error")
        assert http.server(scene.ids["kept"])["vm_state"] == "active"
        assert http.server(scene.ids["reverted"])["vm_state"] == "active"
        listed = {one["id"]: one["status"] for one in http.ask("GET", "/compute/v2.1/servers/detail").json["servers"]}
        assert listed[scene.ids["deleted"]] == "ERROR"
        found = {one["server"] for host in http.get("/hosts")["hosts"] for one in quarantined(cloud, host["name"])}
        assert {scene.ids["created"], scene.ids["moved"]} <= found
        for action, state in (("os-stop", "stopped"), ("os-start", "active")):
            assert act(cloud, scene.ids["kept"], action).status == 202
            until(lambda state=state: http.server(scene.ids["kept"])["vm_state"] == state, 60, state)  # type: ignore[misc]
        assert cloud.terminate() == 0
    assert before <= scene.disks(), "no complete copy of a disk is lost"
    adopts_the_moved_one(scene)


def quarantined(cloud: Cloud, host: str) -> Any:
    return cloud.http.get(f"/hosts/{host}")["host"]["quarantine"]


def adopts_the_moved_one(scene: Scene) -> None:
    server = scene.ids["moved"]
    with Cloud(scene.var) as cloud:
        until(lambda: cloud.http.ask("GET", "/readyz").status == 200, 60, "ready")
        hosts = [one["name"] for one in cloud.http.get("/hosts")["hosts"]]
        (host,) = [one for one in hosts if server in {copy["server"] for copy in quarantined(cloud, one)}]
        refused = act(cloud, server, "reboot")
        assert refused.status == 409, refused.body
        until(lambda: adopted(cloud, host, server), 60, "adopted")
        until(lambda: cloud.http.server(server)["vm_state"] == "active", 60, lambda: str(cloud.http.server(server)))
        assert cloud.http.server(server)["host"] == host
        cloud.terminate()
    running = [one for one in scene.survey() if one.server == server and one.power == "on"]
    assert [(one.host, "since" in one.marker) for one in running] == [(host, True)]


def adopted(cloud: Cloud, host: str, server: str) -> bool:
    path = f"/kilonova/v1/hosts/{host}/quarantine/{server}"
    return cloud.http.ask("POST", path, {"action": "adopt"}).status in (200, 202)
