"""The attributes of an image that clients may set, and their names in the record; any other name is a property."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kilonova.api.image.schemas import PROPERTIES
from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject, as_text
from kilonova.services.image.image import Image

FIELDS = {  # of the API: of the record
    "name": "name",
    "visibility": "visibility",
    "owner": "owner",
    "protected": "protected",
    "os_hidden": "hidden",
    "min_disk": "min_disk",
    "min_ram": "min_ram",
    "container_format": "container_format",
    "disk_format": "disk_format",
    "tags": "tags",
}
READ_ONLY = frozenset(name for name, form in PROPERTIES.items() if form.get("readOnly"))
RESERVED = frozenset(("location", "deleted", "deleted_at"))
RESERVED_START = "os_glance"
MOST_SHOWN = 80


def check_settable(names: Iterable[str], *, new: bool) -> None:
    """Refuse attributes that cannot be set. The id may be chosen for a new image, but not changed."""
    for name in names:
        if name in READ_ONLY or (name == "id" and not new):
            raise Refused(403, f"Attribute '{name}' is read-only.")
        if name in RESERVED or name.startswith(RESERVED_START):
            raise Refused(403, f"Attribute '{name[:MOST_SHOWN]}' is reserved.")


def with_attribute(image: Image, name: str, value: Any) -> Image:
    return msgspec.structs.replace(image, **{FIELDS[name]: _stored(value)})


def new_image(body: JsonObject, owner: str) -> Image:
    """Return a new image from a client's body; the client's project owns it unless the body names another owner."""
    fields = {FIELDS[name]: _stored(value) for name, value in body.items() if name in FIELDS}
    properties = {name: as_text(value) for name, value in body.items() if name not in FIELDS and name != "id"}
    return Image(**{"owner": owner, **fields}, id=as_text(body.get("id")), properties=properties)


def _stored(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(sorted(set(value)))
    return int(value) if isinstance(value, float) else value  # 1.0 is an integer in JSON
