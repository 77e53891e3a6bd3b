"""The source's end: reads the disks of a stopped guest and sends what the destination does not have yet."""

from __future__ import annotations

import base64
import http.client
import json
import os
import select
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, urlencode, urlsplit

from kilonova.compute.http_client import PASSING, answer_of, connect, error_in
from kilonova.compute.transfer.pieces import (
    ENTRY,
    FRAME,
    MOST_PIECES,
    TOKEN_HEADER,
    data_pieces,
    digest_of,
    entries_in,
    whole_digest,
)
from kilonova.domain.errors import Failed
from kilonova.domain.image_bytes import DiskRoute
from kilonova.threads import COPIES

PATIENCE = 180.0  # seconds without a byte taken; an agent that is started again is back sooner
PAUSE = 1.0
TRIES = 3  # of a file whose digest differs at the end
LONGEST_STATE = 2 * MOST_PIECES * ENTRY.size
FULL = 507
CUT = (OSError, http.client.HTTPException)


class SentFile(NamedTuple):
    path: Path
    name: str  # at the destination
    image: str = ""  # of a base: the destination may have the same one


class DiskSender:
    def __init__(self, ca_file: str = "", patience: float = PATIENCE) -> None:
        self._ca_file, self._patience = ca_file, patience

    async def send(self, route: DiskRoute, server: str, copy: int, files: Sequence[SentFile]) -> int:
        """Send the files one after the other; return the bytes of disks that were sent when the last one is whole at
        the destination. Raise `Failed`."""
        stop, sent = threading.Event(), 0
        for file in files:
            job = _Job(route, f"/disks/{server}/{copy}/{file.name}", file, self._ca_file, self._patience, stop)
            sent += await COPIES.run_until_stopped(stop, job.run)
        return sent


class _Job:
    """The transfer of one file, in its own thread."""

    def __init__(
        self, route: DiskRoute, path: str, file: SentFile, ca_file: str, patience: float, stop: threading.Event
    ) -> None:
        self._url: SplitResult = urlsplit(route.url)
        self._token, self._file, self._ca_file = route.token, file.path, ca_file
        self._patience, self._stop = patience, stop
        self._size = file.path.stat().st_size
        query = urlencode({"size": self._size} | ({"image": file.image} if file.image else {}))
        self._path = f"{self._url.path.rstrip('/')}{path}?{query}"
        self._named = f"disk {path.removeprefix('/disks/')}"
        self._sent = 0

    def run(self) -> int:
        ends, before, differed = time.monotonic() + self._patience, 0, 0
        while not self._stop.is_set():
            try:
                if self._try():
                    return self._sent
                differed += 1
                if differed == TRIES:
                    raise Failed("disk_differs", f"{self._named}: what arrives is not what was sent, {TRIES} times")
            except CUT as why:
                if self._sent > before:
                    ends, before = time.monotonic() + self._patience, self._sent
                elif time.monotonic() > ends:
                    raise Failed("unreachable", f"{self._named}: {self._url.netloc} does not take it: {why}") from why
            self._stop.wait(min(PAUSE, self._patience))
        return self._sent

    def _try(self) -> bool:
        """Send the missing pieces. Return False if the receiver has a different file after all were sent."""
        connection = connect(self._url.scheme, self._url.netloc, self._ca_file)
        try:
            state = json.loads(self._ask(connection, "GET"))
            if state["whole"]:
                return True
            pieces = self._send_missing(connection, entries_in(base64.b64decode(state["pieces"])))
            body = json.dumps({"digest": whole_digest(self._size, pieces)}).encode()
            return self._ask(connection, "POST", body) == b""
        except (KeyError, TypeError, ValueError) as why:
            raise http.client.HTTPException(f"an unreadable answer: {why}") from why
        finally:
            connection.close()

    def _send_missing(self, connection: http.client.HTTPConnection, there: dict[int, bytes]) -> dict[int, bytes]:
        pieces: dict[int, bytes] = {}
        begun = False
        descriptor = os.open(self._file, os.O_RDONLY)
        try:
            for number, piece in data_pieces(descriptor, self._size):
                if self._stop.is_set():
                    raise http.client.HTTPException("stopped")
                pieces[number] = digest_of(piece)
                if there.get(number) == pieces[number]:
                    continue
                if begun and _is_answered(connection):
                    break  # before its end: it does not want the rest
                if not begun:
                    begun = True
                    self._begin(connection)
                frame = FRAME.pack(number, len(piece), pieces[number])
                connection.send(b"%x\r\n" % (len(frame) + len(piece)) + frame)
                connection.send(piece)
                connection.send(b"\r\n")
                self._sent += len(piece)
            else:
                if begun:
                    connection.send(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # its answer may say why
        finally:
            os.close(descriptor)
        if begun:
            self._judge(*answer_of(connection))
        return pieces

    def _begin(self, connection: http.client.HTTPConnection) -> None:
        connection.putrequest("PUT", self._path)
        connection.putheader(TOKEN_HEADER, self._token)
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()

    def _ask(self, connection: http.client.HTTPConnection, method: str, body: bytes | None = None) -> bytes:
        connection.request(method, self._path, body, {TOKEN_HEADER: self._token})
        return self._judge(*answer_of(connection, LONGEST_STATE))

    def _judge(self, status: int, answer: bytes) -> bytes:
        """Return the response to a successful request. Raise `Failed` if a retry is useless."""
        if status in (200, 204):
            return answer
        code, message = error_in(status, answer)
        if code == "disk_differs":
            return answer
        if status in PASSING or code == str(status):  # not from one of our receivers, or cut off
            raise http.client.HTTPException(f"{status}: {message}")
        raise Failed(code, f"{self._named}: {message}", final=status != FULL)


def _is_answered(connection: http.client.HTTPConnection) -> bool:
    return bool(select.select([connection.sock], [], [], 0)[0])
