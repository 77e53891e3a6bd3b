"""Stories D3 and D4b on PostgreSQL: databases of a fleet are put back from a backup, hosts and directories are not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import DATABASES, Fleet, started
from tests.fleet.restoring import Disks, Scene
from tests.support.file_work import differing
from tests.support.program import kilonova, until
from tests.support.servers import Nats, Postgres

D3, D4B = ("cell1",), DATABASES
MORE = [("control",), ("placement",), ("placement", "cell1")] if os.environ.get("KILONOVA_FULL") else []
VARIANTS = [D3, D4B, *MORE]
ELSEWHERE = ("moved", "half_moved", "evacuated", "rebuilt", "moving")  # by then the guest is another copy


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres(fsync=False) as postgres:
        yield postgres


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with Nats() as nats:
        yield nats


@pytest.fixture(scope="module")
def fleet(postgres: Postgres, nats: Nats) -> Iterator[Fleet]:
    """Copies of disks take so long that a backup finds them under way."""
    fleet = Fleet(postgres, nats)
    fleet.config.write_text(fleet.config.read_text().replace("copy_seconds = 0.6", "copy_seconds = 2"))
    with started(fleet):
        yield fleet


@pytest.mark.parametrize("names", VARIANTS, ids="+".join)
def test_restored(fleet: Fleet, postgres: Postgres, tmp_path: Path, names: tuple[str, ...]) -> None:
    scene = Scene(fleet, postgres)
    scene.prepare()
    backup = scene.back_up(tmp_path / "backup")
    scene.change_everything()
    states, disks, running, files = scene.statuses(), scene.disks(), scene.running(), scene.sums()

    scene.put_back(backup, names)
    nothing_is_changed(scene, names)
    assert scene.disks() == disks and scene.running() == running and scene.sums() == files
    said = scene.end_halt()
    if "control" in names:
        scene.files.are_in(said)
        scene.files.are_ended()
    assert differing(files, scene.sums) == [], "no file is removed or overwritten"
    assert scene.statuses() == expected(names, states)
    assert scene.disks() == disks and scene.running() == running, "no guest is removed, started or stopped"
    if "cell1" in names:
        the_guests_are_in_quarantine(scene)
        no_request_hangs(scene)
        differences_are_reported(scene, names)
    everything_can_be_settled(scene, disks)
    scene.files.can_be_removed()


def expected(names: tuple[str, ...], states: dict[str, str]) -> dict[str, str]:
    """With its cell put back a server is what its guest is, or in ERROR where the guest is elsewhere or gone."""
    if "cell1" not in names:
        return states
    lost = dict.fromkeys(("moved", "evacuated", "rebuilt", "deleted", "deleting", "building"), "ERROR")
    off = dict.fromkeys(("half_moved", "moving"), "SHUTOFF")
    made_since = {} if "control" in names else {"created": "ERROR"}
    unchanged = {name: state for name, state in states.items() if name != "created"}
    return {**unchanged, **lost, **off, **made_since}


def nothing_is_changed(scene: Scene, names: tuple[str, ...]) -> None:
    """The restore is noticed and said; reads are answered, writes are not."""
    http, log = scene.http, scene.fleet.roles["api"].log()
    for name in {*names} - {"cell0"}:  # nothing was written there
        assert f"{name} database: it was restored from an older copy" in log
    assert http.ask("GET", "/readyz").status == 503
    refused = scene.act("kept", "os-stop")
    assert refused.status == 503 and b"kilonova db restored" in refused.body
    assert http.ask("POST", "/volume/v3/volumes", {"volume": {"size": 1}}).status == 503
    assert http.ask("GET", "/compute/v2.1/servers").status == 200
    check = kilonova("db", "check", "--config", scene.fleet.config)
    assert check.returncode == 3, check.stdout


def the_guests_are_in_quarantine(scene: Scene) -> None:
    """By REST, by command and in the log."""
    assert scene.quarantine().keys() == {*ELSEWHERE, "created"}
    listed = kilonova("quarantine", "list", "--data", scene.fleet.directory / "api")
    log = scene.fleet.roles["conductor1"].log()
    for name in (*ELSEWHERE, "created"):
        assert scene.ids[name] in listed.stdout, listed.stderr
        assert re.search(f"guest quarantined: .*{scene.ids[name]}", log)


def no_request_hangs(scene: Scene) -> None:
    for name in ("moved", "evacuated", "rebuilt"):
        refused = scene.act(name, "os-stop")
        assert refused.status == 409 and b"kilonova quarantine list" in refused.body, refused.body
    for action in ("os-stop", "os-start"):
        for name in ("kept", "reverted", "building"):
            assert scene.act(name, action).status == 202
        scene.await_rest()
    assert {scene.statuses()[name] for name in ("kept", "reverted", "building")} == {"ACTIVE"}


def differences_are_reported(scene: Scene, names: tuple[str, ...]) -> None:
    report = scene.http.post("/audits", {"repair": False})["audit"]
    found = {(one["kind"], one["server"]) for one in report["differences"]}
    for name in ("moved", "evacuated", "rebuilt", "deleted"):
        assert ("missing_copy", scene.ids[name]) in found
    if "control" in names:
        assert {("guest_volumes", scene.ids[name]) for name in ("attached", "detached")} <= found
    else:  # what control knows of "attached" is in its record again
        assert ("missing_attachment", scene.ids["detached"]) in found
        assert ("missing_port", scene.ids["deleted"]) in found
        assert ("port_elsewhere", scene.ids["moved"]) in found
    kept = kilonova("audit", "--data", scene.fleet.directory / "api")
    assert kept.returncode == 6, kept.stdout


def everything_can_be_settled(scene: Scene, disks: Disks) -> None:
    """Guests are adopted, and their servers are as they were after the changes. Then all is deleted."""
    for name, host in scene.quarantine().items():
        if name in scene.statuses():
            scene.settle(name, host, "adopt")
    scene.await_rest()
    states = scene.statuses()
    assert {states[name] for name in ELSEWHERE} <= {"ACTIVE", "VERIFY_RESIZE"}
    assert disks <= scene.disks(), "no complete copy of a disk is lost"
    servers = [server for server, _ in scene.running()]
    assert len(servers) == len({*servers}), "no guest runs twice"

    for name, host in scene.quarantine().items():
        scene.settle(name, host, "remove")
    for name in states:
        scene.ask("DELETE", f"/compute/v2.1/servers/{scene.ids[name]}")
    scene.await_rest()
    until(lambda: not scene.disks(), 30, lambda: f"left: {scene.disks()}")
    assert scene.statuses() == {} and scene.running() == []
    for one in scene.http.post("/audits", {})["audit"]["differences"]:
        if one["kind"] == "orphan_port":  # of a server that was deleted since, in a control that does not know it
            scene.ask("DELETE", f"/network/v2.0/ports/{one['sentence'].split()[1]}")
    assert scene.fleet.accounting() == []
    for name, volume in scene.volumes.items():
        state = scene.http.ask("GET", f"/volume/v3/volumes/{volume}")
        assert state.status == 404 or state.json["volume"]["status"] == "available", (name, state.body)
    report = scene.http.post("/audits", {})["audit"]
    assert (report["findings"], report["differences"], report["foreign"]) == ([], [], [])
