"""The serving side of every bus: run the handler, keep its task, turn its failure into a reply."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from kilonova.domain.errors import Crowded, Failed, KilonovaError, NoAnswer, Unreachable
from kilonova.world import Handler

log = logging.getLogger(__name__)

MAX_BODY = 1024 * 1024 - 4096  # what NATS takes by default, less headers; the same everywhere, so that tests see it
MAX_FAILURE_TEXT = 4000
SETTLE_SECONDS = 0.3  # for answers under way when nothing new is answered any more
CANCEL_SECONDS = 5.0  # a handler that does not let go must not hold up the end of the process


@dataclass(frozen=True, slots=True)
class Reply:
    body: bytes
    failure: str = ""

    def open(self) -> bytes:
        if self.failure:
            raise NoAnswer(self.failure)
        return self.body


def check_size(subject: str, body: bytes) -> None:
    if len(body) > MAX_BODY:
        raise Failed(
            "message_too_large",
            f"bus subject {subject}: a message of {len(body)} bytes; the limit is {MAX_BODY}",
            final=True,
        )


async def run_handler(handler: Handler, subject: str, body: bytes) -> Reply:
    """Run the handler. The caller gets intended errors only; the details of others stay in the server's log."""
    try:
        answer = await handler(body)
        check_size(subject, answer)
    except KilonovaError as error:
        text = str(error) or type(error).__name__
        # The store has logged that it is away, and every host's repeated requests get both errors.
        quietly = isinstance(error, Unreachable | Crowded)
        log.log(logging.DEBUG if quietly else logging.WARNING, "%s: %s", subject, text)
        return Reply(b"", text[:MAX_FAILURE_TEXT])
    except Exception:
        log.exception("%s: the handler crashed", subject)
        return Reply(b"", "internal error")
    return Reply(answer)


class Tasks:
    """Running handlers. The event loop itself holds tasks weakly: one without a reference can vanish half-way."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], *, context: contextvars.Context | None = None) -> None:
        task = asyncio.create_task(work, context=context)
        self._running.add(task)
        task.add_done_callback(self._forget)

    async def settle(self) -> None:
        """Wait for the handlers that run, but only for a moment."""
        others = self._running - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=SETTLE_SECONDS)

    async def cancel(self) -> None:
        others = self._running - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=CANCEL_SECONDS)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception):  # anything stronger is a simulated death, not a bug
            log.error("a message was not handled", exc_info=error)
