"""Values in requests that several services read alike."""

from __future__ import annotations

from typing import Any

TRUE_VALUES = frozenset({True, "1", "t", "true", "on", "y", "yes"})


def is_true(value: Any) -> bool:
    """Return whether the value means yes, in any spelling that OpenStack accepts."""
    return (value.lower() if isinstance(value, str) else value) in TRUE_VALUES
