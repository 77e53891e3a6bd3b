"""What the tool that loses conditions takes for a condition, and that a lost one does not decide any more."""

from __future__ import annotations

import ast

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, or_, select, update

from tests.soak.conditions import _losses, parts, without

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
    source, found = f"def f():\n    {line}", []
    for number in range(len(_losses(ast.parse(source)))):
        tree = ast.parse(source)
        _losses(tree)[number][2]()
        found.append(ast.unparse(tree))
    rest = line.partition("; ")[2]
    assert found == [ast.unparse(ast.parse(f"def f():\n    {one.replace('…', rest)}")) for one in left]
