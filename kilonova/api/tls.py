"""TLS of the HTTP listener: the certificate, which can be replaced while it serves, and the handshake.

A connection counts for its address before the handshake, which asyncio's own server would finish first.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from kilonova.api.connections import Connections, LimitedConnection
from kilonova.domain.errors import Refused
from kilonova.store.modes import keep_private

logger = logging.getLogger(__name__)
AT_ONCE = 100  # connections accepted before others have their turn
PAUSE_SECONDS = 0.5


class Certificate:
    """A certificate chain and its key, in PEM files."""

    def __init__(self, cert_file: str, key_file: str) -> None:
        """Raise `Refused` if they cannot be used."""
        self._files = cert_file, key_file
        if Path(key_file).is_file():
            keep_private(Path(key_file))
        self.context = self._load()

    def reload(self) -> None:
        """Read the files again. Only new connections use them. Raise `Refused` and change nothing if they cannot be
        used."""
        self._load()  # a context that failed half-way would have the new certificate and the old key
        self.context.load_cert_chain(*self._files)

    @property
    def self_signed(self) -> str:
        """The certificate's own file, if it is self-signed: clients need it to verify the server."""
        from cryptography import x509

        file = Path(self._files[0]).absolute()
        certificate = x509.load_pem_x509_certificates(file.read_bytes())[0]
        return str(file) if certificate.issuer == certificate.subject else ""

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        cert_file, key_file = self._files
        try:
            context.load_cert_chain(cert_file, key_file, password=_refuse_passwords)
        except ssl.SSLError as error:
            text = f"[wsgi] ssl_cert_file {cert_file}, ssl_key_file {key_file}: {error.reason or error}"
            raise Refused("bad_configuration", f"{text}; they must be a PEM certificate and its key") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            text = f"[wsgi] ssl_cert_file {cert_file}, ssl_key_file {key_file}: cannot be read: {reason}"
            raise Refused("bad_configuration", text) from error
        return context


def _refuse_passwords() -> str:
    raise ValueError("the key has a password; save it without one, readable by its owner only")


class TlsServer:
    """A server that counts connections before their TLS handshake; uvicorn closes it like a server of asyncio."""

    def __init__(
        self,
        listener: socket.socket,
        certificate: Certificate,
        connections: Connections,
        make_connection: Callable[[str], LimitedConnection],
    ) -> None:
        self._listener, self._certificate, self._connections = listener, certificate, connections
        self._make_connection = make_connection
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()
        for handshake in self._handshakes:
            handshake.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor left: the socket stays readable, so look again a little later
                logger.warning("connections cannot be accepted now: %s", error.strerror)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(PAUSE_SECONDS, self._loop.add_reader, self._listener, self._accept)
                return
            group = self._connections.admit(peer[0])
            if group is None:
                accepted.close()
                continue
            accepted.setblocking(False)
            handshake = self._loop.create_task(self._shake_hands(accepted, group))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, accepted: socket.socket, group: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make_connection(group),
                accepted,
                ssl=self._certificate.context,
                ssl_handshake_timeout=self._connections.options.header_timeout,
            )
        except (OSError, EOFError):  # not TLS, too old, too slow, or gone: no connection was made that would leave
            self._connections.leave(group)
        except asyncio.CancelledError:
            accepted.close()
            self._connections.leave(group)
            raise
