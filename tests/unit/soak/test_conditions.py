"""What the tool that loses conditions takes for a condition, and that a lost one does not decide any more."""

from __future__ import annotations

import ast

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, or_, select, update

from tests.soak.conditions import _conditions_of, _losses, parts, without
from tests.soak.mistakes import KINDS

ONE = Table("one", MetaData(), *(Column(name, Integer) for name in "abc"))


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        (select(ONE.c.a).where(ONE.c.a == 1, ONE.c.b == 2), ["one.b = ?", "one.a = ?"]),
        (update(ONE).where(ONE.c.a == 1).values(b=2), ["1"]),
        (select(ONE.c.a).where(or_(ONE.c.a == 1, ONE.c.b == 2)), ["0 OR one.b = ?", "one.a = ? OR 0", "1"]),
    ],
)
def test_a_statement_loses_each_of_its_conditions(statement, left) -> None:
    lost = [without(statement, number) for number in range(len(parts(statement)))]
    texts = [str(one).replace(":a_1", "?").replace(":b_1", "?") for one in lost]
    ends = [text.partition("WHERE ")[2].replace("true", "1").replace("false", "0") for text in texts]
    assert sorted(ends) == sorted(left)


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("return a and b", ["return True and b", "return a and True"]),
        ("return a or 0", ["return False or 0"]),
        ("if a: return 1", ["if False: return 1"]),
        ("if a: b()", ["if True: b()"]),
        ("return [x for x in a if x]", ["return [x for x in a if True]"]),
        ("rows.fetch(tx, t, lock=True, id=1)", ["rows.fetch(tx, t, lock=True)"]),
        ("k = {'id': 1, 'b': 2}; rows.remove(tx, t, **k)", ["k = {'b': 2}; …", "k = {'id': 1}; …"]),
        ("rows.put(tx, t, id=1)", []),
    ],
)
def test_a_function_loses_each_of_its_conditions(line, left) -> None:
    rest = line.partition("; ")[2]
    assert _changed(line, _conditions_of) == [
        ast.unparse(ast.parse(f"def f():\n    {one.replace('…', rest)}")) for one in left
    ]


@pytest.mark.parametrize(
    ("kind", "line", "left"),
    [
        ("left out", "await a.b(c)", ["pass"]),
        ("left out", "a.b = c; d += 1; e = f()", ["pass; d += 1; e = f()", "a.b = c; pass; e = f()"]),
        ("left out", "if a: b()\n    else: c()", ["if a: pass\n    else: c()", "if a: b()\n    else: pass"]),
        ("left out", "log.info(a)", []),
        ("off by one", "return a < b", ["return a <= b"]),
        ("off by one", "return a >= b + 1", ["return a > b + 1", "return a >= b + 0"]),
        ("turned", "return a(b=True)", ["return a(b=False)"]),
        ("turned", "return a if b else c", ["return a if not b else c"]),
        ("confused", "return min(a)", ["return max(a)"]),
        ("confused", "return a.source", ["return a.destination"]),
    ],
)
def test_mistakes_of_each_kind(kind, line, left) -> None:
    assert _changed(line, KINDS[kind]) == [ast.unparse(ast.parse(f"def f():\n    {one}")) for one in left]


def _changed(line: str, changes) -> list[str]:
    """Return the function with each change made once."""
    source, changed = f"def f():\n    {line}", []
    for number in range(len(_losses(ast.parse(source), changes))):
        tree = ast.parse(source)
        _losses(tree, changes)[number].lose()
        changed.append(ast.unparse(tree))
    return changed


def test_a_condition_is_used_by_those_who_run_its_statement() -> None:
    tree = ast.parse("def f():\n    if (a\n            and b):\n        g()\n    return [\n        x for x in a if x]")
    lines = {ast.unparse(loss.node): loss.lines for loss in _losses(tree, _conditions_of)}
    assert lines == {"a": (2, 3, 2, 6), "b": (2, 3, 2, 6), "x": (5, 6, 2, 6)}
