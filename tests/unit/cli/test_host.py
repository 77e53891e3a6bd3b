"""`kilonova host …`: whole hosts, planned before they are moved."""

from __future__ import annotations

import pytest

from kilonova.cli.rest import OURS
from tests.support.command_line import CommandLine

USAGE, REFUSED, FAILED = 2, 3, 4


def test_hosts_are_listed_by_state_and_shown_by_name_or_id(run: CommandLine) -> None:
    run.cloud.until(lambda: len(run("host", "list", "--state", "up", "-f", "json").json) == 4, "four hosts")
    header, first, *_ = run("host", "list").lines
    assert header.split()[:4] == ["name", "id", "cell", "state"]
    by_id = run("host", "show", first.split()[1], "-f", "json").json
    assert by_id["name"] == "host1" and by_id["last_seen"].startswith("20")
    assert run("host", "show", "mars").code == REFUSED


def test_a_host_is_disabled_and_enabled(run: CommandLine) -> None:
    disabled = run("host", "disable", "host4", "--reason", "new disks")
    assert (disabled.code, disabled.out) == (0, "host4 takes no new servers; it is disabled\n")
    assert "new disks" in run("host", "show", "host4").out
    enabled = run("host", "enable", "host4")
    assert enabled.code == 0 and enabled.out.startswith("host4 takes new servers; it is "), "up, or returning"
    run.cloud.until(lambda: run("host", "show", "host4", "-f", "json").json["state"] == "up", "host4 is up")


@pytest.mark.slow
def test_a_dead_host_is_evacuated_and_what_is_wrong_is_told_by_the_doctor(run: CommandLine) -> None:
    server = run.create("survivor", host="host4")
    count = len(run("server", "list", "--host", "host4").lines) - 1  # other tests left some
    alive = run("host", "evacuate", "host4")
    assert (alive.code, alive.out) == (REFUSED, "") and "host host4 is not down: host4 answered" in alive.err
    assert run("host", "evacuate").code == USAGE
    run.ask("POST", "/simulated/hosts/host4", {"power": "off"})
    run.cloud.until(lambda: run("host", "show", "host4", "-f", "json").json["state"] == "down", "host4 is down")
    doctor = run("doctor")
    assert doctor.code == 6 and "host host4: down: " in doctor.out and f"; {count} server" in doctor.out
    assert "    kilonova host evacuate host4 --accept-unfenced --wait" in doctor.lines
    unfenced = run("host", "evacuate", "host4")
    assert unfenced.code == REFUSED and "accept" in unfenced.err
    dry = run("host", "evacuate", "host4", "--accept-unfenced", "--dry-run")
    assert (
        dry.code == 0
        and any(line.split()[:3] == [server, "survivor", "host4"] for line in dry.lines)
        and f"{count} would move" in dry.out
    )
    assert dry.out.splitlines()[1:] == run("plan", "evacuate-host", "host4", "--accept-unfenced").lines[1:]
    done = run("host", "evacuate", "host4", "--accept-unfenced", "--deadline", "1h", "--wait")
    assert done.code == 0, done.out + done.err
    assert run.asked_for("/operations")["deadline"] == 3600
    assert f"{count} of {count} servers done" in done.out and f"{count} moved" in done.lines[-1]
    owed = run("host", "show", "host4").out
    assert "owes the removal of" in owed and server in owed
    run.ask("POST", "/simulated/hosts/host4", {"power": "on"})
    run.cloud.until(lambda: run("host", "show", "host4", "-f", "json").json["state"] == "up", "host4 is back")


