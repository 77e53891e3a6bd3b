"""The destination's end: it receives the disks of moves that this host expects, each with the token of its move.

An incomplete disk has another name than a whole one, and a log of its pieces beside it. An entry is written only once
its piece is on the disk, so little is sent again after a crash of either end.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import logging
import os
import re
import struct
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from kilonova.compute.transfer.pieces import (
    ENTRY,
    FRAME,
    TOKEN_HEADER,
    digest_of,
    entries_in,
    length_of,
    number_of_pieces,
    piece_bytes,
    whole_digest,
)
from kilonova.domain.errors import Failed, Refused
from kilonova.store.data_directory import finish_file
from kilonova.threads import FILES

logger = logging.getLogger(__name__)
INCOMING = "incoming.json"  # in the directory of a copy whose disks are expected
PART, LOG = ".part", ".pieces"  # behind the name of a disk that is not whole
FLUSH_BYTES = 16 * 1024 * 1024  # that may have to be sent again
LINGERING = 2.0  # seconds for the data on its way when a sender is refused
LONGEST_BODY = 4096  # of a request that is not a disk
PRIVATE = 0o600
STATUS = {
    "bad_disk_token": 403,
    "bad_request": 400,
    "disk_again": 503,  # another try may do better
    "disk_differs": 409,
    "disk_storage": 507,
    "disk_too_large": 413,
}
BASE = "base.raw"
NAMES = re.compile(r"disk\.qcow2|ephemeral[0-9]{1,3}\.qcow2|(disk|ephemeral[0-9]{1,3})\.[0-9]{1,19}\.layer|base\.raw")
_PATH = re.compile(r"/disks/([A-Za-z0-9_-]{1,64})/([0-9]{1,19})/([a-z0-9.]{1,64})")
_SIZE = re.compile(r"[0-9]{1,19}")


class Expected(msgspec.Struct, frozen=True):
    """The disks that a copy gets, and the token of their sender."""

    token: str  # its SHA-256, so that a reader of the file cannot send
    most: dict[str, int]  # bytes, by the name of the file up to its first dot
    image: str = ""  # of the base beside them on this host; "": it is sent, too

    def admits(self, token: str) -> bool:
        return hmac.compare_digest(hashed(token).encode(), self.token.encode())


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def read_expected(directory: Path) -> Expected | None:
    """Return the transfer that the copy expects; None if it expects none."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((directory / INCOMING).read_bytes(), type=Expected)
    return None


def write_expected(directory: Path, expected: Expected) -> None:
    half = directory / f"{INCOMING}.half"
    half.unlink(missing_ok=True)
    half.touch(mode=PRIVATE)
    half.write_bytes(msgspec.json.encode(expected))
    finish_file(half, directory / INCOMING)


