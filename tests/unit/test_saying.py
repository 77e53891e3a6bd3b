"""What a process prints for those who started it."""

from __future__ import annotations

import io

import pytest

from kilonova.production import say


class Writes(io.StringIO):
    """A stdout without a buffer: each write reaches the log file at once, beside those of the logger."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def write(self, text: str) -> int:
        self.seen.append(text)
        return len(text)


def test_a_line_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a log line comes between the sentence and its end, and a script that waits for the line never sees it."""
    written = Writes()
    monkeypatch.setattr("sys.stdout", written)
    say("kilonova: agent of host1 works")
    assert written.seen == ["kilonova: agent of host1 works\n"]
