"""The settings of small clouds tell all durations apart."""

from __future__ import annotations

from collections import Counter

import msgspec

from kilonova.settings import Settings
from tests.support.distinct import distinct_settings


def durations(settings: Settings) -> dict[str, float]:
    options = {
        f"{section.name}.{option.name}": getattr(getattr(settings, section.name), option.name)
        for section in msgspec.structs.fields(Settings)
        for option in msgspec.structs.fields(type(getattr(settings, section.name)))
    }
    return {name: value for name, value in options.items() if isinstance(value, float) and value > 1.0}


def test_no_two_durations_are_equal() -> None:
    assert [value for value, times in Counter(durations(distinct_settings()).values()).items() if times > 1] == []


def test_they_are_nearly_the_defaults() -> None:
    usual, distinct = durations(Settings()), durations(distinct_settings())
    assert usual.keys() == distinct.keys()
    assert all(usual[name] <= distinct[name] <= usual[name] * 1.2 for name in usual)
