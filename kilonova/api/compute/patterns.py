"""Patterns that callers send: matched by an engine whose time grows with the text alone, whatever the pattern."""

from __future__ import annotations

from collections.abc import Callable

import jsonschema_rs

from kilonova.api.rejected import Rejected

MOST_MEMORY = 1 << 18  # bytes of a compiled pattern


def matcher(pattern: str, name: str) -> Callable[[str], bool]:
    """Whether a text contains the pattern. Looking ahead or behind and references back are not possible."""
    options = jsonschema_rs.RegexOptions(size_limit=MOST_MEMORY)
    try:
        compiled = jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=options)
    except (jsonschema_rs.ValidationError, ValueError):
        raise Rejected(400, f"Invalid {name} filter [{pattern[:80]}]") from None
    return compiled.is_valid
