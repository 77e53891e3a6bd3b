"""Types of JSON documents whose form another program decides: a request, an image's properties, a port's binding. A
document of our own has a Struct instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
    JsonObject: TypeAlias = Mapping[str, "Json"]
else:  # msgspec evaluates the annotations of Structs and knows no recursive alias
    Json = Any
    JsonObject = dict[str, Any]


T = TypeVar("T")


def decoded(document: str | bytes | None, kind: type[T]) -> T:
    """Decode a stored document of a known type. No document is the empty value of that type."""
    return kind() if document is None else msgspec.json.decode(document, type=kind)


def json_object(document: str | bytes | None) -> JsonObject:
    """Decode a stored document. Anything but an object, and no document, is an empty object."""
    return as_object(msgspec.json.decode(document)) if document else {}


def as_object(value: Json) -> JsonObject:
    """Return the value if it is an object, else an empty object."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Json) -> Sequence[Json]:
    """Return the value if it is an array, else an empty array."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def texts(value: Json) -> list[str]:
    """Return the strings of an array; of anything else, none."""
    return [each for each in as_list(value) if isinstance(each, str)]


def as_text(value: Json) -> str:
    """Return the value if it is a string, else ""."""
    return value if isinstance(value, str) else ""
