"""An event loop in virtual time, with simulated operating-system processes that can be killed without notice.

Nothing here depends on real time, hashes or ids: the same coroutines run in the same order every time. The only
exception is real I/O (a PostgreSQL server), announced with `SimLoop.io`: while it is under way the clock does not move.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import types
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from selectors import BaseSelector
from typing import Any, TypeVar, TypeVarTuple

from kilonova.sim.loop.process import PROCESS, Process, close_sockets, current_process

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Action = Callable[[Process], None]

IO_PATIENCE = 1.0  # seconds of one real wait
IO_PATIENCE_LIMIT = 300  # waits without any answer before we say so
SPIN_LIMIT = 2_000_000  # rounds without the clock moving


@types.coroutine
def give_way() -> Generator[None, None, None]:
    """Let the others run: `asyncio.sleep(0)` in one frame instead of two."""
    yield


class Deadlock(RuntimeError):
    """Nothing is ready, nothing will become ready."""


class Livelock(RuntimeError):
    """Callbacks run forever while the virtual clock does not move."""


class TimeLimit(RuntimeError):
    """The condition of `run_until` did not become true in the given virtual time."""


class _Plumbing(dict[type, bool]):
    """A cache that says whether a callback's class belongs to a socket: none of our lines run in it. The tasks that it
    wakes have their own points."""

    def __missing__(self, owner: type) -> bool:
        self[owner] = owner.__module__.startswith(("asyncio.selector_events", "asyncpg."))
        return self[owner]


_PLUMBING = _Plumbing()


class SimLoop(asyncio.SelectorEventLoop):
    """`points` counts the callbacks run in live processes: each is a place where a crash can happen."""

    _ready: deque[Any]
    _selector: BaseSelector
    _closed: bool
    _check_closed: Callable[[], None]

    def __init__(self) -> None:
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._ticket = itertools.count()
        self._processes: list[Process] = []
        self._generators: dict[int, Process] = {}
        self._io = 0
        self._silent_waits = 0
        self._spins = 0
        self._horizon: float | None = None
        self._until: Callable[[], bool] | None = None
        self._crash_at: dict[int, list[Action]] = {}
        self._crash_if: list[tuple[Callable[[Process], bool], Action]] = []
        self.points = 0
        super().__init__()

    # --- time ---------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._ticket), timer))  # the ticket: equal times fire in order
        return timer

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Do as the inherited method, in one call instead of three: it is called at every step of every task."""
        if self._closed:
            self._check_closed()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def run_for(self, seconds: float) -> None:
        """Run until `seconds` of virtual time have passed, including the callbacks that are due exactly then."""
        self._drive(self._now + seconds)

    def run_until(self, predicate: Callable[[], bool], limit: float, what: str = "") -> None:
        """Run until the predicate holds at an idle moment (all that can happen at that instant has happened)."""
        if predicate():
            return
        self._drive(self._now + limit, predicate)
        if not predicate():
            wanted = what or getattr(predicate, "__qualname__", repr(predicate))
            raise TimeLimit(f"{wanted}: not so after {limit:g} virtual seconds (now {self._now:g})")

    def _drive(self, horizon: float, until: Callable[[], bool] | None = None) -> None:
        self._horizon, self._until = horizon, until
        try:
            self.run_forever()
        finally:
            self._horizon = self._until = None

    # --- processes ----------------------------------------------------------------------------------------------

    def spawn(self, process: Process, coro: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start a task in the process; everything it starts belongs to the process as well."""
        if process.loop is None:
            process.loop = self
            self._processes.append(process)
        return self.create_task(coro, name=name, context=process.new_context())

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        if self._closed:
            self._check_closed()
        named = None if name is None else str(name)
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=named, context=context)
        process = current_process() if context is None else context.get(PROCESS)
        if process is not None:
            process.keep(task)
        return task

    def kill(self, process: Process) -> None:
        """Kill a process, as by kill -9: not one more line of it runs, and its objects are not collected before
        `bury`."""
        if not process.alive:
            return
        process.alive = False
        self._io -= process.io
        process.io = 0
        close_sockets(self._selector, process)
        for hook in process.kill_hooks:
            contextvars.Context().run(hook)

    def freeze(self, process: Process) -> None:
        """Freeze a process, as by SIGSTOP: nothing of it runs until `thaw`, while its timers and messages pile up."""
        if process.frozen is None:
            process.frozen = []

    def thaw(self, process: Process) -> None:
        self._ready.extend(process.frozen or ())
        process.frozen = None

    def kill_all(self) -> None:
        for process in self._processes:
            self.kill(process)

    def bury(self) -> None:
        """Kill the remaining processes at the very end, and release the objects of the dead ones silently."""
        self.kill_all()
        self.set_exception_handler(lambda *_: None)
        for process in self._processes:
            process.release()
        self._processes.clear()
        self._generators.clear()

    def close(self) -> None:
        if not self.is_running() and not self.is_closed():
            self.bury()
            self._timers.clear()
        super().close()

    # --- crashes ------------------------------------------------------------------------------------------------

    def crash_when(self, when: int | Callable[[Process], bool], action: Action) -> None:
        """Call `action(process)` once, before the callback at point number `when`, or the first for which
        `when(process)` is true, runs in that process. The action usually kills that process, or all of them."""
        if callable(when):
            self._crash_if.append((when, action))
        else:
            self._crash_at.setdefault(when, []).append(action)

    def _crash_here(self, process: Process) -> None:
        for action in self._crash_at.pop(self.points, ()):
            action(process)
        for pair in [pair for pair in self._crash_if if pair[0](process)]:
            self._crash_if.remove(pair)
            pair[1](process)

    # --- real I/O -----------------------------------------------------------------------------------------------

    def io(self, change: int) -> None:
        """+1 before a real wait (socket, thread), -1 after it. A killed process's waits no longer count."""
        process = current_process()
        if process is not None:
            if not process.alive:
                return
            process.io += change
        self._io += change

    def _wait_for_io(self) -> None:
        events = self._selector.select(IO_PATIENCE)
        self._silent_waits = 0 if events else self._silent_waits + 1
        if self._silent_waits > IO_PATIENCE_LIMIT:
            raise Deadlock(f"{self._io} real I/O waits under way, no answer for {IO_PATIENCE_LIMIT * IO_PATIENCE:g} s")
        self._process_events(events)  # type: ignore[attr-defined]

    # --- one round ----------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        ready = self._ready
        if ready:
            self._note_spin()
        else:
            self._idle()
        for _ in range(len(ready)):
            callback = ready.popleft()
            if not callback._cancelled:
                self._run_guarded(callback)

    def _run_guarded(self, callback: Any) -> None:
        process = callback._context.get(PROCESS)
        if process is None:
            callback._run()
            return
        runs = process.alive and process.frozen is None
        if runs and process.takes_part and not _PLUMBING[type(getattr(callback._callback, "__self__", None))]:
            self.points += 1
            process.points += 1
            if self._crash_at or self._crash_if:
                self._crash_here(process)
        if not process.alive:  # a crash may have been due at this very point
            process.graveyard.append(callback)
        elif process.frozen is not None:
            process.frozen.append(callback)
        else:
            callback._run()

    def _idle(self) -> None:
        if self._until is not None and self._until():
            self.stop()
        elif self._io:
            self._wait_for_io()
        else:
            self._move_clock()

    def _move_clock(self) -> None:
        due = self._next_due()
        if self._horizon is not None and (due is None or due > self._horizon):
            self._now = max(self._now, self._horizon)
            self.stop()
        elif due is None:
            raise Deadlock(f"nothing is ready, no timer is set, no I/O is under way (virtual time {self._now:g})")
        else:
            self._now = max(self._now, due)
            self._spins = 0
            self._admit_due()

    def _next_due(self) -> float | None:
        timers = self._timers
        while timers and self._is_void(timers[0][2]):
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    def _is_void(self, timer: Any) -> bool:
        """Return True if the timer is cancelled or belongs to a dead process: such timers must not move the clock."""
        if timer._cancelled:
            return True
        process = timer._context.get(PROCESS)
        if process is None or process.alive:
            return False
        process.graveyard.append(timer)
        return True

    def _admit_due(self) -> None:
        while (due := self._next_due()) is not None and due <= self._now:
            self._ready.append(heapq.heappop(self._timers)[2])

    def _note_spin(self) -> None:
        self._spins += 1
        if self._spins > SPIN_LIMIT:
            self._spins = 0
            raise Livelock(f"{SPIN_LIMIT} rounds at virtual time {self._now:g} without the clock moving")

    # --- async generators: their clean-up is scheduled by the garbage collector, so it is guarded here -------------

    def _asyncgen_firstiter_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        process = current_process()
        if process is None:
            self._generators.pop(id(agen), None)  # an id may be used again
        else:
            self._generators[id(agen)] = process
        super()._asyncgen_firstiter_hook(agen)  # type: ignore[misc]

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        process = self._generators.pop(id(agen), None)
        if process is None:
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]
        elif process.alive:
            self.call_soon_threadsafe(self.create_task, agen.aclose(), context=process.new_context())
        else:
            process.graveyard.append(agen)


class SimClock:
    """`world.Clock` on a SimLoop: `skew` seconds off, running `drift` faster (0.01: one second in a hundred)."""

    def __init__(self, loop: SimLoop, epoch: float = 1_800_000_000.0, skew: float = 0.0, drift: float = 0.0) -> None:
        self.loop = loop
        self.epoch = epoch
        self.skew = skew
        self.drift = drift

    def now(self) -> float:
        return self.epoch + self.monotonic() + self.skew

    def monotonic(self) -> float:
        return self.loop.time() * (1.0 + self.drift)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / (1.0 + self.drift))
