"""What bodies and queries must look like, per microversion, as JSON schemas kept as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jsonschema_rs

from kilonova.api.rejected import Rejected
from kilonova.api.routes import EVER, Version

Schema = dict[str, Any]
MOST_SHOWN = 200  # characters of a wrong value that are told back


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
        """The value. Raises `Rejected` (400) with the first thing that is wrong and where it stands; not `strict`:
        unknown keys are taken out instead."""
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
        raise Rejected(400, self.told(next(compiled.iter_errors(value)), what, self.schemas[key]))

    def told(self, error: Any, what: str, schema: Schema) -> str:
        """As Nova words it: the place, then what is wrong."""
        return _told(error, what)


def without_unknown(value: Any, schema: Schema) -> Any:
    """The value with only those keys that its closed objects know."""
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [without_unknown(item, schema["items"]) for item in value]
    if not isinstance(value, dict) or "properties" not in schema:
        return value
    known = schema["properties"]
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    return {key: without_unknown(item, known.get(key, {})) for key, item in value.items() if key in known or not closed}


def _told(error: Any, what: str) -> str:
    path = "/".join(str(part) for part in error.instance_path)
    message = error.message if len(error.message) <= 2 * MOST_SHOWN else error.message[:MOST_SHOWN] + " …"
    if not path:
        return f"Invalid input for {what}. {message}" if what else message
    last = error.instance_path[-1]
    return f"Invalid input for field/attribute {last}. {message} (at {path})"
