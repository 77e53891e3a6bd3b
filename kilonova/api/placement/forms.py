"""Forms of Placement's bodies and queries: their common members, and the texts of errors.

Clients and Placement's own tests look for the words of its schema library, so they are kept.
"""

from __future__ import annotations

from typing import Any

from kilonova.api.forms import Forms, Schema, wrong
from kilonova.api.reading import is_uuid
from kilonova.api.routes import Version
from kilonova.domain.errors import Refused

MOST = 2147483647  # of an inventory's numbers
UUID_KEY = "^[0-9a-fA-F-]{36}$"
NAME_KEY = "^[A-Z0-9_]+$"
CUSTOM_NAME = "^CUSTOM_[A-Z0-9_]+$"
LONGEST = 255

INTEGER: Schema = {"type": "integer"}
UUID: Schema = {"type": "string", "format": "uuid"}
ID: Schema = {"type": "string", "minLength": 1, "maxLength": LONGEST}
GENERATION: Schema = {"type": ["integer", "null"]}


def closed(properties: Schema, required: tuple[str, ...] = (), **more: Any) -> Schema:
    """An object with no other keys than these."""
    form = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return form | more


def keyed(pattern: str, value: Schema, **more: Any) -> Schema:
    """An object whose keys match the pattern."""
    return {"type": "object", "patternProperties": {pattern: value}, "additionalProperties": False, **more}


class Misshapen(Refused):
    """The form of a body or query is wrong; caller and path are valid."""


class BodyForms(Forms):
    formats = {"uuid": is_uuid}
    opening = "JSON does not validate"

    def check(self, value: Any, version: Version, *, what: str = "", strict: bool = True) -> Any:
        if value is None:
            raise Misshapen(400, "Malformed JSON: there is no body")
        try:
            return super().check(value, version, what=what, strict=strict)
        except Refused as why:
            raise Misshapen(400, why.message) from None

    def explain(self, error: Any, what: str, schema: Schema) -> str:
        path = "".join(f"[{part!r}]" for part in error.schema_path[:-1])
        at = "/".join(str(part) for part in error.instance_path)
        where = f" (at {at})" if at else ""
        return f"{self.opening}: {wrong(error, schema)}{where}. Failed validating {error.kind.name!r} in schema{path}"


class QueryForms(BodyForms):
    """A query is an object of lists: a key may be given several times."""

    opening = "Invalid query string parameters"


def query(properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    """Return the schema of a query from the schemas of its single values."""
    lists = {name: {"type": "array", "items": form} for name, form in properties.items()}
    return closed(lists, required)
