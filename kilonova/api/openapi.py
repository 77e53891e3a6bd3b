"""OpenAPI 3.1 made from a table of routes, as one microversion sees it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kilonova.api.routes import PUBLIC, Route, Version

_PARAMETER = re.compile(r"\{(\w+)\}")
TOKEN = {"token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}}


def document(title: str, routes: Iterable[Route], version: Version, server: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if route.answers(version):
            _add(paths.setdefault(route.path, {}), route, version)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": ".".join(str(number) for number in version)},
        "servers": [{"url": server}],
        "components": {"securitySchemes": TOKEN},
        "paths": paths,
    }


def _add(methods: dict[str, Any], route: Route, version: Version) -> None:
    method = route.method.lower()
    if method in methods and route.action:  # several actions share an address: the body is one of them
        _add_body(methods[method], route, version)
        return
    operation: dict[str, Any] = {
        "operationId": f"{route.method} {route.path}",
        "summary": summary(route),
        "parameters": [*_in_path(route.path), *_in_query(route, version)],
        "responses": {"default": {"description": "as the service's reference says"}},
    }
    if route.rule != PUBLIC:
        operation["security"] = [{"token": []}]
        operation["x-policy"] = route.rule
    methods[method] = operation
    _add_body(operation, route, version)


def summary(route: Route) -> str:
    told = (route.handler.__doc__ or "").strip().partition("\n")[0]
    return told or f"{route.handler.__module__.rpartition('.')[2]}: {route.handler.__name__.strip('_')}"


def _add_body(operation: dict[str, Any], route: Route, version: Version) -> None:
    if route.body is None:
        return
    schema = route.body.at(version)
    known = operation.get("requestBody")
    if known is None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        return
    media = known["content"]["application/json"]
    media["schema"] = {"oneOf": [*media["schema"].get("oneOf", [media["schema"]]), schema]}


def _in_path(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(path)
    ]


def _in_query(route: Route, version: Version) -> list[dict[str, Any]]:
    properties = route.query.at(version).get("properties", {}) if route.query is not None else {}
    return [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]
