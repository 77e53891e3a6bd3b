"""Bodies as clients of Neutron write them: numbers and flags may come as text."""

from __future__ import annotations

import re
from typing import Any

from kilonova.api.forms import Forms, Schema
from kilonova.api.routes import Version
from kilonova.domain.errors import Refused

_NUMBER = re.compile(r"[+-]?\d{1,19}")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


class ConvertingForms(Forms):
    """Forms that convert a value that does not fit, and then check it again, as Neutron does."""

    def check(self, value: Any, version: Version, *, what: str = "", strict: bool = True) -> Any:
        try:
            return super().check(value, version, what=what, strict=strict)
        except Refused:
            other = converted(value, self.at(version))
            if other == value and type(other) is type(value) and repr(other) == repr(value):
                raise
        return super().check(other, version, what=what, strict=strict)


def converted(value: Any, schema: Schema) -> Any:
    """Return the value, with strings converted to numbers and booleans where the schema requires those."""
    if isinstance(value, dict):
        known = schema.get("properties", {})
        return {key: converted(item, known.get(key, {})) for key, item in value.items()}
    if isinstance(value, list):
        return [converted(item, schema.get("items", {})) for item in value]
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if "boolean" in types and isinstance(value, str | int):
        return _FLAGS.get(str(value).lower(), value)
    wants_number = "integer" in types or any(type(option) is int for option in schema.get("enum", ()))
    if isinstance(value, str) and wants_number and "string" not in types and _NUMBER.fullmatch(value.strip()):
        return int(value)
    return value
