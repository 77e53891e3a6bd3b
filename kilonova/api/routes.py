"""The route table of a service: method, path, versions, schema, policy rule, handler. OpenAPI is made from it too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from starlette.responses import Response

if TYPE_CHECKING:
    from kilonova.api.call import Call
    from kilonova.api.forms import Forms

Version = tuple[int, int]
Handler = Callable[["Call"], Awaitable[Response]]

EVER: Version = (0, 0)
PUBLIC = ""  # the rule of routes without a token
ANY_TOKEN = "-"  # the handler itself decides what its caller may see


@dataclass(frozen=True, kw_only=True)
class Route:
    method: str
    path: str  # "/servers/{server}/metadata/{key}"
    handler: Handler
    rule: str  # of the policy, PUBLIC or ANY_TOKEN
    since: Version = EVER
    until: Version | None = None  # the last version that has it
    body: Forms | None = None
    query: Forms | None = None
    action: str = ""  # the one key of the body, when several share the address
    raw: bool = False  # the handler reads the body itself
    missing: int = 404  # the status in a version that does not have the route

    def answers(self, version: Version) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)


@dataclass
class _Node:
    literals: dict[str, _Node] = field(default_factory=dict)
    parameter: _Node | None = None
    routes: list[Route] = field(default_factory=list)
    names: tuple[str, ...] = ()


class Router:
    """A tree of routes by path segment; a literal segment wins over a parameter."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes: Sequence[Route] = list(routes)
        self._root = _Node()
        for route in self.routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node, names = self._root, []
        for segment in _segments(route.path):
            if segment.startswith("{"):
                names.append(segment[1:-1])
                node.parameter = node = node.parameter or _Node()
            else:
                node = node.literals.setdefault(segment, _Node())
        if node.names not in ((), tuple(names)):
            raise ValueError(f"{route.path}: its parameters are called {node.names} elsewhere")
        node.names = tuple(names)
        node.routes.append(route)

    def find(self, raw_path: str) -> tuple[list[Route], dict[str, str]] | None:
        """Return all routes of that path, of any method and version, and its parameters; None if no route has that
        path."""
        segments = [unquote(segment) for segment in _segments(raw_path)]
        for node, values in _walk(self._root, segments, ()):
            if node.routes:
                return node.routes, dict(zip(node.names, values, strict=True))
        return None


def _walk(node: _Node, segments: list[str], values: tuple[str, ...]) -> Iterator[tuple[_Node, tuple[str, ...]]]:
    if not segments:
        yield node, values
        return
    first, rest = segments[0], segments[1:]
    if first in node.literals:
        yield from _walk(node.literals[first], rest, values)
    if node.parameter is not None:
        yield from _walk(node.parameter, rest, (*values, first))


def _segments(path: str) -> list[str]:
    """A slash at the end makes no difference."""
    return path.strip("/").split("/") if path.strip("/") else []
