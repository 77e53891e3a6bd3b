"""An order that is cancelled while image bytes are under way: the agent's loop goes on at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from kilonova.compute.image_bytes import HttpImageBytes
from kilonova.domain.image_bytes import ImageContent, ImageOrder, UploadOrder
from kilonova.runtime import SystemClock

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n"
CLOSING = b"Connection: close\r\n"
GIB = 1024**3


@contextlib.contextmanager
def silent(answer: bytes) -> Iterator[str]:
    """An API that answers this, and then neither sends nor reads anything."""
    ended = threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError), server.accept()[0] as peer:
            peer.recv(1000)
            peer.sendall(answer)
            ended.wait(8)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        ended.set()
        thread.join()


async def fetch(client: HttpImageBytes) -> None:
    content = ImageContent(size=1_000_000, algorithm="sha512", checksum="", disk_format="raw")
    async with contextlib.aclosing(client.fetch(ImageOrder(image="i", token="t", content=content), 0)) as pieces:
        async for _ in pieces:
            pass


async def upload(client: HttpImageBytes) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1024 * 1024)

    await client.send(UploadOrder(image="i", token="t", size=GIB, disk_format="raw"), endless)


@pytest.mark.parametrize(
    ("transfer", "answer"),
    [
        (fetch, b""),
        (fetch, HEAD + b"\r\nsome of it"),
        (fetch, HEAD + CLOSING + b"\r\nsome of it"),
        (upload, b""),
    ],
)
def test_the_loop_does_not_wait_for_the_other_end(transfer: Callable[..., object], answer: bytes) -> None:
    async def story(url: str) -> tuple[float, float]:
        client = HttpImageBytes(None, SystemClock(), url=url)  # type: ignore[arg-type]
        task = asyncio.create_task(transfer(client))  # type: ignore[arg-type]
        await asyncio.sleep(0.5)
        longest, last = 0.0, time.monotonic()
        began = last
        task.cancel()
        while not task.done():
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            task.result()
        return longest, time.monotonic() - began

    with silent(answer) as url:
        longest, whole = asyncio.run(story(url))
    assert longest < 1 and whole < 5
