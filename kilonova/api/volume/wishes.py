"""Common members of the bodies of volumes and snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kilonova.domain.errors import Refused

NAMES = {"name": "name", "display_name": "name", "description": "description", "display_description": "description"}


def described(wish: Mapping[str, Any]) -> dict[str, Any]:
    """Name and description under either of their names, without spaces around."""
    return {NAMES[word]: value.strip() if value else value for word, value in wish.items() if word in NAMES}


def without(key: str, thing_id: str) -> Callable[[dict[str, str]], dict[str, str]]:
    """Metadata as it shall be when the key is gone; it must be there."""

    def edit(old: dict[str, str]) -> dict[str, str]:
        if key not in old:
            raise no_such_key(thing_id, key)
        return {name: value for name, value in old.items() if name != key}

    return edit


def no_such_key(thing_id: str, key: str) -> Refused:
    return Refused("metadata_not_found", f"{thing_id} has no metadata with key {key[:255]}.")
