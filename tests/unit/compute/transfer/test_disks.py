"""Disks from agent to agent, without guests: real sockets, with peers that break off, lie or never end."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilonova.api.connections import Connections
from kilonova.api.web import serve_web
from kilonova.compute.transfer import receiver as receiving
from kilonova.compute.transfer.pieces import FRAME, TOKEN_HEADER, data_pieces, digest_of, piece_bytes, whole_digest
from kilonova.compute.transfer.receiver import DiskReceiver, Expected, hashed, write_expected
from kilonova.compute.transfer.sender import DiskSender, SentFile
from kilonova.domain.errors import Failed
from kilonova.domain.image_bytes import DiskRoute
from kilonova.settings import HttpOptions
from tests.support.flushing import Flushes
from tests.unit.compute.transfer.cutter import Cutter

pytestmark = pytest.mark.slow

MIB = 1024**2
TOKEN, SERVER, COPY = "the token of a move", "5e7e0000-0000-4000-8000-00000000000a", 7
MOST = {"disk": 64 * MIB, "base": 64 * MIB, "ephemeral0": MIB}


class Destination:
    """A receiver with its web server, in a thread of its own; killed and started again on the same port."""

    def __init__(self, root: Path, options: HttpOptions) -> None:
        self.root, self._options = root, options
        self.place = root / SERVER / str(COPY)
        self.place.mkdir(parents=True, exist_ok=True)
        write_expected(self.place, Expected(hashed(TOKEN), MOST))
        self.refused: list[str] = []
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.start()

    def start(self) -> None:
        self.receiver = DiskReceiver(lambda server, copy: self.root / server / str(copy), self._check)
        self._socket = socket.create_server(("127.0.0.1", self.port))
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        serving = serve_web(self.receiver, self._socket, self._ending, Connections(self._options))
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(serving,))
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()
        self._loop.close()
        self._socket.close()

    def _check(self, path: Path, name: str) -> None:
        if path.read_bytes()[:4] == b"EVIL":
            raise Failed("bad_disk", "it is laid over '/etc/shadow'")

    @property
    def route(self) -> DiskRoute:
        return DiskRoute(url=f"http://127.0.0.1:{self.port}", token=TOKEN)

    def ask(self, method: str, name: str, body: Any = None, token: str = TOKEN, size: int | str = 0) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            path = name if name.startswith("/") else f"/disks/{SERVER}/{COPY}/{name}"
            connection.request(method, f"{path}?size={size}", body, {TOKEN_HEADER: token})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def files(self) -> set[str]:
        return {path.name for path in self.place.iterdir()}


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Destination]:
    """Whatever a test does there, no disk that has its name is lost by a power cut."""
    flushes = Flushes(tmp_path / "there", monkeypatch)
    made = Destination(tmp_path / "there", HttpOptions())
    yield made
    made.stop()
    assert flushes.lost() == []


def disk(path: Path, mib: int = 16, holes: tuple[tuple[int, int], ...] = ()) -> Path:
    """Random bytes, with holes (MiB from, to)."""
    source = random.Random(1)
    with path.open("wb") as file:
        file.truncate(mib * MIB + 1000)
        for number in range(mib):
            if not any(first <= number < last for first, last in holes):
                file.seek(number * MIB)
                file.write(source.randbytes(MIB))
        file.seek(mib * MIB)
        file.write(b"the end")
    return path


def send(there: Destination, *files: SentFile, token: str = TOKEN, url: str = "", patience: float = 5.0) -> int:
    route = DiskRoute(url=url or there.route.url, token=token)
    return asyncio.run(DiskSender(patience=patience).send(route, SERVER, COPY, files))


def test_holes_and_zeros_are_not_sent(there: Destination, tmp_path: Path) -> None:
    path = disk(tmp_path / "disk", holes=((2, 9),))
    with path.open("r+b") as file:
        file.seek(10 * MIB)
        file.write(bytes(MIB))
    sent = send(there, SentFile(path, "disk.qcow2"))
    assert sent == 8 * MIB + 1000
    arrived = there.place / "disk.qcow2"
    assert arrived.read_bytes() == path.read_bytes()
    assert arrived.stat().st_blocks * 512 < 10 * MIB and arrived.stat().st_mode & 0o777 == 0o600
    assert there.files() == {"disk.qcow2", "incoming.json"}
    assert send(there, SentFile(path, "disk.qcow2")) == 0, "it is whole there"


def test_a_file_without_data(there: Destination, tmp_path: Path) -> None:
    with (tmp_path / "empty").open("wb") as file:
        file.truncate(MIB)
    assert send(there, SentFile(tmp_path / "empty", "ephemeral0.qcow2")) == 0
    assert (there.place / "ephemeral0.qcow2").read_bytes() == bytes(MIB)


def test_cut_at_half_at_most_60_percent_are_sent_again(there: Destination, tmp_path: Path) -> None:
    path = disk(tmp_path / "disk", 32)
    size = path.stat().st_size
    cutter = Cutter(there.port, [size // 2])
    send(there, SentFile(path, "disk.qcow2"), url=cutter.url)
    cutter.close()
    assert (there.place / "disk.qcow2").read_bytes() == path.read_bytes()
    assert len(cutter.passed) == 2 and cutter.passed[0] < size * 0.52
    assert cutter.passed[1] <= size * 0.6, cutter.passed


def test_the_destination_is_killed_at_half(there: Destination, tmp_path: Path) -> None:
    """What it had noted on its disk is not sent again to its successor."""
    path = disk(tmp_path / "disk", 48)
    size = path.stat().st_size
    half = Cutter(there.port, [size // 2])
    sending = threading.Thread(target=lambda: send(there, SentFile(path, "disk.qcow2"), url=half.url, patience=20))
    sending.start()
    while not half.passed or half.passed[0] < size // 2:
        time.sleep(0.01)
    there.stop()
    log = there.place / "disk.qcow2.pieces"
    log.write_bytes(log.read_bytes()[:-13])  # killed while it wrote an entry
    there.start()
    sending.join()
    assert (there.place / "disk.qcow2").read_bytes() == path.read_bytes()
    assert half.passed[-1] <= size * 0.6, half.passed
    half.close()


def test_a_source_that_begins_again_sends_the_rest(there: Destination, tmp_path: Path) -> None:
    """The agent was killed; its successor knows nothing of what was sent."""
    path = disk(tmp_path / "disk", 32)
    size = path.stat().st_size
    cutter = Cutter(there.port, [size // 2])
    with pytest.raises(Failed, match="does not take it"):
        cutter_closes = threading.Thread(target=lambda: (_until(lambda: bool(cutter.passed)), cutter.close()))
        cutter_closes.start()
        send(there, SentFile(path, "disk.qcow2"), url=cutter.url, patience=0.5)
    assert send(there, SentFile(path, "disk.qcow2")) <= size * 0.6
    assert (there.place / "disk.qcow2").read_bytes() == path.read_bytes()


def _until(look: Any) -> None:
    ends = time.monotonic() + 10
    while not look() and time.monotonic() < ends:
        time.sleep(0.01)


def test_a_disk_that_changed_between_two_tries_is_sent_as_it_is_now(there: Destination, tmp_path: Path) -> None:
    path = disk(tmp_path / "disk", 8)
    there.ask("PUT", "disk.qcow2", b"".join(frames(path, 6)), size=path.stat().st_size)
    with path.open("r+b") as file:
        file.seek(MIB)
        file.write(bytes(MIB))  # it had data there, and has none now
        file.write(b"new")
    send(there, SentFile(path, "disk.qcow2"))
    assert (there.place / "disk.qcow2").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("has_data", [True, False])
def test_nothing_of_another_disk_stays_where_this_one_has_holes(
    there: Destination, tmp_path: Path, has_data: bool
) -> None:
    """One of another size was begun under that name, and never ended."""
    other, path = disk(tmp_path / "other", 12), tmp_path / "disk"
    there.ask("PUT", "disk.qcow2", b"".join(frames(other)), size=other.stat().st_size)
    if has_data:
        disk(path, 16, holes=((2, 9),))
    else:
        path.touch()
        os.truncate(path, 16 * MIB)
    send(there, SentFile(path, "disk.qcow2"))
    assert (there.place / "disk.qcow2").read_bytes() == path.read_bytes()
    assert there.files() == {"disk.qcow2", "incoming.json"}


def frames(path: Path, most: int = 10**6) -> Iterator[bytes]:
    size = path.stat().st_size
    with path.open("rb") as file:
        for count, (number, piece) in enumerate(data_pieces(file.fileno(), size)):
            if count < most:
                yield FRAME.pack(number, len(piece), digest_of(piece)) + piece


@pytest.mark.parametrize(
    ("name", "token", "status", "code"),
    [
        ("disk.qcow2", "another", 403, "bad_disk_token"),
        ("disk.qcow2", "", 403, "bad_disk_token"),
        (f"/disks/{SERVER}/8/disk.qcow2", TOKEN, 403, "bad_disk_token"),
        (f"/disks/..%2f..%2fetc/{COPY}/disk.qcow2", TOKEN, 400, "bad_request"),
        (f"/disks/../{SERVER}/{COPY}/disk.qcow2", TOKEN, 400, "bad_request"),
        ("..%2fdisk.qcow2", TOKEN, 400, "bad_request"),
        ("incoming.json", TOKEN, 400, "bad_request"),
        ("disk.qcow2.part", TOKEN, 400, "bad_request"),
        ("disk.qcow2.pieces", TOKEN, 400, "bad_request"),
        ("config.iso", TOKEN, 400, "bad_request"),
        ("ephemeral1.qcow2", TOKEN, 400, "bad_request"),
        ("/", TOKEN, 400, "bad_request"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
def test_whoever_may_not_changes_nothing(
    there: Destination, method: str, name: str, token: str, status: int, code: str
) -> None:
    before = sorted(there.root.rglob("*"))
    found, answer = there.ask(method, name, b"" if method != "GET" else None, token, 10)
    assert found == status and code in answer
    assert sorted(there.root.rglob("*")) == before


def test_no_move_no_disk(there: Destination, tmp_path: Path) -> None:
    """After the move has ended its token is worth nothing, and a removed copy is not made again."""
    path = disk(tmp_path / "disk", 1)
    (there.place / "incoming.json").unlink()
    with pytest.raises(Failed, match="not that of a move to this host that is under way") as why:
        send(there, SentFile(path, "disk.qcow2"))
    assert why.value.final and there.files() == set()
    there.place.rmdir()
    assert there.ask("PUT", "disk.qcow2", b"", size=10)[0] == 403 and not there.place.exists()


def test_larger_than_expected(there: Destination, tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(64 * MIB + 1)
        file.write(b"x")
    with pytest.raises(Failed, match="at most 67108864 are expected"):
        send(there, SentFile(tmp_path / "large", "disk.qcow2"))
    assert there.files() == {"incoming.json"}
    for size in ("", "-1", "x", "9" * 30):
        assert there.ask("PUT", "disk.qcow2", b"", size=size)[0] in (400, 413)


def frame(number: int, piece: bytes, length: int | None = None, digest: bytes | None = None) -> bytes:
    return FRAME.pack(number, len(piece) if length is None else length, digest or digest_of(piece)) + piece


SIZE = 2 * piece_bytes(MIB)
PIECE = b"x" * piece_bytes(MIB)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (frame(0, PIECE, digest=bytes(32)), "damaged on the way"),
        (frame(0, PIECE)[:-1], "ends early"),
        (frame(0, PIECE) + b"rest", "ends early"),
        (frame(2, PIECE), "piece 2"),
        (frame(2**63, PIECE), "piece 9223372036854775808"),
        (frame(0, PIECE[:-1]), "is not one"),
        (frame(0, b"", length=2**32 - 1), "is not one"),
        (frame(0, PIECE) + frame(0, PIECE), "or again"),
    ],
)
def test_what_is_no_piece_is_refused(there: Destination, body: bytes, why: str) -> None:
    status, answer = there.ask("PUT", "disk.qcow2", body, size=SIZE)
    assert status in (400, 503) and why in answer
    assert "disk.qcow2" not in there.files()


def test_a_body_that_never_ends_is_cut_off(there: Destination) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield frame(0, PIECE)

    began = time.monotonic()
    with pytest.raises((OSError, http.client.HTTPException)):  # or an answer, where it was read in time
        status, _ = there.ask("PUT", "disk.qcow2", endless(), size=SIZE)
        assert status == 400
        raise OSError
    assert time.monotonic() - began < 5
    assert (there.place / "disk.qcow2.part").stat().st_size == SIZE


@pytest.mark.parametrize("digest", ['{"digest": "0000"}', "{}", "no JSON", '{"digest": 1}', "x" * 5000])
def test_a_wrong_digest_gives_no_disk_its_name(there: Destination, digest: str) -> None:
    assert there.ask("PUT", "disk.qcow2", frame(0, PIECE), size=SIZE)[0] == 204
    assert there.ask("POST", "disk.qcow2", digest.encode(), size=SIZE)[0] in (400, 409)
    assert "disk.qcow2" not in there.files()


def test_a_disk_that_names_other_files_is_not_taken(there: Destination, tmp_path: Path) -> None:
    (tmp_path / "evil").write_bytes(b"EVIL" + bytes(1000))
    with pytest.raises(Failed, match="it is laid over '/etc/shadow'"):
        send(there, SentFile(tmp_path / "evil", "disk.qcow2"))
    assert there.files() == {"incoming.json"}


def test_a_slow_sender_is_let_go_and_what_has_come_stays(tmp_path: Path) -> None:
    there = Destination(tmp_path / "there", HttpOptions(client_socket_timeout=1.0))
    try:
        with socket.create_connection(("127.0.0.1", there.port), timeout=10) as slow:
            path = f"/disks/{SERVER}/{COPY}/disk.qcow2?size={SIZE}"
            body = frame(0, PIECE) + frame(1, PIECE)
            head = f"PUT {path} HTTP/1.1\r\nHost: x\r\n{TOKEN_HEADER}: {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
            slow.sendall(head.encode() + body[: len(PIECE) + 1000])
            assert b"408" in slow.recv(1000)
        _until(lambda: (there.place / "disk.qcow2.pieces").stat().st_size > 8)
        (tmp_path / "disk").write_bytes(PIECE * 2)
        assert send(there, SentFile(tmp_path / "disk", "disk.qcow2")) == len(PIECE), "only the second piece"
    finally:
        there.stop()


def test_a_base_of_another_image_is_sent(there: Destination, tmp_path: Path) -> None:
    """The destination has made one of the image that the records name; the disk is laid over another one."""
    path = disk(tmp_path / "base", 1)
    theirs = there.place / "base.raw"
    for image, sent in (("same", 0), ("another", MIB + 1000)):
        theirs.write_bytes(bytes(path.stat().st_size))
        write_expected(there.place, Expected(hashed(TOKEN), MOST, image="same"))
        for again in (sent, 0):
            assert send(there, SentFile(path, "base.raw", image)) == again
    assert theirs.read_bytes() == path.read_bytes()


def test_two_that_send_the_same_disk_end_with_one(there: Destination, tmp_path: Path) -> None:
    """An agent that was thought dead, and its successor."""
    path = disk(tmp_path / "disk", 16)
    errors: list[Exception] = []

    def one() -> None:
        try:
            send(there, SentFile(path, "disk.qcow2"))
        except Exception as why:
            errors.append(why)

    both = [threading.Thread(target=one) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert (there.place / "disk.qcow2").read_bytes() == path.read_bytes()
    assert errors == []


class Writers:
    """Watches the writers of disks, and makes them slow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Event()
        self._open, self._busy = set[int](), set[int]()
        self.wrong: list[str] = []
        for verb in ("open", "write", "close"):
            monkeypatch.setattr(receiving._Writer, verb, self._watched(verb, getattr(receiving._Writer, verb)))

    def _watched(self, verb: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(writer: Any, *arguments: Any) -> None:
            self._open.add(id(writer))
            if id(writer) in self._busy or len(self._open) > 1:
                self.wrong.append(f"{verb} beside another call")
            self._busy.add(id(writer))
            if verb == "write":
                self.entered.set()
                time.sleep(0.3)
            real(writer, *arguments)
            self._busy.discard(id(writer))
            if verb == "close":
                self._open.discard(id(writer))

        return call


def test_who_takes_over_finds_no_thread_at_the_disk(there: Destination, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where two take over at once: a descriptor that is closed under a thread may be another file's by then."""
    writers, answers = Writers(monkeypatch), list[int]()

    def slow() -> Iterator[bytes]:
        yield frame(0, PIECE)
        time.sleep(2)

    def first() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            there.ask("PUT", "disk.qcow2", slow(), size=SIZE)

    def other() -> None:
        answers.append(there.ask("PUT", "disk.qcow2", frame(0, PIECE) + frame(1, PIECE), size=SIZE)[0])

    threads = [threading.Thread(target=work) for work in (first, other, other)]
    threads[0].start()
    assert writers.entered.wait(5)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert writers.wrong == []
    assert 204 in answers and set(answers) <= {204, 503}


def test_a_full_disk_says_so(there: Destination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(receiving._Writer, "write", full)
    with pytest.raises(Failed, match="No space left on device") as why:
        send(there, SentFile(disk(tmp_path / "disk", 1), "disk.qcow2"))
    assert not why.value.final


def test_the_whole_is_said_by_size_and_pieces() -> None:
    assert whole_digest(10, {0: bytes(32)}) != whole_digest(11, {0: bytes(32)}) != whole_digest(11, {})
    assert whole_digest(10, {1: b"a" * 32, 0: b"b" * 32}) == whole_digest(10, {0: b"b" * 32, 1: b"a" * 32})
