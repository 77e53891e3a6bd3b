"""What a person reads (documents, command help, messages) avoids idioms that gave readers trouble."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from cyclopts import App
from rich.console import Console

from kilonova.cli.main import app
from tests.docs.markdown import ROOT, documents

IDIOMS = re.compile(
    r"\b(told|anew|whoever|who asks|so many|worth nothing|divided by commas|to be had|by its own means|as it came"
    r"|everything that is kept|(?<!there )is no (?!longer\b|more\b|proof\b|\w+ing\b))\b",
    re.IGNORECASE,
)
CODE = sorted((ROOT / "kilonova").rglob("*.py"))
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_avoid_them(document: Path) -> None:
    assert [line for line in document.read_text().splitlines() if IDIOMS.search(line)] == []


@pytest.mark.parametrize("module", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_messages_avoid_them(module: Path) -> None:
    assert [text for text in messages(ast.parse(module.read_text())) if IDIOMS.search(text)] == []


def messages(tree: ast.Module) -> Iterator[str]:
    """Texts that are not docstrings: errors, log events, descriptions."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def commands(group: App) -> Iterator[App]:
    yield group
    for name in group:
        if not name.startswith("-"):
            yield from commands(group[name])


@pytest.mark.parametrize("command", list(commands(app)), ids=lambda command: command.name[0])
def test_help_of_commands_avoids_them(command: App) -> None:
    with StringIO() as out:
        command.help_print(console=Console(file=out, width=200))
        text = out.getvalue()
    assert text and not IDIOMS.search(text)


@pytest.mark.parametrize("command", list(commands(app)), ids=lambda command: command.name[0])
def test_each_argument_of_a_command_has_help(command: App) -> None:
    assert command.help
    if command.default_command is None:
        return  # a group of commands
    arguments = command.assemble_argument_collection(parse_docstring=True)
    assert [argument.name for argument in arguments if argument.show and not argument.parameter.help] == []
