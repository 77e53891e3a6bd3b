"""The port on which a real host's agent receives the disks of guests that move to it."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from kilonova.api.connections import Connections
from kilonova.api.listening import BACKLOG, listening, own_address
from kilonova.api.web import serve_web

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from kilonova.api.listening import Listener
    from kilonova.settings import Settings

logger = logging.getLogger(__name__)
LOOPBACK = "127.0.0.1"


class DiskPort:
    """A bound socket, and its URL for other hosts."""

    def __init__(self, listener: Listener) -> None:
        self.url = listener.url
        self._listener = listener
        self._serving: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()

    def serve(self, receiver: ASGIApp) -> None:
        listener = self._listener
        listener.socket.listen(BACKLOG)
        if listener.certificate is None and not _is_loopback(listener.socket):
            text = "disks are received without TLS: url=%s; they can be read on that network"
            logger.warning(f"{text}; set [libvirt] disk_cert_file and disk_key_file", self.url)
        web = serve_web(receiver, listener.socket, self._ending, Connections(listener.options), listener.certificate)
        self._serving = asyncio.create_task(web)

    async def close(self) -> None:
        self._ending.set()
        if self._serving is not None:
            await self._serving


def _is_loopback(bound: socket.socket) -> bool:
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback


@contextlib.asynccontextmanager
async def disk_port(settings: Settings) -> AsyncIterator[DiskPort]:
    """Raise `Refused` where the port is taken."""
    own, options = settings.libvirt, settings.wsgi
    address = settings.default.my_ip or settings.network.local_ip or own_address(socket.AF_INET) or LOOPBACK
    written = f"[{address}]" if ":" in address else address
    private = msgspec.structs.replace(options, ssl_cert_file=own.disk_cert_file, ssl_key_file=own.disk_key_file)
    with listening(f"{written}:{own.disk_port}", "", private, "[DEFAULT] my_ip, [libvirt] disk_port") as listener:
        port = DiskPort(listener)
        try:
            yield port
        finally:
            await port.close()
