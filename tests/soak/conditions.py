"""The conditions of the package: of its SQL statements and of its functions, and how each of them is lost.

A lost condition does not decide any more: one of several joined by AND counts as true, one of several joined by OR as
false, a guard that would leave the function never holds, a key of a call of store/rows.py is left out. The loss is made
in the running process, so that a forked process needs no start of its own.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import false, true
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.elements import BooleanClauseList, ClauseElement

from kilonova.store.statements import Sql

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = f"{ROOT}/kilonova/"
_READABLE = sqlite.dialect(paramstyle="named")
OF_KEYS = ("change", "fetch", "fetch_all", "remove")  # of store/rows.py: their keywords are the keys
COMPILED = ("lists", "postgres", "postgres_constants", "sqlite", "sqlite_constants")


# What finds the changes of one node of the syntax tree; it is handed the names of variables that hold keys.
Changes = Callable[[ast.AST, frozenset[str]], Iterator[tuple[ast.AST, Callable[[], None]]]]


class CannotBeLost(Exception):
    """The changed function does not fit its closure."""


class Lines(NamedTuple):
    """Of a file, those of one statement, and of the function that it is in."""

    path: str
    first: int
    last: int
    top: int
    bottom: int


@dataclass(frozen=True)
class Condition:
    where: str  # kilonova/engine/take.py:_DUE
    text: str
    used_by: Lines | str  # how its tests are found in the record: by lines, or by a statement's text
    lose: Callable[[], None]
    is_key: bool = True  # of a statement: it selects rows
    likely: str = ""  # how the names of tests begin that are tried first

    def __str__(self) -> str:
        return f"{self.where} | {self.text}"


@dataclass(frozen=True)
class Site:
    """Where a statement was made. A module's own has its name, one that a function makes has the function's."""

    path: str
    function: str
    line: int


class Statements:
    """Every statement of the process, and the one whose condition is lost."""

    def __init__(self) -> None:
        self.sites: dict[int, tuple[Sql, Site]] = {}
        self.lost: tuple[Site, str, int] | None = None
        make, compile_ = Sql.__init__, Sql._compile

        def remember(sql: Sql, element: Any) -> None:
            make(sql, element)
            frame = inspect.currentframe()
            assert frame is not None and frame.f_back is not None
            code = frame.f_back.f_code
            self.sites[id(sql)] = (sql, Site(relative(code.co_filename), code.co_qualname, frame.f_back.f_lineno))

        def compile_without(sql: Sql, dialect: Any) -> Any:
            compiled = compile_(sql, dialect)
            if self.lost is None or self.sites[id(sql)][1] != self.lost[0] or str(compiled) != self.lost[1]:
                return compiled
            sql.element = without(sql.element, self.lost[2])
            return compile_(sql, dialect)

        Sql.__init__ = remember  # type: ignore[method-assign]
        Sql._compile = compile_without  # type: ignore[method-assign]

    def key(self, sql: Sql) -> tuple[Site, str]:
        return self.sites[id(sql)][1], sql.sqlite[0]

    def conditions(self) -> Iterator[Condition]:
        """Of the statements that were made until now."""
        names = {id(value): name for module in _modules() for name, value in vars(module).items()}
        seen = set()
        for sql, site in list(self.sites.values()):
            if not site.path.startswith("kilonova/") or site.path.endswith("store/rows.py"):
                continue  # the keys of rows.py are conditions of its callers
            if (key := self.key(sql)) in seen:
                continue
            seen.add(key)
            name = names.get(id(sql), site.function)
            for number, (condition, _) in enumerate(parts(sql.element)):
                text = " ".join(str(condition.compile(dialect=_READABLE)).split())
                yield Condition(f"{site.path}:{name}", text, key[1], self._loser(key, number))

    def _loser(self, key: tuple[Site, str], number: int) -> Callable[[], None]:
        def lose() -> None:
            for sql, site in list(self.sites.values()):
                if site == key[0] and _is_compiled(sql) and sql.sqlite[0] == key[1]:
                    for slot in COMPILED:
                        _empty(sql, slot)
            self.lost = (*key, number)

        return lose


def parts(element: Any) -> list[tuple[ClauseElement, bool]]:
    """Each condition of a statement, with what it counts as when it is lost."""
    found: list[tuple[ClauseElement, bool]] = []
    for node in visitors.iterate(element):
        if isinstance(node, BooleanClauseList):
            found += [(clause, node.operator is operators.and_) for clause in node.clauses]
        for condition in getattr(node, "_where_criteria", ()):
            if not (isinstance(condition, BooleanClauseList) and condition.operator is operators.and_):
                found.append((condition, True))
    return list({id(condition): (condition, value) for condition, value in found}.values())


def without(element: Any, number: int) -> Any:
    lost, value = parts(element)[number]

    def replace(node: Any, **_: Any) -> Any:
        return (true() if value else false()) if node is lost else None

    return visitors.replacement_traverse(element, {}, replace)


def _is_compiled(sql: Sql) -> bool:
    try:
        object.__getattribute__(sql, "sqlite")
    except AttributeError:
        return False
    return True


def _empty(sql: Sql, slot: str) -> None:
    with contextlib.suppress(AttributeError):
        object.__delattr__(sql, slot)


def _modules() -> list[types.ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.startswith("kilonova")]


def relative(path: str) -> str:
    """Return the path within the tree, so that a record holds for other copies of the tree."""
    return path.removeprefix(f"{ROOT}/")


def of_functions(path: Path) -> Iterator[Condition]:
    """Conditions of the functions of a file, as its source has them."""
    return changed_functions(path, _conditions_of)


def changed_functions(path: Path, changes: Changes, kind: str = "") -> Iterator[Condition]:
    source = path.read_text()
    file = relative(str(path))
    for number, loss in enumerate(_losses(ast.parse(source), changes)):
        node = loss.node
        text = kind + " ".join((ast.get_source_segment(source, node) or "").split())
        is_key = isinstance(node, ast.keyword) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        lose = partial(_lose_in_code, path, number, changes)
        yield Condition(f"{file}:{loss.function}", text, Lines(file, *loss.lines), lose, is_key)


class Loss(NamedTuple):
    function: str  # the outermost one
    node: ast.AST
    lines: tuple[int, int, int, int]  # of its statement, and of the function
    lose: Callable[[], None]


def _losses(tree: ast.Module, changes: Changes) -> list[Loss]:
    """In the order of the source."""
    losses: list[Loss] = []

    def look(node: ast.AST, function: str, owner: str, keys: frozenset[str], lines: tuple[int, int, int, int]) -> None:
        if isinstance(node, ast.ClassDef):
            owner = f"{owner}{node.name}."
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not function:
            function, keys = f"{owner}{node.name}", _names_of_keys(node)
            lines = (0, 0, node.body[0].lineno, node.end_lineno or 0)
        if isinstance(node, ast.stmt):
            lines = _of_statement(node, lines)
        if function:
            for changed, lose in changes(node, keys):
                of_changed = _of_statement(changed, lines) if isinstance(changed, ast.stmt) else lines
                losses.append(Loss(function, changed, of_changed, lose))
        for child in ast.iter_child_nodes(node):
            look(child, function, owner, keys, lines)

    look(tree, "", "", frozenset(), (0, 0, 0, 0))
    return losses


def _of_statement(node: ast.stmt, lines: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """The lines of the statement itself, without those of its body."""
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
    return (node.lineno, max(node.lineno, last), *lines[2:])


def _names_of_keys(function: ast.AST) -> frozenset[str]:
    """Return the variables that give a call of store/rows.py its keys: `rows.change(…, **these)`."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and _is_of_keys(node)]
    values = [keyword.value for call in calls for keyword in call.keywords if keyword.arg is None]
    return frozenset(value.id for value in values if isinstance(value, ast.Name))


