"""Parse sets of CPUs as operators write them: `0-3,8,^2` is 0, 1, 3 and 8."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_CPUS = 65536  # a range longer than any machine is a typing error, and would fill the memory

_PART = re.compile(r"(\^?)\s*(\d{1,7})\s*(?:-\s*(\d{1,7}))?")


def parse_cpus(text: str) -> frozenset[int]:
    """Raise ValueError with the part that is wrong."""
    wanted: set[int] = set()
    unwanted: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is not a CPU, a range such as 0-3, or an exclusion such as ^2")
        first = int(match[2])
        last = int(match[3] or match[2])
        if first > last or last >= MOST_CPUS:
            raise ValueError(f"{part!r} is not a range of CPUs from 0 to {MOST_CPUS - 1}")
        (unwanted if match[1] else wanted).update(range(first, last + 1))
    return frozenset(wanted - unwanted)


def parse_mask(text: str, count: int) -> frozenset[int]:
    """Parse as `parse_cpus` does; a text that begins with an exception means all of `count` CPUs but that."""
    return parse_cpus(f"0-{count - 1},{text}" if text.strip().startswith("^") else text)


def format_cpus(cpus: Iterable[int]) -> str:
    """The shortest form: 0-3,8."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
