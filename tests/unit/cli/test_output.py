"""Tables for people, JSON, YAML and CSV for programs: one function, every form."""

from __future__ import annotations

import csv
import io
import json

import pytest
import yaml

from kilonova.cli import output
from kilonova.cli.output import Columns, Long, Took, print_list, print_outcome, print_record
from kilonova.cli.times import iso, moment

AT = 1794937411.9598851
RECORDS = [
    {"name": "web", "state": "up", "created_at": AT, "ended_at": None, "turn": 1, "more": {"last_seen": AT}},
    {"name": 'a, "b"', "state": "down", "created_at": AT, "ended_at": AT, "turn": 0, "more": {}},
]
COLUMNS: Columns = {
    "name": "name",
    "state": "state",
    "created": "created_at",
    "took": lambda one: None if one["ended_at"] is None else Took(1.25),
    "turn": "turn",
}


def test_a_table_has_a_header_and_a_line_per_record(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(RECORDS, COLUMNS, "table")
    assert capsys.readouterr().out.splitlines() == [
        "name    state  created              took   turn",
        f"web     up     {moment(AT)}  -      1",
        f'a, "b"  down   {moment(AT)}  1.2 s  0',
    ]
    print_list([], COLUMNS, "table")
    assert capsys.readouterr().out == "name  state  created  took  turn\n"


def test_json_and_yaml_have_every_field_with_times_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(RECORDS, COLUMNS, "json")
    found = json.loads(capsys.readouterr().out)
    print_list(RECORDS, COLUMNS, "yaml")
    assert found == yaml.safe_load(capsys.readouterr().out)
    assert found[0] == {**RECORDS[0], "created_at": iso(AT), "more": {"last_seen": iso(AT)}}


def test_csv_has_the_columns_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_list(RECORDS, COLUMNS, "csv")
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows == [
        ["name", "state", "created", "took", "turn"],
        ["web", "up", iso(AT), "", "1"],
        ['a, "b"', "down", iso(AT), "1.250", "0"],
    ]


def test_a_record_leaves_out_what_it_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    print_record(RECORDS[0], {"name": "name", "ended": "ended_at", "the turn": "turn"}, "table")
    assert capsys.readouterr().out == "name      web\nthe turn  1\n"
    print_record(RECORDS[0], {"name": "name", "ended": "ended_at"}, "csv")
    assert capsys.readouterr().out == "name,ended\nweb,\n"


def test_an_outcome_is_sentences_or_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"operation": "o1", "operations": {"cell1": "o1"}}
    print_outcome(["it began"], answer, "table")
    assert capsys.readouterr().out == "it began\n"
    print_outcome(["it began"], answer, "json")
    assert json.loads(capsys.readouterr().out) == answer
    print_outcome(["it began"], answer, "csv")
    assert capsys.readouterr().out.splitlines() == ["field,value", "operation,o1", 'operations,"{""cell1"": ""o1""}"']


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    for name, value in {"COLUMNS": "60", "FORCE_COLOR": "1", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_a_table_fits_and_states_have_colours(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = " ".join(["a long sentence"] * 12)
    print_list([{"state": "down", "why": sentence}], {"state": "state", "why": "why"}, "table")
    out = capsys.readouterr().out
    assert "\x1b[31mdown" in out, "red"
    assert out.count("long") == 12 and len(out.splitlines()) > 4, "the sentence is folded"


@pytest.mark.usefixtures("terminal")
def test_no_color_is_respected(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    print_list([{"state": "down", "why": "[red]x"}], {"state": "state", "why": "why"}, "table")
    out = capsys.readouterr().out
    assert "\x1b[31m" not in out and "[red]x" in out, "what a cell has is not read as markup"


@pytest.mark.usefixtures("terminal")
def test_an_id_is_never_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {"id": "9d63a685-336a-4e3e-8779-c7bc056a1436", "server": "0d57a2c9-ca0a-49e1-a353-6ce312009269"}
    record = {**ids, "note": "waiting for a host to answer", "state": "running"}
    for columns in ("30", "60", "100", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        print_list([record], {name: name for name in record}, "table")
        out = capsys.readouterr().out
        assert all(text in out for text in (*ids.values(), "running", "waiting", "answer")), columns


def test_a_table_has_the_beginning_of_a_long_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "stop on host1 to be undone (failed twice). To try now: kilonova op resume o1. " + "x " * 90
    columns: Columns = {"note": lambda one: Long(one["note"])}
    print_list([{"note": sentence}, {"note": "word " * 40}, {"note": ""}], columns, "table")
    _, first, second, third = capsys.readouterr().out.splitlines()
    assert (first, third) == ("stop on host1 to be undone (failed twice)", "-")
    assert second.endswith("word …") and len(second) <= 92
    print_list([{"note": sentence}], columns, "csv")
    assert capsys.readouterr().out.splitlines()[1].strip('"') == sentence
