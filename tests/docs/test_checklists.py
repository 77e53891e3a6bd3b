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


def test_fields_of_steps_and_operations_exist() -> None:
    named = {
        word
        for row in table(CHECKLIST, "question", "field of the step")
        for word in re.findall(r"`(\w+)`", row["field of the step"])
    }
    assert named - STEP - OPERATION == set()
    assert {"undo", "no_return", "when_silent"} <= named


def test_names_of_an_operation_exist() -> None:
    words = {"joins", "supersedes", "finish", "finish_undone", "accepted", "outlook", "retired", "safe_message"}
    words |= {"from_states", "check", "notifications", "version", "action"}
    assert [word for word in sorted(words) if f"`{word}`" not in CHECKLIST or word not in OPERATION] == []


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
