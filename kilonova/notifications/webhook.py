"""Notifications by HTTP: one POST for each. Accepted is 2xx; nothing else that a receiver says is believed, redirects
are not followed, and no more than the first line of an answer is read."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from kilonova.domain.errors import Refused
from kilonova.notifications.target import Message, NotSent

LONGEST_LINE = 8192
SIGNATURE_HEADER = "X-Kilonova-Signature"
EVENT_HEADER = "X-Kilonova-Event"
ID_HEADER = "X-Kilonova-Message-Id"


def read_secret(file: str) -> bytes:
    try:
        secret = Path(file).read_bytes().strip()
    except OSError as error:
        text = f"[notifications] webhook_secret_file {file}: it cannot be read: {error.strerror}"
        raise Refused("bad_configuration", text) from error
    if not secret:
        raise Refused("bad_configuration", f"[notifications] webhook_secret_file {file}: it is empty")
    return secret


def signature_of(secret: bytes, body: bytes) -> str:
    return f"sha256={hmac.new(secret, body, hashlib.sha256).hexdigest()}"


def _context(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:  # an SSLError is one
        text = f"[notifications] webhook_ca_file {ca_file}: it cannot be used: {error.strerror or error}"
        raise Refused("bad_configuration", text) from error


class Webhook:
    def __init__(self, url: str, secret: bytes = b"", *, ca_file: str = "", seconds: float = 10.0) -> None:
        """`seconds`: for one message, from the connection to the answer."""
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:  # it is written to logs
            text = "[notifications] webhook_url: it must have no user and password; use webhook_secret_file"
            raise Refused("bad_configuration", text)
        self._host, self._secret, self._seconds = parts.hostname or "", secret, seconds
        self._authority = parts.netloc
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        secure = parts.scheme == "https"
        self._port = parts.port or (443 if secure else 80)
        self._tls = _context(ca_file) if secure else None

    async def send(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                line = await self._post(message)
        except TimeoutError:
            raise NotSent(f"{self._authority}: no answer within {self._seconds:g} s") from None
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            raise NotSent(f"{self._authority}: {error or type(error).__name__}") from error
        status = _status_in(line)
        if not 200 <= status < 300:
            raise NotSent(f"{self._authority}: the answer was {status}" if status else f"{self._authority}: not HTTP")

    async def _post(self, message: Message) -> bytes:
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=LONGEST_LINE)
        try:
            writer.write(self._head(message) + message.body)
            await writer.drain()
            return await reader.readline()
        finally:
            writer.transport.abort()  # a receiver that does not close would be waited for

    def _head(self, message: Message) -> bytes:
        lines = [
            f"POST {self._path} HTTP/1.1",
            f"Host: {self._authority}",
            "User-Agent: kilonova",
            "Content-Type: application/json",
            f"Content-Length: {len(message.body)}",
            "Connection: close",
            f"{EVENT_HEADER}: {message.event_type}",
            f"{ID_HEADER}: {message.id}",
        ]
        if self._secret:
            lines.append(f"{SIGNATURE_HEADER}: {signature_of(self._secret, message.body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _status_in(line: bytes) -> int:
    """Return the status; 0 if the response is empty or not HTTP."""
    fields = line.split()
    is_http = len(fields) >= 2 and fields[0].startswith(b"HTTP/1.") and fields[1].isdigit() and len(fields[1]) == 3
    return int(fields[1]) if is_http else 0
