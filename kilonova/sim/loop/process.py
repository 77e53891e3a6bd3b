"""Simulated operating-system processes: what runs belongs to one, and ends with it without a last word."""

from __future__ import annotations

import asyncio
import contextvars
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from selectors import BaseSelector
from typing import Any

PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("kilonova_sim_process")


def current_process() -> Process | None:
    """Return the process that the running code belongs to; None outside of all (the test, the simulator itself)."""
    return PROCESS.get(None)


class Process:
    """A life of a role. A restarted role is a new Process, perhaps of the same name."""

    __slots__ = (
        *("_keep_limit", "_tasks", "alive", "frozen", "graveyard", "io", "kill_hooks"),
        *("loop", "name", "points", "takes_part"),
    )

    def __init__(self, name: str, *, takes_part: bool = True) -> None:
        self.name = name
        self.takes_part = takes_part  # else it only reads: it has no crash points
        self.alive = True
        self.points = 0
        self.io = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.frozen: list[Any] | None = None  # while stopped: what it would have run by now
        self.kill_hooks: list[Callable[[], object]] = []
        self.graveyard: list[Any] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._keep_limit = 64

    def __repr__(self) -> str:
        return f"<Process {self.name} {'alive' if self.alive else 'dead'}, {self.points} points>"

    def on_kill(self, hook: Callable[[], object]) -> None:
        """Run `hook` when killed, outside of the process (as the system closes files, not as a farewell)."""
        self.kill_hooks.append(hook)

    def new_context(self) -> contextvars.Context:
        """Return an empty context, as a new process has, that belongs to this process."""
        context = contextvars.Context()
        context.run(PROCESS.set, self)
        return context

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Hold the task: a collected task closes its coroutine, which would run its `finally` blocks."""
        if len(self._tasks) >= self._keep_limit:
            self._tasks = [held_task for held_task in self._tasks if not held_task.done()]
            self._keep_limit = 2 * len(self._tasks) + 64
        self._tasks.append(task)

    def release(self) -> None:
        """Let everything go. Coroutines are closed here, in the dead context, so what they start is dropped."""
        context = self.new_context()
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            for task in self._tasks:
                context.run(_close, task)
            self._tasks.clear()
            self.graveyard.clear()
            self.frozen = None
            self.kill_hooks.clear()
        finally:
            sys.unraisablehook = hook


def _close(task: Any) -> None:
    if task.done():
        return
    task._log_destroy_pending = False
    with suppress(BaseException):  # whatever a `finally` says now, the world it speaks of is gone
        task.get_coro().close()


def close_sockets(selector: BaseSelector, process: Process) -> None:
    """Shut down the sockets whose callbacks belong to the process, as the system does when a process dies."""
    for key in list(selector.get_map().values()):
        if any(part is not None and part._context.get(PROCESS) is process for part in key.data):
            process.graveyard.append(key.data)
            selector.unregister(key.fileobj)
            with suppress(OSError), socket.socket(fileno=os.dup(key.fd)) as duplicate:
                duplicate.shutdown(socket.SHUT_RDWR)
