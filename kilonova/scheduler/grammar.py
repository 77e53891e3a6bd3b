"""The grammar of conditions on a value: `>= 4`, `<in> avx`, `<or> a <or> b`, `s== text`, or the text itself."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

NUMBERS: dict[str, Callable[[float, float], bool]] = {
    "=": operator.ge,  # so it is in Nova: at least
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
}
TEXTS: dict[str, Callable[[str, str], bool]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s<": operator.lt,
    "s<=": operator.le,
    "s>": operator.gt,
    "s>=": operator.ge,
}


def matches(value: Any, condition: str) -> bool:
    """Return whether the value meets the condition; False if they cannot be compared."""
    tokens = condition.split()
    if not tokens:
        return str(value) == condition
    first, rest = tokens[0], tokens[1:]
    if first == "<or>":
        return str(value) in [token for token in rest if token != "<or>"]
    if first in ("<in>", "<all-in>"):
        return all(_is_in(value, token) for token in rest if token != first) and bool(rest)
    if first in NUMBERS and len(rest) == 1:
        return _compared(NUMBERS[first], value, rest[0])
    if first in TEXTS and rest:
        return TEXTS[first](str(value), " ".join(rest))
    return str(value) == condition


def _is_in(value: Any, token: str) -> bool:
    return token in value if isinstance(value, list | tuple | set | dict) else token in str(value)


def _compared(compare: Callable[[float, float], bool], value: Any, number: str) -> bool:
    try:
        return compare(float(value), float(number))
    except (TypeError, ValueError):
        return False
