"""`name=number, …` as options write it: how much each name counts."""

from __future__ import annotations

from collections.abc import Iterable


def ratios(words: Iterable[str]) -> dict[str, float]:
    """One without a number counts once; what is no number is passed over."""
    found: dict[str, float] = {}
    for word in words:
        name, _, number = word.partition("=")
        try:
            found[name.strip()] = float(number) if number else 1.0
        except ValueError:
            continue
    return found
