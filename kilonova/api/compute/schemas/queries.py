"""Query parameters: unknown ones are passed over in old versions and refused in new ones."""

from __future__ import annotations

from kilonova.api.compute.schemas.types import NON_NEGATIVE, texts
from kilonova.api.forms import Forms, Schema

PAGE: Schema = {"limit": texts(NON_NEGATIVE), "marker": texts()}


def query(properties: Schema, *, open: bool) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": open}


def once(schema: Schema | None = None) -> Schema:
    """A parameter that may not be repeated."""
    return texts(schema) | {"maxItems": 1}


def none_since(major: int, minor: int) -> Forms:
    """Return the forms of a route without query parameters: ignored before that version, refused from it on."""
    return Forms({(2, 1): query({}, open=True), (major, minor): query({}, open=False)})


NONE = none_since(2, 102)  # the default of Compute's routes
ANY = Forms(query({}, open=True))  # the few that were never closed
