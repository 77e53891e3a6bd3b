"""Patterns that callers send: matched by an engine whose time grows with the text alone, whatever the pattern."""

from __future__ import annotations

from collections.abc import Callable

import jsonschema_rs

from kilonova.domain.errors import Refused

Matcher = Callable[[str], bool]
MOST_MEMORY = 1 << 18  # bytes of a compiled pattern


def matcher(pattern: str, name: str) -> Matcher:
    """Return a matcher that searches a text for the pattern. Lookaround and backreferences are not supported."""
    compiled = _compiled(pattern)
    if compiled is None:
        raise Refused(400, f"Invalid {name} filter [{pattern[:80]}]")
    return compiled


def is_pattern(text: str) -> bool:
    """Check a pattern for a schema. An empty pattern would match, but it is most likely a mistake of the client."""
    return bool(text) and _compiled(text) is not None


def _compiled(pattern: str) -> Matcher | None:
    options = jsonschema_rs.RegexOptions(size_limit=MOST_MEMORY)
    try:
        return jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=options).is_valid
    except (jsonschema_rs.ValidationError, ValueError):
        return None
