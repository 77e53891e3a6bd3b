"""A mutation made in the running process, where the line that it changes is a function's."""

from __future__ import annotations

import ast
from functools import partial
from itertools import zip_longest
from pathlib import Path

from tests.soak.conditions import ROOT, CannotBeLost, Condition, Lines, put_code
from tests.soak.patches import Patch


def of_patch(patch: Patch) -> Condition | None:
    """Return None if the line is outside functions: then only a new process shows what it does."""
    path = ROOT / patch.file
    if path.suffix != ".py":
        return None
    before, after = path.read_text(), patch.changed(path.read_text())
    line = _changed_line(before, after)
    owned = _outermost(ast.parse(before), line)
    if owned is None or line < owned[1].body[0].lineno:
        return None
    name, function = owned
    statement = _innermost(function, line)
    lines = Lines(patch.file, statement.lineno, max(line, statement.lineno), function.body[0].lineno, _end(function))
    put = partial(_put, path, name, after)
    likely = "" if " " in patch.likely else f"tests/{patch.likely}"
    return Condition(f"{patch.file}:{name}", patch.name, lines, put, likely=likely)


def _put(path: Path, name: str, after: str) -> None:
    try:
        changed = compile(after, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise CannotBeLost(str(error)) from error
    put_code(path, name, changed)


def _changed_line(before: str, after: str) -> int:
    pairs = zip_longest(before.splitlines(), after.splitlines())  # the last line may be left out
    return next(number for number, (old, new) in enumerate(pairs, 1) if old != new)


def _outermost(tree: ast.Module, line: int) -> tuple[str, ast.FunctionDef | ast.AsyncFunctionDef] | None:
    """The function that the line is in, with its qualified name."""

    def look(body: list[ast.stmt], owner: str) -> tuple[str, ast.FunctionDef | ast.AsyncFunctionDef] | None:
        for node in body:
            if not node.lineno <= line <= _end(node):
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                return f"{owner}{node.name}", node
            if isinstance(node, ast.ClassDef):
                return look(node.body, f"{owner}{node.name}.")
        return None

    return look(tree.body, "")


def _innermost(function: ast.stmt, line: int) -> ast.stmt:
    holding = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node.lineno <= line <= _end(node)]
    return min(holding, key=lambda node: _end(node) - node.lineno)


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno
