"""Errors and log lines follow the rules that a program can check: short, plain, one form."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT

CODE = sorted((ROOT / "kilonova").rglob("*.py"))
LOGGERS = ("log", "logger")
LEVELS = ("debug", "info", "warning", "error", "exception", "log")
ERRORS = re.compile(
    r"(.*Error|Refused|Failed|WrongStore|Superseded|NoAnswer|Unreachable|CommitFailed|CommitUnknown|Conflict"
    r"|NotYet|NotKnown|NoValidHost|Problem|Left|Halted|Crowded|Overtaken)"
)
WORDS = 45  # of the longest message that can still be read at once
UNCLEAR = re.compile(
    r"\b(say|said|meanwhile|nobody|somebody|whoever|anew|told|stands|in other hands|changes hands|knows no|is none of"
    r"|could not be driven|without a word)\b"
)
AS_UPSTREAM = ("Image ID ? already exists!",)  # the sentence that clients of Glance know


def text_of(node: ast.expr) -> str:
    """The text with a question mark for each value that is put in; "" if it is not a text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) if isinstance(part, ast.Constant) else "?" for part in node.values)
    return ""


def calls(module: Path) -> Iterator[tuple[str, str, str]]:
    """The kind of message, where it is, and its text."""
    for node in ast.walk(ast.parse(module.read_text())):
        if not isinstance(node, ast.Call):
            continue
        owner, _, name = ast.unparse(node.func).rpartition(".")
        kind = "log" if owner in LOGGERS and name in LEVELS else "error" if ERRORS.fullmatch(name) else ""
        for argument in node.args if kind else ():
            if " " in (text := text_of(argument)):
                yield kind, f"{module.relative_to(ROOT)}:{node.lineno}", text


def faults(kind: str, text: str) -> Iterator[str]:
    if len(text.split()) > WORDS:
        yield f"more than {WORDS} words"
    if match := UNCLEAR.search(text):
        yield f"unclear: {match.group()}"
    if re.search(r"\w!", text) and text not in AS_UPSTREAM:
        yield "an exclamation mark"
    if re.search(r"\S  +\S|^ | $|%s\w", text):
        yield "a space too many or too few"
    if kind == "log" and ((text[0].isupper() and text[1].islower()) or text.endswith(".")):
        yield "a log line is an event, not a sentence: no capital, no full stop"


@pytest.mark.parametrize("module", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_messages_can_be_read_at_once(module: Path) -> None:
    wrong = [f"{where}: {fault}: {text}" for kind, where, text in calls(module) for fault in faults(kind, text)]
    assert wrong == []


@pytest.mark.parametrize(
    ("kind", "text", "fault"),
    [
        ("error", "operation ?: not found", ""),
        ("error", "limit=? is not allowed; say 1 to ?", "unclear"),
        ("error", "the cell is gone!", "exclamation"),
        ("error", "word " * 46, "more than"),
        ("log", "The certificate was not replaced", "no capital"),
        ("log", "purge stopped.", "no full stop"),
        ("log", "server %swithout an order", "a space"),
    ],
)
def test_faults_are_recognised(kind: str, text: str, fault: str) -> None:
    assert fault in "; ".join(faults(kind, text)) if fault else list(faults(kind, text)) == []
