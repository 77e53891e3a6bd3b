"""`kilonova server …` and `kilonova op …`: names or ids, dry runs, waiting, exit codes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from kilonova.cli import progress, rest
from tests.support.command_line import CommandLine

REFUSED, FAILED, TIMED_OUT = 3, 4, 5


@pytest.fixture(scope="module")
def servers() -> dict[str, str]:
    return {}


@pytest.fixture(autouse=True)
def some_servers(run: CommandLine, servers: dict[str, str]) -> Iterator[None]:
    """One server, and two of one name."""
    if not servers:
        servers |= {"one": run.create("one", host="host1")}
        servers |= {"twin1": run.create("twin", host="host1"), "twin2": run.create("twin", host="host2")}
    yield


def test_servers_are_listed_in_every_form(run: CommandLine, servers: dict[str, str]) -> None:
    header, *lines = run("server", "list", "--host", "host1").lines
    assert header.split() == ["id", "name", "state", "task", "power", "host", "cell", "flavor", "created"]
    assert {line.split()[0] for line in lines} >= {servers["one"], servers["twin1"]}
    assert servers["twin2"] not in "".join(lines)
    named = run("server", "list", "--name", "twin", "-f", "json").json
    assert {one["id"] for one in named} == {servers["twin1"], servers["twin2"]}
    assert all(one["created_at"].startswith("20") for one in named), "times are text"
    assert run("server", "list", "--state", "error", "--name", "twin", "--format", "json").json == []
    found = yaml.safe_load(run("server", "list", "--name", "twin", "-f", "yaml").out)
    assert found == named
    rows = list(csv.DictReader(io.StringIO(run("server", "list", "--name", "twin", "-f", "csv").out)))
    assert {row["host"] for row in rows} == {"host1", "host2"}


def test_a_server_is_named_or_its_id_is_given(run: CommandLine, servers: dict[str, str]) -> None:
    by_name, by_id = run("server", "show", "one"), run("server", "show", servers["one"].upper())
    assert by_name.code == 0 and by_name.out == by_id.out
    assert "may run" in by_name.out and "copy 1 on host1" in by_name.out


def test_a_name_that_two_servers_have_is_refused_with_both_ids(run: CommandLine, servers: dict[str, str]) -> None:
    for command in (("server", "show", "twin"), ("server", "migrate", "twin"), ("ledger", "twin"), ("explain", "twin")):
        run.sent.clear()
        refused = run(*command)
        assert (refused.code, refused.out) == (REFUSED, "")
        assert servers["twin1"] in refused.err and servers["twin2"] in refused.err
        assert refused.err.count("\n") == 1 and run.asked_for("/operations") is None, "nothing was asked for"
    missing = run("server", "migrate", "nobody")
    assert missing.code == REFUSED and "server 'nobody': not found" in missing.err


def test_a_dry_run_is_the_plan_and_stores_nothing(run: CommandLine, servers: dict[str, str]) -> None:
    before = run("op", "list", "--server", "one", "-f", "json").json
    dry = run("server", "migrate", "one", "--host", "host3", "--dry-run")
    assert dry.code == 0 and dry.lines[0] == "it would be on host3, resized"
    body = {"operation": "migrate", "server": servers["one"], "host": "host3"}
    assert run.asked_for("/plans") == body and run.asked_for("/operations") is None
    assert run("plan", "migrate", "one", "--host", "host3").out == dry.out
    assert run("server", "migrate", "one", "--dry-run", "-f", "json").json["outlook"]["disks"]
    impossible = run("server", "evacuate", "one", "--dry-run")
    assert impossible.code == REFUSED and "host1" in impossible.err
    assert run("op", "list", "--server", "one", "-f", "json").json == before


def test_a_move_is_followed_until_it_ends_and_confirmed_or_reverted(run: CommandLine) -> None:
    moved = run("server", "migrate", "one", "--host", "host3", "--wait")
    assert moved.code == 0, moved.err
    assert "finish_resize" in moved.out and ": done after " in moved.lines[-1]
    accepted = run("server", "revert", "one")
    assert accepted.code == 0 and "is being reverted: operation " in accepted.out
    operation = accepted.out.split()[-1]
    watched = run("op", "watch", operation)
    assert watched.code == 0 and "revert_resize of server" in watched.lines[-1]
    resized = run("server", "resize", "one", "--flavor", "m1.small", "--wait", "-f", "json")
    assert resized.code == 0 and resized.json["state"] == "done", resized.err
    assert "finish_resize" in resized.err, "progress does not mix with the answer"
    confirmed = run("server", "confirm", "one", "--wait")
    assert confirmed.code == 0 and "drop_claim" in confirmed.out
    again = run("server", "confirm", "one", "--wait")
    assert again.code == REFUSED and again.out == ""


def test_a_server_is_rebuilt_by_the_name_of_an_image(run: CommandLine, servers: dict[str, str]) -> None:
    rebuilt = run("server", "rebuild", "one", "--image", "cirros-sim", "--wait")
    assert rebuilt.code == 0 and "rebuild_instance" in rebuilt.out, rebuilt.err
    asked = run.asked_for("/operations")
    assert (asked["operation"], asked["server"]) == ("rebuild", servers["one"]) and len(asked["image"]) == 36
    for image in ("nosuch", "00000000-0000-4000-8000-000000000000"):
        refused = run("server", "rebuild", "one", "--image", image)
        assert (refused.code, refused.out) == (REFUSED, "") and refused.err.count("\n") == 1, refused.err


def test_a_server_without_a_host_failed_and_is_retried(run: CommandLine) -> None:
    for host in ("host1", "host2", "host3", "host4"):
        assert run("host", "disable", host, "--reason", "full").code == 0
    server = run.create("homeless")
    (shown,) = run("op", "list", "--server", "homeless", "-f", "csv").lines[1:]
    assert ",create," in shown and ",failed," in shown, "not: undone"
    watched = run("op", "watch", "homeless")
    assert watched.code == FAILED and "create of server" in watched.lines[-1] and ": failed after " in watched.lines[-1]
    assert "No valid host" in watched.lines[-1]
    (line,) = run("unplaced", "list").lines[1:]
    assert server in line and "not now: No valid host was found." in line
    dry = run("server", "retry", "homeless", "--dry-run")
    assert dry.code == FAILED and "it would fail" in dry.out
    for host in ("host1", "host2", "host3", "host4"):
        assert run("host", "enable", host).code == 0
    run.cloud.until(lambda: run("server", "retry", server, "--dry-run").code == 0, "hosts are open again")
    retried = run("unplaced", "retry", "homeless", "--wait")
    assert retried.code == 0 and "build_and_run_instance" in retried.out, retried.out + retried.err
    assert run("server", "retry", "homeless").code == REFUSED
    assert run("unplaced", "list", "-f", "json").json == []


def test_a_ledger_has_every_claim_with_its_operation(run: CommandLine, servers: dict[str, str]) -> None:
    header, first, *_ = run("ledger", servers["twin1"]).lines
    assert header.split() == ["time", "consumer", "change", "by", "operation", "holds"]
    assert "host1: 1 DISK_GB, 512 MEMORY_MB, 1 VCPU" in first and servers["twin1"] in first
    never = run("ledger", "00000000-0000-4000-8000-000000000000")
    assert never.code == REFUSED and "never had an allocation" in never.err


def test_an_operation_is_shown_with_its_steps(run: CommandLine, servers: dict[str, str]) -> None:
    shown = run("op", "show", servers["twin2"])
    assert shown.code == 0, "the newest of a server"
    assert "took" in shown.out and "build_and_run_instance" in shown.out and "host2" in shown.out
    whole = run("op", "show", servers["twin2"], "-f", "json").json
    assert whole["created_at"].startswith("20") and whole["steps"][0]["created_at"].startswith("20")
    assert run("op", "show", whole["id"]).out == shown.out
    assert len(run("op", "show", whole["id"], "-f", "csv").lines) == 2


def test_waiting_ends_with_5_when_the_time_is_over(run: CommandLine) -> None:
    host = run("server", "show", "one", "-f", "json").json["host"]
    run.ask("POST", f"/simulated/hosts/{host}", {"link": "cut"})
    try:
        stuck = run("server", "migrate", "one", "--wait", "--timeout", "0.5s")
        assert stuck.code == TIMED_OUT and "is still" in stuck.err and "kilonova op watch" in stuck.err
        operation = stuck.err.split()[-1]
        cancelled = run("op", "cancel", operation)
        assert cancelled.code == 0 and "is being undone" in cancelled.out
    finally:
        run.ask("POST", f"/simulated/hosts/{host}", {"link": "up"})
    ended = run("op", "watch", operation)
    assert ended.code == FAILED and "cancelled after" in ended.lines[-1]
    assert run("op", "cancel", operation).code == REFUSED


def test_a_wrong_duration_is_usage(run: CommandLine) -> None:
    wrong = run("server", "migrate", "one", "--wait", "--timeout", "soon")
    assert wrong.code == 2 and "soon" in wrong.err and wrong.err.count("\n") == 1


def test_waiting_outlives_a_cloud_that_is_away(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a token that was void meanwhile."""
    answers, real = iter([None, None, 503, 401]), run._transport

    def faulty(method: str, url: str, *more: Any) -> rest.Response:
        if method == "GET" and "/operations/" in url:
            run.looks += 1
            status = next(answers, 200) if run.looks > 1 else 200
            if status is None:
                raise ConnectionRefusedError("restarted")
            if status != 200:
                return rest.Response(status, {}, b'{"error": {"code": "later", "message": "later"}}')
        return real(method, url, *more)

    operation = run("op", "show", "one", "-f", "json").json["id"]
    monkeypatch.setattr(run, "_transport", faulty)
    watched = run("op", "watch", operation)
    assert watched.code in (0, FAILED) and next(answers, "all were given") == "all were given"
    assert " after " in watched.lines[-1]


