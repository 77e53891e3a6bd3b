"""`kilonova` that measures the CPU time of its own logs and metrics, for bench/seen.py: it goes to the file that
KILONOVA_METERED names when the program ends, in nanoseconds, with the time that one request spends in `Seen`."""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

import prometheus_client
import structlog.contextvars

REQUESTS = 5000
spent = 0
depth = 0


def metered(function: Any) -> Any:
    """A call from within another one is counted once."""

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        global depth, spent
        if depth:
            return function(*given, **named)
        depth, began = 1, time.thread_time_ns()
        try:
            return function(*given, **named)
        finally:
            spent, depth = spent + time.thread_time_ns() - began, 0

    return call


def per_request() -> float:
    """Of what `Seen` adds to an application that does nothing."""
    from kilonova.api.seen import Seen

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 202})

    async def send(message: Any) -> None:
        pass

    async def ask(asked: Any) -> float:
        scope: dict[str, Any] = {"type": "http", "method": "POST", "raw_path": b"/compute/v2.1/servers"}
        began = time.thread_time_ns()
        for _ in range(REQUESTS):
            await asked(dict(scope), None, send)
        return (time.thread_time_ns() - began) / REQUESTS

    return asyncio.run(ask(Seen(app, access_log=False))) - asyncio.run(ask(app))


def begin(*_: object) -> None:
    """On SIGUSR2: the start is over."""
    global spent
    spent = 0


def write(path: Path) -> None:
    total = spent
    path.write_text(json.dumps({"spent": total, "per_request": per_request()}))


if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, begin)
    atexit.register(write, Path(os.environ["KILONOVA_METERED"]))
    logging.Logger.handle = metered(logging.Logger.handle)  # type: ignore[method-assign]
    for kind in (prometheus_client.Counter, prometheus_client.Histogram):
        for name in ("labels", "inc", "observe"):
            if hasattr(kind, name):
                setattr(kind, name, metered(getattr(kind, name)))
    structlog.contextvars.bind_contextvars = metered(structlog.contextvars.bind_contextvars)
    from kilonova.cli.main import main

    main()
