"""Small forms that many requests share."""

from __future__ import annotations

from kilonova.api.forms import Schema
from kilonova.domain.json import JsonObject

MAX_INT = 0x7FFFFFFF
UUID: Schema = {"type": "string", "pattern": "^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$"}
# Controls, marks of direction, separators of lines, private use. In ranges, not as \p{C}: the patterns are in the
# OpenAPI document, and its readers do not all know categories.
UNPRINTABLE = (
    r"\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    r"\ue000-\uf8ff\ufeff\ufff9-\ufffb"
)
# Printable, and neither beginning nor ending with a space.
NAME: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "pattern": rf"^(?!\s)[^{UNPRINTABLE}]*[^{UNPRINTABLE}\s]$",
}
NAME_OR_NONE: Schema = {"oneOf": [NAME, {"type": "null"}]}
DESCRIPTION: Schema = {
    "type": ["string", "null"],
    "minLength": 0,
    "maxLength": 255,
    "pattern": rf"^([^{UNPRINTABLE}]|[\t\n\r])*$",
}
BOOLEAN: Schema = {
    "type": ["boolean", "string"],
    "enum": [
        *(True, "True", "TRUE", "true", "1", "ON", "On", "on", "YES", "Yes", "yes"),
        *(False, "False", "FALSE", "false", "0", "OFF", "Off", "off", "NO", "No", "no"),
    ],
}
POSITIVE: Schema = {
    "type": ["integer", "string"],
    "pattern": "^0*[1-9][0-9]*$",
    "minimum": 1,
    "maximum": MAX_INT,
    "minLength": 1,
    "maxLength": 10,
}
NON_NEGATIVE: Schema = {
    "type": ["integer", "string"],
    "pattern": "^[0-9]+$",
    "minimum": 0,
    "maximum": MAX_INT,
    "minLength": 1,
    "maxLength": 10,
}
METADATA: Schema = {
    "type": "object",
    "patternProperties": {"^[a-zA-Z0-9-_:. ]{1,255}$": {"type": "string", "maxLength": 255}},
    "additionalProperties": False,
}
TAG: Schema = {"type": "string", "minLength": 1, "maxLength": 60, "pattern": "^[^,/]+$"}
TAGS: Schema = {"type": "array", "items": TAG, "maxItems": 50}
IPV4: Schema = {"type": "string", "format": "ipv4"}
IPV6: Schema = {"type": "string", "format": "ipv6"}
HOST_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[a-zA-Z0-9._-]+$"}
FLAVOR_REF: Schema = {"type": ["string", "integer"], "minLength": 1, "maxLength": 255}
DISK_CONFIG: Schema = {"type": "string", "enum": ["AUTO", "MANUAL"]}


def closed(properties: JsonObject, *required: str) -> Schema:
    """An object that has these keys and no others."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def wrapped(key: str, content: Schema) -> Schema:
    """Return the schema of `{"server": {…}}`: an object with one key."""
    return closed({key: content}, key)


def nothing(key: str) -> Schema:
    """An action without arguments."""
    return closed({key: {}}, key)


def texts(schema: Schema | None = None) -> Schema:
    """A query parameter, which may be repeated."""
    return {"type": "array", "items": schema or {"type": "string"}}