def test_ctrl_c_ends_the_waiting_and_not_the_operation(run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    host = run("server", "show", "one", "-f", "json").json["host"]
    run.ask("POST", f"/simulated/hosts/{host}", {"link": "cut"})
    try:
        with monkeypatch.context() as patch:
            patch.setattr(progress.time, "sleep", interrupt)
            stopped = run("server", "migrate", "one", "--wait")
        assert stopped.code == TIMED_OUT and "and goes on; watch it: kilonova op watch " in stopped.err
        operation = stopped.err.split()[-1]
        run("op", "cancel", operation)
    finally:
        run.ask("POST", f"/simulated/hosts/{host}", {"link": "up"})
    assert run("op", "watch", operation).code == FAILED


def test_a_cancelled_operation_is_what_cancel_waits_for(run: CommandLine) -> None:
    shown = run("op", "show", "one", "-f", "json").json
    run.canned[("POST", f"{rest.OURS}/operations/o1/cancel")] = (202, {"operation": "o1"})
    for state, code in (("cancelled", 0), ("done", FAILED)):
        ended = {**shown, "id": "o1", "state": state, "created_at": 1.0, "ended_at": 2.0, "steps": []}
        run.canned[("GET", f"{rest.OURS}/operations/o1")] = (200, {"operation": ended})
        assert run("op", "cancel", "o1", "--wait").code == code, state
