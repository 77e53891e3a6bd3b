"""TLS on a served socket: versions, a certificate that is replaced, and attacks on the handshake."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.responses import PlainTextResponse

from kilonova.api.addresses import LOOPBACK
from kilonova.api.connections import Connections
from kilonova.api.tls import Certificate
from kilonova.api.web import serve_web
from kilonova.cli.keygen import self_signed
from kilonova.domain.errors import Refused
from kilonova.settings import HttpOptions

PATIENCE = 60.0
GET = b"GET / HTTP/1.1\r\nHost: a\r\n"


def write_certificate(directory: Path, name: str = "localhost") -> tuple[str, str]:
    key, certificate = self_signed((name, "127.0.0.1"), 1)
    (directory / "key").write_text(key)
    (directory / "cert").write_text(certificate)
    return str(directory / "cert"), str(directory / "key")


class Served:
    def __init__(self, directory: Path, port: int, connections: Connections, certificate: Certificate) -> None:
        self.directory, self.port, self.connections, self.certificate = directory, port, connections, certificate

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.directory / "cert"))

    async def connect(self, context: ssl.SSLContext | None = None) -> Any:
        async with asyncio.timeout(PATIENCE):
            return await asyncio.open_connection(
                "127.0.0.1", self.port, ssl=context or self.context(), server_hostname="localhost"
            )

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(GET + b"\r\n")
        async with asyncio.timeout(PATIENCE):
            return await reader.readuntil(b"well")


def serving(
    story: Callable[[Served], Awaitable[None]], directory: Path, exempt: Any = LOOPBACK, **options: Any
) -> None:
    async def whole() -> None:
        certificate = Certificate(*write_certificate(directory))
        connections = Connections(HttpOptions(**options), exempt)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            stopping = asyncio.Event()
            web = asyncio.create_task(
                serve_web(PlainTextResponse("well"), listener, stopping, connections, certificate)
            )
            try:
                await story(Served(directory, listener.getsockname()[1], connections, certificate))
            finally:
                stopping.set()
                await web
        assert connections._number == 0 and not connections._by_group, "every connection was counted off again"

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(whole())


def test_requests_are_answered_over_tls(tmp_path: Path) -> None:
    async def story(it: Served) -> None:
        reader, writer = await it.connect()
        for _ in range(3):
            assert (await it.ask(reader, writer)).startswith(b"HTTP/1.1 200")
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        writer.close()

    serving(story, tmp_path)


@pytest.mark.parametrize(("newest", "is_spoken"), [("TLSv1_1", False), ("TLSv1_2", True)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nothing_older_than_1_2_is_spoken(tmp_path: Path, newest: str, is_spoken: bool) -> None:
    async def story(it: Served) -> None:
        assert it.certificate.context.minimum_version is ssl.TLSVersion.TLSv1_2, "also where OpenSSL would allow less"
        context = it.context()
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion[newest]
        if is_spoken:
            reader, writer = await it.connect(context)
            assert (await it.ask(reader, writer)).startswith(b"HTTP/1.1 200")
            writer.close()
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await it.connect(context)

    serving(story, tmp_path)


def test_a_new_certificate_is_for_new_connections_and_ends_none(tmp_path: Path) -> None:
    async def story(it: Served) -> None:
        reader, writer = await it.connect()
        before = writer.get_extra_info("peercert")["serialNumber"]
        write_certificate(it.directory)
        it.certificate.reload()
        assert (await it.ask(reader, writer)).startswith(b"HTTP/1.1 200"), "the open connection goes on"
        fresh_reader, fresh = await it.connect()
        assert fresh.get_extra_info("peercert")["serialNumber"] != before
        assert (await it.ask(fresh_reader, fresh)).startswith(b"HTTP/1.1 200")
        writer.close()
        fresh.close()

    serving(story, tmp_path)


def test_a_certificate_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    async def story(it: Served) -> None:
        context = it.context()
        (it.directory / "cert").write_text(self_signed(("other",), 1)[1])
        with pytest.raises(Refused, match=r"ssl_cert_file .*KEY_VALUES_MISMATCH"):
            it.certificate.reload()
        (it.directory / "cert").unlink()
        with pytest.raises(Refused, match="cannot be read: No such file"):
            it.certificate.reload()
        reader, writer = await it.connect(context)
        assert (await it.ask(reader, writer)).startswith(b"HTTP/1.1 200")
        writer.close()

    serving(story, tmp_path)


@pytest.mark.parametrize("content", [b"", GET + b"\r\n", b"\x16\x03\x01\x02\x00\x01\x00"])
def test_half_a_handshake_is_ended(tmp_path: Path, content: bytes) -> None:
    async def story(it: Served) -> None:
        held = [await asyncio.open_connection("127.0.0.1", it.port) for _ in range(10)]
        for _, writer in held:
            writer.write(content)
        reader, writer = await it.connect()
        assert (await it.ask(reader, writer)).startswith(b"HTTP/1.1 200")
        writer.close()
        async with asyncio.timeout(PATIENCE):
            for stuck, _ in held:
                try:
                    while await stuck.read(1000):
                        pass
                except ConnectionError:
                    pass

    serving(story, tmp_path, header_timeout=0.5)


def test_connections_count_before_their_handshake(tmp_path: Path) -> None:
    async def story(it: Served) -> None:
        held = [await asyncio.open_connection("127.0.0.1", it.port) for _ in range(3)]
        async with asyncio.timeout(PATIENCE):
            while it.connections._number < 3:  # noqa: ASYNC110 - another end of a socket
                await asyncio.sleep(0.01)
        with pytest.raises(ConnectionError):
            await it.connect()
        held[0][1].close()
        async with asyncio.timeout(PATIENCE):
            while it.connections._number > 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        reader, writer = await it.connect()
        assert (await it.ask(reader, writer)).startswith(b"HTTP/1.1 200")
        writer.close()
        for _, each in held:
            each.close()

    serving(story, tmp_path, exempt=(), max_connections_per_address=3)


def test_a_key_with_a_password_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    cert, key = write_certificate(tmp_path)
    plain = serialization.load_pem_private_key(Path(key).read_bytes(), None)
    sealed = plain.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    Path(key).write_bytes(sealed)
    with pytest.raises(Refused, match="password"):
        Certificate(cert, key)
