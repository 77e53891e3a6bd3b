"""`kilonova` without counters, to measure what they cost (bench/seen.py)."""

from __future__ import annotations

from typing import Any

import prometheus_client


class Nothing:
    """Counts and measures nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def labels(self, *_: str) -> Nothing:
        return self

    def inc(self, _: float = 1.0) -> None:
        pass

    observe = inc


if __name__ == "__main__":
    prometheus_client.Counter = prometheus_client.Histogram = Nothing  # type: ignore[assignment,misc]
    from kilonova.cli.main import main

    main()
