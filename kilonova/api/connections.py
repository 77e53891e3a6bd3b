"""HTTP connections with limits: a client without a token can hold and fill only so much.

uvicorn limits neither the size of a request's head nor the time that a client takes to send it. `LimitedConnection`
adds both to its parser; `Connections` counts by address and checks every connection once per tick of the server.
"""

from __future__ import annotations

import asyncio
import resource
from enum import Enum
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from kilonova.api.addresses import LOOPBACK, group_of, is_in, networks
from kilonova.api.consoles.connection import ConsoleConnection
from kilonova.settings import HttpOptions

PIECE = 16384  # bytes of a head that are parsed before its size is looked at again
OWN_FILES = 128  # descriptors for databases, bus and files; the rest may be connections
LINGER_SECONDS = 1.0  # a refused client may read why before the connection ends,
LINGER_BYTES = 262144  # and send so much that is not read
LATE = 0.2  # seconds; a check later than this means that this process was delayed
TOO_LONG = {414: "the request's address is longer than {} bytes", 431: "the request's headers are larger than {} bytes"}


class Awaited(Enum):
    """The event that a connection waits for."""

    HEAD = "the head of a request"
    BODY = "the body of a request"
    ANSWER = "our own answer"
    NEXT = "another request"
    END = "the client to read why it was refused"


class Connections:
    """The open connections of one listener."""

    def __init__(self, options: HttpOptions, exempt: tuple[str, ...] = LOOPBACK) -> None:
        """`exempt` and the trusted proxies may have any number of connections."""
        self.options = options
        self._exempt = networks((*exempt, *options.trusted_proxies))
        self._by_group: dict[str, int] = {}
        self._open: dict[LimitedConnection | UpgradedConnection, None] = {}  # in the order of their coming
        self._looked: float | None = None
        self._number = 0  # of them, and of those that are still in their handshake
        self._most = max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OWN_FILES, OWN_FILES)

    def admit(self, address: str) -> str | None:
        """Count a new connection; return the group that it counts for. None: there are too many of them."""
        group = "" if is_in(address, self._exempt) else group_of(address)
        number = self._by_group.get(group, 0)
        if group and number >= self.options.max_connections_per_address:
            return None
        if self._number >= self._most and not self._drop_one():
            return None
        self._by_group[group] = number + 1
        self._number += 1
        return group

    def leave(self, group: str) -> None:
        self._number -= 1
        self._by_group[group] -= 1
        if not self._by_group[group]:
            del self._by_group[group]

    def add(self, connection: LimitedConnection | UpgradedConnection) -> None:
        self._open[connection] = None

    def remove(self, connection: LimitedConnection | UpgradedConnection) -> None:
        self._open.pop(connection, None)

    def end_overdue(self, now: float, interval: float) -> None:
        """End the connections that exceeded a time limit. Call this once per interval.

        A delay of this process itself (it was stopped, or its machine was busy) is added to every connection's limit.
        """
        late = now - (now if self._looked is None else self._looked) - interval
        self._looked = now
        for connection in list(self._open):
            if late > LATE:
                connection.forgive(late, now)
            connection.end_if_overdue(now)

    def _drop_one(self) -> bool:
        """End the connection that has waited longest for a request: the process has no more file descriptors."""
        waiting = [each for each in self._open if each.awaited in (Awaited.HEAD, Awaited.NEXT)]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda each: each.since)
        del self._open[oldest]
        oldest.transport.abort()
        return True


class Unread:
    """The time for which a peer has not read any data that waits for it. A peer that sends requests and does not read
    holds memory, as does one that does not send."""

    def __init__(self) -> None:
        self._bytes, self._since = 0, 0.0

    def seconds(self, transport: asyncio.Transport, now: float) -> float:
        waiting = transport.get_write_buffer_size()
        if waiting != self._bytes or not waiting:
            self._bytes, self._since = waiting, now
        return now - self._since

    def forgive(self, seconds: float, now: float) -> None:
        self._since = min(now, self._since + seconds)


class UpgradedConnection:
    """A connection that switched to WebSocket. It still counts for its address, and must read what it is sent."""

    awaited = Awaited.ANSWER

    def __init__(self, among: Connections, group: str, protocol: ConsoleConnection) -> None:
        self._among, self._group, self.transport = among, group, protocol.transport
        self._unread = Unread()
        self.since = protocol.loop.time()
        protocol.on_lost = self._lost
        among.add(self)

    def forgive(self, seconds: float, now: float) -> None:
        self._unread.forgive(seconds, now)

    def end_if_overdue(self, now: float) -> None:
        if self._unread.seconds(self.transport, now) > self._among.options.client_socket_timeout:
            self.transport.abort()

    def _lost(self) -> None:
        self._among.remove(self)
        self._among.leave(self._group)


