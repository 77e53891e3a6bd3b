"""The bus of a fleet: core NATS, nothing durable. Losing the broker costs time, never truth.

connect -> serve (shared: a queue group) -> call, cast -> broker lost -> reconnect, forever, and serve as before
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from kilonova.bus import token
from kilonova.bus.serving import SETTLE_SECONDS, Reply, Tasks, check_size, run_handler
from kilonova.domain.errors import Failed, KilonovaError, NoAnswer
from kilonova.world import Handler

log = logging.getLogger(__name__)

CONNECT_SECONDS = 4.0
FLUSH_SECONDS = 2
WATCH_SECONDS = 1.0
PATIENCE_SECONDS = 15.0  # how long nats-py may try to reconnect before it is replaced
QUEUE_GROUP = "shared"
FAILURE = "Kilonova-Failure"  # header of a response that is a failure's text; a normal response has no headers


@dataclass(frozen=True, slots=True)
class _Served:
    subject: str
    handler: Handler
    queue: str


class NatsBus:
    """The connection of one process to NATS. Satisfies `world.Bus`."""

    def __init__(
        self, url: str, name: str, *, prefix: str = "kilonova", user: str | None = None, password: str | None = None
    ) -> None:
        self.name = name
        self._servers = [part.strip() for part in url.split(",")]
        self._shown_url = re.sub(r"//[^/@]*@", "//", url)  # a password in the URL is not for logs
        self._prefix = f"{prefix}." if prefix else ""
        self._user, self._password = user, password
        self._client: Client | None = None
        self._up = asyncio.Event()
        self._served: list[_Served] = []
        self._subscriptions: list[Subscription] = []
        self._subscribing = asyncio.Lock()
        self._tasks = Tasks()
        self._watcher: asyncio.Task[None] | None = None
        self._closed = False
        self._complaint = ""

    async def start(self) -> None:
        await self._renew()
        self._up.set()
        self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        self._closed = True
        self._up.set()  # wake the tasks that wait for a connection
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait([self._watcher])
        await self._tasks.cancel()
        if self._client is not None:
            await _abandon(self._client)

    def is_connected(self) -> bool:
        return self._client is not None and self._client.is_connected

    async def serve(self, subject: str, handler: Handler, *, shared: bool = False) -> None:
        served = _Served(self._prefix + subject, handler, QUEUE_GROUP if shared else "")
        async with self._subscribing:
            self._served.append(served)
            if self._client is not None:
                await self._subscribe(self._client, [served])

    async def stop_serving(self) -> None:
        async with self._subscribing:
            self._served = []
            subscriptions, self._subscriptions = self._subscriptions, []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await asyncio.gather(*map(_drained, subscriptions), return_exceptions=True)
        await self._tasks.settle()

    async def call(self, subject: str, body: bytes, *, timeout: float = 10.0) -> bytes:
        check_size(subject, body)
        try:
            with _cancellable():
                async with asyncio.timeout(timeout):
                    client = await self._connected()
                    message = await client.request(self._prefix + subject, body, timeout=timeout)
        except errors.MaxPayloadError:
            raise self._too_large(subject, body) from None
        except errors.NoRespondersError:
            raise NoAnswer(f"no subscriber on {subject}") from None
        except TimeoutError:
            lost = "" if self.is_connected() else f"; there is no connection to {self._shown_url}"
            raise NoAnswer(f"no answer on {subject} within {timeout:g} s{lost}") from None
        except (errors.Error, OSError) as error:
            raise NoAnswer(f"{subject}: {error}") from None
        return _reply_in(message).open()

    async def cast(self, subject: str, body: bytes) -> None:
        check_size(subject, body)
        if self._client is None or not self._client.is_connected:
            return  # nats-py would buffer it and send it too late
        try:
            await self._client.publish(self._prefix + subject, body)
        except errors.MaxPayloadError:
            raise self._too_large(subject, body) from None
        except (errors.Error, OSError) as error:
            log.debug("a message on %s was lost: %s", subject, error)

    async def _connected(self) -> Client:
        await self._up.wait()
        if self._closed or self._client is None:
            raise errors.ConnectionClosedError
        return self._client

    def _too_large(self, subject: str, body: bytes) -> Failed:
        limit = self._client.max_payload if self._client else 0
        text = f"bus subject {subject}: a message of {len(body)} bytes; {self._shown_url} takes {limit} (max_payload)"
        return Failed("message_too_large", text, final=True)

    # Serving

    async def _subscribe(self, client: Client, served: list[_Served]) -> None:
        """Return when the broker knows, so that clients can call at once."""
        for one in served:
            receiver = self._receiver(one, client)
            self._subscriptions.append(await client.subscribe(one.subject, queue=one.queue, cb=receiver))
        if client.is_connected:
            with contextlib.suppress(errors.Error, OSError):  # lost again: nats-py repeats subscriptions
                await client.flush(FLUSH_SECONDS)
                await client.flush(FLUSH_SECONDS)  # the first one may overtake the subscription: nats-py sends it ahead

    def _receiver(self, served: _Served, client: Client) -> Any:
        async def receive(message: Msg) -> None:
            self._tasks.spawn(self._answer(served, client, message))  # nats-py waits for each receiver in turn

        return receive

    async def _answer(self, served: _Served, client: Client, message: Msg) -> None:
        reply = await run_handler(served.handler, served.subject, message.data)
        if not message.reply:
            return
        try:
            if reply.failure:
                await client.publish(message.reply, reply.failure.encode(errors="replace"), headers={FAILURE: "1"})
            else:
                await client.publish(message.reply, reply.body)
        except (errors.Error, OSError) as error:
            log.warning("an answer on %s was lost: %s", served.subject, error)

    # Staying connected

    async def _watch(self) -> None:
        """Reconnect. nats-py reconnects automatically, but gives up for good after some server errors; this never
        does."""
        loop = asyncio.get_running_loop()
        seen = loop.time()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if self.is_connected():
                seen = loop.time()
            elif self._client is None or self._client.is_closed or loop.time() - seen > PATIENCE_SECONDS:
                try:
                    with _cancellable():
                        await self._renew()
                    await self._on_reconnected()
                except (KilonovaError, errors.Error, OSError) as error:
                    log.debug("%s", error)  # the loss was logged when it happened

    async def _renew(self) -> None:
        old, self._client = self._client, None
        if old is not None:
            await self._on_disconnected()
            await _abandon(old)
        client = await self._connect()
        async with self._subscribing:
            self._client, self._subscriptions = client, []
            await self._subscribe(client, self._served)

    async def _connect(self) -> Client:
        client = Client()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await client.connect(self._servers, **self._options())
        except (TimeoutError, OSError, errors.Error) as error:
            reason = client.last_error or error
            await _abandon(client)
            raise KilonovaError(
                f"cannot connect to NATS at {self._shown_url} within {CONNECT_SECONDS:g} s: "
                f"{str(reason) or 'no answer'}; start nats-server there or correct the URL"
            ) from None
        return client

    def _options(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "user": self._user,
            "password": self._password,
            "inbox_prefix": f"{self._prefix}inbox.{token(self.name)}",  # a broker can let each hear only its own
            "allow_reconnect": True,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.25 + zlib.crc32(self.name.encode()) % 500 / 1000,  # not all hosts at the same time
            "connect_timeout": 2,
            "ping_interval": 10,
            "max_outstanding_pings": 2,
            "flush_timeout": FLUSH_SECONDS,
            "error_cb": self._on_error,
            "disconnected_cb": self._on_disconnected,
            "reconnected_cb": self._on_reconnected,
        }

    async def _on_error(self, error: Exception) -> None:
        """Log an error once: each attempt to reconnect has one, and the loss itself was logged."""
        known = isinstance(error, OSError | TimeoutError | errors.StaleConnectionError) or str(error) == self._complaint
        if not known:
            self._complaint = str(error)
        log.log(logging.DEBUG if known else logging.WARNING, "%s: %s", self._shown_url, error)

    async def _on_disconnected(self) -> None:
        if self._up.is_set() and not self._closed:
            self._up.clear()
            log.warning("lost the connection to %s; reconnecting", self._shown_url)

    async def _on_reconnected(self) -> None:
        self._up.set()
        self._complaint = ""
        log.warning("reconnected to %s", self._shown_url)


@contextlib.contextmanager
def _cancellable() -> Iterator[None]:
    """Raise CancelledError if the task was cancelled within.

    nats-py uses asyncio's `wait_for`, which in Python 3.11 drops a cancellation that arrives together with its result;
    a loop of calls would then never end.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


async def _drained(subscription: Subscription) -> None:
    await subscription.drain()  # type: ignore[no-untyped-call]


def _reply_in(message: Msg) -> Reply:
    if message.headers and FAILURE in message.headers:
        return Reply(b"", message.data.decode(errors="replace") or "internal error")
    return Reply(message.data)


async def _abandon(client: Client) -> None:
    with contextlib.suppress(Exception):  # nats-py complains about closing what never was open
        async with asyncio.timeout(CONNECT_SECONDS):
            await client.close()
