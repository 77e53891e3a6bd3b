"""Users' text on a terminal or in a log: characters that control the terminal, or turn the direction of the line, are
shown as escapes, so that the whole text is visible and has no other effect."""

from __future__ import annotations

import re

# Controls of C0 and C1 (0x9b begins a sequence as ESC [ does), separators of lines, marks of direction, surrogates.
_BEYOND_ASCII = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_STEERING = re.compile(f"[\x00-\x1f{_BEYOND_ASCII}]")
_STEERING_IN_CELLS = re.compile(f"[\x00-\x08\x0b-\x1f{_BEYOND_ASCII}]")
_STEERING_IN_JSON = re.compile(f"[{_BEYOND_ASCII}]")


def visible(text: str) -> str:
    """Return the text as one line, with control characters escaped."""
    return _STEERING.sub(_escaped, text)


def visible_cell(text: str) -> str:
    """Return a CSV value, which may have several lines, with control characters escaped."""
    return _STEERING_IN_CELLS.sub(_escaped, text)


def visible_json(document: str) -> str:
    """Return equivalent JSON with control characters as JSON's own escapes, which every reader decodes."""
    return _STEERING_IN_JSON.sub(_unicode, document)


def is_visible(document: str) -> bool:
    """Return whether a document, in which ASCII's controls are escaped, has no other control characters."""
    return _STEERING_IN_JSON.search(document) is None


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()


def _unicode(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"
