"""Bytes of images between a host and an API: what is asked for, what is tried again, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from kilonova.bus import IMAGE_ADDRESS
from kilonova.compute import http_client
from kilonova.compute.image_bytes import PATIENCE, PAUSE, PIECE, HttpImageBytes
from kilonova.domain.errors import Failed, NoAnswer
from kilonova.domain.image_bytes import TOKEN_HEADER, ImageContent, ImageOrder, UploadOrder

Answer = tuple[int, bytes]


class Api:
    """An API that answers as the test says, one request after the other."""

    def __init__(self, answers: list[Answer]) -> None:
        self.answers = answers
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                api.requests.append((self.command, self.path, dict(self.headers.items()), body))
                status, text = api.answers.pop(0)
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PUT = _answer

            def log_message(self, *_: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextlib.contextmanager
def api(*answers: Answer) -> Iterator[Api]:
    made = Api([*answers])
    try:
        yield made
    finally:
        made.close()


class Clock:
    """Time goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


class Bus:
    """Knows where an API is, after so many questions that nobody answered."""

    def __init__(self, url: str, silent: int = 0) -> None:
        self.url, self.silent = url, silent
        self.asked: list[str] = []

    async def call(self, subject: str, body: bytes) -> bytes:
        self.asked.append(subject)
        if len(self.asked) <= self.silent:
            raise NoAnswer("no API runs")
        return self.url.encode()


def said(code: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": "because"}}).encode()


ORDER = UploadOrder(image="a/b", token="t", size=6, disk_format="raw")


class Upload:
    """One upload of six bytes, and how often they were read."""

    def __init__(self, url: str, bus: Any = None) -> None:
        self.clock, self.read = Clock(), 0
        self.client = HttpImageBytes(bus, self.clock, url=url)

    async def _content(self) -> AsyncIterator[bytes]:
        self.read += 1
        yield b"abc"
        yield b"def"

    def run(self) -> None:
        asyncio.run(self.client.send(ORDER, self._content))


def test_an_upload_says_whose_it_is_and_what_it_brings() -> None:
    with api((204, b"")) as there:
        upload = Upload(f"{there.url}/base/")
        upload.run()
    ((method, path, headers, body),) = there.requests
    assert (method, path) == ("PUT", "/base/kilonova/v1/image-bytes/a%2Fb?disk_format=raw")
    assert (headers[TOKEN_HEADER], headers["Content-Type"]) == ("t", "application/octet-stream")
    assert (headers["Content-Length"], body) == ("6", b"abcdef")
    assert (upload.read, upload.clock.time) == (1, 1000.0)


def test_an_upload_that_another_try_may_help_is_read_and_sent_again() -> None:
    with api((503, b""), (500, said("x")), (200, b"")) as there:
        upload = Upload(there.url)
        upload.run()
    assert [body for _, _, _, body in there.requests] == [b"abcdef"] * 3
    assert (upload.read, upload.clock.time) == (3, 1000.0 + 2 * PAUSE)


def test_a_refused_upload_is_not_tried_again() -> None:
    with api((409, said("image_not_queued"))) as there:
        upload = Upload(there.url)
        with pytest.raises(Failed, match="image a/b: the upload was refused: because") as why:
            upload.run()
    assert (why.value.code, why.value.final, len(there.requests)) == ("image_not_queued", True, 1)


def test_where_no_api_runs_an_upload_waits_and_then_fails_for_now() -> None:
    bus = Bus("", silent=10**6)
    upload = Upload("", bus)
    with pytest.raises(Failed, match="image a/b: it cannot be uploaded: no API runs") as why:
        upload.run()
    assert (why.value.code, why.value.final, upload.read) == ("image_service_away", False, 0)
    assert PATIENCE < upload.clock.time - 1000 <= PATIENCE + PAUSE
    assert {*bus.asked} == {IMAGE_ADDRESS}


def test_the_address_of_an_api_that_runs_now_comes_over_the_bus() -> None:
    with api((204, b"")) as there:
        upload = Upload("", Bus(there.url, silent=2))
        upload.run()
    assert len(there.requests) == 1 and upload.clock.time == 1000.0 + 2 * PAUSE


def fetched(url: str, offset: int) -> list[bytes]:
    content = ImageContent(size=9, algorithm="sha512", checksum="", disk_format="raw")

    async def story() -> list[bytes]:
        pieces = HttpImageBytes(None, Clock(), url=url).fetch(  # type: ignore[arg-type]
            ImageOrder(image="a/b", token="t", content=content), offset
        )
        return [piece async for piece in pieces]

    return asyncio.run(story())


@pytest.mark.parametrize(("offset", "status"), [(0, 200), (5, 206)])
def test_a_fetch_gets_the_bytes_from_there_on(offset: int, status: int) -> None:
    text = b"x" * (PIECE + 1)
    with api((status, text)) as there:
        assert fetched(there.url, offset) == [b"x" * PIECE, b"x"]
    ((method, path, headers, _),) = there.requests
    assert (method, path, headers[TOKEN_HEADER]) == ("GET", "/kilonova/v1/image-bytes/a%2Fb", "t")
    assert headers.get("Range") == (f"bytes={offset}-" if offset else None)


@pytest.mark.parametrize(
    ("offset", "status", "answer"),
    [(5, 200, b"all of it"), (0, 204, b""), (0, 503, b""), (5, 500, said("x"))],
    ids=["not from there on", "nothing", "busy", "broken"],
)
def test_another_answer_is_no_image_and_may_be_better_next_time(offset: int, status: int, answer: bytes) -> None:
    with api((status, answer)) as there, pytest.raises(http.client.HTTPException):
        fetched(there.url, offset)


def test_a_refused_fetch_is_for_good() -> None:
    with (
        api((404, said("not_found"))) as there,
        pytest.raises(Failed, match="image a/b: the download was refused: because") as why,
    ):
        fetched(there.url, 0)
    assert (why.value.code, why.value.final) == ("not_found", True)


# -- the client of both, and of disks --------------------------------------------------------------------------------


def test_a_host_trusts_the_authority_that_its_operator_named(monkeypatch: pytest.MonkeyPatch) -> None:
    trusted: list[str | None] = []
    plain = ssl.create_default_context()
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: trusted.append(cafile) or plain)
    for ca_file in ("", "/etc/ca.pem"):
        made = http_client.connect("https", "cloud:1", ca_file)
        assert isinstance(made, http.client.HTTPSConnection) and made.timeout == http_client.SECONDS
    assert trusted == [None, "/etc/ca.pem"]
    clear = http_client.connect("http", "cloud:1", "/etc/ca.pem")
    assert not isinstance(clear, http.client.HTTPSConnection) and clear.timeout == http_client.SECONDS


def test_an_answer_is_read_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    with api((404, b"x" * 100)) as there, contextlib.closing(http_client.connect("http", there.url[7:])) as made:
        made.request("GET", "/")
        assert http_client.answer_of(made, 10) == (404, b"x" * 10)
