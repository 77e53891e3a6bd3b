"""PATCH: changes in two writings of JSON patch. All of a request's changes are made, or none."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request

from kilonova.api.call import Call
from kilonova.api.image import rules
from kilonova.api.image.attributes import FIELDS, MOST_SHOWN, check_settable, with_attribute
from kilonova.api.image.schemas import IMAGE_FORM
from kilonova.api.reading import parsed, read_body
from kilonova.api.routes import EVER
from kilonova.domain.errors import Refused
from kilonova.domain.json import Json, JsonObject, as_text
from kilonova.services.image.image import QUEUED, Image

OLD, NEW = "application/openstack-images-v2.0-json-patch", "application/openstack-images-v2.1-json-patch"
OPERATIONS = ("add", "remove", "replace")
MOST_CHANGES = 1000
FORMATS = ("container_format", "disk_format")
_BAD_ESCAPE = re.compile(r"~(?![01])")


class Change(NamedTuple):
    operation: str
    name: str
    value: Any
    only_new: bool  # the old writing does not let `add` replace


async def read_changes(request: Request) -> list[Change]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in (OLD, NEW):
        allowed = f"{OLD}, {NEW}"
        raise Refused(415, f"The content type of a change must be one of {allowed}", headers={"Accept-Patch": allowed})
    body = parsed(await read_body(request))
    if not isinstance(body, list):
        raise Refused(400, "Request body must be a JSON array of operation objects.")
    if len(body) > MOST_CHANGES:
        raise Refused(413, f"A request may have at most {MOST_CHANGES} changes.")
    return [_change(one, kind == OLD) for one in body]


def _change(raw: Any, is_old: bool) -> Change:
    if not isinstance(raw, dict):
        raise Refused(400, "Operations must be JSON objects.")
    operation, path = _old_writing(raw) if is_old else _new_writing(raw)
    name = _name_in(path)
    check_settable([name], new=False)
    if operation == "remove":
        return Change(operation, name, None, is_old)
    if "value" not in raw:
        raise Refused(400, f'Operation "{operation}" requires a member named "value".')
    IMAGE_FORM.check({name: raw["value"]}, EVER)
    return Change(operation, name, raw["value"], is_old)


def _old_writing(raw: JsonObject) -> tuple[str, Json]:
    """{"add": "/name", "value": "web"}"""
    named = [operation for operation in OPERATIONS if operation in raw]
    if len(named) != 1:
        raise Refused(400, 'Operation objects must contain exactly one member named "add", "remove", or "replace".')
    return named[0], raw[named[0]]


def _new_writing(raw: JsonObject) -> tuple[str, Json]:
    """{"op": "add", "path": "/name", "value": "web"}"""
    operation = as_text(raw.get("op"))
    if operation not in OPERATIONS:
        raise Refused(400, f"An operation's `op` must be one of {', '.join(OPERATIONS)}.")
    if "path" not in raw:
        raise Refused(400, "An operation must have a `path`.")
    return operation, raw["path"]


def _name_in(pointer: Json) -> str:
    """Return the name in a JSON pointer. It has one part: no attribute of an image has members that can be changed."""
    if not isinstance(pointer, str) or not pointer.startswith("/"):
        raise Refused(400, 'A path must be a string that starts with "/".')
    if _BAD_ESCAPE.search(pointer):
        raise Refused(400, 'A path has "~" that is not part of "~0" or "~1".')
    name = pointer[1:].partition("/")[0].replace("~1", "/").replace("~0", "~").strip()
    if not name or ("/" in pointer[1:] and name != "locations"):
        raise Refused(400, f"Invalid JSON pointer for this resource: '{pointer[:MOST_SHOWN]}'")
    return name


def apply(change: Change, image: Image, call: Call) -> Image:
    if change.name in FIELDS:
        return _with_attribute(change, image, call)
    properties, is_there = dict(image.properties), change.name in image.properties
    if change.operation == "add":
        if is_there and change.only_new:
            raise _already(change.name)
    elif not is_there:
        raise Refused(409, f"Property {change.name[:MOST_SHOWN]} does not exist.")
    if change.operation == "remove":
        del properties[change.name]
    else:
        properties[change.name] = change.value
    return msgspec.structs.replace(image, properties=properties)


def _with_attribute(change: Change, image: Image, call: Call) -> Image:
    name, value = change.name, change.value
    if change.operation == "remove":
        raise Refused(403, f"Property {name} may not be removed.")
    if change.operation == "add" and change.only_new:
        raise _already(name)
    if name == "owner" and not call.caller.is_admin:
        raise Refused(403, "Owner can't be updated by non admin.")
    if name in FORMATS and image.status != QUEUED:
        raise Refused(403, f"Attribute {name} can be only replaced for a queued image.")
    if name == "visibility":
        rules.require_visibility(call, image, value)
    return with_attribute(image, name, value)


def _already(name: str) -> Refused:
    return Refused(409, f"Property {name[:MOST_SHOWN]} already present.")