def _is_of_keys(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name("rows"), attr=verb):
            return verb in OF_KEYS
    return False


def _conditions_of(node: ast.AST, keys: frozenset[str]) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    match node:
        case ast.BoolOp(op=op, values=values):
            deciding = [value for value in values if not isinstance(value, ast.Constant)]
            yield from ((value, _replacing(values, value, isinstance(op, ast.And))) for value in deciding)
        case ast.comprehension(ifs=tests):
            alone = [test for test in tests if not isinstance(test, ast.BoolOp)]
            yield from ((test, _replacing(tests, test, True)) for test in alone)
        case ast.If(test=test, body=body) if not isinstance(test, ast.BoolOp):
            leaves = isinstance(body[-1], ast.Raise | ast.Return | ast.Continue | ast.Break)
            yield test, lambda: setattr(node, "test", _constant(test, not leaves))
        case ast.Call(keywords=keywords) if _is_of_keys(node):
            yield from ((keyword, partial(keywords.remove, keyword)) for keyword in keywords if _is_key(keyword))
        case ast.Assign(targets=[ast.Name(name)], value=ast.Dict() as given) if name in keys:
            yield from _entries(given)
        case ast.AnnAssign(target=ast.Name(name), value=ast.Dict() as given) if name in keys:
            yield from _entries(given)


def _is_key(keyword: ast.keyword) -> bool:
    return keyword.arg not in (None, "lock", "stamped")


def _entries(given: ast.Dict) -> Iterator[tuple[ast.AST, Callable[[], None]]]:
    for key, value in zip(given.keys, given.values, strict=True):

        def lose(key: ast.expr | None = key, value: ast.expr = value) -> None:
            given.keys.remove(key)
            given.values.remove(value)

        if key is not None:
            yield key, lose


def _replacing(conditions: list[ast.expr], lost: ast.expr, value: bool) -> Callable[[], None]:
    def replace() -> None:
        conditions[conditions.index(lost)] = _constant(lost, value)

    return replace


def _constant(lost: ast.expr, value: bool) -> ast.expr:
    return ast.copy_location(ast.Constant(value), lost)


def _lose_in_code(path: Path, number: int, changes: Changes) -> None:
    tree = ast.parse(path.read_text())
    loss = _losses(tree, changes)[number]
    loss.lose()
    ast.fix_missing_locations(tree)
    put_code(path, loss.function, compile(tree, str(path), "exec", dont_inherit=True))


def put_code(path: Path, function: str, changed: types.CodeType) -> None:
    """Give a function of the running process its code in the changed file."""
    importlib.import_module(relative(str(path)).removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(changed)}
    live = functions().get((str(path), function))
    if live is None:  # of a module that was imported since
        functions.cache_clear()
        live = functions().get((str(path), function))
    if live is None:
        raise CannotBeLost(f"{function} is not there")
    for one in live:
        try:
            one.__code__ = codes[function, one.__code__.co_firstlineno]
        except (KeyError, ValueError) as error:
            raise CannotBeLost(str(error)) from error


@cache
def functions() -> dict[tuple[str, str], list[types.FunctionType]]:
    """Every function of the package in this process by file and qualified name. To find them takes a second."""
    gc.unfreeze()  # frozen objects are not listed
    by_name: dict[tuple[str, str], list[types.FunctionType]] = {}
    for one in gc.get_objects():
        if isinstance(one, types.FunctionType) and one.__code__.co_filename.startswith(PACKAGE):
            by_name.setdefault((one.__code__.co_filename, one.__code__.co_qualname), []).append(one)
    return by_name


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield const
            yield from _codes(const)