class LimitedConnection(HttpToolsProtocol):
    def __init__(self, among: Connections, *, group: str | None = None, **parts: Any) -> None:
        """`group`: it was admitted already."""
        super().__init__(**parts)
        self._among, self._options = among, among.options
        self._group = group
        self.awaited, self.since = Awaited.HEAD, self.loop.time()
        self.url = b""
        self._sent = 0  # bytes since the head began, or since it was refused
        self._header_bytes = 0
        self._refusal = 0  # a status
        self._is_upgraded = False
        self._unread = Unread()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        if self._group is None:
            self._group = self._among.admit(self.client[0] if self.client else "")
        if self._group is None:
            transport.abort()
        else:
            self._among.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._among.remove(self)
        if self._group is not None:
            self._among.leave(self._group)
            self._group = None

    # -- what comes in ------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.awaited is Awaited.NEXT:
            self._await(Awaited.HEAD)
        elif self.awaited is Awaited.BODY and not self.cycle.response_complete:
            self.since = self.loop.time()
        while data and not self.transport.is_closing():
            if self.awaited is Awaited.END:
                self._discard(data)
                return
            piece, data = (data, b"") if self.awaited is Awaited.BODY else (data[:PIECE], data[PIECE:])
            super().data_received(piece)
            if self._is_upgraded:
                return
            if self.awaited is Awaited.HEAD:
                self._sent += len(piece)
                if self._sent - len(self.url) > self._options.max_header_bytes + PIECE:
                    self._refusal = self._refusal or 431
            if self._refusal:
                self._refuse_long()

    def handle_websocket_upgrade(self) -> None:
        self._is_upgraded = True
        self._among.remove(self)
        super().handle_websocket_upgrade()
        protocol, self._group, group = self.transport.get_protocol(), None, self._group
        assert isinstance(protocol, ConsoleConnection) and group is not None
        UpgradedConnection(self._among, group, protocol)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await(Awaited.HEAD)
        self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        if len(self.url) + len(url) > self._options.max_url_bytes:
            self._refusal = 414
        if not self._refusal:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value) + 4
        if self._header_bytes > self._options.max_header_bytes:
            self._refusal = self._refusal or 431
        if not self._refusal:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._refusal:
            super().on_headers_complete()
            self._await(Awaited.BODY)

    def on_body(self, body: bytes) -> None:
        if not self._refusal:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._refusal and not (self.parser.should_upgrade() and self._should_upgrade()):
            super().on_message_complete()
            self._await(Awaited.NEXT if self.cycle.response_complete else Awaited.ANSWER)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.awaited is Awaited.ANSWER and self.cycle.response_complete:
            self._await(Awaited.NEXT)

    def _await(self, what: Awaited) -> None:
        self.awaited, self.since = what, self.loop.time()
        self._sent = 0

    def _discard(self, data: bytes) -> None:
        self._sent += len(data)
        if self._sent > LINGER_BYTES:
            self.transport.abort()

    # -- what is refused ----------------------------------------------------------------------------------------------

    def forgive(self, seconds: float, now: float) -> None:
        self.since = min(now, self.since + seconds)
        self._unread.forgive(seconds, now)

    def end_if_overdue(self, now: float) -> None:
        if self._unread.seconds(self.transport, now) > self._options.client_socket_timeout:
            self.transport.abort()
        if self.transport.is_closing():
            return
        if self.awaited is Awaited.BODY and self.flow.read_paused:
            self.since = now  # we do not read: the client cannot send
        patience = self._patience()
        if patience is None or now - self.since <= patience:
            return
        if self.awaited in (Awaited.NEXT, Awaited.END) or (self.awaited is Awaited.HEAD and not self._sent):
            self.transport.close()
        else:
            self._refuse(408, f"{self.awaited.value} did not arrive within {patience:g} seconds")

    def _patience(self) -> float | None:
        if self.awaited is Awaited.HEAD:
            is_answering = self.cycle is not None and not self.cycle.response_complete
            return None if is_answering else self._options.header_timeout
        if self.awaited is Awaited.BODY:
            return self._options.client_socket_timeout
        if self.awaited is Awaited.NEXT:
            return float(self.timeout_keep_alive)
        return LINGER_SECONDS if self.awaited is Awaited.END else None

    def _refuse_long(self) -> None:
        most = self._options.max_url_bytes if self._refusal == 414 else self._options.max_header_bytes
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # an earlier request of this connection is being answered; nothing may come between
        else:
            self._refuse(self._refusal, TOO_LONG[self._refusal].format(most))

    def _refuse(self, status: int, text: str) -> None:
        """Answer for the application, which did not get the whole request and learns that the client is gone."""
        self._await(Awaited.END)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started or self.pipeline:
                self.transport.close()
                return
        body = text.encode() + b"\n"
        self.transport.write(
            STATUS_LINE[status]
            + b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            + f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()
