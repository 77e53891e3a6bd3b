"""Small mistakes in functions, besides lost conditions: a statement left out, a bound off by one, a switch turned.

Each is a change of the syntax tree, made in the running process like a lost condition (conditions.py).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.soak.conditions import Condition, changed_functions

Change = tuple[ast.AST, Callable[[], None]]
NEIGHBOUR: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
CONFUSED = {"min": "max", "max": "min", "any": "all", "all": "any"}
TWINS = {"source": "destination", "old": "new", "first": "last", "before": "after"}
TWINS |= {right: left for left, right in TWINS.items()}
ONLY_SEEN = {"log", "logs", "logger", "measures", "metrics"}  # a lost line of a log changes no behaviour


def left_out(node: ast.AST, _: object) -> Iterator[Change]:
    """A statement that is done for its effect."""
    for name in ("body", "orelse", "finalbody"):
        statements = getattr(node, name, None)
        if isinstance(statements, list):
            for statement in statements:
                if _is_an_effect(statement):
                    yield statement, _putting(statements, statement, ast.copy_location(ast.Pass(), statement))


def off_by_one(node: ast.AST, _: object) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in NEIGHBOUR:
            yield node, _setting(node, "ops", [NEIGHBOUR[type(op)]()])
        case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant(value=1) as right):
            yield node, _setting(right, "value", 0)


def turned(node: ast.AST, _: object) -> Iterator[Change]:
    """True for False, and the other way round, where it is handed on; the branches of `a if b else c`."""
    match node:
        case (
            ast.keyword(value=ast.Constant(value=bool(value)) as constant)
            | ast.Return(value=ast.Constant(value=bool(value)) as constant)
        ):
            yield node, _setting(constant, "value", not value)
        case ast.IfExp(test=test):
            yield node, _setting(node, "test", ast.copy_location(ast.UnaryOp(ast.Not(), test), test))


def confused(node: ast.AST, _: object) -> Iterator[Change]:
    """The function or the attribute that is written by mistake for another one."""
    match node:
        case ast.Call(func=ast.Name(id=name) as function, args=[_]) if name in CONFUSED:
            yield node, _setting(function, "id", CONFUSED[name])
        case ast.Attribute(attr=attribute, ctx=ast.Load()) if attribute in TWINS:
            yield node, _setting(node, "attr", TWINS[attribute])


KINDS = {"left out": left_out, "off by one": off_by_one, "turned": turned, "confused": confused}


def of_file(path: Path) -> Iterator[tuple[str, Condition]]:
    """Every mistake of these kinds in the functions of a file."""
    for kind, changes in KINDS.items():
        yield from ((kind, one) for one in changed_functions(path, changes, f"{kind}: "))


def _is_an_effect(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Await(value=ast.Call() as call) | (ast.Call() as call)):
            return _root(call.func) not in ONLY_SEEN
        case ast.AugAssign():
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
    return False


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else ""


def _putting(statements: list[ast.stmt], old: ast.stmt, new: ast.stmt) -> Callable[[], None]:
    def put() -> None:
        statements[statements.index(old)] = new

    return put


def _setting(node: ast.AST, name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(node, name, value)