@pytest.mark.parametrize("command", ["drain", "return"])
def test_hosts_that_answer_are_drained_and_returned_like_others_are_evacuated(run: CommandLine, command: str) -> None:
    """Against canned answers: the same body as for `host evacuate`, under its own name."""
    operation, found = f"{command}_host", {"cell1": "o1", "cell2": "o2"}
    run.canned[("POST", f"{OURS}/operations")] = (202, {"operation": "o1", "operations": found, "server": None})
    plan = {"moves": [], "misfits": {}, "refused": {}, "spared": {}, "hosts": {}, "seconds": 1.0, "bytes": 0}
    run.canned[("POST", f"{OURS}/plans")] = (200, {"plan": plan})
    accepted = run("host", command, "host1", "host2", "--on-misfit", "refuse", "--deadline", "30m")
    assert accepted.code == 0 and "operation o1, o2; watch it: kilonova op watch o1 o2" in accepted.out
    by = {"by": "migrate"} if command == "drain" else {}
    body = {"operation": operation, "hosts": ["host1", "host2"], "on_misfit": "refuse", "deadline": 1800.0, **by}
    assert run.asked_for("/operations") == body
    dry = run("host", command, "host1", "--dry-run")
    assert dry.code == 0 and "0 would move" in dry.out
    misfits = "refuse" if command == "drain" else "skip"
    assert run.asked_for("/plans") == {"operation": operation, "hosts": ["host1"], "on_misfit": misfits, **by}
    assert run("plan", f"{command}-host", "host1").code == 0
    assert run.asked_for("/plans") == {"operation": operation, "hosts": ["host1"]}
    assert run("host", command).code == run("plan", f"{command}-host").code == USAGE


def test_servers_that_were_not_moved_are_a_failure(run: CommandLine) -> None:
    """The operation itself is done: its account has them."""
    shown = {
        "id": "o1",
        "operation": "evacuate_host",
        "server": None,
        "state": "done",
        "waiting_for": None,
        "error": None,
        "superseded_by": None,
        "account": {"moved": 1, "impossible": {"s2": "too large"}, "sentence": "1 moved; 1 impossible: too large"},
        "progress": None,
        "steps": [],
        "created_at": 1.0,
        "ended_at": 4.0,
    }
    run.canned[("POST", f"{OURS}/operations")] = (202, {"operation": "o1", "operations": {"cell1": "o1"}})
    run.canned[("GET", f"{OURS}/operations/o1")] = (200, {"operation": shown})
    done = run("host", "evacuate", "host1", "--wait")
    assert (done.code, done.lines[-1]) == (
        FAILED,
        "evacuate_host: done after 3.0 s: 1 moved; 1 impossible: too large",
    )


def test_a_cancelled_drain_says_what_was_moved(run: CommandLine) -> None:
    account = {"moved": 1, "failed": {"s2": "no room"}, "not_begun": {"s3": "it was cancelled before"}}
    account |= {"elsewhere": {"s1": "it went to host2"}, "sentence": "1 moved; 1 failed: no room"}
    shown: dict[str, object] = dict.fromkeys(("server", "superseded_by", "waiting_for", "destination", "parent"))
    shown |= {"id": "o1", "operation": "drain_host", "state": "cancelled", "account": account, "progress": None}
    shown |= {"error": {"code": "cancelled", "message": "cancelled by ann"}, "created_at": 1.0, "ended_at": 4.0}
    shown |= {"steps": [], "interventions": [], "findings": []}
    run.canned[("GET", f"{OURS}/operations/o1")] = (200, {"operation": shown})
    watched = run("op", "watch", "o1")
    assert watched.lines[-1] == ("drain_host: cancelled after 3.0 s: cancelled by ann; 1 moved; 1 failed: no room")
    lines = run("op", "show", "o1").lines
    assert [line for line in lines if line[:2] in ("s1", "s2", "s3")] == [
        "s2: failed: no room",
        "s3: not begun: it was cancelled before",
        "s1: elsewhere: it went to host2",
    ]


def test_a_host_that_is_gone_needs_a_reason_and_can_be_rehearsed(run: CommandLine) -> None:
    assert run("host", "gone", "host3").code == USAGE
    refused = run("host", "gone", "host3", "--reason", "fire", "--dry-run")
    assert (refused.code, refused.out) == (REFUSED, "") and "host3" in refused.err
    assert run.asked_for("/operations") is None
