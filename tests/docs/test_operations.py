"""docs/operations: each page shows the steps of its operations as the code has them."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from kilonova.api.extra.operations import FORMS
from kilonova.api.faults import DEFAULT, STATUS
from kilonova.domain.operation import OPERATION_STATES, STEP_STATES
from kilonova.domain.plans import PLANS
from kilonova.engine.model import DEBT, FAIL, WAIT, Operation, Step
from kilonova.operations import REGISTRY
from tests.docs.markdown import ARROW, OPERATIONS, arrows, code, sections, table

PAGES = sorted(path for path in OPERATIONS.glob("*.md") if path.stem != "README")
COLUMNS = ("step", "done by", "undo", "host silent", "declared down", "task_state", "event")
WORDS = {WAIT: "waits", FAIL: "fails", DEBT: "debt"}
ON_HOSTS = {"source": "source", "destination": "destination", "its host": "host", "each copy": "hosts"}  # who is drawn
NOTHING = "-"
INSIDE = {"conductor", "placement", "cell", "cell0", "control"}


def shown(page: Path) -> dict[str, str]:
    """Sections by the operation whose steps they show."""
    found = sections(page.read_text())
    return {match[1]: text for title, text in found.items() if (match := re.fullmatch(r"Steps of `(\w+)`", title))}


SHOWN = {name: text for page in PAGES for name, text in shown(page).items()}


def test_every_operation_has_a_page_and_every_page_an_operation() -> None:
    names = [name for page in PAGES for name in shown(page)]
    assert sorted(names) == sorted(REGISTRY)
    assert [page.name for page in PAGES if not shown(page)] == []


def test_every_dry_run_is_in_the_index() -> None:
    index = (OPERATIONS / "README.md").read_text()
    rows = table(index, "operation", "body")
    listed = {re.sub(r"\[(\w+)\]\([^)]*\)", r"\1", name) for row in rows for name in row["operation"].split(", ")}
    assert listed == set(PLANS)


def test_every_page_is_in_the_index() -> None:
    index = (OPERATIONS / "README.md").read_text()
    assert [page.name for page in PAGES if f"]({page.name})" not in index] == []


def test_the_index_says_where_each_is_requested() -> None:
    index = (OPERATIONS / "README.md").read_text()
    paths = {row["path"]: set(row["operations"].split(", ")) for row in table(index, "operations", "path")}
    own = set[str]().union(*(names for path, names in paths.items() if "/operations`" in path))
    pages = {"retry": "rebuild_in_cell0"}  # where the page has another name than the body
    assert own == {pages.get(name, name) for name in FORMS}
    assert sorted(name for names in paths.values() for name in names) == sorted(page.stem for page in PAGES)


@pytest.fixture(params=REGISTRY.values(), ids=list(REGISTRY))
def operation(request: pytest.FixtureRequest) -> Operation:
    found: Operation = request.param
    return found


def test_the_picture_has_the_steps_in_order(operation: Operation) -> None:
    drawn = arrows(SHOWN[operation.name])
    assert [label for _, _, label in drawn] == [step.name for step in operation.course]
    for (_, target, label), step in zip(drawn, operation.course, strict=True):
        place = step.on.name
        allowed = {ON_HOSTS[place]} if place in ON_HOSTS else INSIDE
        assert target in allowed, f"{label} runs on {place} and is drawn at {target}"


def test_the_picture_notes_the_point_of_no_return_at_its_step(operation: Operation) -> None:
    """Directly after the arrow of the first step that has no return: the point is passed when that step is taken."""
    lines = SHOWN[operation.name].partition("```mermaid")[2].partition("```")[0].splitlines()
    at, noted = "", []
    for line in lines:
        arrow = ARROW.match(line)
        at = arrow[3] if arrow else at
        noted += [at] if "point of no return" in line else []
    assert noted == [step.name for step in operation.course if step.no_return][:1]


def test_the_picture_notes_conditions_at_their_steps(operation: Operation) -> None:
    """A step that is passed over without ports or volumes has that note directly behind its arrow."""
    lines = SHOWN[operation.name].partition("```mermaid")[2].partition("```")[0].splitlines()
    for before, line in itertools.pairwise(lines):
        for noun, words in (("ports", ("port", "network")), ("volumes", ("volume",))):
            if re.search(rf"Note over .*only if .*\b({noun}|{words[-1]}s)\b", line):
                arrow = ARROW.match(before)
                assert arrow and any(word in arrow[3] for word in words), line


def test_the_table_says_what_the_code_says(operation: Operation) -> None:
    rows = table(SHOWN[operation.name], *COLUMNS)
    assert [code(row["step"]) for row in rows] == [step.name for step in operation.course]
    for row, step in zip(rows, operation.course, strict=True):
        assert row == expected(step)


def expected(step: Step) -> dict[str, str]:
    on_host = step.on.name in ON_HOSTS
    name = f"`{step.name}`"
    return {
        "step": f"**{name}** (no return)" if step.no_return else name,
        "done by": "conductor" if step.on.name == "control" else step.on.name,
        "undo": f"`{step.undo.__name__}`" if step.undo is not None else NOTHING,
        "host silent": WORDS[step.when_silent] if on_host else NOTHING,
        "declared down": WORDS[step.when_declared] if on_host else NOTHING,
        "task_state": f"`{step.task_state}`" if step.task_state else NOTHING,
        "event": ", ".join(f"`{event}`" for event in step.events) or NOTHING,
    }


def test_the_page_names_action_task_state_and_point_of_no_return(operation: Operation) -> None:
    page = next(page for page in PAGES if operation.name in shown(page))
    parts = sections(page.read_text())
    for word in (operation.action, operation.task_state):
        assert word is None or f"`{word}`" in parts["What the API shows"]
    for step in operation.course:
        if step.no_return:
            assert f"`{step.name}`" in parts["Point of no return"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_refusals_have_the_status_that_the_api_gives(page: Path) -> None:
    preconditions = sections(page.read_text())["Preconditions"]
    for row in table(preconditions, "code", "HTTP", "when"):
        assert int(row["HTTP"]) == STATUS.get(code(row["code"]), DEFAULT), row


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_has_all_its_parts(page: Path) -> None:
    wanted = ["Who may ask", "Preconditions", "Point of no return", "When it fails", "What the API shows"]
    assert [part for part in [*wanted, "How it differs from Nova"] if part not in sections(page.read_text())] == []


@pytest.mark.parametrize(
    ("title", "states"), [("States of an operation", OPERATION_STATES), ("States of a step", STEP_STATES)]
)
def test_states_are_told_in_the_words_of_the_code(title: str, states: dict[str, str]) -> None:
    text = sections((OPERATIONS / "README.md").read_text())[title]
    assert {code(row["state"]): row["meaning"] for row in table(text, "state", "meaning")} == states
