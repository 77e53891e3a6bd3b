"""Host aggregates and their actions."""

from __future__ import annotations

from kilonova.api.compute.schemas.types import HOST_NAME, NAME, UNPRINTABLE, UUID, closed, wrapped
from kilonova.api.forms import Forms, Schema

ZONE: Schema = {"oneOf": [NAME | {"pattern": rf"^(?!\s)[^{UNPRINTABLE}:]*[^{UNPRINTABLE}\s:]$"}, {"type": "null"}]}
METADATA: Schema = {
    "type": "object",
    "patternProperties": {"^[a-zA-Z0-9-_:. ]{1,255}$": {"type": ["string", "null"], "maxLength": 255}},
    "additionalProperties": False,
}

CREATE = Forms(wrapped("aggregate", closed({"name": NAME, "availability_zone": ZONE}, "name")))
UPDATE = Forms(wrapped("aggregate", closed({"name": NAME, "availability_zone": ZONE}) | {"minProperties": 1}))
ADD_HOST = Forms(wrapped("add_host", closed({"host": HOST_NAME}, "host")))
REMOVE_HOST = Forms(wrapped("remove_host", closed({"host": HOST_NAME}, "host")))
SET_METADATA = Forms(wrapped("set_metadata", closed({"metadata": METADATA}, "metadata")))
_IMAGES: Schema = {"type": "array", "minItems": 1, "items": closed({"id": UUID}, "id")}
CACHE = Forms(closed({"cache": _IMAGES}, "cache"))
