"""The webhook: what is sent, what counts as accepted, and receivers that hang, fail, redirect or lie."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.notifications.bus import BusTarget
from kilonova.notifications.target import Message, NotSent
from kilonova.notifications.webhook import LONGEST_LINE, Webhook, read_secret
from kilonova.roles.wiring import make_sender
from kilonova.settings import load
from tests.unit.api.embedded import Api, run
from tests.unit.api.test_tls import write_certificate
from tests.unit.notifications.published import check_message

MESSAGE = Message(id="m1", event_type="instance.create.end", priority="INFO", body=b'{"a": 1}')
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Receiver:
    """A real HTTP receiver. `answers` are used one after the other; then it accepts."""

    def __init__(self, *answers: bytes | None, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.answers = list(answers)  # None: it hangs
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.hanging = asyncio.Event()

    async def __aenter__(self) -> Receiver:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.hanging.set()
        self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await reader.readline()).decode().strip()
            headers: dict[str, str] = {}
            while one := (await reader.readline()).decode().strip():
                name, _, value = one.partition(":")
                headers[name.lower()] = value.strip()
            body = await reader.readexactly(int(headers["content-length"]))
            self.requests.append((line, headers, body))
            answer = self.answers.pop(0) if self.answers else b"HTTP/1.1 204 No Content\r\n\r\n"
            if answer is None:
                await self.hanging.wait()
            else:
                writer.write(answer)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


def sent(*answers: bytes | None, path: str = "/hook?x=1", **options: Any) -> Receiver:
    """The receiver after one message; raises what the webhook raises."""

    async def body() -> Receiver:
        async with Receiver(*answers) as receiver:
            await Webhook(receiver.url + path, **options).send(MESSAGE)
            return receiver

    return asyncio.run(body())


def test_a_message_is_posted_and_signed() -> None:
    ((line, headers, body),) = sent(secret=b"key").requests
    assert (line, body) == ("POST /hook?x=1 HTTP/1.1", MESSAGE.body)
    assert (headers["x-kilonova-event"], headers["x-kilonova-message-id"]) == (MESSAGE.event_type, "m1")
    expected = hmac.new(b"key", MESSAGE.body, hashlib.sha256).hexdigest()
    assert headers["x-kilonova-signature"] == f"sha256={expected}"


def test_without_a_secret_it_is_not_signed() -> None:
    ((line, headers, _),) = sent(path="").requests
    assert line == "POST / HTTP/1.1" and "x-kilonova-signature" not in headers


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 500 Oops\r\n\r\n", "500"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "404"),
        (b"", "not HTTP"),
        (b"220 smtp.example\r\n", "not HTTP"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "not HTTP"),
        (b"x" * (LONGEST_LINE + 1), "imit"),
    ],
)
def test_anything_but_2xx_is_not_accepted(answer: bytes, reason: str) -> None:
    with pytest.raises(NotSent, match=reason):
        sent(answer)


def test_a_redirect_is_not_followed() -> None:
    async def body() -> None:
        async with Receiver() as elsewhere:
            answer = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {elsewhere.url}/\r\n\r\n".encode()
            async with Receiver(answer) as receiver:
                with pytest.raises(NotSent, match="307"):
                    await Webhook(receiver.url).send(MESSAGE)
            assert elsewhere.requests == []

    asyncio.run(body())


def test_an_endless_answer_is_not_read() -> None:
    sent(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 100_000)


def test_a_receiver_that_hangs_is_left_in_time() -> None:
    begun = time.monotonic()
    with pytest.raises(NotSent, match=r"no answer within 0\.2 s"):
        sent(None, seconds=0.2)
    assert time.monotonic() - begun < 5


def test_https_is_checked(tmp_path: Path) -> None:
    """A receiver whose certificate is not trusted gets nothing."""
    certificate, key = write_certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def body() -> None:
        async with Receiver(tls=context) as receiver:
            with pytest.raises(NotSent, match="CERTIFICATE_VERIFY_FAILED"):
                await Webhook(receiver.url).send(MESSAGE)
            assert receiver.requests == []
            await Webhook(receiver.url, ca_file=certificate).send(MESSAGE)
            assert len(receiver.requests) == 1

    asyncio.run(body())


def test_nobody_listens() -> None:
    with pytest.raises(NotSent):
        asyncio.run(Webhook("http://127.0.0.1:9").send(MESSAGE))


def test_secrets_are_read_at_the_start(tmp_path) -> None:
    file = tmp_path / "secret"
    with pytest.raises(Refused, match="cannot be read"):
        read_secret(str(file))
    file.write_text("\n")
    with pytest.raises(Refused, match="is empty"):
        read_secret(str(file))
    file.write_text("key\n")
    assert read_secret(str(file)) == b"key"


@pytest.mark.parametrize(
    "options",
    [
        ["notifications.transport=webhook"],
        ["notifications.transport=bus"],
        ["notifications.transport=rabbit"],
        ["notifications.webhook_url=http://user:password@receiver/"],
        ["notifications.webhook_url=http://receiver:99999/password@"],
        ["notifications.webhook_url=http://receiver:port/"],
        ["notifications.webhook_url=http://:80/"],
        ["notifications.webhook_url=http://[::1/"],
        ["notifications.webhook_url=http://receiver/ü"],
    ],
)
def test_options_that_do_not_fit_are_refused(options: list[str]) -> None:
    with pytest.raises(Refused) as refused:
        load(None, None, options)
    assert "[notifications]" in str(refused.value) and "password@" not in str(refused.value)


class FakeBus:
    """Of which only a part is used."""

    def __init__(self, *, connected: bool = True) -> None:
        self.connected = connected
        self.told: list[tuple[str, str, bytes]] = []

    def is_connected(self) -> bool:
        return self.connected

    async def cast(self, subject: str, body: bytes) -> None:
        self.told.append(("cast", subject, body))

    async def call(self, subject: str, body: bytes, *, timeout: float) -> bytes:
        self.told.append(("call", subject, body))
        return b""


def test_the_bus_has_novas_topics() -> None:
    bus: Any = FakeBus()
    asyncio.run(BusTarget(bus, ["versioned_notifications", "other"]).send(MESSAGE))
    asyncio.run(BusTarget(bus, ["versioned_notifications"], answered_within=1.0).send(MESSAGE))
    assert bus.told == [
        ("cast", "versioned_notifications.info", MESSAGE.body),
        ("cast", "other.info", MESSAGE.body),
        ("call", "versioned_notifications.info", MESSAGE.body),
    ]


def test_a_bus_that_is_away_has_not_accepted_it() -> None:
    bus: Any = FakeBus(connected=False)
    with pytest.raises(NotSent):
        asyncio.run(BusTarget(bus, ["versioned_notifications"]).send(MESSAGE))
    assert bus.told == []


@pytest.mark.slow
def test_a_whole_cloud_tells_a_receiver_that_hangs_and_fails_first(tmp_path) -> None:
    """Operations do not wait for it, and all arrive in order, signed."""
    (tmp_path / "secret").write_text("key")

    async def whole() -> None:
        async with Receiver(None, b"HTTP/1.1 503 Busy\r\n\r\n", b"") as receiver:
            options = (
                "notifications.transport=webhook",
                f"notifications.webhook_url={receiver.url}/hook",
                f"notifications.webhook_secret_file={tmp_path / 'secret'}",
                "notifications.webhook_timeout=0.5",
                "DEFAULT.host=machine1",
            )
            await asyncio.to_thread(run, lambda api: story(api, receiver), *options)
            for _, headers, body in receiver.requests:
                digest = hmac.new(b"key", body, hashlib.sha256).hexdigest()
                assert headers["x-kilonova-signature"] == f"sha256={digest}"

    async def story(api: Api, receiver: Receiver) -> None:
        server = await api.created()
        await api.ended((await api.submit("migrate", server=server))["operation"])
        await api.ended((await api.submit("delete", server=server))["operation"])
        expected = [
            *("instance.create.start", "instance.create.end"),
            *("instance.resize.start", "instance.resize.end"),
            *("instance.delete.start", "instance.delete.end"),
        ]

        async def is_told() -> bool:
            return len({headers["x-kilonova-message-id"] for _, headers, _ in receiver.requests}) == len(expected)

        await api.until(is_told)
        messages = [json.loads(body) for _, _, body in receiver.requests]
        for message in messages:
            check_message(message)
        assert len(messages) == len(expected) + 3  # the tries that were not accepted
        once = {message["message_id"]: message["event_type"] for message in messages}
        assert list(once.values()) == expected
        assert "kilonova_notifications_total" in (await api.client.get("/metrics")).text

    asyncio.run(whole())


def test_a_file_of_authorities_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("no certificate")
    for name, sentence in (("nothing", "No such file"), ("wrong", "no certificate")):
        with pytest.raises(Refused, match="webhook_ca_file") as refused:
            Webhook("https://receiver/", ca_file=str(tmp_path / name))
        assert refused.value.code == "bad_configuration" and sentence in refused.value.message


def test_there_is_no_sender_by_default() -> None:
    engine: Any = None
    assert make_sender(engine, load(None, None, [])) is None


def test_a_url_with_a_password_is_refused() -> None:
    """It would be in every log line about the receiver."""
    with pytest.raises(Refused) as refused:
        Webhook("https://user:secret@receiver.example/hook")
    assert "secret@" not in refused.value.message and "webhook_secret_file" in refused.value.message
