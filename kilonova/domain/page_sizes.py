"""Sizes of memory pages as people write them: 2048 (kB), 2MB, 1GB, 2Mi."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d{1,12})([kKMGT]?)(i?)(b|bit|B)?")
_POWERS = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def page_kb(text: str) -> int:
    """Return the size in kB; 0 if it is not a size, or not a whole number of kB. A bare number is kB; otherwise units
    are powers of 1024, as page sizes are, and a small b means bits."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return 0
    number, unit, _, letter = int(match[1]), match[2], match[3], match[4]
    if not unit and not letter:
        return number
    size = number * 1024 ** _POWERS.get(unit, 0) / (8 if letter in ("b", "bit") else 1)
    return int(size // 1024) if size % 1024 == 0 else 0
