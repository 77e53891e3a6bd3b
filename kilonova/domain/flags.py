"""Values in requests that several services read alike."""

from __future__ import annotations

from typing import Any

TRUE_VALUES = frozenset({True, "1", "t", "true", "on", "y", "yes"})
FALSE_TEXTS = frozenset({"0", "f", "false", "off", "n", "no"})


def is_true(value: Any) -> bool:
    """Return whether the value means yes, in any spelling that OpenStack accepts."""
    return (value.lower() if isinstance(value, str) else value) in TRUE_VALUES


def flag_of(text: str) -> bool | None:
    """Return what the text means; None if it is neither yes nor no."""
    return True if is_true(text) else False if text.lower() in FALSE_TEXTS else None
