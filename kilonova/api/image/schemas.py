"""JSON schemas of images: the forms of requests, and the content of /v2/schemas."""

from __future__ import annotations

from starlette.responses import Response

from kilonova.api.call import Call, answer
from kilonova.api.forms import Forms, Schema
from kilonova.domain.errors import Refused
from kilonova.domain.json import Json
from kilonova.services.image.image import CONTAINER_FORMATS, DISK_FORMATS, MEMBER_STATUSES, VISIBILITIES

LONGEST_NAME = 255
LONGEST_VALUE = 65535
LARGEST = 2**31 - 1
UUID = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"


def _text(description: str, **more: Json) -> Schema:
    return {"type": "string", "description": description, **more}


def _maybe(kind: str, description: str, **more: Json) -> Schema:
    return {"type": ["null", kind], "description": description, **more}


def _set(description: str, kind: str = "string", **more: Json) -> Schema:
    """Return the schema of an attribute that only the service itself sets."""
    return {"type": kind, "readOnly": True, "description": description, **more}


def _set_later(kind: str, description: str) -> Schema:
    return {"type": ["null", kind], "readOnly": True, "description": description}


def _count(description: str) -> Schema:
    return {"type": "integer", "minimum": 0, "maximum": LARGEST, "description": description}


PROPERTIES: dict[str, Schema] = {
    "id": _text("The image's identifier", pattern=UUID),
    "name": _maybe("string", "What people call the image", maxLength=LONGEST_NAME),
    "status": _set("Status of the image"),
    "visibility": _text("Who may see the image", enum=list(VISIBILITIES)),
    "protected": {"type": "boolean", "description": "Whether the image is safe from being deleted"},
    "os_hidden": {"type": "boolean", "description": "Whether ordinary lists leave the image out"},
    "checksum": _set_later("string", "MD5 of the image's data"),
    "os_hash_algo": _set_later("string", "Which hash os_hash_value is"),
    "os_hash_value": _set_later("string", "Hash of the image's data, in hexadecimal"),
    "owner": _maybe("string", "The project the image belongs to", maxLength=LONGEST_NAME),
    "size": _set_later("integer", "Bytes of the image's data"),
    "virtual_size": _set_later("integer", "Bytes of the disk that a guest sees"),
    "container_format": _maybe("string", "What surrounds the disk", enum=[None, *CONTAINER_FORMATS]),
    "disk_format": _maybe("string", "How the disk is written", enum=[None, *DISK_FORMATS]),
    "created_at": _set("When the image was recorded"),
    "updated_at": _set("When the image was changed last"),
    "tags": {
        "type": "array",
        "description": "Words to find the image by",
        "items": {"type": "string", "maxLength": LONGEST_NAME},
    },
    "direct_url": _set("Not shown here"),
    "min_ram": _count("MB of memory that a server of this image needs"),
    "min_disk": _count("GB of disk that a server of this image needs"),
    "self": _set("The image's address"),
    "file": _set("The address of the image's data"),
    "schema": _set("The address of this schema"),
    "stores": _set("Not shown here"),
    "locations": {"type": "array", "readOnly": True, "description": "Not shown here", "items": {"type": "object"}},
}
LINKS = [
    {"rel": "self", "href": "{self}"},
    {"rel": "enclosure", "href": "{file}"},
    {"rel": "describedby", "href": "{schema}"},
]
IMAGE: Schema = {"name": "image", "properties": PROPERTIES, "additionalProperties": {"type": "string"}, "links": LINKS}

MEMBER: Schema = {
    "name": "member",
    "properties": {
        "member_id": _text("The project that the image is shared with"),
        "image_id": _text("The image", pattern=UUID),
        "status": _text("Whether the project wants the image in its lists", enum=list(MEMBER_STATUSES)),
        "created_at": _text("When the image was shared"),
        "updated_at": _text("When the status was set last"),
        "schema": {"type": "string", "readOnly": True},
    },
}


def _list_of(name: str, item: Schema, *, paged: bool) -> Schema:
    steps = ("first", "next") if paged else ()
    links = [{"rel": step, "href": f"{{{step}}}"} for step in steps]
    return {
        "name": name,
        "properties": {
            name: {"type": "array", "items": item},
            **{step: {"type": "string"} for step in (*steps, "schema")},
        },
        "links": [*links, {"rel": "describedby", "href": "{schema}"}],
    }


SCHEMAS = {
    "image": IMAGE,
    "images": _list_of("images", IMAGE, paged=True),
    "member": MEMBER,
    "members": _list_of("members", MEMBER, paged=False),
}

IMAGE_FORM = Forms(
    {
        "type": "object",
        "properties": PROPERTIES,
        "additionalProperties": {"type": "string", "maxLength": LONGEST_VALUE},
        "propertyNames": {"minLength": 1, "maxLength": LONGEST_NAME},
    }
)
NEW_MEMBER = Forms(
    {
        "type": "object",
        "properties": {"member": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}},
        "required": ["member"],
    }
)
MEMBER_ANSWER = Forms(
    {
        "type": "object",
        "properties": {"status": {"type": "string", "enum": list(MEMBER_STATUSES)}},
        "required": ["status"],
    }
)


async def show(call: Call) -> Response:
    schema = SCHEMAS.get(call.path["schema"])
    if schema is None:
        raise Refused(404, "There is no such schema.")
    return answer(schema)


async def import_methods(call: Call) -> Response:
    """List the import methods: none, because images are uploaded."""
    return answer({"import-methods": {"description": "Import methods available.", "type": "array", "value": []}})
