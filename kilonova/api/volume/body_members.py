"""Common members of the bodies of volumes and snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from kilonova.domain.errors import Refused
from kilonova.domain.json import JsonObject

NAMES = {"name": "name", "display_name": "name", "description": "description", "display_description": "description"}


class Description(TypedDict, total=False):
    """The requested texts; one that the request does not name is absent."""

    name: str | None
    description: str | None


def described(request: JsonObject) -> Description:
    """Return name and description under either of their names, without spaces around."""
    texts = {
        NAMES[key]: value.strip() if isinstance(value, str) else None for key, value in request.items() if key in NAMES
    }
    description = Description()
    if "name" in texts:
        description["name"] = texts["name"]
    if "description" in texts:
        description["description"] = texts["description"]
    return description


def without(key: str, record_id: str) -> Callable[[dict[str, str]], dict[str, str]]:
    """Return an edit that removes the key from metadata, and refuses if it is missing."""

    def edit(old: dict[str, str]) -> dict[str, str]:
        if key not in old:
            raise no_such_key(record_id, key)
        return {name: value for name, value in old.items() if name != key}

    return edit


def no_such_key(record_id: str, key: str) -> Refused:
    return Refused("metadata_not_found", f"{record_id} has no metadata with key {key[:255]}.")
