"""Consoles of guests: their kinds, and the streams of bytes that they are."""

from __future__ import annotations

from typing import Protocol

VNC, SERIAL = "vnc", "serial"
KINDS = (VNC, SERIAL)
PIECE = 32768  # bytes that are read at a time
SLOW = 256 * 1024  # bytes that wait for one reader of a serial line; then that reader is cut off
CONNECT_PATH = "/kilonova/consoles/connect"  # of users
HOST_PATH = "/kilonova/consoles/host"  # of agents
TOKEN_HEADER = "X-Kilonova-Console-Token"
PER_SERVER, PER_HOST = 32, 256  # connections that a host makes, whatever an API asks of it


class ByteStream(Protocol):
    """Both directions of a connection. One task reads, one writes."""

    async def read(self) -> bytes:
        """Return up to PIECE bytes or one message; b"" at the end."""

    async def write(self, data: bytes) -> None:
        """Return when more may be written. Raise OSError when the other side is gone."""

    async def close(self) -> None:
        """Close the connection. This may be repeated."""
