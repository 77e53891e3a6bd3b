"""What no client library would send: bytes on the wire of a live server, which answers, and says nothing in its log."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.program import Cloud

SERVERS = b"/compute/v2.1/servers"
BIG = 200_000
PATIENCE = 30.0  # seconds


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    data: Path = tmp_path_factory.mktemp("wire") / "var"
    with Cloud(data, "--hosts", 1) as running:
        yield running


def send(cloud: Cloud, content: bytes, patience: float = PATIENCE) -> bytes:
    """What came back until the server hung up, or `patience` seconds long; with none of it nobody listens."""
    pieces = []
    with (
        socket.create_connection(("127.0.0.1", cloud.port), timeout=patience or PATIENCE) as connection,
        contextlib.suppress(ConnectionResetError, BrokenPipeError, TimeoutError),
    ):
        connection.sendall(content)
        while patience and (piece := connection.recv(65536)):
            pieces.append(piece)
    return b"".join(pieces)


def check(cloud: Cloud, content: bytes, expected: set[int]) -> None:
    """0 is silence: then the server may wait for more."""
    assert status(send(cloud, content, 1.0 if 0 in expected else PATIENCE)) in expected
    check_well(cloud)


def request(cloud: Cloud, line: bytes, *headers: bytes, body: bytes = b"", length: bytes | None = b"") -> bytes:
    """`length` None: none is told."""
    told = [] if length is None else [b"Content-Length: " + (length or str(len(body)).encode())]
    own = any(header.startswith(b"X-Auth-Token") for header in headers)
    token = [] if own else [b"X-Auth-Token: " + cloud.http.token.encode()]
    head = [line + b" HTTP/1.1", b"Host: cloud", b"Connection: close", *token, *told, *headers]
    return b"\r\n".join([*head, b"", body])


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0


CHUNKED, JSON = b"Transfer-Encoding: chunked", b"Content-Type: application/json"
TOLD = {  # how it must be answered; 0: with silence
    "a token of other bytes": (b"GET " + SERVERS, [b"X-Auth-Token: \xff\xfe\xe9"], {401, 400}),
    "a version of other bytes": (b"GET " + SERVERS, [b"OpenStack-API-Version: compute \xff"], {400}),
    "a path of other bytes": (b"GET /compute/v2.1/servers/\xff\xe9", [], {400, 404}),
    "a path with a line's end": (b"GET /compute/v2.1/servers/%0d%0aSet-Cookie:%20a=b", [], {404}),
    "a query of other bytes": (b"GET /compute/v2.1/servers?name=\xff\xe9", [], {200, 400}),
    "a fragment": (b"GET /compute/v2.1/servers#x", [], {200, 400, 404}),
    "a whole address": (b"GET http://cloud/compute/v2.1/servers", [], {200, 400, 404}),
    "no path": (b"GET *", [], {400, 404}),
    "two slashes": (b"GET //compute//v2.1//servers", [], {404}),
    "dots": (b"GET /compute/v2.1/../../etc/passwd", [], {300, 404}),
    "a path that does not end": (b"GET /" + b"a" * BIG, [], {414}),
    "a header that does not end": (b"GET " + SERVERS, [b"X-Long: " + b"a" * BIG], {431}),
    "a thousand headers": (b"GET " + SERVERS, [b"X-%d: a" % n for n in range(5_000)], {431}),
    "a header without a name": (b"GET " + SERVERS, [b": a"], {400}),
    "a folded header": (b"GET " + SERVERS, [b"X-A: a\r\n b"], {200, 400}),
    "a header with NUL": (b"GET " + SERVERS, [b"X-A: a\x00b"], {400}),
    "an unknown method": (b"FROB " + SERVERS, [], {400, 405}),
    "CONNECT": (b"CONNECT cloud:1", [], {0, 400, 404, 405}),
    "another protocol": (b"GET " + SERVERS, [b"Upgrade: websocket", b"Connection: Upgrade"], {200, 400, 404, 426}),
    "a websocket": (
        b"GET " + SERVERS,
        [
            b"Upgrade: websocket",
            b"Connection: Upgrade",
            b"Sec-WebSocket-Version: 13",
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        ],
        {200, 400, 403, 404, 426},
    ),
    "an expectation": (b"GET " + SERVERS, [b"Expect: 100-continue"], {100, 200, 417}),
    "a range of bytes": (b"GET " + SERVERS, [b"Range: bytes=0-"], {200}),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_head_that_no_client_would_send(cloud: Cloud, name: str) -> None:
    line, headers, expected = TOLD[name]
    check(cloud, request(cloud, line, *headers), expected)


BODIES = {
    "chunks": ([CHUNKED, JSON], b"2\r\n{}\r\n0\r\n\r\n", None, {400}),
    "chunks that are too many": (
        [CHUNKED, JSON],
        b"ffff\r\n" + b" " * 65535 + b"\r\n" + b"ffff\r\n" + b" " * 65535,
        None,
        {0, 413},
    ),
    "a chunk without a length": ([CHUNKED, JSON], b"zz\r\n{}\r\n", None, {0, 400}),
    "a chunk that is cut off": ([CHUNKED, JSON], b"ff\r\n{}", None, {0, 400}),
    "less than was told": ([JSON], b"{}", b"100", {0, 400}),
    "more than was told": ([JSON], b"{}" * 50, b"2", {400}),
    "a negative length": ([JSON], b"{}", b"-2", {0, 400}),
    "a length that is no number": ([JSON], b"{}", b"two", {0, 400}),
    "a huge length": ([JSON], b"{}", b"9" * 30, {0, 400, 413}),
    "two lengths": ([JSON, b"Content-Length: 7"], b"{}", b"2", {0, 400}),
    "a length and chunks": ([JSON, CHUNKED], b"2\r\n{}\r\n0\r\n\r\n", b"2", {0, 400}),
    "too much": ([JSON], b'{"a":"' + b"a" * BIG + b'"}', b"", {0, 413}),
    "compressed": ([JSON, b"Content-Encoding: gzip"], b"\x1f\x8b\x08\x00", b"", {400, 415}),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_no_client_would_send(cloud: Cloud, name: str) -> None:
    headers, body, length, expected = BODIES[name]
    check(cloud, request(cloud, b"POST " + SERVERS, *headers, body=body, length=length), expected)


@pytest.mark.parametrize(
    "content", [b"\x00" * 100, b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"a" * BIG]
)
def test_what_is_no_request_at_all(cloud: Cloud, content: bytes) -> None:
    check(cloud, content, {0, 400})


@pytest.mark.parametrize("path", [b"/compute/v2.1/servers/detail", b"/image/v2/images", b"/identity/v3/users"])
def test_nobody_waits_for_the_answer(cloud: Cloud, path: bytes) -> None:
    for _ in range(20):
        send(cloud, request(cloud, b"GET " + path), 0.0)
        send(cloud, request(cloud, b"POST " + path, JSON, body=b'{"a":', length=b"500"), 0.0)
    check_well(cloud)


def test_an_upload_that_is_cut_off_leaves_the_image_as_it_was(cloud: Cloud) -> None:
    wish = {"name": "cut", "disk_format": "raw", "container_format": "bare"}
    image = cloud.http.ask("POST", "/image/v2/images", wish, {"Content-Type": "application/json"}).json["id"]
    path = f"/image/v2/images/{image}/file".encode()
    bytes_ = b"Content-Type: application/octet-stream"
    send(cloud, request(cloud, b"PUT " + path, bytes_, body=b"a" * 1000, length=b"100000"), 0.0)
    check_well(cloud)
    whole = request(cloud, b"PUT " + path, bytes_, body=b"a" * 1000)
    assert status(send(cloud, whole)) in (204, 409)  # 409 while the end of the first is not noticed yet


def check_well(cloud: Cloud) -> None:
    assert cloud.http.ask("GET", "/healthz").status == 200
    log = cloud.log()
    assert "Traceback" not in log and "ERROR" not in log, log[-3000:]