class Incoming:
    """A disk that is being received."""

    def __init__(self, directory: Path, name: str, size: int) -> None:
        self.whole, self.size = directory / name, size
        self.part, self._log = directory / f"{name}{PART}", directory / f"{name}{LOG}"

    def is_whole(self) -> bool:
        try:
            return self.whole.stat().st_size == self.size and not self.part.exists()
        except FileNotFoundError:
            return False

    def entries(self) -> dict[int, bytes]:
        """Return the received pieces of a file of this size; remains of one of another size are ignored."""
        try:
            log = self._log.read_bytes()
            usable = log[:8] == struct.pack(">Q", self.size) and self.part.is_file()
            return entries_in(log[8:]) if usable else {}
        except FileNotFoundError:
            return {}

    def begin(self) -> tuple[int, int]:
        """Return descriptors of the file and of its log. The directory is not created: if removed, no disk is due."""
        if not self.entries():
            self.drop()
        part = os.open(self.part, os.O_WRONLY | os.O_CREAT, PRIVATE)
        os.truncate(part, self.size)
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
        end = os.fstat(log).st_size
        if not end:
            os.write(log, struct.pack(">Q", self.size))
        else:  # an entry that was cut off would shift those that follow
            os.truncate(log, 8 + (end - 8) // ENTRY.size * ENTRY.size)
        return part, log

    def finish(self, digest: str, check: Callable[[Path], None]) -> None:
        """Raise `Refused` unless all was received, and nothing else."""
        if self.is_whole():
            return
        if not hmac.compare_digest(whole_digest(self.size, self.entries()).encode(), digest.encode()):
            self.drop()
            raise Refused("disk_differs", f"{self.whole.name}: its pieces are not those that were sent; send it again")
        for descriptor in self.begin():  # one without data gets none that another disk has left there
            os.close(descriptor)
        try:
            check(self.part)
        except (Failed, Refused) as why:
            self.drop()
            raise Refused("bad_request", f"{self.whole.name}: {why.message}") from None
        finish_file(self.part, self.whole)
        self._log.unlink(missing_ok=True)

    def drop(self) -> None:
        self.part.unlink(missing_ok=True)
        self._log.unlink(missing_ok=True)


class _Writer:
    """The writer of received pieces; it logs them once they are on the disk."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming, self._size = incoming, incoming.size
        self._descriptors: tuple[int, ...] = ()
        self._unflushed: list[bytes] = []
        self._bytes = 0

    def open(self) -> None:
        self._part, self._log = self._descriptors = self._incoming.begin()

    def write(self, number: int, digest: bytes, piece: bytes) -> None:
        if digest_of(piece) != digest:
            raise Refused("disk_again", f"piece {number} was damaged on the way; send it again")
        os.pwrite(self._part, piece, number * piece_bytes(self._size))
        self._unflushed.append(ENTRY.pack(number, digest))
        self._bytes += len(piece)
        if self._bytes >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        os.fdatasync(self._part)
        os.write(self._log, b"".join(self._unflushed))
        self._unflushed, self._bytes = [], 0

    def close(self) -> None:
        if not self._descriptors:
            return
        try:
            self.flush()
        finally:
            for descriptor in self._descriptors:
                os.close(descriptor)


class DiskReceiver:
    """An ASGI application."""

    def __init__(self, directory_of: Callable[[str, int], Path], check: Callable[[Path, str], None]) -> None:
        """`directory_of` returns the directory of a copy. `check` raises `Failed` or `Refused` if a guest may not get
        the received file under that name."""
        self._directory_of, self._check = directory_of, check
        self._busy: dict[Path, asyncio.Task[Any]] = {}  # the request that writes a disk
        self.received = 0  # bytes of disks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(Request(scope, receive))
        except ClientDisconnect:
            return
        except Refused as why:
            answer = _fault(STATUS.get(why.code, 400), why.code, why.message)
        except OSError as why:
            logger.warning("disk not received: path=%s reason=%s", scope.get("path"), why)
            answer = _fault(STATUS["disk_storage"], "disk_storage", f"it cannot be written: {why.strerror}")
        await _say(answer, scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        match = _PATH.fullmatch(request.url.path)
        if match is None or request.method not in ("GET", "PUT", "POST"):
            raise Refused("bad_request", "there are only disks here: GET, PUT or POST /disks/SERVER/COPY/NAME")
        directory, name = self._directory_of(match[1], int(match[2])), match[3]
        expected = await FILES.run(read_expected, directory)
        if expected is None or not expected.admits(request.headers.get(TOKEN_HEADER, "")):
            raise Refused("bad_disk_token", "disk token: it is not that of a move to this host that is under way")
        incoming = Incoming(directory, name, _size(request, expected, name))
        if name == BASE and expected.image and expected.image != request.query_params.get("image"):
            await FILES.run(_forget_base, directory, expected)
        if request.method == "GET":
            return await FILES.run(_state, incoming)
        if request.method == "POST":
            digest = _digest_in(await _short_body(request))
            await FILES.run(incoming.finish, digest, lambda part: self._check(part, name))
        else:
            await self._put(incoming, request)
        return Response(status_code=204)

    async def _put(self, incoming: Incoming, request: Request) -> None:
        """Take over from a request without a sender: it was killed, or the network was cut."""
        while (other := self._busy.get(incoming.part)) is not None:
            other.cancel()
            await asyncio.wait([other])
        task = asyncio.create_task(self._receive(incoming, request))
        self._busy[incoming.part] = task
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            if self._busy.get(incoming.part) is task:
                del self._busy[incoming.part]
        if task.cancelled():
            raise Refused("disk_again", f"{incoming.whole.name}: a later request took over")
        task.result()

    async def _receive(self, incoming: Incoming, request: Request) -> None:
        if await FILES.run(incoming.is_whole):
            raise Refused("disk_again", f"{incoming.whole.name} is whole already")
        writer = _Writer(incoming)
        try:
            # A request may take over at any moment: no thread works on the disk when this ends.
            await FILES.run_to_its_end(writer.open)
            async with contextlib.aclosing(_frames(request, incoming.size)) as frames:
                async for number, digest, piece in frames:
                    await FILES.run_to_its_end(writer.write, number, digest, piece)
                    self.received += len(piece)
        finally:
            await FILES.run_to_its_end(writer.close)


async def _frames(request: Request, size: int) -> AsyncGenerator[tuple[int, bytes, bytes], None]:
    """Yield the frames. A repeated piece is an error, so an endless body ends."""
    seen: set[int] = set()
    async with contextlib.aclosing(request.stream()) as chunks:
        buffer = bytearray()
        head: tuple[int, int, bytes] | None = None
        async for chunk in chunks:
            buffer += chunk
            while True:
                if head is None and len(buffer) >= FRAME.size:
                    head = FRAME.unpack_from(buffer)
                    _check_frame(head, size, seen)
                    del buffer[: FRAME.size]
                if head is None or len(buffer) < head[1]:
                    break
                number, length, digest = head
                piece, head = bytes(buffer[:length]), None
                del buffer[:length]
                yield number, digest, piece
        if head is not None or buffer:
            raise Refused("disk_again", "the last piece ends early; send it again")


def _check_frame(head: tuple[int, int, bytes], size: int, seen: set[int]) -> None:
    number, length, _ = head
    if number >= number_of_pieces(size) or number in seen or length != length_of(number, size):
        raise Refused("bad_request", f"piece {number} of {length} bytes is not one of a file of {size} bytes, or again")
    seen.add(number)


def _size(request: Request, expected: Expected, name: str) -> int:
    given = request.query_params.get("size", "")
    most = expected.most.get(name.partition(".")[0])
    if most is None or not NAMES.fullmatch(name) or not _SIZE.fullmatch(given):
        raise Refused("bad_request", f"disk {name[:80]!r} is not expected, or the query has no size=BYTES")
    if int(given) > most:
        raise Refused("disk_too_large", f"{name} has {given} bytes; at most {most} are expected")
    return int(given)


def _forget_base(directory: Path, expected: Expected) -> None:
    """Discard the base: the disks are layers over another one, which is sent with them."""
    (directory / BASE).unlink(missing_ok=True)
    write_expected(directory, msgspec.structs.replace(expected, image=""))


def _digest_in(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=dict[str, str])["digest"]
    except (msgspec.MsgspecError, KeyError):
        raise Refused("bad_request", 'the body is not {"digest": "…"}') from None


def _state(incoming: Incoming) -> Response:
    entries = b"".join(ENTRY.pack(*one) for one in incoming.entries().items())
    body = {"whole": incoming.is_whole(), "pieces": base64.b64encode(entries).decode()}
    return Response(msgspec.json.encode(body), media_type="application/json")


async def _short_body(request: Request) -> bytes:
    body = b""
    async with contextlib.aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > LONGEST_BODY:
                raise Refused("bad_request", f"the body is longer than {LONGEST_BODY} bytes")
    return body


async def _say(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the answer. A refusal ends the connection after the rest of the body was read: closed before, it would be
    reset, and the sender would lose the answer that says why."""
    refused = scope["method"] == "PUT" and answer.status_code >= 400

    async def patient(message: Message) -> None:
        lingers = refused and message["type"] == "http.response.body"
        await send({**message, "more_body": True} if lingers else message)
        if lingers:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGERING):
                    while (await receive()).get("more_body"):
                        pass
            await send({"type": "http.response.body", "body": b""})

    await answer(scope, receive, patient)


def _fault(status: int, code: str, message: str) -> Response:
    """Return an error and close the connection, so that the rest of a refused disk is not sent."""
    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    return Response(body, status, {"Connection": "close"}, "application/json")
