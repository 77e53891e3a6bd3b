"""`kilonova plan` offers what POST /plans offers, with the fields of each body as options."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from kilonova.api.extra.plans import PLAN_FORMS
from kilonova.cli.plan import app
from kilonova.cli.plan_text import lines
from kilonova.domain.plans import PLANS

SHARED = {"login"}
ROOT_KEPT = {"disk": "root", "fate": "kept"}


def test_every_dry_run_has_its_command() -> None:
    commands = {name for name in app if not name.startswith("-")}
    assert commands == {plan.command for plan in PLANS.values()} and set(PLANS) == set(PLAN_FORMS)


@pytest.mark.parametrize("operation", [name for name, form in PLAN_FORMS.items() if form is not None])
def test_a_command_has_the_fields_of_the_body(operation: str) -> None:
    """`metadata` of an image and the reason for a host that is gone change nothing in a dry run; `host` of a server's
    operation is for those that go somewhere."""
    command = app[PLANS[operation].command].default_command
    options = {one.name: one.default is one.empty for one in inspect.signature(command).parameters.values()}
    fields = {one.name: one.required for one in msgspec.structs.fields(PLAN_FORMS[operation])}
    left_out = {"operation", "metadata", "reason"} | ({"host"} if "server" in fields else set())
    if "hosts" in fields:  # the argument; what happens to misfits and after a deadline is no part of the plan
        left_out |= {"host", "hosts", "on_misfit", "deadline"}
    given = {name: needed for name, needed in options.items() if name not in SHARED | left_out}
    assert given == {name: needed for name, needed in fields.items() if name not in left_out}
    assert ("host" in options) is (operation in ("migrate", "evacuate") or fields.keys() & {"server", "hosts"} == set())


def test_a_plan_of_an_unknown_form_is_printed_as_it_is() -> None:
    assert lines({"operation": "return_host", "back": ["host1"], "seconds": 2.5}) == [
        "operation: return_host",
        "back:",
        "- host1",
        "seconds: 2.5",
    ]


def test_the_moves_of_a_host_are_a_table_with_names() -> None:
    plan = {"hosts": {}, "refused": {"id4": "busy"}, "spared": {}, "seconds": 1.0, "bytes": 0}
    moves = [
        {"server": "id1", "name": "web", "source": "host1", "to": "host3", "why": "", "disks": [ROOT_KEPT]},
        {"server": "id2", "name": "database", "source": "host1", "to": "host1", "why": "a drain has stopped it there"},
    ]
    misfits = {"id3": {"name": "whale", "source": "host1", "why": "No valid host", "changes": ["enable host2"]}}
    assert lines({**plan, "moves": moves, "misfits": misfits}) == [
        "server  name      from   to     disks",
        "id1     web       host1  host3  root kept",
        "id2     database  host1  host1  a drain has stopped it there",
        "id3 (whale): impossible: No valid host; what would help: enable host2",
        "id4: refused: busy",
        "2 would move, 0 of them with disks made again; 1 impossible; about 1.0 s, 0.0 GB",
    ]


def test_a_host_that_answers_needs_no_proof() -> None:
    plan = {"moves": [], "misfits": {}, "refused": {}, "spared": {}, "seconds": 100.0, "bytes": 2e9}
    hosts = {"host1": {"sentence": "host1 answers"}, "host2": {"sentence": "host2 is dead", "proven_by": "fence"}}
    assert lines({**plan, "hosts": hosts}) == [
        "host1 answers",
        "host2 is dead (proven by fence)",
        "0 would move, 0 of them with disks made again; 0 impossible; about 1 min 40 s, 2.0 GB",
    ]
