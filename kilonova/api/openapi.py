"""OpenAPI 3.1 made from a table of routes, as one microversion sees it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kilonova.api.content import Content
from kilonova.api.routes import PUBLIC, Route, Version

_PARAMETER = re.compile(r"\{(\w+)\}")
TOKEN = {"token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}}


def document(title: str, routes: Iterable[Route], version: Version, server: str) -> dict[str, Content]:
    paths: dict[str, dict[str, list[Route]]] = {}
    for route in routes:
        if route.answers(version):
            methods, method = paths.setdefault(route.path, {}), route.method.lower()
            # several actions share an address: the body is one of theirs
            methods[method] = [*methods.get(method, []), route] if route.action else [route]
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": ".".join(str(number) for number in version)},
        "servers": [{"url": server}],
        "components": {"securitySchemes": TOKEN},
        "paths": {
            path: {method: _operation(method_routes, version) for method, method_routes in methods.items()}
            for path, methods in paths.items()
        },
    }


def _operation(routes: Sequence[Route], version: Version) -> dict[str, Content]:
    """`routes` have one address and method."""
    route = routes[0]
    operation: dict[str, Content] = {
        "operationId": f"{route.method} {route.path}",
        "summary": summary(route),
        "parameters": [*_in_path(route.path), *_in_query(route, version)],
        "responses": {"default": {"description": "as the service's reference says"}},
    }
    if route.rule != PUBLIC:
        operation["security"] = [{"token": list[str]()}]
        operation["x-policy"] = route.rule
    bodies = [one.body.at(version) for one in routes if one.body is not None]
    if bodies:
        schema = bodies[0] if len(bodies) == 1 else {"oneOf": bodies}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def summary(route: Route) -> str:
    first_line = (route.handler.__doc__ or "").strip().partition("\n")[0]
    return first_line or f"{route.handler.__module__.rpartition('.')[2]}: {route.handler.__name__.strip('_')}"


def _in_path(path: str) -> list[dict[str, Content]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(path)
    ]


def _in_query(route: Route, version: Version) -> list[dict[str, Content]]:
    properties = route.query.at(version).get("properties", {}) if route.query is not None else {}
    return [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]
