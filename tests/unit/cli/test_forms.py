"""Every command that shows something, in every form: parsed by the reader of that form, and without epoch seconds."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest
import yaml

from tests.support.command_line import CommandLine

EPOCH = re.compile(r"\b1\d{9}\.\d+\b")
LISTS = [
    "server list",
    "host list",
    "op list",
    "cell list",
    "unplaced list",
    "quarantine list",
    "finding list",
    "doctor",
]
RECORDS = ["server show shown", "host show host1", "op show shown", "cell show cell1", "audit", "explain shown"]
RECORDS += ["server migrate shown --dry-run", "plan delete shown", "plan drain-host host1", "ha status"]
ROWS = ["ledger shown"]


@pytest.fixture(autouse=True)
def a_server(run: CommandLine) -> None:
    if not run("server", "list", "--name", "shown", "-f", "json").json:
        run.create("shown", host="host1")


def read(form: str, text: str) -> Any:
    if form == "csv":
        return list(csv.DictReader(io.StringIO(text)))
    return json.loads(text) if form == "json" else yaml.safe_load(text)


def test_a_disarmed_watch_is_told_in_every_form(run: CommandLine) -> None:
    """Also while nothing is evacuated automatically: then it counts as soon as that is switched on."""
    try:
        disarmed = run("ha", "disarm", "--for", "2h", "--reason", "new switches")
        assert disarmed.code == 0 and "off ([ha] automatic); disarmed until 20" in disarmed.out
        assert ": new switches; 0 of " in disarmed.out and disarmed.out == run("ha", "status").out
        for form in ("json", "yaml", "csv"):
            shown = run("ha", "status", "-f", form).out
            assert not EPOCH.search(shown), shown
        (row,) = csv.DictReader(io.StringIO(shown))
        assert json.loads(row["disarmed"])["until"].startswith("20")
    finally:
        armed = run("ha", "arm")
    assert armed.code == 0 and "disarmed" not in armed.out


@pytest.mark.parametrize("form", ["json", "yaml", "csv"])
@pytest.mark.parametrize("command", [*LISTS, *ROWS, *RECORDS])
def test_a_program_can_read_it(run: CommandLine, command: str, form: str) -> None:
    done = run(*command.split(), "-f", form)
    assert done.code in (0, 6) and done.err == "", (done.code, done.err)
    found = read(form, done.out)
    assert isinstance(found, list) or command in RECORDS
    assert not EPOCH.search(done.out), EPOCH.search(done.out)


@pytest.mark.parametrize("command", [*LISTS[:-1], *ROWS])
def test_a_table_has_a_header_and_aligned_columns(run: CommandLine, command: str) -> None:
    header, *lines = run(*command.split()).lines
    starts = [match.start() for match in re.finditer(r"(?<=  )\S|^\S", header)]
    for line in lines:
        assert all(at >= len(line) or at == 0 or line[at - 2 : at] == "  " for at in starts), (header, line)
    assert not EPOCH.search("".join(lines))


@pytest.mark.parametrize("command", [*LISTS, *ROWS, *RECORDS])
def test_people_see_no_epoch_seconds(run: CommandLine, command: str) -> None:
    assert not EPOCH.search(run(*command.split()).out)
