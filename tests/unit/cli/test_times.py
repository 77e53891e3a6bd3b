"""Times and durations as people read and write them."""

from __future__ import annotations

import time

import pytest

from kilonova.cli.times import duration, iso, moment, seconds_of


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0.04, "0.0 s"),
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (3605, "1 h"),
        (90061, "1 d 1 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("5m", 300), ("5 min", 300), ("1.5h", 5400), ("1h30m", 5400), ("2d", 172800), ("0", 0)],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "5x", "-5", "5m!", "soon", "nan"])
def test_another_text_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds_of(text)


def test_times_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert moment(0.0) == "1970-01-01 09:00:00"
        assert iso(0.5) == "1970-01-01T09:00:00.500+09:00"
    finally:
        monkeypatch.undo()
        time.tzset()
