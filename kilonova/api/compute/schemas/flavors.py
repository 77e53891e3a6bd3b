"""Flavors, their extra specs and access lists: what changed with which microversion."""

from __future__ import annotations

from kilonova.api.compute.schemas.queries import PAGE, query
from kilonova.api.compute.schemas.types import (
    BOOLEAN,
    MAX_INT,
    NAME,
    UNPRINTABLE,
    closed,
    texts,
    wrapped,
)
from kilonova.api.forms import Forms, Schema
from kilonova.api.routes import Version

ID: Schema = {
    "type": ["string", "number", "null"],
    "minLength": 1,
    "maxLength": 255,
    "pattern": "^(?! )[a-zA-Z0-9. _-]+(?<! )$",
}
SIZE: Schema = {
    "type": ["integer", "string"],
    "pattern": "^[0-9]+$",
    "maxLength": 255,
    "minimum": 0,
    "maximum": MAX_INT,
}
LARGEST_RATIO = 3.40282e38
RATIO: Schema = {
    "type": ["number", "string"],
    "pattern": r"^[0-9]+(\.[0-9]+)?$",
    "maxLength": 255,
    "exclusiveMinimum": 0,
    "maximum": LARGEST_RATIO,
}
DESCRIPTION: Schema = {
    "type": ["string", "null"],
    "maxLength": 65535,
    "pattern": rf"^[^{UNPRINTABLE}]*$",
}


def _create(version: Version) -> Schema:
    properties: Schema = {
        "name": NAME,
        "id": ID,
        "ram": SIZE | {"minimum": 1},
        "vcpus": SIZE | {"minimum": 1},
        "disk": SIZE,
        "swap": SIZE,
        "OS-FLV-EXT-DATA:ephemeral": SIZE,
        "os-flavor-access:is_public": BOOLEAN,
    }
    if version < (2, 102):
        properties["rxtx_factor"] = RATIO
    if version >= (2, 55):
        properties["description"] = DESCRIPTION
    return wrapped("flavor", closed(properties, "name", "ram", "vcpus", "disk"))


CREATE = Forms({version: _create(version) for version in [(2, 1), (2, 55), (2, 102)]})
UPDATE = Forms(wrapped("flavor", closed({"description": DESCRIPTION}, "description")))

SORT_KEYS = {  # the API's words for our columns; nothing is ever disabled or weighted here
    "created_at": "created_at",
    "description": "description",
    "disabled": "",
    "ephemeral_gb": "ephemeral_gb",
    "flavorid": "id",
    "id": "number",
    "is_public": "is_public",
    "memory_mb": "memory_mb",
    "name": "name",
    "root_gb": "disk_gb",
    "rxtx_factor": "rxtx_factor",
    "swap": "swap_mb",
    "updated_at": "updated_at",
    "vcpu_weight": "",
    "vcpus": "vcpus",
}


def _list(version: Version) -> Schema:
    keys = [key for key in SORT_KEYS if key != "rxtx_factor" or version < (2, 102)]
    properties: Schema = {
        **PAGE,
        "is_public": texts(),
        "minRam": texts(),
        "minDisk": texts(),
        "sort_key": texts({"type": "string", "enum": keys}),
        "sort_dir": texts({"type": "string", "enum": ["asc", "desc"]}),
    }
    if version >= (2, 102):
        properties["name"] = texts()
    return query(properties, open=version < (2, 75))


LIST = Forms({version: _list(version) for version in [(2, 1), (2, 75), (2, 102)]})

SPECS: Schema = {
    "type": "object",
    "patternProperties": {"^[a-zA-Z0-9-_:. ]{1,255}$": {"type": ["string", "number"], "maxLength": 255}},
    "additionalProperties": False,
}
ADD_SPECS = Forms(wrapped("extra_specs", SPECS))
SET_SPEC = Forms(SPECS | {"minProperties": 1, "maxProperties": 1})

PROJECT: Schema = closed({"tenant": {"type": "string", "minLength": 1, "maxLength": 255}}, "tenant")
GRANT = Forms(wrapped("addTenantAccess", PROJECT))
WITHDRAW = Forms(wrapped("removeTenantAccess", PROJECT))
