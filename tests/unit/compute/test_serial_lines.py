"""Users of serial lines: one connection to each guest, and nobody waits for a reader. Over sockets: test_streams.py."""

from __future__ import annotations

import asyncio

import pytest

from kilonova.compute.serial_lines import SerialLines
from kilonova.domain.console import PIECE, SLOW


class Line:
    """The connection to a guest."""

    def __init__(self) -> None:
        self.output: asyncio.Queue[bytes] = asyncio.Queue()
        self.input: list[bytes] = []
        self.closed = self.readers = 0

    async def read(self) -> bytes:
        self.readers += 1
        try:
            return await self.output.get()
        finally:
            self.readers -= 1

    async def write(self, data: bytes) -> None:
        await asyncio.sleep(0)
        self.input.append(data)

    async def close(self) -> None:
        self.closed += 1


class Guests:
    """Opens lines, and counts them by guest."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, int]] = []
        self.made: list[Line] = []
        self.lines = SerialLines(self._open)

    async def _open(self, server: str, copy: int) -> Line:
        self.opened.append((server, copy))
        await asyncio.sleep(0)
        self.made.append(Line())
        return self.made[-1]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_guest_has_one_line_however_many_join_at_once() -> None:
    async def story() -> None:
        guests = Guests()
        join = guests.lines.join
        users = await asyncio.gather(join("s1", 1), join("s1", 1), join("s1", 2), join("s2", 1), join("s1", 1))
        assert guests.opened == [("s1", 1), ("s1", 2), ("s2", 1)]
        guests.made[0].output.put_nowait(b"one")
        assert [await users[at].read() for at in (0, 1, 4)] == [b"one"] * 3
        await users[1].write(b"typed")
        assert [one.input for one in guests.made] == [[b"typed"], [], []]

    asyncio.run(story())


@pytest.mark.parametrize("seconds", [0, 1], ids=["before it is read", "while it is read"])
def test_the_last_to_leave_closes_the_line(seconds: int) -> None:
    async def story() -> None:
        guests = Guests()
        first, last = await guests.lines.join("s", 1), await guests.lines.join("s", 1)
        line = guests.made[0]
        if seconds:
            await settle()
            assert line.readers == 1
        await first.close()
        await settle()
        assert line.closed == 0 and line.readers == 1
        await last.close()
        assert line.closed > 0, "at once"
        await guests.lines.join("s", 1)
        assert len(guests.made) == 2, "the next user gets a new one"
        await settle()
        assert line.readers == 0, "nobody reads it any more"

    asyncio.run(story())


def test_one_who_leaves_at_once_leaves_nothing_open() -> None:
    async def story() -> None:
        guests = Guests()
        await (await guests.lines.join("s", 1)).close()
        assert guests.made[0].closed > 0
        await settle()
        assert guests.made[0].readers == 0

    asyncio.run(story())


def test_a_line_that_has_ended_ends_for_its_users_and_is_opened_again() -> None:
    async def story() -> None:
        guests = Guests()
        users = [await guests.lines.join("s", 1) for _ in range(2)]
        reading = asyncio.create_task(users[0].read())
        await settle()
        guests.made[0].output.put_nowait(b"")
        assert await asyncio.wait_for(reading, 5) == b""
        assert await asyncio.wait_for(users[1].read(), 5) == b""
        assert guests.made[0].closed > 0
        with pytest.raises(ConnectionResetError):
            await users[0].write(b"typed")
        assert guests.made[0].input == []
        again = await guests.lines.join("s", 1)
        assert len(guests.made) == 2
        for user in users:
            await user.close()  # late, and of the line before
        guests.made[1].output.put_nowait(b"booted")
        assert await asyncio.wait_for(again.read(), 5) == b"booted"
        await guests.lines.join("s", 1)
        assert len(guests.made) == 2

    asyncio.run(story())


def test_one_who_has_left_hears_and_says_nothing_more() -> None:
    async def story() -> None:
        guests = Guests()
        user, other = await guests.lines.join("s", 1), await guests.lines.join("s", 1)
        reading = asyncio.create_task(user.read())
        await settle()
        await user.close()
        assert await asyncio.wait_for(reading, 5) == b""
        with pytest.raises(ConnectionResetError):
            await user.write(b"typed")
        guests.made[0].output.put_nowait(b"more")
        assert await other.read() == b"more"
        assert await user.read() == b""

    asyncio.run(story())


@pytest.mark.parametrize("more", [0, 1], ids=["as much as may wait", "one byte too many"])
def test_one_who_does_not_read_is_cut_off_when_too_much_waits(more: int) -> None:
    async def story() -> None:
        guests = Guests()
        user = await guests.lines.join("s", 1)
        guests.made[0].output.put_nowait(b"x" * (SLOW - 1))
        guests.made[0].output.put_nowait(b"y" * (1 + more))
        await settle()
        got = 0
        while got < SLOW - more:
            data = await asyncio.wait_for(user.read(), 5)
            assert 0 < len(data) <= PIECE
            got += len(data)
            if got == SLOW - 1 and more:
                break
        assert got == SLOW - more
        guests.made[0].output.put_nowait(b"z")
        assert await asyncio.wait_for(user.read(), 5) == (b"" if more else b"z")

    asyncio.run(story())
