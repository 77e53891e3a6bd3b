"""Callers, each with a connection of its own that is opened again when the other end closes it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bench.http import Answer, Connection

VERSION = "1.36"


def request(port: int, method: str, path: str, body: Any = None) -> bytes:
    content = b"" if body is None else msgspec.json.encode(body)
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "X-Auth-Token: admin",
        f"OpenStack-API-Version: placement {VERSION}",
        "Accept: application/json",
    ]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join([*lines, "", ""]).encode() + content


class Caller:
    def __init__(self, port: int) -> None:
        self.port = port
        self._connection: Connection | None = None

    async def __aenter__(self) -> Caller:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    async def send(self, content: bytes) -> Answer:
        for _ in range(2):
            if self._connection is None:
                loop = asyncio.get_running_loop()
                self._connection = (await loop.create_connection(Connection, "127.0.0.1", self.port))[1]
            try:
                answer = await self._connection.ask(content)
            except ConnectionError:
                self._connection = None
                continue
            if answer.headers.get("connection", "").lower() == "close":
                self._connection.close()
                self._connection = None
            return answer
        raise ConnectionError(f"the server at {self.port} closes every connection")

    async def ask(self, method: str, path: str, body: Any = None, expect: Collection[int] = (200,)) -> Answer:
        answer = await self.send(request(self.port, method, path, body))
        if answer.status not in expect:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.body[:300]!r}")
        return answer


@dataclass
class Measured:
    requests: int
    cpu_ms: float  # server and database, each request
    per_second: float
    took: list[float] = field(repr=False)  # seconds
    conflicts: int = (
        0  # "somebody else changed it, ask again", as a client would: the cost is counted, the answer is not
    )

    def percentile(self, share: float) -> float:
        ordered = sorted(self.took)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000


async def drive(
    port: int, cpu: Callable[[], float], requests: Iterator[bytes], *, callers: int, seconds: float, most: int
) -> Measured:
    """So many callers, each asking for the next when it has its answer, for so long or so many."""
    took: list[float] = []
    conflicts = 0
    began, used = time.perf_counter(), cpu()

    async def one() -> None:
        nonlocal conflicts
        async with Caller(port) as caller:
            for content in requests:
                at = time.perf_counter()
                while (answer := await caller.send(content)).status == 409 and b"concurrent" in answer.body:
                    conflicts += 1
                took.append(time.perf_counter() - at)
                if answer.status not in (200, 204):
                    raise RuntimeError(f"{content[:80]!r}: {answer.status} {answer.body[:300]!r}")
                if time.perf_counter() - began > seconds or len(took) >= most:
                    return

    await asyncio.gather(*(one() for _ in range(callers)))
    wall = time.perf_counter() - began
    return Measured(len(took), (cpu() - used) / len(took) * 1000, len(took) / wall, took, conflicts)
