"""What a caller reads when a body or a query is not as it must be: the place, the value, what would be right."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.api.forms import Forms
from kilonova.api.routes import EVER
from kilonova.domain.errors import Refused

TEXT = {"type": "string", "maxLength": 3}
COLOURS = ["red", "green", "blue", "black", "white"]
BODY = Forms(
    {
        "type": "object",
        "properties": {
            "size": {"type": "integer", "minimum": 3},
            "colour": {"enum": COLOURS},
            "tags": {"type": "array", "items": TEXT},
            "name": {"oneOf": [TEXT, {"type": "null"}]},
            "inner": {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]},
            "labels": {"type": "object", "patternProperties": {"^[a-z]$": {}}, "additionalProperties": False},
        },
        "additionalProperties": False,
    }
)
QUERY = Forms({"properties": {"limit": {"type": "array", "items": {"type": "string", "pattern": "^[0-9]+$"}}}})


def said(forms: Forms, value: Any, what: str = "") -> str:
    with pytest.raises(Refused) as refused:
        forms.check(value, EVER, what=what)
    assert refused.value.status == 400
    return refused.value.message


def field(name: str, value: str, wrong: str, at: str) -> str:
    return f"Invalid input for field/attribute {name}. Value: {value}. {wrong} (at {at})"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"size": 1}, field("size", "1", "1 is less than the minimum of 3", "size")),
        ({"size": "x"}, field("size", "x", "'x' is not of type 'integer'", "size")),
        ({"colour": "pink"}, field("colour", "pink", f"'pink' is not one of {COLOURS}", "colour")),
        ({"tags": ["a", 7]}, field("tags/1", "7", "7 is not of type 'string'", "tags/1")),
        ({"inner": {}}, field("inner", "{}", "'size' is a required property", "inner")),
        ({"inner": {"size": None}}, field("size", "None", "None is not of type 'integer'", "inner/size")),
        ({"labels": {"AB": 1}}, "'AB' does not match any of the regexes: '^[a-z]$'"),
        ({"taste": 1}, "Additional properties are not allowed ('taste' was unexpected)"),
    ],
)
def test_of_a_body(body: Any, message: str) -> None:
    assert message in said(BODY, body)


def test_of_several_forms_the_one_that_was_meant() -> None:
    told = said(BODY, {"name": "long"})
    assert told.endswith('given schemas: "long" is longer than 3 characters (at name)') and "null" not in told
    assert "'string'; 5 is not of type 'null'" in said(BODY, {"name": 5})


def test_of_a_query() -> None:
    wanted = "Invalid input for query parameters limit. Value: abc. 'abc' does not match '^[0-9]+$'"
    assert said(QUERY, {"limit": ["1", "abc"]}, "query parameters") == wanted


def test_a_long_value_is_cut_but_not_the_answer() -> None:
    told = said(BODY, {"colour": "x" * 5000})
    assert len(told) < 1000 and all(colour in told for colour in COLOURS)


@pytest.mark.parametrize("length", [4, 300, 5000, 100_000])
def test_however_long_a_value_is_the_sentence_says_what_is_wrong_with_it(length: int) -> None:
    for body in ({"tags": ["x" * length]}, {"name": "x" * length}):
        with pytest.raises(Refused) as refused:
            BODY.check(body, EVER)
        assert "is longer than 3 characters" in refused.value.message and len(refused.value.message) < 1200
