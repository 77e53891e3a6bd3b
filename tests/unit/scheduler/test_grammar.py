"""What may be asked of a value."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.scheduler.grammar import matches


@pytest.mark.parametrize(
    ("value", "asked", "expected"),
    [
        ("1", "1", True),
        ("1", "2", False),
        ("", "", True),
        ("123", "= 123", True),
        ("124", "= 123", True),
        ("34", "= 234", False),
        ("34", "=", False),
        (5, "== 5.0", True),
        ("5", "!= 5", False),
        ("1000", ">= 200", True),
        ("3", "<= 2", False),
        ("many", ">= 2", False),
        ("foo", "s== foo", True),
        ("2", "s!= 2", False),
        ("a", "s< b", True),
        ("b", "s>= b", True),
        ("12311321", "<in> 11", True),
        ("12310321", "<in> 11", False),
        (["aes", "mmx"], "<all-in> aes mmx", True),
        (["aes"], "<all-in> aes mmx", False),
        ("12", "<or> 11 <or> 12", True),
        ("13", "<or> 11 <or> 12", False),
        (None, ">= 1", False),
    ],
)
def test_matches(value: Any, asked: str, expected: bool) -> None:
    assert matches(value, asked) is expected
