"""The operator's guide: states, commands, exit codes and files as the code has them; every chapter is in its index."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Literal, get_args, get_origin

from cyclopts import App

from kilonova.audit.differences import KINDS
from kilonova.audit.findings import Kind
from kilonova.cli import exits
from kilonova.cli.audit import COUNTED
from kilonova.cli.main import COMMANDS, ROLES, app
from kilonova.cli.opening import EMBEDDED, SEAL_KEY_NAME
from kilonova.domain.host import HOST_STATES
from kilonova.roles.placement import placement
from kilonova.roles.seed import PASSWORD_NAMES
from kilonova.roles.stores import MACHINES_NAME
from kilonova.settings import FILE_NAME
from kilonova.store.clouds import CLOUDS_NAME, OPENRC_NAME
from tests.docs.markdown import ROOT, code, links, table

CHAPTERS = sorted((ROOT / "docs" / "guide").glob("*.md"))
GUIDE = "\n".join(chapter.read_text() for chapter in CHAPTERS)


def test_every_chapter_is_in_the_index() -> None:
    index = (ROOT / "docs" / "guide" / "README.md").read_text()
    listed = {link for link in links(index) if "/" not in link}
    assert listed == {chapter.name for chapter in CHAPTERS} - {"README.md"}


def test_every_option_of_placement_alone_is_told() -> None:
    told = " ".join(row["option"] for row in table(GUIDE, "option", "what it says"))
    parameters = inspect.signature(placement, eval_str=True).parameters
    names = {"overrides": "set"}  # where the option has another name than the parameter
    for name, parameter in parameters.items():
        assert f"--{names.get(name, name).replace('_', '-')} " in told, name
        for choice in get_args(parameter.annotation) if get_origin(parameter.annotation) is Literal else ():
            assert choice in told, choice


def test_host_states_are_told_in_the_words_of_the_code() -> None:
    hosts = (ROOT / "docs" / "guide" / "hosts.md").read_text()
    rows = table(hosts, "state", "meaning")
    assert {code(row["state"]): row["meaning"] for row in rows} == HOST_STATES


def test_differences_of_an_audit_are_told_in_the_words_of_the_code() -> None:
    rows = table(GUIDE, "difference", "meaning")
    assert {code(row["difference"]): row["meaning"] for row in rows} == KINDS


def test_kinds_of_findings_of_an_audit_are_those_of_the_code() -> None:
    kinds = {row["kind"] for row in table(GUIDE, "kind", "what it means", "what is done")}
    assert kinds == {*get_args(Kind), *(set(COUNTED) - {"findings", "differences"})}


def test_every_command_is_in_the_table_and_the_table_has_no_other() -> None:
    """Of those that are not roles."""
    processes = COMMANDS[ROLES]
    known = {name for name in commands(app) if name.partition(" ")[0] not in processes}
    listed = {name for row in table(GUIDE, "command", "what it does") for name in named_in(row["command"])}
    assert listed == known


def commands(group: App, above: str = "") -> Iterator[str]:
    for name in group:
        if not name.startswith("-"):
            below = list(commands(group[name], f"{above}{name} "))
            yield from below or [f"{above}{name}"]


def named_in(cell: str) -> Iterator[str]:
    """`kilonova op list`, `op show ID` → op list, op show."""
    known = set(commands(app))
    for typed in re.findall(r"`([^`]+)`", cell) + re.findall(r" or `([^`]+)`", cell):
        words = typed.removeprefix("kilonova ").split()
        yield next((name for length in (2, 1) if (name := " ".join(words[:length])) in known), typed)


def test_log_events_are_those_of_the_code() -> None:
    code_text = "".join(path.read_text() for path in (ROOT / "kilonova").rglob("*.py"))
    for row in table(GUIDE, "event", "level", "fields"):
        for event in row["event"].split(", "):
            text = re.sub(r"^host declared (down|up)$", "host declared %s", event)
            assert f'"{text}' in code_text, event


def test_metrics_are_those_of_the_code() -> None:
    code_text = "".join((ROOT / "kilonova" / name).read_text() for name in ("measures.py", "api/metrics.py"))
    listed = {
        name for row in table(GUIDE, "metric", "labels", "from") for name in re.findall(r"`(\w+)`", row["metric"])
    }
    defined = set(re.findall(r'"(kilonova_\w+)"', code_text))
    assert {name.removesuffix("_total") for name in listed} == {name.removesuffix("_total") for name in defined}


def test_exit_codes_are_told() -> None:
    told = {int(row["code"]): row["meaning"].partition(":")[0] for row in table(GUIDE, "code", "meaning")}
    known = {exits.DONE: "done", exits.USAGE: "usage", exits.REFUSED: "refused", exits.FAILED: "failed"}
    assert known.items() <= told.items()
    assert {exits.TIMED_OUT, exits.DIFFERENCES} <= told.keys()


def test_files_of_the_data_directory_are_told() -> None:
    told = " ".join(row["file"] for row in table(GUIDE, "file", "what it is"))
    names = [f"{name}.db" for name in EMBEDDED]
    for name in [
        *names,
        *PASSWORD_NAMES.values(),
        CLOUDS_NAME,
        OPENRC_NAME,
        SEAL_KEY_NAME,
        MACHINES_NAME,
        FILE_NAME,
        ".lock",
    ]:
        assert f"`{name}`" in told
