"""JSON documents of others: read without trusting their form."""

from __future__ import annotations

import msgspec
import pytest

from kilonova.domain.json import Json, as_list, as_object, as_text, decoded, json_object
from kilonova.domain.server import to_json
from kilonova.engine.course import Problem, problem_from


@pytest.mark.parametrize("document", [None, "", "null", "[1]", '"text"', "7"])
def test_a_document_that_is_not_an_object_is_empty(document: str | None) -> None:
    assert json_object(document) == {}


def test_an_object_is_returned_whole() -> None:
    assert json_object('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize("value", [None, True, 7, 0.5, "text"])
def test_a_scalar_is_neither_object_nor_array(value: Json) -> None:
    assert as_object(value) == {}
    assert list(as_list(value)) == []


def test_values_of_the_asked_form_are_returned() -> None:
    assert as_object({"a": 1}) == {"a": 1}
    assert as_list([1, "b"]) == [1, "b"]
    assert (as_text("b"), as_text(1), as_text(None)) == ("b", "", "")


def test_a_stored_document_has_its_type() -> None:
    assert decoded('{"a": "b"}', dict[str, str]) == {"a": "b"}
    with pytest.raises(msgspec.ValidationError):
        decoded('{"a": 1}', dict[str, str])


def test_no_document_is_the_empty_value_of_its_type() -> None:
    assert (decoded(None, dict[str, str]), decoded(None, list[str])) == ({}, [])


def test_the_reason_of_a_failure_is_read_as_it_was_stored() -> None:
    problem = Problem(code="no_valid_host", message="none", step="claim", details={"decision": {}})
    assert problem_from(to_json(problem)) == problem and problem_from(None) is None
