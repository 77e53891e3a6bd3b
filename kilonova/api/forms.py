"""Schemas of bodies and queries, per microversion: JSON schemas stored as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jsonschema_rs

from kilonova.api.routes import EVER, Version
from kilonova.domain.errors import Refused

Schema = dict[str, Any]
MOST_SHOWN = 200  # characters of a wrong value that an error quotes
MORE = {"regex": "; lookaround and backreferences are not supported"}  # what its name does not say of a format


class Forms:
    """`Forms({(2, 1): SCHEMA, (2, 19): LATER})`: the newest one not above the version counts. Compiled when used."""

    formats: dict[str, Callable[..., bool]] = {}  # besides those that JSON schemas know

    def __init__(self, schemas: Mapping[Version, Schema] | Schema) -> None:
        if all(isinstance(key, tuple) for key in schemas):
            self.schemas: dict[Version, Schema] = dict(sorted(schemas.items()))  # type: ignore[arg-type]
        else:
            self.schemas = {EVER: dict(schemas)}  # type: ignore[arg-type]
        self._compiled: dict[Version, Any] = {}

    def at(self, version: Version) -> Schema:
        return self.schemas[self._newest(version)]

    def _newest(self, version: Version) -> Version:
        return max((since for since in self.schemas if since <= version), default=min(self.schemas))

    def check(self, value: Any, version: Version, *, what: str = "", strict: bool = True) -> Any:
        """Return the value. Raise `Refused` (400) with the first error and its location. Not `strict`: unknown keys
        are removed instead."""
        key = self._newest(version)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = jsonschema_rs.Draft202012Validator(
                self.schemas[key], validate_formats=True, formats=self.formats
            )
            self._compiled[key] = compiled
        if compiled.is_valid(value):
            return value
        if not strict:
            value = without_unknown(value, self.schemas[key])
            if compiled.is_valid(value):
                return value
        raise Refused(400, self.explain(next(compiled.iter_errors(value)), what, self.schemas[key]))

    def explain(self, error: Any, what: str, schema: Schema) -> str:
        """Return the error in Nova's words: the location, the value, then the reason. `what`: the query, if it is not a
        body."""
        path, message = error.instance_path, wrong(error, schema)
        if not path:
            return f"Invalid input for {what}. {message}" if what else message
        value = short(str(error.instance))
        if what:
            return f"Invalid input for {what} {path[0]}. Value: {value}. {message}"
        at = "/".join(str(part) for part in path)
        return f"Invalid input for field/attribute {_last_name(path)}. Value: {value}. {message} (at {at})"


def without_unknown(value: Any, schema: Schema) -> Any:
    """The value with only those keys that its closed objects know."""
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [without_unknown(item, schema["items"]) for item in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    known = schema["properties"]
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    return {key: without_unknown(item, known.get(key, {})) for key, item in value.items() if key in known or not closed}


def _last_name(path: Sequence[Any]) -> str:
    """Return the last name in the path: a list member has no name, so it is `tags/0`."""
    names = [n for n, part in enumerate(path) if isinstance(part, str)]
    return "/".join(str(part) for part in path[names[-1] :]) if names else str(path[-1])


def wrong(error: Any, schema: Schema) -> str:
    """Return the reason for an error, in the words of the libraries that OpenStack's services use."""
    kind, value = error.kind, short(repr(error.instance))
    match kind.name:
        case "additionalProperties" if patterns := _within(schema, error.schema_path[:-1]).get("patternProperties"):
            names = short(", ".join(map(repr, kind.unexpected)))
            return f"{names} does not match any of the regexes: {', '.join(map(repr, patterns))}"
        case "required":
            return f"{kind.property!r} is a required property"
        case "minProperties":
            return f"{value} does not have enough properties"
        case "type":
            return f"{value} is not of type {', '.join(map(repr, kind.types))}"
        case "enum":
            return f"{value} is not one of {kind.options!r}"
        case "format":
            return f"{value} is not a {kind.format!r}{MORE.get(kind.format, '')}"
        case "pattern":
            return f"{value} does not match {kind.pattern!r}"
        case "oneOf" | "anyOf" if getattr(kind, "context", None):
            return f"{value} is not valid under any of the given schemas: {_none_fits(error, schema)}"
    return _both_ends(str(error.message))


def _none_fits(error: Any, schema: Schema) -> str:
    """Return the errors of the alternatives that accept the value's type; if there are none, of all alternatives."""
    first = [branch[0] for branch in error.kind.context if branch]
    near = [why for why in first if (why.kind.name, why.instance_path) != ("type", error.instance_path)]
    return "; ".join(dict.fromkeys(wrong(why, schema) for why in near or first))


def _within(schema: Any, path: Sequence[Any]) -> Any:
    for part in path:
        schema = schema[part]
    return schema


def _both_ends(message: str) -> str:
    """Shorten a message in its middle: it begins with the value and ends with the error."""
    return message if len(message) <= 2 * MOST_SHOWN else f"{message[:MOST_SHOWN]} … {message[-MOST_SHOWN // 2 :]}"


def short(text: str) -> str:
    return text if len(text) <= 2 * MOST_SHOWN else text[:MOST_SHOWN] + " …"
