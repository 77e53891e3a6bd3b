"""The schemas of allocation bodies, by version; a reshaper body contains them."""

from __future__ import annotations

from typing import Any

from kilonova.api.forms import Schema
from kilonova.api.placement import forms
from kilonova.api.routes import Version

AMOUNT = {"type": "integer", "minimum": 1}
RESOURCES = forms.keyed(forms.NAME_KEY, AMOUNT, minProperties=1)
OWNERS = {"project_id": forms.ID, "user_id": forms.ID}
GENERATION = {"consumer_generation": forms.GENERATION}
MAPPING = {"type": "array", "minItems": 1, "items": forms.UUID}
MAPPINGS: Schema = {
    "mappings": {"type": "object", "minProperties": 1, "patternProperties": {"[a-zA-Z0-9_-]{1,64}": MAPPING}}
}
TYPE: Schema = {
    "consumer_type": {"type": "string", "pattern": forms.NAME_KEY, "minLength": 1, "maxLength": forms.LONGEST}
}
_IN_LIST = forms.closed(
    {"resource_provider": forms.closed({"uuid": forms.UUID}, ("uuid",)), "resources": RESOURCES},
    ("resource_provider", "resources"),
)
LIST: Schema = {"allocations": {"type": "array", "minItems": 1, "items": _IN_LIST}}
_BY_PROVIDER = forms.closed({"generation": forms.INTEGER, "resources": RESOURCES}, ("resources",))


def _by_provider(**more: Any) -> Schema:
    return {"allocations": forms.keyed(forms.UUID_KEY, _BY_PROVIDER, **more)}


def _all_required(properties: Schema, but: tuple[str, ...] = ()) -> Schema:
    return forms.closed(properties, tuple(name for name in properties if name not in but))


_1_13 = _all_required({**_by_provider(), **OWNERS})  # empty: it shall hold nothing
_1_28 = _all_required({**_by_provider(), **OWNERS, **GENERATION})
_1_34 = _all_required({**_by_provider(), **OWNERS, **GENERATION, **MAPPINGS}, ("mappings",))
_1_38 = _all_required({**_by_provider(), **OWNERS, **GENERATION, **MAPPINGS, **TYPE}, ("mappings",))

ONE = forms.BodyForms(
    {
        (1, 0): _all_required(LIST),
        (1, 8): _all_required({**LIST, **OWNERS}),
        (1, 12): _all_required({**_by_provider(minProperties=1), **OWNERS}),
        (1, 28): _1_28,
        (1, 34): _1_34,
        (1, 38): _1_38,
    }
)
BY_CONSUMER: dict[Version, Schema] = {
    (1, 13): forms.keyed(forms.UUID_KEY, _1_13),
    (1, 28): forms.keyed(forms.UUID_KEY, _1_28),
    (1, 34): forms.keyed(forms.UUID_KEY, _1_34),
    (1, 38): forms.keyed(forms.UUID_KEY, _1_38),
}
MANY = forms.BodyForms({version: {**form, "minProperties": 1} for version, form in BY_CONSUMER.items()})
