"""Virtual time: it jumps when idle, stands still during real I/O, and says so when nothing can ever happen."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from kilonova.sim.loop import event_loop as loop_module
from kilonova.sim.loop.event_loop import Deadlock, Livelock, SimClock, SimLoop, TimeLimit
from kilonova.sim.loop.process import Process


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop()
    yield loop
    loop.close()


def test_a_virtual_hour_takes_milliseconds(loop: SimLoop) -> None:
    began = time.process_time()
    loop.run_until_complete(asyncio.sleep(3600))
    assert loop.time() == 3600
    assert time.process_time() - began < 0.5


def test_timers_of_the_same_time_fire_in_the_order_they_were_set(loop: SimLoop) -> None:
    fired: list[int] = []
    for number in range(50):
        loop.call_at(7.0, fired.append, number)
    loop.run_for(7.0)
    assert fired == list(range(50))


def test_a_cancelled_timer_does_not_move_the_clock(loop: SimLoop) -> None:
    loop.call_later(1000, print).cancel()
    loop.run_until_complete(asyncio.sleep(1))
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())
    assert loop.time() == 1


def test_run_for_ends_on_time_even_when_nothing_happens(loop: SimLoop) -> None:
    loop.run_for(5)
    loop.run_for(2.5)
    assert loop.time() == 7.5


def test_run_for_does_what_is_due_at_its_end_and_nothing_later(loop: SimLoop) -> None:
    fired: list[str] = []
    loop.call_at(5, fired.append, "at five")
    loop.call_at(5.001, fired.append, "later")
    loop.run_for(5)
    assert fired == ["at five"]


def test_run_until_stops_at_the_moment_it_is_true(loop: SimLoop) -> None:
    fired: list[int] = []
    for second in range(1, 100):
        loop.call_at(second, fired.append, second)
    loop.run_until(lambda: len(fired) >= 10, limit=1000)
    assert (fired[-1], loop.time()) == (10, 10)


def test_run_until_true_at_once_runs_nothing(loop: SimLoop) -> None:
    loop.call_soon(pytest.fail, "ran")
    loop.run_until(lambda: True, limit=1)


def test_run_until_says_what_did_not_happen(loop: SimLoop) -> None:
    with pytest.raises(TimeLimit, match=r"server ACTIVE: not so after 60 virtual seconds \(now 60\)"):
        loop.run_until(lambda: False, limit=60, what="server ACTIVE")


def test_the_limits_of_one_run_do_not_hold_for_the_next(loop: SimLoop) -> None:
    loop.run_for(1)
    loop.run_until_complete(asyncio.sleep(100))
    assert loop.time() == 101


def test_waiting_for_nothing_is_a_deadlock(loop: SimLoop) -> None:
    with pytest.raises(Deadlock, match="no timer is set"):
        loop.run_until_complete(loop.create_future())


def test_callbacks_that_never_let_time_pass_are_a_livelock(loop: SimLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "SPIN_LIMIT", 1000)

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(Livelock, match="virtual time 0"):
        loop.run_for(1)


async def read_with_io(loop: SimLoop, end: socket.socket) -> bytes:
    loop.io(+1)
    try:
        return await loop.sock_recv(end, 100)
    finally:
        loop.io(-1)


def test_a_real_socket_read_works_and_the_clock_stands_still(loop: SimLoop) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    fired: list[str] = []
    loop.call_later(1, fired.append, "timer")
    threading.Timer(0.05, theirs.send, [b"hello"]).start()
    assert loop.run_until_complete(read_with_io(loop, ours)) == b"hello"
    assert (loop.time(), fired) == (0.0, [])
    loop.run_for(1)
    assert fired == ["timer"]
    ours.close(), theirs.close()


def test_a_thread_can_answer_while_io_is_announced(loop: SimLoop) -> None:
    async def ask_thread() -> str:
        loop.io(+1)
        answer = await loop.run_in_executor(None, lambda: time.sleep(0.02) or "answer")
        loop.io(-1)
        return answer

    assert loop.run_until_complete(ask_thread()) == "answer"


def test_real_io_without_any_answer_ends_with_a_sentence(loop: SimLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "IO_PATIENCE", 0.001)
    monkeypatch.setattr(loop_module, "IO_PATIENCE_LIMIT", 5)
    loop.io(+1)
    with pytest.raises(Deadlock, match="1 real I/O waits under way"):
        loop.run_until_complete(loop.create_future())


def test_a_killed_process_no_longer_holds_the_clock_and_its_socket_is_shut(loop: SimLoop) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    client = Process("client")
    loop.spawn(client, read_with_io(loop, ours))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.kill(client)
    loop.run_for(10)
    assert loop.time() == 10
    assert theirs.recv(10) == b"", "the other end sees the connection closed, as after a real crash"
    ours.close(), theirs.close()


def test_clock_with_skew_and_drift(loop: SimLoop) -> None:
    right, fast = SimClock(loop), SimClock(loop, drift=0.1)
    loop.run_for(100)
    assert right.now() == 1_800_000_100
    assert fast.now() == pytest.approx(1_800_000_110)
    right.skew = -30
    assert right.now() == 1_800_000_070
    loop.run_until_complete(fast.sleep(11))
    assert loop.time() == pytest.approx(110)
