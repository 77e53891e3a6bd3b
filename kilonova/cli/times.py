"""Times and durations as people read and write them. Everything else of the program has seconds."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_LARGEST = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def moment(at: float) -> str:
    """Return a time of the cloud in the local time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def iso(at: float) -> str:
    """Return the same for programs: ISO 8601 with the offset of the local time zone."""
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="milliseconds")


def duration(seconds: float) -> str:
    """Return the two largest units: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    left, parts = round(seconds), list[str]()
    for unit, size in _LARGEST:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def seconds_of(text: str) -> float:
    """Read `90`, `90s`, `5m`, `1.5h`, `2d`, `1h30m`. Raise `ValueError` for anything else."""
    parts = _DURATION.findall(text.strip().lower())
    joined = "".join(f"{number}{unit}" for number, unit in parts)
    known = all(unit in UNITS for _, unit in parts)
    if not parts or not known or joined != re.sub(r"\s", "", text.lower()):
        raise ValueError(f"{text!r} is not a duration; write 90, 90s, 5m, 2h or 1d")
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def read_duration(type_: Any, tokens: Sequence[Any]) -> float:
    """The converter of options that take a duration."""
    return seconds_of(tokens[0].value)
