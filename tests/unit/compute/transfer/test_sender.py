"""The sender of disks against a destination that answers as the test says: what is tried again, and for how long."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.compute.transfer import sender
from kilonova.compute.transfer.pieces import (
    ENTRY,
    FRAME,
    SMALLEST_PIECE,
    TOKEN_HEADER,
    digest_of,
    whole_digest,
)
from kilonova.compute.transfer.sender import TRIES, DiskSender, SentFile
from kilonova.domain.errors import Failed
from kilonova.domain.image_bytes import DiskRoute

PIECES = [b"a" * SMALLEST_PIECE, b"b" * 5]
SIZE = SMALLEST_PIECE + 5
DIGESTS = {number: digest_of(piece) for number, piece in enumerate(PIECES)}
Answer = tuple[int, bytes]


class There:
    """Answers each kind of request with the next answer of its list; the last one stays."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {"GET": [state()], "PUT": [(204, b"")], "POST": [(204, b"")]}
        self.requests: list[tuple[str, str, str, bytes]] = []
        self.closes = False  # each connection after its answer
        there = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _body(self) -> bytes:
                if self.headers.get("Transfer-Encoding") != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = b""
                while length := int(self.rfile.readline() or b"0", 16):
                    body += self.rfile.read(length)
                    self.rfile.readline()
                self.rfile.readline()
                return body

            def _answer(self) -> None:
                there.requests.append((self.command, self.path, self.headers[TOKEN_HEADER], self._body()))
                answers = there.answers[self.command]
                status, text = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(status)
                if there.closes:
                    self.send_header("Connection", "close")
                if status != 204:
                    self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PUT = do_POST = _answer

            def log_message(self, *_: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """A sender may stop in the middle of a piece."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/base/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def methods(self) -> list[str]:
        return [method for method, _, _, _ in self.requests]


def state(pieces: dict[int, bytes] | None = None, whole: bool = False) -> Answer:
    entries = b"".join(ENTRY.pack(*one) for one in (pieces or {}).items())
    return 200, json.dumps({"whole": whole, "pieces": base64.b64encode(entries).decode()}).encode()


def said(code: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": "because"}}).encode()


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[There]:
    monkeypatch.setattr(sender, "PAUSE", 0.001)
    made = There()
    yield made
    made.close()


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "disk").write_bytes(b"".join(PIECES))
    return tmp_path / "disk"


def send(there: There, *files: SentFile, patience: float = 5.0) -> int:
    route = DiskRoute(url=there.url, token="t")
    return asyncio.run(DiskSender(patience=patience).send(route, "s1", 7, files))


def frame(number: int) -> bytes:
    return FRAME.pack(number, len(PIECES[number]), DIGESTS[number]) + PIECES[number]


def test_what_is_not_there_is_sent_and_then_verified(there: There, disk: Path) -> None:
    there.answers["GET"] = [state({0: DIGESTS[0]})]
    assert send(there, SentFile(disk, "disk.qcow2")) == 5
    path = f"/base/disks/s1/7/disk.qcow2?size={SIZE}"
    digest = json.dumps({"digest": whole_digest(SIZE, DIGESTS)}).encode()
    assert there.requests == [("GET", path, "t", b""), ("PUT", path, "t", frame(1)), ("POST", path, "t", digest)]


def test_a_piece_that_differs_there_is_sent(there: There, disk: Path) -> None:
    there.answers["GET"] = [state({0: DIGESTS[1], 1: DIGESTS[1]})]
    assert send(there, SentFile(disk, "disk.qcow2")) == SMALLEST_PIECE
    assert there.requests[1][3] == frame(0)


def test_nothing_is_sent_of_a_disk_that_is_whole_or_lacks_nothing(there: There, disk: Path) -> None:
    there.answers["GET"] = [state(whole=True), state(DIGESTS)]
    assert send(there, SentFile(disk, "a"), SentFile(disk, "b")) == 0
    assert there.methods() == ["GET", "GET", "POST"]


def test_a_base_says_of_which_image_it_is(there: There, disk: Path) -> None:
    assert send(there, SentFile(disk, "base.raw", "i 1"), SentFile(disk, "disk.qcow2")) == 2 * SIZE
    assert {path for _, path, _, _ in there.requests} == {
        f"/base/disks/s1/7/base.raw?size={SIZE}&image=i+1",
        f"/base/disks/s1/7/disk.qcow2?size={SIZE}",
    }


def test_a_sent_disk_is_not_held_open(there: There, disk: Path) -> None:
    """A removed one would take its room until the agent is started again."""
    send(there, SentFile(disk, "disk.qcow2"))
    opened = [path for path in Path("/proc/self/fd").iterdir() if path.exists() and path.samefile(disk)]
    assert opened == []


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
@pytest.mark.parametrize(
    "answer",
    [(503, said("disk_again")), (502, b"<html>"), (404, b"no receiver runs here"), (500, said("x"))],
    ids=["again", "a proxy", "another program", "broken"],
)
def test_what_another_try_may_help_is_tried_again(there: There, disk: Path, method: str, answer: Answer) -> None:
    there.answers[method].insert(0, answer)
    send(there, SentFile(disk, "disk.qcow2"))
    assert there.methods().count("GET") == 2 and there.methods()[-1] == "POST"


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
@pytest.mark.parametrize(
    ("status", "code", "final"),
    [(403, "bad_disk_token", True), (400, "bad_request", True), (413, "too_large", True), (507, "disk_storage", False)],
)
def test_what_no_other_try_can_help_is_not(
    there: There, disk: Path, method: str, status: int, code: str, final: bool
) -> None:
    there.answers[method] = [(status, said(code))]
    with pytest.raises(Failed, match=r"^disk s1/7/disk\.qcow2: because") as why:
        send(there, SentFile(disk, "disk.qcow2"))
    assert (why.value.code, why.value.final) == (code, final), "another host may have room on its disk"
    assert there.methods().count(method) == 1


def test_a_disk_that_differs_in_the_end_is_sent_a_few_times(there: There, disk: Path) -> None:
    there.answers["POST"] = [(409, said("disk_differs"))]
    with pytest.raises(
        Failed, match=rf"^disk s1/7/disk\.qcow2: what arrives is not what was sent, {TRIES} times"
    ) as why:
        send(there, SentFile(disk, "disk.qcow2"))
    assert why.value.code == "disk_differs" and there.methods().count("POST") == TRIES


def test_a_disk_that_differed_once_is_sent_again(there: There, disk: Path) -> None:
    there.answers["POST"].insert(0, (409, said("disk_differs")))
    assert send(there, SentFile(disk, "disk.qcow2")) == 2 * SIZE


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"{}", b'{"whole": false}', b'{"whole": false, "pieces": "a"}', b'{"whole": false, "pieces": 1}'],
)
def test_an_answer_that_cannot_be_read_is_asked_again_until_patience_ends(
    there: There, disk: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(sender, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    there.answers["GET"] = [(200, answer)]
    with pytest.raises(Failed, match="does not take it: an unreadable answer") as why:
        send(there, SentFile(disk, "disk.qcow2"), patience=2.0)
    assert (why.value.code, why.value.final) == ("unreachable", False)
    assert len(there.requests) == 3


def test_patience_begins_again_with_each_byte_that_was_taken(
    there: There, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(sender, "time", SimpleNamespace(monotonic=lambda: now[0]))
    there.answers["PUT"] = [(503, said("disk_again"))]

    def later(seconds: float) -> Callable[[int, bytes], bytes]:
        real = sender._Job._judge

        def judge(job: Any, status: int, answer: bytes) -> bytes:
            if status == 503:
                now[0] += seconds
            return real(job, status, answer)

        return judge

    monkeypatch.setattr(sender._Job, "_judge", later(0.8))
    there.answers["PUT"] = [(503, said("disk_again"))] * 5 + [(204, b"")]
    assert send(there, SentFile(disk, "disk.qcow2"), patience=1.0) == 6 * SIZE
    there.answers["GET"] = [(503, said("disk_again"))]
    began = now[0]
    with pytest.raises(Failed, match="does not take it"):
        send(there, SentFile(disk, "disk.qcow2"), patience=1.0)
    assert now[0] - began == pytest.approx(1.6), "nothing was taken meanwhile"


def test_a_sender_that_is_cancelled_has_ended(there: There, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may be removed at once."""
    there.answers["GET"] = [(503, said("disk_again"))]
    began, ended = threading.Event(), threading.Event()
    run, attempt = sender._Job.run, sender._Job._try

    def whole(job: Any) -> int:
        try:
            return run(job)
        finally:
            ended.set()

    def one(job: Any) -> bool:
        began.set()
        return attempt(job)

    monkeypatch.setattr(sender._Job, "run", whole)
    monkeypatch.setattr(sender._Job, "_try", one)

    async def story() -> None:
        route = DiskRoute(url=there.url, token="t")
        sending = asyncio.create_task(DiskSender(patience=60.0).send(route, "s1", 7, [SentFile(disk, "disk.qcow2")]))
        assert await asyncio.to_thread(began.wait, 10)
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled() and ended.is_set()

    asyncio.run(story())


class Pauses(threading.Event):
    """Nobody really waits."""

    seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return self.is_set()


@pytest.mark.parametrize(("patience", "pause"), [(5.0, 0.001), (0.0001, 0.0001)])
def test_a_sender_pauses_between_two_tries(
    there: There, disk: Path, monkeypatch: pytest.MonkeyPatch, patience: float, pause: float
) -> None:
    monkeypatch.setattr(Pauses, "seconds", [])
    monkeypatch.setattr(sender, "threading", SimpleNamespace(Event=Pauses))
    monkeypatch.setattr(sender, "time", SimpleNamespace(monotonic=lambda: 0.0))
    there.answers["GET"] = [(503, said("disk_again")), (503, said("disk_again")), state(whole=True)]
    send(there, SentFile(disk, "disk.qcow2"), patience=patience)
    assert Pauses.seconds == [pause, pause]


def test_a_destination_may_close_each_connection_after_its_answer(there: There, disk: Path) -> None:
    there.closes = True
    assert send(there, SentFile(disk, "disk.qcow2")) == SIZE
    assert there.methods() == ["GET", "PUT", "POST"]


def test_a_stopped_sender_does_not_send_its_disk_to_the_end(
    there: There, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large").write_bytes(b"x" * (8 * SMALLEST_PIECE))
    stop, numbers = threading.Event(), list[bytes]()

    def digest(piece: bytes) -> bytes:
        numbers.append(piece)
        if len(numbers) == 2:
            stop.set()
        return digest_of(piece)

    monkeypatch.setattr(sender, "digest_of", digest)
    route = DiskRoute(url=there.url, token="t")
    job = sender._Job(route, "/disks/s1/7/disk.qcow2", SentFile(tmp_path / "large", "disk.qcow2"), "", 5.0, stop)
    assert job.run() == 2 * SMALLEST_PIECE and len(numbers) == 2
