"""A cell's database that is lost without a backup: `kilonova db lost`, on SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.test_restored import Scene, act, done, quarantined
from tests.support.program import Cloud, kilonova, until

WORD = ("db", "lost", "cell1", "--reason", "the disk burnt")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """`moved` was moved and confirmed, `off` is stopped, `deleted` is gone; the others run where they were made."""
    scene = Scene(tmp_path / "var")
    with Cloud(scene.var) as cloud:
        for name in ("first", "second", "moved", "off", "deleted"):
            scene.create(cloud, name)
        done(cloud, "migrate", server=scene.ids["moved"])
        done(cloud, "confirm_resize", server=scene.ids["moved"])
        assert act(cloud, scene.ids["off"], "os-stop").status == 202
        until(lambda: cloud.http.server(scene.ids["off"])["vm_state"] == "stopped", 60, "stopped")
        done(cloud, "delete", server=scene.ids.pop("deleted"))
        disabled = {"host": "host3", "binary": "nova-compute", "disabled_reason": "fans"}
        path = "/compute/v2.1/os-services/disable-log-reason"
        assert cloud.http.ask("PUT", path, disabled).status == 200
        assert cloud.terminate() == 0
    return scene


def lose(scene: Scene) -> None:
    for file in scene.var.glob("cell1.db*"):
        file.unlink()


def test_nothing_is_replaced_while_nothing_is_lost(scene: Scene) -> None:
    before = (scene.var / "cell1.db").read_bytes()
    said = kilonova(*WORD, "--data", scene.var)
    assert said.returncode == 3 and "nothing is lost" in said.stderr, said.stderr
    assert (scene.var / "cell1.db").read_bytes() == before
    assert kilonova("db", "lost", "cell7", "--reason", "x", "--data", scene.var).returncode == 3
    assert kilonova("db", "lost", "placement", "--reason", "x", "--data", scene.var).returncode == 3


def test_a_lost_cell_is_made_again(scene: Scene) -> None:
    disks = scene.disks()
    lose(scene)
    start = kilonova("serve", "--data", scene.var)
    assert start.returncode == 3 and "kilonova db lost cell1 --reason" in start.stderr, start.stderr
    assert not (scene.var / "cell1.db").exists()

    assert kilonova("db", "lost", "cell1", "--reason", " ", "--data", scene.var).returncode == 3
    assert not (scene.var / "cell1.db").exists()
    word = kilonova(*WORD, "--data", scene.var)
    assert word.returncode == 0, word.stderr
    assert "servers recorded again: 4, hosts recorded again: 3" in word.stdout
    again = kilonova(*WORD, "--data", scene.var)
    assert again.returncode == 3 and "nothing is lost" in again.stderr, "it is done"
    with closing(sqlite3.connect(scene.var / "control.db")) as control:
        assert control.execute("SELECT name, reason FROM lost_stores").fetchall() == [("cell1", "the disk burnt")]
    assert kilonova("db", "check", "--data", scene.var).returncode == 0

    with Cloud(scene.var) as cloud:
        http = cloud.http
        until(lambda: http.ask("GET", "/readyz").status == 200, 60, lambda: str(http.ask("GET", "/readyz").body))
        for name in ("first", "second", "moved"):
            server = scene.ids[name]
            until(lambda s=server: http.server(s)["vm_state"] == "active", 60, lambda s=server: str(http.server(s)))  # type: ignore[misc]
        until(lambda: http.server(scene.ids["off"])["vm_state"] == "stopped", 60, "the stopped one")
        hosts = {one["name"]: one for one in http.get("/hosts")["hosts"]}
        assert [quarantined(cloud, host) for host in hosts] == [[], [], []]
        services = http.ask("GET", "/compute/v2.1/os-services?binary=nova-compute").json["services"]
        assert {one["host"] for one in services if one["status"] == "disabled"} == {"host3"}
        providers = http.ask("GET", "/placement/resource_providers").json["resource_providers"]
        assert sorted(one["name"] for one in providers) == ["host1", "host2", "host3"]
        assert kilonova("audit", "--data", scene.var).returncode == 0
        for action, state in (("os-stop", "stopped"), ("os-start", "active")):
            assert act(cloud, scene.ids["first"], action).status == 202
            until(lambda s=state: http.server(scene.ids["first"])["vm_state"] == s, 60, state)  # type: ignore[misc]
        scene.create(cloud, "new")
        assert cloud.terminate() == 0
    assert disks <= scene.disks(), "no disk is lost"

    with Cloud(scene.var) as cloud:
        for server in scene.ids.values():
            done(cloud, "delete", server=server)
        assert kilonova("audit", "--data", scene.var).returncode == 0
        assert cloud.terminate() == 0
    assert scene.disks() == set()
    with closing(sqlite3.connect(scene.var / "placement.db")) as placement:
        assert placement.execute("SELECT count(*) FROM allocations").fetchone() == (0,)


def test_a_database_with_something_in_it_is_not_taken(scene: Scene) -> None:
    lose(scene)
    with closing(sqlite3.connect(scene.var / "cell1.db")) as other:
        other.execute("CREATE TABLE somebodys (id INTEGER)")
        other.commit()
    said = kilonova(*WORD, "--data", scene.var)
    assert said.returncode == 3 and "not empty" in said.stderr, said.stderr
    with closing(sqlite3.connect(scene.var / "control.db")) as control:
        assert control.execute("SELECT count(*) FROM lost_stores").fetchone() == (0,)
    lose(scene)
    (scene.var / "cell1.db").write_bytes((scene.var / "cell0.db").read_bytes())
    said = kilonova(*WORD, "--data", scene.var)
    assert said.returncode == 3 and "(cell0)" in said.stderr, said.stderr
