"""`kilonova doctor`: each kind of problem with the command to type, from canned answers."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from kilonova.cli import doctor as module
from kilonova.cli.doctor import LISTED, Diagnosis
from kilonova.cli.main import app
from kilonova.cli.rest import Cloud

EMPTY: dict[str, Any] = {
    "/cells": {"cells": []},
    "/hosts": {"hosts": []},
    "/servers": {"servers": []},
    "/unplaced": {"unplaced": []},
    "/findings": {"findings": []},
    "/audits": {"audits": []},
    "/operations": {"operations": []},
    "/ha": {"ha": {"automatic": False, "disarmed": None, "silent": [], "records": []}},
}
AUDIT = {
    "findings": [],
    "unbalanced": [{"outcome": "repaired"}],
    "miscounted": [],
    "hardware": [],
    "differences": [],
    "abandoned": [],
}


class Canned(Cloud):
    """Answers by path; the query is left out, but for the state of operations."""

    def __init__(self, **answers: Any) -> None:
        self.url = "http://cloud"
        self.answers = {**EMPTY, **{f"/{name}": {name: value} for name, value in answers.items() if name != "reason"}}
        self.reason = answers.get("reason", "")
        self.asked: list[str] = []

    def get(self, path: str, service: str = "") -> Any:
        self.asked.append(path)
        name, _, query = path.partition("?")
        if name == "/servers":
            by = {key: value for key, value in parse_qsl(query) if key in ("host", "vm_state")}
            servers = self.answers[name]["servers"]
            return {"servers": [one for one in servers if all(one[key] == value for key, value in by.items())]}
        found = self.answers[name] if name in self.answers else self.answers[f"/{path}"]
        if name == "/operations":
            state = query.partition("&")[0].removeprefix("state=")
            return {"operations": [one for one in found["operations"] if one["state"] == state]}
        return found

    def unready(self) -> str:
        return str(self.reason)


def problems(**answers: Any) -> list[Diagnosis]:
    return [problem for check in module.CHECKS for problem in check(Canned(**answers))]


def only(**answers: Any) -> Diagnosis:
    (found,) = problems(**answers)
    return found


def host(state: str, **more: Any) -> dict[str, Any]:
    return {"name": "h1", "state": state, "sentence": "h1 is so", "proven_by": "silence", "quarantined": 0, **more}


def test_a_sound_cloud_has_no_problem() -> None:
    up = [host("up"), host("disabled"), host("draining")]
    cells = [{"name": "cell1", "reachable": True}]
    assert problems(hosts=up, cells=cells, audits=[AUDIT]) == []


def test_a_cloud_that_is_not_ready_says_why_and_what_to_type() -> None:
    found = only(reason="an older copy was restored: run `kilonova db restored`")
    assert found.commands == ["kilonova db restored"] and "older copy" in found.sentence


def test_a_cell_that_is_away() -> None:
    cell = {"name": "far", "reachable": False, "away_since": 1.0, "away_because": "connection refused"}
    found = only(cells=[cell])
    assert (found.kind, found.about) == ("cell", "far") and "connection refused" in found.sentence
    assert found.commands == ["kilonova cell show far"]


def test_a_dead_host_is_evacuated_or_declared_gone() -> None:
    servers = [{"id": "s1", "host": "h1", "vm_state": "active", "cell": "cell1"}]
    silent = only(hosts=[host("down")], servers=servers)
    assert silent.commands == [
        "kilonova host evacuate h1 --accept-unfenced --dry-run",
        "kilonova host evacuate h1 --accept-unfenced --wait",
    ], "silence alone is no proof"
    declared = only(hosts=[host("down", proven_by="forced_down")], servers=servers)
    assert declared.commands[-1] == "kilonova host evacuate h1 --wait"
    empty = only(hosts=[host("down", proven_by="forced_down")])
    assert empty.commands[-1] == "kilonova host gone h1 --reason TEXT" and "start it again" in empty.sentence
    assert only(hosts=[host("unknown")], servers=servers).commands == ["kilonova host show h1"], "it may be alive"


def test_the_failure_watch_where_it_would_act() -> None:
    watch: dict[str, Any] = {"automatic": True, "disarmed": None, "silent": [], "records": []}
    disarmed = {"until": None, "reason": "the fence command lied", "user_id": "", "said_at": 1.0}
    found = only(ha=watch | {"disarmed": disarmed})
    assert found.commands == ["kilonova ha arm"] and found.sentence == "disarmed: the fence command lied"
    held = {"host": "h1", "decision": "held", "why": "a storm", "servers": 3}
    waits, empty = held | {"decision": "waits"}, held | {"servers": 0}
    assert only(ha=watch | {"silent": [held, waits, empty]}).sentence == "not evacuated: a storm"
    failed = {"host": "h1", "state": "fence_failed", "sentence": "no route"}
    assert only(ha=watch | {"records": [failed, failed | {"state": "done"}]}).sentence == "fence failed: no route"
    assert problems(ha=watch | {"automatic": False, "silent": [held], "records": [failed]}) == []


def test_operations_that_wait_or_do_not_move() -> None:
    base = {"id": "o1", "operation": "migrate", "server": "s1", "waiting_for": None, "updated_at": time.time()}
    sentence = "stop to be undone: no (failed 2 times). To try now: kilonova op resume o1. To go on without it: "
    waiting = {**base, "state": "waiting", "waiting_for": f"{sentence}kilonova op abandon o1 --reason TEXT"}
    assert only(operations=[waiting]).commands == ["kilonova op resume o1", "kilonova op abandon o1 --reason TEXT"]
    quiet = only(operations=[{**waiting, "waiting_for": "host2 to answer about stop"}])
    assert quiet.commands == ["kilonova op show o1"]
    assert problems(operations=[{**base, "state": "running"}]) == []
    slow = only(operations=[{**base, "state": "running", "updated_at": time.time() - 7200}])
    assert slow.commands == ["kilonova op show o1"] and "2 h" in slow.sentence


def test_servers_without_a_host_and_in_error() -> None:
    one = {"server": "s1", "name": "web", "failure": "no_valid_host", "host": "h2", "why_not": None, "changes": []}
    assert only(unplaced=[one]).commands == ["kilonova server retry s1 --wait"]
    full = only(unplaced=[{**one, "host": None, "why_not": "0 of 2 hosts fit", "changes": ["enable h2"]}])
    assert full.commands == ["kilonova explain s1"] and "it would fit with: enable h2" in full.sentence
    server = {"id": "s1", "name": "web", "host": "h1", "vm_state": "error", "cell": "cell1"}
    assert only(servers=[server]).commands == ["kilonova server show s1"]
    assert problems(servers=[{**server, "cell": "cell0"}]) == [], "shown as unplaced"


def test_guests_findings_and_audits() -> None:
    copy = {"server": "s1", "copy": 3, "reason": "not recorded", "action": None}
    whole = {"/hosts/h1": {"host": {**host("up"), "quarantine": [copy, {**copy, "action": "remove"}]}}}
    cloud = Canned(hosts=[host("up", quarantined=2)])
    cloud.answers |= whole
    (guest,) = module._quarantine(cloud)
    assert guest.commands == ["kilonova quarantine adopt h1 s1 --copy 3", "kilonova quarantine remove h1 s1 --copy 3"]
    finding = {"id": "f1", "way": "undo", "step": "stop", "on": "h1", "operation": "o1"}
    assert only(findings=[finding]).commands == ["kilonova op show o1", "kilonova finding settle f1 --reason TEXT"]
    audit = only(audits=[{**AUDIT, "differences": [{"kind": "x"}]}])
    assert "left 1 difference" in audit.sentence and audit.commands[-1] == "kilonova audit"


def test_of_many_problems_of_a_kind_some_are_shown() -> None:
    many = [Diagnosis("server", str(number), "", []) for number in range(LISTED + 5)]
    few = module._few(many)
    assert len(few) == LISTED + 1 and few[-1].sentence == "5 more of this kind, not shown"
    assert module._few(many[:LISTED]) == many[:LISTED]


@pytest.mark.parametrize("command", ["kilonova op resume o1", "openstack compute service set --down h1 nova-compute"])
def test_commands_are_found_in_sentences(command: str) -> None:
    for form in (f"do: {command}. Or not", f"do `{command}`; or not", f"do {command}"):
        assert module._commands_in(form) == [command]


def test_what_it_prints_to_be_typed_exists() -> None:
    """The words of every command that it can print."""
    text = Path(module.__file__).read_text()
    typed: set[str] = {" ".join(found) for found in re.findall(r"kilonova ([a-z]+)(?: ([a-z]+))?", text)}
    assert {"op show", "host evacuate", "quarantine adopt"} <= typed
    for words in sorted(typed - {"doctor", "audit"}):
        assert len(app.parse_commands(words.split())[0]) == len(words.split()), words
