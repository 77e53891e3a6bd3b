"""`kilonova db …` in the forms for programs; what each command does is tested by tests/cli."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from kilonova.cli.main import run_command

NAMES = ["cell0", "cell1", "control", "placement"]


@pytest.fixture
def typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Type a command about the databases of one directory; its exit code and what it printed."""

    def run(*words: str) -> tuple[int, str]:
        code = run_command(["db", *words, "--data", str(tmp_path / "var")])
        return code, capsys.readouterr().out

    return run


def test_databases_are_made_checked_and_begin_an_era_for_programs(typed: Any) -> None:
    code, text = typed("upgrade", "-f", "csv")
    made = list(csv.DictReader(io.StringIO(text)))
    assert code == 0 and sorted(one["database"] for one in made) == NAMES
    assert {one["before"] for one in made} == {""} and all(one["revision"] for one in made)
    code, text = typed("upgrade", "-f", "json")
    assert code == 0 and all(one["before"] == one["revision"] for one in json.loads(text))
    code, text = typed("check", "-f", "json")
    assert code == 0 and json.loads(text)["whole"] is True and json.loads(text)["wrong"] == []
    code, text = typed("restored", "-f", "json")
    assert code == 0 and {(one["before"], one["era"]) for one in json.loads(text)} == {(1, 2)}
    code, text = typed("restored")
    assert code == 0 and "era 2 -> 3   operations abandoned: 0, servers to be compared: 0" in text


def test_a_lost_cell_is_replaced_for_programs(typed: Any, tmp_path: Path) -> None:
    typed("upgrade")
    (tmp_path / "var" / "cell1.db").unlink()
    code, text = typed("lost", "cell1", "--reason", "burnt", "-f", "json")
    assert code == 0, text
    found = json.loads(text)
    assert (found["cell"], found["servers"], found["hosts"], found["unrecorded"]) == ("cell1", 0, 0, 0)
    assert found["store_id"] != found["replacement"]
