"""Numbers and flags that come as text are taken as Neutron takes them; what is neither is still refused."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.api.forms import Schema
from kilonova.api.network.converting import ConvertingForms
from kilonova.api.routes import EVER
from kilonova.domain.errors import Refused

SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "mtu": {"type": "integer", "minimum": 68},
        "version": {"enum": [4, 6]},
        "up": {"type": "boolean"},
        "protocol": {"type": ["string", "integer"]},
        "inner": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}}},
    },
}


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"mtu": "1400"}, {"mtu": 1400}),
        ({"version": "6"}, {"version": 6}),
        ({"up": "True"}, {"up": True}),
        ({"up": 0}, {"up": False}),
        ({"protocol": "6", "mtu": "70"}, {"protocol": "6", "mtu": 70}),
        ({"inner": [{"n": "-1"}, {"n": None}]}, {"inner": [{"n": -1}, {"n": None}]}),
    ],
)
def test_what_is_taken(given: Any, taken: Any) -> None:
    assert ConvertingForms(SCHEMA).check(given, EVER) == taken


@pytest.mark.parametrize(
    "given", [{"mtu": "67"}, {"mtu": "wide"}, {"mtu": ""}, {"mtu": 1.5}, {"up": "maybe"}, {"up": 2}]
)
def test_what_is_not(given: Any) -> None:
    with pytest.raises(Refused):
        ConvertingForms(SCHEMA).check(given, EVER)
