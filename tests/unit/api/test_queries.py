"""Values of query parameters that all services read alike: digits, times, yes and no, and the query of another page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import QueryParams

from kilonova.api.queries import list_body, moment, next_links, page_query, whole_number
from kilonova.domain.flags import flag_of


def call(query: str) -> Any:
    return SimpleNamespace(query=QueryParams(query), url=lambda path: f"http://cloud{path}")


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("999", 999)])
def test_digits_are_a_whole_number(text: str, number: int) -> None:
    assert whole_number(text, 3) == number


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", " 1", "1a", "٣", "²", "1000"])
def test_other_texts_and_longer_ones_are_not(text: str) -> None:
    assert whole_number(text, 3) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:01:00", 60),
        ("1970-01-01T00:01:00Z", 60),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-02", 86400),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, seconds: int) -> None:
    assert moment(text) == seconds


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "gt:2026-01-01"])
def test_other_texts_are_not_a_time(text: str) -> None:
    assert moment(text) is None


@pytest.mark.parametrize(
    ("text", "flag"),
    [("yes", True), ("ON", True), ("1", True), ("t", True), ("No", False), ("off", False), ("0", False), ("f", False)],
)
def test_every_spelling_of_yes_and_no_is_known(text: str, flag: bool) -> None:
    assert flag_of(text) is flag


@pytest.mark.parametrize("text", ["", "none", "2", "yes please"])
def test_other_words_are_neither_yes_nor_no(text: str) -> None:
    assert flag_of(text) is None


def test_the_query_of_another_page_keeps_what_was_asked_for() -> None:
    asked = call("limit=2&tag=a&tag=b%20c&marker=m1&offset=4")
    assert page_query(asked, "offset", marker="m 2") == "limit=2&tag=a&tag=b+c&marker=m+2"
    assert page_query(asked) == "limit=2&tag=a&tag=b+c&offset=4"


def test_only_a_full_page_has_a_link_to_the_next_one() -> None:
    asked = call("limit=2")
    assert next_links(asked, "/things", ["a"], 2, "a") == []
    assert next_links(asked, "/things", [], 0, "") == []
    assert next_links(asked, "/things", ["a", "b"], 2, "b") == [
        {"rel": "next", "href": "http://cloud/things?limit=2&marker=b"}
    ]


def test_a_list_has_its_link_beside_the_records() -> None:
    asked, shown = call("limit=1"), [{"id": 7, "uuid": "u7"}]
    link = [{"rel": "next", "href": "http://cloud/things?limit=1&marker=7"}]
    assert list_body(asked, "/things", "things", shown, 1) == {"things": shown, "things_links": link}
    assert list_body(asked, "/things", "things", shown, 2) == {"things": shown}
    assert list_body(asked, "/things", "things", [], 1) == {"things": []}
    named = list_body(asked, "/things", "things", shown, 1, by="uuid", links="links")
    assert named["links"] == [{"rel": "next", "href": "http://cloud/things?limit=1&marker=u7"}]
