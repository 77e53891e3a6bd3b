"""docs/checklists and CONTRIBUTING.md: the names that they use exist."""

from __future__ import annotations

import dataclasses
import re
import shlex

import pytest

from bench.__main__ import NAMES as BENCHES
from kilonova.cli.main import app
from kilonova.engine import model
from kilonova.engine.model import StepTargets
from kilonova.operations import facts
from kilonova.scheduler.filters.base import Filter
from tests.docs.markdown import ROOT, table

CHECKLIST = (ROOT / "docs" / "checklists" / "new-operation.md").read_text().replace("\n   |", "\n|")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
STEP = {field.name for field in dataclasses.fields(model.Step)}
OPERATION = {name for name in vars(model.Operation) if not name.startswith("_")}
DERIVED = {"course", "step", "position_of", "position_after"}  # of an operation; nobody writes them
# Tables by hand, and their files.
TABLES = {
    ("KINDS", "kilonova/sim/histories/acts.py"),
    ("REFUSED", "kilonova/sim/histories/acts.py"),
    ("VERBS", "kilonova/sim/histories/acts.py"),
    ("VERBS", "kilonova/compute/drivers/simulated/faults.py"),
    ("SCENARIOS", "kilonova/sim/crashes/scenarios.py"),
    ("POINTS", "tests/engine/test_cancel_everywhere.py"),
    ("SCENES", "tests/engine/test_cancel_everywhere.py"),
    ("MORE", "tests/docs/test_journals.py"),
    ("ASKED", "tests/engine/test_slow_boots.py"),
    ("NAMES", "tests/simulation/test_notifications.py"),
    ("ENDS", "tests/simulation/test_notifications.py"),
    ("BEGINS", "tests/simulation/test_notifications.py"),
    ("EVENTS", "tests/unit/notifications/published.py"),
    ("CALLS", "tests/unit/compute/test_simulated_verbs.py"),
    ("HARMLESS", "kilonova/engine/restored_copies.py"),
    ("VM_STATES", "kilonova/domain/server.py"),
    ("STATUS", "kilonova/domain/status.py"),
    ("POWER_NAMES", "kilonova/engine/notification_payloads.py"),
    ("POWER", "kilonova/cli/server.py"),
}


def test_fields_of_steps_and_operations_exist() -> None:
    named = {
        word
        for row in table(CHECKLIST, "question", "field of the step")
        for word in re.findall(r"`(\w+)`", row["field of the step"])
    }
    assert named - STEP - OPERATION == set()
    assert STEP - {"name", "do"} - named == set()


def test_every_member_of_an_operation_is_named() -> None:
    assert {"joins", "admit", "ending", "task"} <= OPERATION
    assert [member for member in sorted(OPERATION - DERIVED) if not re.search(rf"`{member}\b", CHECKLIST)] == []


@pytest.mark.parametrize(("name", "file"), sorted(TABLES))
def test_tables_exist_and_are_named(name: str, file: str) -> None:
    assert re.search(rf"^{name}\b.*=", (ROOT / file).read_text(), re.MULTILINE)
    assert f"`{name}`" in CHECKLIST and f"](../../{file})" in CHECKLIST


def test_places_of_a_step_exist() -> None:
    places = re.findall(r"\b[A-Z]{4,}(?:_[A-Z]+)?\b", CHECKLIST.partition("| `on`: ")[2].partition("|")[0])
    known = {name for module in (model, facts) for name, one in vars(module).items() if isinstance(one, StepTargets)}
    assert places and set(places) <= known


def test_names_of_a_filter_exist() -> None:
    section = CONTRIBUTING.partition("## Add a filter")[2].partition("\n## ")[0]
    for word in ("passes", "sentence", "remedy", "needs_cell", "for_rebuild"):
        assert f"`{word}" in section and hasattr(Filter, word)


COMMANDS = [
    shlex.split(command)
    for row in table(CONTRIBUTING, "one …", "command")
    for command in re.findall(r"`((?:make|\.venv/bin/\w+) [^`]+)`", row["command"])
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_what_is_typed_exists(words: list[str]) -> None:
    """Files, modules, benches, mutations and commands; test_readme.py looks at the targets of make."""
    if words[0].endswith("kilonova"):
        chain, _, _ = app.parse_commands(words[1:3])
        assert list(chain) == words[1:3]
    if "--mutation" in words:
        assert (ROOT / "tests/mutations" / f"{words[-1]}.patch").is_file()
    elif "--lose" in words:
        assert (ROOT / words[-1]).is_file()
    elif "-m" in words:
        module = words[2].replace(".", "/")
        assert words[2] == "pytest" or (ROOT / f"{module}.py").is_file() or (ROOT / module / "__main__.py").is_file()
    if words[:2] == ["make", "bench"]:
        assert words[2].removeprefix("ONLY=") in BENCHES
    assert [word for word in words if word.startswith("tests/") and not (ROOT / word).exists()] == []
