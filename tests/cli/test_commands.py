"""Commands that speak to a running cloud, and those about its databases."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.program import KILONOVA, Cloud, Http, kilonova, until

pytestmark = pytest.mark.usefixtures("command_starts")
USAGE, REFUSED, FAILED, DIFFERENCES = 2, 3, 4, 6


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(tmp_path_factory.mktemp("cloud") / "var", "--hosts", 2) as cloud:
        yield cloud


def ask(cloud: Cloud, *arguments: object) -> subprocess.CompletedProcess[str]:
    return kilonova(*arguments, "--url", cloud.http.url, "--data", cloud.data)


def test_operations_are_listed_and_shown(cloud: Cloud) -> None:
    made = cloud.http.create("listed")
    cloud.http.ended(made["operation"])
    listed = ask(cloud, "op", "list", "--server", made["server"])
    assert listed.returncode == 0, listed.stderr
    header, line = listed.stdout.splitlines()
    assert header.split() == ["id", "operation", "server", "state", "asked", "took", "note"]
    assert line.split()[:4] == [made["operation"], "create", made["server"], "done"]
    shown = ask(cloud, "op", "show", made["operation"])
    assert "build_and_run_instance" in shown.stdout and "select_destinations" in shown.stdout
    whole = json.loads(ask(cloud, "op", "show", made["operation"], "-f", "json").stdout)
    assert whole["id"] == made["operation"]
    assert len(ask(cloud, "op", "list", "--limit", 1).stdout.splitlines()) == 2


def test_a_reader_that_has_read_enough_is_no_error(cloud: Cloud) -> None:
    """`kilonova op list | head`: the pipe is closed before anything is written."""
    read, write = os.pipe()
    os.close(read)
    command = [str(KILONOVA), "op", "list", "--url", cloud.http.url, "--data", str(cloud.data)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_server_refuses_is_refused(cloud: Cloud) -> None:
    made = cloud.http.create("ended")
    cloud.http.ended(made["operation"])
    for arguments, words in (
        (("op", "cancel", made["operation"]), "it has ended (done)"),
        (("op", "show", "nothing"), "operation nothing: not found"),
        (("op", "show", "../hosts"), "operation ../hosts: not found"),
        (("op", "list", "--state", "tired"), "state='tired': unknown"),
        (("op", "list", "--limit", "0"), "limit=0: must be 1 to 1000"),
        (("op", "list", "--limit", "99999999999"), "limit=99999999999: must be 1 to 1000"),
        (("op", "list", "--server", "nosuch"), "server 'nosuch': not found"),
        (("sim", "host", "mars", "--power", "off"), "mars could not be found"),
        (("sim", "host", "host1"), "the body must have power, link, fail, plant, lose or guest"),
    ):
        done = ask(cloud, *arguments)
        assert (done.returncode, done.stdout) == (REFUSED, "") and words in done.stderr, done.stderr


def test_an_operation_that_waits_is_abandoned_with_the_command_that_it_says(cloud: Cloud) -> None:
    made = cloud.http.create("stuck", host="host1")
    cloud.http.ended(made["operation"])
    for arguments, words in (
        (("op", "resume", made["operation"]), "it has ended (done)"),
        (("op", "abandon", made["operation"], "--reason", "broken"), "it has ended (done)"),
        (("finding", "settle", "nothing", "--reason", "seen to"), "finding nothing: not found"),
    ):
        done = ask(cloud, *arguments)
        assert (done.returncode, done.stdout) == (REFUSED, "") and words in done.stderr, done.stderr
    assert ask(cloud, "op", "abandon", made["operation"]).returncode == USAGE, "a reason is needed"

    ask(cloud, "sim", "host", "host1", "--fail", "ensure_power", "--times", 3, "--how", "refuse")
    stopped = cloud.http.ask("POST", f"/compute/v2.1/servers/{made['server']}/action", {"os-stop": None})
    operation = stopped.headers["X-Kilonova-Operation"]
    until(lambda: cloud.http.operation(operation)["state"] == "waiting", 60.0, lambda: "waiting")
    listed = ask(cloud, "op", "list", "--state", "waiting").stdout.splitlines()
    assert len(listed) == 2 and "waiting for stop_instance on host1" in listed[1] and max(map(len, listed)) < 240
    command = f"kilonova op abandon {operation} --reason TEXT"
    for where in (("op", "show", operation), ("doctor",)):
        text = ask(cloud, *where).stdout
        assert command in text and f"kilonova op resume {operation}" in text
    resumed = ask(cloud, "op", "resume", operation)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    until(lambda: "failed 2 times" in (cloud.http.operation(operation)["waiting_for"] or ""), 60.0, lambda: "tried")
    typed = [word if word != "TEXT" else "it is broken" for word in command.split()[1:]]
    abandoned = ask(cloud, *typed)
    assert (abandoned.returncode, abandoned.stderr) == (0, ""), abandoned.stderr
    assert cloud.http.ended(operation)["error"]["code"] == "abandoned"
    shown = ask(cloud, "op", "show", operation).stdout
    assert ": it is broken" in shown and "stop_instance was abandoned; not settled" in shown
    left = ask(cloud, "finding", "list").stdout
    assert "undo of stop_instance  host1" in left and made["server"] in left
    audited = ask(cloud, "audit")
    assert audited.returncode == DIFFERENCES and "kilonova finding settle" in audited.stdout
    assert ask(cloud, "finding", "settle", left.splitlines()[1].split()[0], "--reason", "seen to").returncode == 0
    assert len(ask(cloud, "finding", "list").stdout.splitlines()) == 1, "the header"
    assert ask(cloud, "audit").returncode == 0
    cloud.http.ended(cloud.http.submit("delete", server=made["server"])["operation"])


def test_servers_that_never_found_a_host_are_listed_and_retried(cloud: Cloud) -> None:
    def disable(word: bool) -> None:
        for host in ("host1", "host2"):
            assert cloud.http.ask("POST", f"/kilonova/v1/hosts/{host}", {"disabled": word}).status == 200

    disable(True)
    made = [cloud.http.create(name) for name in ("one", "two")]
    for one in made:
        assert cloud.http.ended(one["operation"])["state"] == "undone"
    listed = ask(cloud, "unplaced", "list").stdout
    assert listed.count("  no_valid_host  ") == listed.count("not now: No valid host was found. 0 of 2 hosts fit") == 2
    assert ask(cloud, "unplaced", "retry", "--all").stdout.startswith("no server would find a host now")
    disable(False)
    until(lambda: "would go to host" in ask(cloud, "unplaced", "list").stdout, 60.0, "hosts are open again")
    for arguments, words in (
        (("unplaced", "retry"), "name servers, or give --all"),
        (("unplaced", "retry", "--all", made[0]["server"]), "name servers, or give --all"),
        (("unplaced", "retry", "nothing"), "server 'nothing': not found"),
    ):
        done = ask(cloud, *arguments)
        assert done.returncode in (USAGE, REFUSED) and words in done.stderr, done.stderr
    running = cloud.http.create("running")
    assert cloud.http.ended(running["operation"])["state"] == "done"
    first = ask(cloud, "unplaced", "retry", running["server"], made[0]["server"])
    assert first.returncode == REFUSED and "while it is in vm_state active" in first.stderr  # the other one is retried
    retried = ask(cloud, "unplaced", "retry", "--all").stdout
    assert made[1]["server"] in retried and made[0]["server"] not in retried
    for line in (*first.stdout.splitlines()[1:], *retried.splitlines()[1:]):
        assert cloud.http.ended(line.split()[-1])["state"] == "done"
    assert json.loads(ask(cloud, "unplaced", "list", "-f", "json").stdout) == []
    again = ask(cloud, "unplaced", "retry", made[0]["server"])
    assert again.returncode == REFUSED and "while it is in vm_state active" in again.stderr
    for one in (*made, running):
        cloud.http.ended(cloud.http.submit("delete", server=one["server"])["operation"])


def test_hosts_are_switched(cloud: Cloud) -> None:
    off = ask(cloud, "sim", "host", "host2", "--power", "off", "--link", "cut")
    assert (off.returncode, off.stdout) == (0, "host2: power off, link cut\n")
    on = ask(cloud, "sim", "host", "host2", "--power", "on", "--link", "up", "--fail", "console", "--times", "2")
    assert on.stdout == "host2: power on, link up\n"


def _until_quarantined(cloud: Cloud, number: int) -> None:
    """An agent tells what it has when it registers; being enabled again, it does so."""
    cloud.http.post("/hosts/host2", {"disabled": True})
    cloud.http.post("/hosts/host2", {"disabled": False})
    until(lambda: cloud.http.get("/hosts/host2")["host"]["quarantined"] == number, 30, f"{number} in quarantine")


def test_hosts_are_listed_and_shown(cloud: Cloud) -> None:
    listed = ask(cloud, "host", "list")
    assert listed.returncode == 0, listed.stderr
    header, *lines = listed.stdout.splitlines()
    assert header.split() == ["name", "id", "cell", "state", "debts", "quarantined", "sentence"]
    assert [line.split()[0] for line in lines] == ["host1", "host2"]
    host_id = lines[0].split()[1]
    by_name, by_id = ask(cloud, "host", "show", "host1"), ask(cloud, "host", "show", host_id)
    assert by_name.returncode == by_id.returncode == 0
    assert by_name.stdout.splitlines()[:2] == by_id.stdout.splitlines()[:2]
    whole = json.loads(ask(cloud, "host", "show", "host1", "-f", "json").stdout)
    assert (whole["name"], whole["id"], whole["owed"], whole["quarantine"]) == ("host1", host_id, [], [])
    assert [host["name"] for host in json.loads(ask(cloud, "host", "list", "-f", "json").stdout)] == [
        "host1",
        "host2",
    ]
    missing = ask(cloud, "host", "show", "mars")
    assert missing.returncode == REFUSED and "mars could not be found" in missing.stderr


def test_a_guest_in_quarantine_is_adopted_or_removed_by_word(cloud: Cloud) -> None:
    made = cloud.http.create("lost", host="host1")
    cloud.http.ended(made["operation"])
    server = made["server"]
    assert ask(cloud, "sim", "host", "host2", "--plant", "ghost").returncode == 0
    assert ask(cloud, "sim", "host", "host2", "--plant", server, "--copy", 700).returncode == 0
    again = ask(cloud, "sim", "host", "host2", "--plant", "ghost")
    assert again.returncode == REFUSED and "already" in again.stderr
    _until_quarantined(cloud, 2)

    header, *lines = ask(cloud, "quarantine", "list").stdout.splitlines()
    assert header.split() == ["host", "server", "copy", "power", "disk", "found", "action", "reason"]
    assert sorted(line.split()[:5] for line in lines) == sorted(
        [["host2", "ghost", "1", "on", "whole"], ["host2", server, "700", "on", "whole"]]
    )
    assert "in quarantine" in ask(cloud, "host", "show", "host2").stdout
    for arguments, words in (
        (("adopt", "host2", server), "is whole and holds permission to run"),
        (("adopt", "host2", "ghost"), "Instance ghost could not be found"),
        (("adopt", "host1", server), "has no copy in quarantine on host1"),
        (("remove", "host2", "ghost", "--copy", 9), "has no copy 9 in quarantine"),
    ):
        refused = ask(cloud, "quarantine", *arguments)
        assert (refused.returncode, refused.stdout) == (REFUSED, "") and words in refused.stderr, refused.stderr

    assert ask(cloud, "sim", "host", "host1", "--lose", server).returncode == 0
    adopted = ask(cloud, "quarantine", "adopt", "host2", server)
    assert adopted.returncode == 0, adopted.stderr
    assert cloud.http.ended(adopted.stdout.split()[-1])["state"] == "done"
    assert cloud.http.server(server)["host"] == "host2"
    removed = ask(cloud, "quarantine", "remove", "host2", "ghost")
    assert (removed.returncode, removed.stdout) == (0, "copy 1 of ghost on host2 is being removed\n")
    until(lambda: cloud.http.get("/hosts/host2")["host"]["quarantined"] == 0, 30, "ghost is gone")
    settled = json.loads(ask(cloud, "quarantine", "list", "--settled", "-f", "json").stdout)
    assert sorted((one["server"], one["action"]) for one in settled) == sorted([("ghost", "remove"), (server, "adopt")])
    assert all(one["action_by"] and one["ended_at"] for one in settled)


def test_without_a_cloud_or_a_token(cloud: Cloud, tmp_path: Path) -> None:
    silent = kilonova("op", "list", "--url", "http://127.0.0.1:1", "--data", cloud.data)
    assert silent.returncode == FAILED and "does not answer" in silent.stderr and silent.stderr.count("\n") == 1
    lost = kilonova("op", "list", "--url", cloud.http.url, "--data", tmp_path)
    assert lost.returncode == REFUSED and "cannot read" in lost.stderr and "--data" in lost.stderr
    for text, words in (
        ("clouds: [", "is not valid YAML"),
        ("clouds: {other: {}}", "has no cloud kilonova with auth_url"),
    ):
        (tmp_path / "clouds.yaml").write_text(text)
        strange = kilonova("op", "list", "--data", tmp_path)
        assert strange.returncode == REFUSED and words in strange.stderr and strange.stderr.count("\n") == 1
    right = (cloud.data / "clouds.yaml").read_text()
    password = (cloud.data / "admin.password").read_text().strip()
    (tmp_path / "clouds.yaml").write_text(right.replace(password, "wrong"))
    wrong = kilonova("op", "list", "--clouds", tmp_path / "clouds.yaml")
    assert wrong.returncode == REFUSED and "the login was refused" in wrong.stderr
    strange = kilonova("op", "list", "--url", "no-address", "--data", cloud.data)
    assert strange.returncode == FAILED and strange.stderr.count("\n") == 1


def test_the_address_comes_from_clouds_yaml(cloud: Cloud) -> None:
    assert kilonova("op", "list", "--data", cloud.data).returncode == 0


def test_another_user_of_clouds_yaml(cloud: Cloud) -> None:
    done = kilonova("op", "list", "--data", cloud.data, "--os-cloud", "kilonova-demo")
    assert done.returncode == REFUSED and "doesn't allow" in done.stderr


def test_keys_of_tokens_are_rotated(cloud: Cloud) -> None:
    before = cloud.http.get("/token-keys")["token_keys"]
    done = ask(cloud, "identity", "rotate-keys")
    assert done.returncode == 0 and "signs from now on" in done.stdout, done.stderr
    after = cloud.http.get("/token-keys")["token_keys"]
    assert len(after) == len(before) + 1 and after[0]["id"] in done.stdout and after[0]["until"] is None
    assert all(key["until"] is not None for key in after[1:])


def test_keys_of_tokens_are_revoked(cloud: Cloud) -> None:
    kept = cloud.http.token
    done = ask(cloud, "identity", "rotate-keys", "--revoke")
    assert done.returncode == 0 and "every earlier token is void" in done.stdout, done.stderr
    assert cloud.http.ask("GET", "/kilonova/v1/token-keys").status == 401, "also ours"
    cloud.http.log_in(cloud.data)
    (key,) = cloud.http.get("/token-keys")["token_keys"]
    assert key["id"] in done.stdout and key["until"] is None
    assert cloud.http.ask("GET", "/kilonova/v1/token-keys", headers={"X-Auth-Token": kept}).status == 401
    assert cloud.http.ask("POST", "/kilonova/v1/token-keys", {"revoke": "yes"}).status == 400
    assert cloud.http.ask("POST", "/kilonova/v1/token-keys", {"revok": True}).status == 400
    assert len(cloud.http.get("/token-keys")["token_keys"]) == 1


def test_databases_are_made_and_described(tmp_path: Path) -> None:
    data = tmp_path / "var"
    before = kilonova("db", "status", "--data", data)
    assert before.returncode == 0 and before.stdout.count("to be upgraded") == 4
    assert not data.exists(), "looking makes nothing"
    made = kilonova("db", "upgrade", "--data", data)
    assert made.returncode == 0 and made.stdout.count("none -> ") == 4
    assert kilonova("db", "status", "--data", data).stdout.count(" current ") == 4
    again = kilonova("db", "upgrade", "--data", data)
    assert again.returncode == 0
    with sqlite3.connect(data / "cell1.db") as database:
        database.execute("UPDATE alembic_version SET version_num = 'future_9999'")
    database.close()
    assert "newer than this program" in kilonova("db", "status", "--data", data).stdout


def test_a_database_that_cannot_be_reached() -> None:
    urls = [f"database.{name}=postgresql://nobody@127.0.0.1:1/x" for name in ("control", "placement", "cells.cell0")]
    options = [part for url in urls for part in ("--set", url)]
    done = kilonova("db", "status", *options)
    assert done.returncode == REFUSED and done.stderr.count("\n") == 1, done.stderr
    strange = kilonova("db", "status", "--set", "database.control=mysql://x")
    assert strange.returncode == REFUSED and "is not a database address" in strange.stderr


def test_an_upgrade_that_stops_half_way_says_what_was_upgraded(tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    files = {"control": tmp_path / "a.db", "placement": tmp_path / "b.db", "cells.cell0": folder / "c.db"}
    options = [part for name, file in files.items() for part in ("--set", f"database.{name}=sqlite:///{file}")]
    half = kilonova("db", "upgrade", *options)
    assert half.returncode == FAILED and half.stderr.count("\n") == 1, half.stderr
    assert (
        "stopped at cell0: " in half.stderr and "; upgraded: control, placement; not upgraded: cell0; " in half.stderr
    )
    assert [line.split()[0] for line in half.stdout.splitlines()] == ["control", "placement"]
    again = kilonova("db", "upgrade", *options)
    assert (
        again.returncode == REFUSED and "stopped at cell0: " in again.stderr and "nothing was changed" in again.stderr
    )
    folder.mkdir()
    whole = kilonova("db", "upgrade", *options)
    assert whole.returncode == 0 and whole.stdout.count("none -> ") == 1, (whole.stdout, whole.stderr)


def test_a_broker_that_cannot_be_reached(tmp_path: Path) -> None:
    done = kilonova("agent", "--host", "h1", "--data", tmp_path / "h1", "--set", "bus.url=nats://127.0.0.1:1")
    assert done.returncode == REFUSED and "cannot connect to NATS at nats://127.0.0.1:1" in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_help_is_quick() -> None:
    """By processor time: a busy machine is no failure."""
    best = 9.0
    for _ in range(3):
        began = os.times()
        done = kilonova("--help")
        ended = os.times()
        best = min(best, ended.children_user + ended.children_system - began.children_user - began.children_system)
    assert done.returncode == 0 and "serve" in done.stdout
    assert best < 0.8, "meant are 0.4 s; without compiled files it takes twice as long"


@pytest.mark.parametrize("modules", ["main", "main, operations, host, server, doctor, rest, output, progress"])
def test_a_small_command_loads_nothing_heavy(modules: str) -> None:
    heavy = "('sqlalchemy', 'numpy', 'uvicorn', 'nats', 'asyncio', 'rich', 'kilonova.roles')"
    script = f"import sys; from kilonova.cli import {modules}; print([m for m in sys.modules if m in {heavy}])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_owner_follows_its_server(cloud: Cloud) -> None:
    login = ("--url", cloud.http.url, "--data", cloud.data, "--os-cloud", "kilonova-demo")
    owner = Http(cloud.http.url)
    owner.log_in(cloud.data, "kilonova-demo")
    image = owner.ask("GET", "/image/v2/images").json["images"][0]["id"]
    wish = {"name": "mine", "flavorRef": "1", "imageRef": image, "networks": "none"}
    headers = {"OpenStack-API-Version": "compute 2.37"}
    answer = owner.ask("POST", "/compute/v2.1/servers", {"server": wish}, headers=headers)
    operation, server = answer.headers["X-Kilonova-Operation"], answer.json["server"]["id"]
    watched = kilonova("op", "watch", operation, *login)
    assert watched.returncode == 0 and "build_and_run_instance" in watched.stdout and "host" not in watched.stdout
    assert kilonova("op", "list", "--server", server, *login).stdout.splitlines()[1].split()[0] == operation
    foreign = cloud.http.create("theirs")
    refused = kilonova("op", "show", foreign["operation"], *login)
    assert refused.returncode == REFUSED and "not found" in refused.stderr


def test_it_also_runs_as_a_module() -> None:
    done = subprocess.run(
        [str(KILONOVA.parent / "python"), "-m", "kilonova", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "0.2.0\n")


@pytest.mark.parametrize(
    "command", ["serve", "api", "conductor", "agent", "server", "host", "op", "plan", "doctor", "db", "sim"]
)
def test_every_command_explains_itself(command: str) -> None:
    done = kilonova(command, "--help")
    assert done.returncode == 0 and f"kilonova {command}" in done.stdout


def test_an_audit_ends_with_6_when_it_found_something(tmp_path: Path) -> None:
    with Cloud(tmp_path / "var", "--hosts", 1) as cloud:
        made = cloud.http.create("audited")
        cloud.http.ended(made["operation"])
        clean = ask(cloud, "audit")
        assert (clean.returncode, clean.stdout.splitlines()[-1]) == (0, "0 differences")
        with sqlite3.connect(cloud.data / "placement.db") as books:
            books.execute("UPDATE inventories SET used = used + 1")
        books.close()
        looked = ask(cloud, "audit", "--no-repair")
        assert looked.returncode == 6 and "found: provider host1 VCPU: recorded used=2, allocations=1" in looked.stdout
        repaired = ask(cloud, "audit", "-f", "json")
        outcomes = {found["outcome"] for found in json.loads(repaired.stdout)["unbalanced"]}
        assert (repaired.returncode, outcomes) == (6, {"repaired"})
        assert ask(cloud, "audit").returncode == 0


def test_a_host_is_declared_gone(cloud: Cloud) -> None:
    assert ask(cloud, "host", "gone", "host2").returncode == USAGE, "a reason is needed"
    for host, words in (("host2", "host2"), ("mars", "mars could not be found")):
        refused = ask(cloud, "host", "gone", host, "--reason", "fire")
        assert (refused.returncode, refused.stdout) == (REFUSED, "") and words in refused.stderr, refused.stderr
    ask(cloud, "sim", "host", "host2", "--power", "off")
    cloud.http.post("/hosts/host2", {"forced_down": True})
    cloud.http.ended(cloud.http.submit("evacuate_host", host="host2")["operation"])  # what other tests left there
    gone = ask(cloud, "host", "gone", "host2", "--reason", "fire")
    assert gone.returncode == 0 and gone.stdout.startswith("host2 is declared gone: operation "), gone.stderr
    assert cloud.http.ended(gone.stdout.split()[-1])["state"] == "done"
    assert [host["name"] for host in cloud.http.get("/hosts")["hosts"]] == ["host1"]

    ask(cloud, "sim", "host", "host2", "--power", "on")
    back = "host2 is back, disabled"
    until(lambda: [host["state"] for host in cloud.http.get("/hosts")["hosts"]] == ["up", "disabled"], 30, back)
    assert ": fire" in ask(cloud, "host", "show", "host2").stdout
    cloud.http.post("/hosts/host2", {"disabled": False})
    until(lambda: cloud.http.get("/hosts/host2")["host"]["state"] == "up", 30, "host2 works again")
