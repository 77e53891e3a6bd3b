"""Schemas of bodies. Keystone keeps unknown attributes, so attributes that are not named here are allowed."""

from __future__ import annotations

from kilonova.api.forms import Forms, Schema

TEXT: Schema = {"type": "string", "maxLength": 65535}
TEXT_OR_NULL: Schema = {"type": ["string", "null"], "maxLength": 65535}
FLAG: Schema = {"type": "boolean"}
ID: Schema = {"type": "string", "minLength": 1, "maxLength": 64}
ID_OR_NULL: Schema = {"type": ["string", "null"], "maxLength": 64}
OPTIONS: Schema = {
    "type": "object",
    "properties": {"immutable": {"type": ["boolean", "null"]}},
    "additionalProperties": True,
}
TAG: Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[^,/\x00-\x1f\x7f-\x9f]*$"}
TAGS: Schema = {"type": "array", "items": TAG, "maxItems": 80, "uniqueItems": True}
URL: Schema = {"type": "string", "minLength": 1, "maxLength": 225, "pattern": "^[a-zA-Z0-9+.-]+:.+"}


def name(longest: int) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": longest, "pattern": r"\S"}


def wrapped(key: str, properties: Schema, *required: str, least: int = 0) -> Forms:
    """`{key: {…}}`."""
    inner = {"type": "object", "properties": properties, "required": list(required), "minProperties": least}
    return Forms({"type": "object", "properties": {key: inner}, "required": [key], "additionalProperties": False})


def both(key: str, properties: Schema, *required: str) -> tuple[Forms, Forms]:
    """Return the forms of a create and of an update. An update requires no attribute, but must change at least one."""
    return wrapped(key, properties, *required), wrapped(key, properties, least=1)


_TARGET = {"name": name(64), "description": TEXT_OR_NULL, "enabled": FLAG, "tags": TAGS, "options": OPTIONS}
DOMAIN_CREATE, DOMAIN_CHANGE = both("domain", {**_TARGET, "explicit_domain_id": ID}, "name")
PROJECT_CREATE, PROJECT_CHANGE = both(
    "project", {**_TARGET, "domain_id": ID_OR_NULL, "parent_id": ID_OR_NULL, "is_domain": FLAG}, "name"
)
USER_CREATE, USER_CHANGE = both(
    "user",
    {
        "name": name(255),
        "password": {"type": ["string", "null"]},
        "domain_id": ID,
        "enabled": FLAG,
        "description": TEXT_OR_NULL,
        "default_project_id": ID_OR_NULL,
        "options": {"type": "object"},
    },
    "name",
)
PASSWORD = wrapped(
    "user", {"password": {"type": "string"}, "original_password": {"type": "string"}}, "password", "original_password"
)
GROUP_CREATE, GROUP_CHANGE = both("group", {"name": name(255), "description": TEXT_OR_NULL, "domain_id": ID}, "name")
ROLE_CREATE, ROLE_CHANGE = both(
    "role", {"name": name(255), "description": TEXT_OR_NULL, "domain_id": ID_OR_NULL, "options": OPTIONS}, "name"
)
TAGS_CHANGE = Forms({"type": "object", "properties": {"tags": TAGS}, "required": ["tags"]})
ONE_TAG = Forms(TAG)

SERVICE_CREATE, SERVICE_CHANGE = both(
    "service",
    {"type": name(255), "name": {**TEXT_OR_NULL, "maxLength": 255}, "description": TEXT_OR_NULL, "enabled": FLAG},
    "type",
)
ENDPOINT_CREATE, ENDPOINT_CHANGE = both(
    "endpoint",
    {
        "service_id": ID,
        "interface": {"enum": ["public", "internal", "admin"]},
        "url": URL,
        "region": {"type": ["string", "null"], "minLength": 1, "maxLength": 255},
        "region_id": {"type": ["string", "null"], "minLength": 1, "maxLength": 255},
        "enabled": FLAG,
    },
    "service_id",
    "interface",
    "url",
)
_REGION = {
    "id": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"\S"},
    "description": TEXT_OR_NULL,
    "parent_region_id": {"type": ["string", "null"], "minLength": 1, "maxLength": 255},
}
REGION_CREATE, REGION_CHANGE = both("region", _REGION)
CREDENTIAL_CREATE, CREDENTIAL_CHANGE = both(
    "credential",
    {"blob": {"type": ["string", "object"]}, "type": name(255), "user_id": ID, "project_id": ID_OR_NULL},
    "blob",
    "type",
    "user_id",
)
POLICY_CREATE, POLICY_CHANGE = both("policy", {"blob": TEXT, "type": name(255)}, "blob", "type")

# -- logging in -------------------------------------------------------------------------------------------------------

_DOMAIN_REF: Schema = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
    "anyOf": [{"required": ["id"]}, {"required": ["name"]}],
}
_IN_DOMAIN: Schema = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "name": {"type": "string"}, "domain": _DOMAIN_REF},
    "anyOf": [{"required": ["id"]}, {"required": ["name", "domain"]}],
}
_USER: Schema = {
    **_IN_DOMAIN,
    "properties": {**_IN_DOMAIN["properties"], "password": {"type": "string"}},
    "required": ["password"],
}
_SCOPE: Schema = {
    "type": ["object", "string"],
    "properties": {
        "project": _IN_DOMAIN,
        "domain": _DOMAIN_REF,
        "system": {"type": "object", "properties": {"all": {"const": True}}, "required": ["all"]},
        "unscoped": {"type": "object"},
    },
    "additionalProperties": False,
    "minProperties": 1,
    "maxProperties": 1,
}
AUTH = Forms(
    {
        "type": "object",
        "properties": {
            "auth": {
                "type": "object",
                "properties": {
                    "identity": {
                        "type": "object",
                        "properties": {
                            "methods": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 20},
                            "password": {"type": "object", "properties": {"user": _USER}, "required": ["user"]},
                            "token": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
                        },
                        "required": ["methods"],
                    },
                    "scope": _SCOPE,
                },
                "required": ["identity"],
            }
        },
        "required": ["auth"],
    }
)
