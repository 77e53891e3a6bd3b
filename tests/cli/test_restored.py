"""A cell restored alone from a backup (D3), and all databases without directories and hosts (D4b), on SQLite."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.compute.drivers.simulated.hardware import GuestCopy, Hardware
from tests.support.file_work import FileWork, differing, set_aside, sums
from tests.support.program import Answer, Cloud, kilonova, until
from tests.support.sparse import copy_tree

SLOW = ("--set", "simulated.copy_seconds=600")
KEEPS = ("--set", "DEFAULT.reclaim_instance_interval=3600")
RECLAIMS = ("--set", "DEFAULT.reclaim_instance_interval=1")
CHANGED = ("created", "deleted", "moved", "reverted", "copying", "rebuilt", "undeleted", "switched_off")
SOFT_DELETED = CHANGED[-2:]  # in the backup; restored since, and one of them is off
DATABASES = ("control", "placement", "cell0", "cell1")


class Scene:
    """A cloud whose databases were copied, and in which every kind of change happened since."""

    def __init__(self, var: Path) -> None:
        self.var, self.backup = var, var.with_name("backup")
        self.ids: dict[str, str] = {}
        self.files: FileWork

    def before(self) -> None:
        with Cloud(self.var, *KEEPS) as cloud:
            for name in ("kept", *CHANGED[1:]):
                self.create(cloud, name)
            write(cloud, self.ids["moved"], "before")
            for name in SOFT_DELETED:
                assert cloud.http.ask("DELETE", f"/compute/v2.1/servers/{self.ids[name]}").status == 204
                self.becomes(cloud, name, "soft-delete")
            self.files = FileWork(cloud.http)
            self.files.make()
            old_records = self.files.old_records()
            cloud.terminate()
        copy_tree(self.var, self.backup)
        with contextlib.closing(sqlite3.connect(self.backup / "control.db")) as control, control:
            for sql in old_records:
                assert control.execute(sql).rowcount == 1, sql

    def since(self) -> None:
        with Cloud(self.var, *KEEPS) as cloud:
            self.create(cloud, "created")
            self.files.http = cloud.http
            self.files.change(self.var)
            for name in SOFT_DELETED:
                assert act(cloud, self.ids[name], "restore").status == 202
                self.becomes(cloud, name, "active")
            assert act(cloud, self.ids["switched_off"], "os-stop").status == 202
            self.becomes(cloud, "switched_off", "stopped")
            self.rebuild(cloud, "rebuilt")
            done(cloud, "delete", server=self.ids["deleted"])
            for name, end in (("moved", "confirm_resize"), ("reverted", "revert_resize")):
                done(cloud, "migrate", server=self.ids[name])
                if name == "moved":
                    write(cloud, self.ids[name], "since")
                done(cloud, end, server=self.ids[name])
            cloud.terminate()
        with Cloud(self.var, *KEEPS, *SLOW) as cloud:
            moving = cloud.http.submit("migrate", server=self.ids["copying"])["operation"]
            until(lambda: any(step["name"] == "resize_instance" for step in steps(cloud, moving)), 60, "mid-copy")
            cloud.terminate()

    def create(self, cloud: Cloud, name: str) -> None:
        made = cloud.http.create(name)
        assert cloud.http.ended(made["operation"])["state"] == "done"
        self.ids[name] = made["server"]

    def rebuild(self, cloud: Cloud, name: str) -> None:
        body = {"rebuild": {"imageRef": self.files.seed("cirros-sim-alt")}}
        answer = cloud.http.ask("POST", f"/compute/v2.1/servers/{self.ids[name]}/action", body)
        assert answer.status == 202, answer.body
        cloud.http.ended(answer.headers["X-Kilonova-Operation"])
        self.becomes(cloud, name, "active")

    def becomes(self, cloud: Cloud, name: str, state: str) -> None:
        look = lambda: cloud.http.server(self.ids[name])  # noqa: E731
        until(lambda: look()["vm_state"] == state and look()["task_state"] is None, 60, lambda: str(look()))

    def survey(self) -> list[GuestCopy]:
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
    copy.backup, copy.ids, copy.files = origin.backup, origin.ids, origin.files
    yield copy


def put_back(scene: Scene, *names: str) -> None:
    for name in names:
        shutil.copy(scene.backup / f"{name}.db", scene.var / f"{name}.db")


@pytest.mark.parametrize("names", [("cell1",), DATABASES], ids=["D3", "D4b"])
def test_nothing_happens_until_the_word(scene: Scene, names: tuple[str, ...]) -> None:
    before, files = scene.disks(), sums(scene.var)
    put_back(scene, *names)
    said = kilonova("db", "check", "--data", scene.var)
    assert said.returncode == 3 and "an older copy than the rest" in said.stderr, said.stderr
    with Cloud(scene.var, *RECLAIMS) as cloud:
        listed = cloud.http.ask("GET", "/compute/v2.1/servers").json["servers"]
        assert scene.ids["deleted"] in {one["id"] for one in listed}  # reads are answered from what there is
        for server in (scene.ids["kept"], scene.ids["moved"]):
            for answer in (act(cloud, server, "os-stop"), act(cloud, server, "delete")):
                assert answer.status == 503 and b"kilonova db restored" in answer.body, answer.body
        assert cloud.http.ask("GET", "/readyz").status == 503
        assert "it was restored from an older copy" in cloud.log()
        assert cloud.terminate() == 0
    assert scene.disks() == before and sums(scene.var) == files

    words = [kilonova("db", "restored", "--data", scene.var) for _ in range(2)]  # it may be repeated
    assert [word.returncode for word in words] == [0, 0], words[-1].stderr
    if "control" in names:
        scene.files.are_in(words[0].stdout)
        scene.files.are_in(words[0].stderr)  # the log
    check = kilonova("db", "check", "--data", scene.var)
    missing = sum(name in check.stderr for name in (scene.files.volumes["deleted"], scene.files.images["deleted"]))
    assert (check.returncode, missing) == ((3, 2) if "control" in names else (0, 0)), check.stderr
    assert sums(scene.var) == files
    with Cloud(scene.var, *RECLAIMS) as cloud:
        http = cloud.http
        until(lambda: http.ask("GET", "/readyz").status == 200, 60, lambda: str(http.ask("GET", "/readyz").body))
        until(lambda: http.server(scene.ids["moved"])["vm_state"] == "error", 60, "the moved one in error")
        assert http.server(scene.ids["kept"])["vm_state"] == "active"
        assert http.server(scene.ids["reverted"])["vm_state"] == "active"
        listed = {one["id"]: one["status"] for one in http.ask("GET", "/compute/v2.1/servers/detail").json["servers"]}
        assert listed[scene.ids["deleted"]] == "ERROR"
        assert http.server(scene.ids["rebuilt"])["vm_state"] == "error"
        assert http.server(scene.ids["undeleted"])["vm_state"] == "active"
        assert http.server(scene.ids["switched_off"])["vm_state"] == "soft-delete"
        scene.files.http = http
        if "control" in names:
            scene.files.are_ended()
        found = {one["server"] for host in http.get("/hosts")["hosts"] for one in quarantined(cloud, host["name"])}
        assert {scene.ids[name] for name in ("created", "moved", "rebuilt")} <= found
        for action, state in (("os-stop", "stopped"), ("os-start", "active")):
            assert act(cloud, scene.ids["kept"], action).status == 202
            until(lambda state=state: http.server(scene.ids["kept"])["vm_state"] == state, 60, state)  # type: ignore[misc]
        assert cloud.terminate() == 0
    assert before <= scene.disks(), "no complete copy of a disk is lost"
    assert differing(files, lambda: sums(scene.var)) == []
    aside = {f"volume-{scene.files.volumes['created']}"} if "control" in names else set()
    assert {name for name in set_aside(scene.var) if name.startswith(("volume", "snapshot"))} == aside
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
