"""Words of requests that several services read alike."""

from __future__ import annotations

from typing import Any

TRUE_WORDS = frozenset({True, "1", "t", "true", "on", "y", "yes"})


def is_true(value: Any) -> bool:
    """Return whether a request says yes, in one of the many ways that OpenStack takes."""
    return (value.lower() if isinstance(value, str) else value) in TRUE_WORDS
