"""Streams of consoles: a relay ends for its reasons and closes both sides; a serial line never waits for a reader."""

from __future__ import annotations

import asyncio
import socket

from kilonova.compute.serial_lines import SerialLines
from kilonova.domain.console import SLOW, ByteStream
from kilonova.streams import SocketStream, relay, use_socket


async def pair() -> tuple[SocketStream, SocketStream]:
    one, other = socket.socketpair()
    return await use_socket(one), await use_socket(other)


def test_a_relay_carries_both_ways_until_a_side_ends() -> None:
    async def story() -> None:
        (user, left), (right, guest) = await pair(), await pair()
        carrying = asyncio.create_task(relay(left, right))
        await user.write(b"to the guest")
        assert await guest.read() == b"to the guest"
        await guest.write(b"to the user")
        assert await user.read() == b"to the user"
        await guest.close()
        assert await carrying == "closed"
        assert await user.read() == b"", "the other side is closed, too"

    asyncio.run(story())


def test_a_relay_ends_when_idle_and_in_time() -> None:
    async def story() -> None:
        for limits, why in (({"idle": 0.05}, "idle"), ({"ends": 0.05}, "expired")):
            (user, left), (right, guest) = await pair(), await pair()
            assert await relay(left, right, **limits) == why
            assert (await user.read(), await guest.read()) == (b"", b"")

    asyncio.run(story())


def test_a_relay_that_is_used_is_not_idle() -> None:
    async def story() -> None:
        (user, left), (right, guest) = await pair(), await pair()
        carrying = asyncio.create_task(relay(left, right, idle=2.0))
        for _ in range(5):
            await asyncio.sleep(0.5)  # a busy machine may make more of it
            await user.write(b"x")
        assert not carrying.done()
        await guest.close()
        assert await carrying == "closed"

    asyncio.run(story())


def test_whoever_does_not_read_a_line_is_cut_off() -> None:
    """The guest is read on, and the others get everything."""

    async def story() -> None:
        guest, line = await pair()
        opened = 0

        async def open_line(server: str, copy: int) -> ByteStream:
            nonlocal opened
            opened += 1
            return line

        lines = SerialLines(open_line)
        reader, sleeper = await lines.join("s", 1), await lines.join("s", 1)
        assert opened == 1
        got, sent = 0, 0
        while sent < 2 * SLOW:
            await asyncio.wait_for(guest.write(b"x" * 8192), 5)
            sent += 8192
            while got < sent:
                got += len(await asyncio.wait_for(reader.read(), 5))
        kept = 0
        while data := await asyncio.wait_for(sleeper.read(), 5):
            kept += len(data)
        assert kept <= SLOW, "it had its share, and then the end"
        await sleeper.close()
        await reader.write(b"still there")
        assert await guest.read() == b"still there"
        await reader.close()
        assert await guest.read() == b"", "nobody uses the line any more"

    asyncio.run(story())


def test_a_line_ends_with_its_guest_and_is_opened_again() -> None:
    async def story() -> None:
        streams = [await pair(), await pair()]
        waiting = [line for _, line in streams]

        async def open_line(server: str, copy: int) -> ByteStream:
            return waiting.pop(0)

        lines = SerialLines(open_line)
        user = await lines.join("s", 1)
        await streams[0][0].write(b"last words")
        await streams[0][0].close()
        assert await asyncio.wait_for(user.read(), 5) == b"last words"
        assert await asyncio.wait_for(user.read(), 5) == b""
        await user.close()
        again = await lines.join("s", 1)
        await streams[1][0].write(b"booted")
        assert await asyncio.wait_for(again.read(), 5) == b"booted"
        await again.close()

    asyncio.run(story())


def test_a_late_close_leaves_the_line_of_others_alone() -> None:
    """A stream may be closed by each who used it, and the guest may have been started again in between."""

    async def story() -> None:
        streams = [await pair(), await pair()]
        waiting = [line for _, line in streams]

        async def open_line(server: str, copy: int) -> ByteStream:
            return waiting.pop(0)

        lines = SerialLines(open_line)
        early = await lines.join("s", 1)
        await asyncio.sleep(0.05)  # it is being read
        await early.close()
        first = await lines.join("s", 1)
        await early.close()
        await asyncio.sleep(0.05)  # what the first line still had to do is done
        second = await lines.join("s", 1)
        assert waiting == [], "both have the same connection: QEMU serves one"
        await streams[1][0].write(b"to both")
        for user in (first, second):
            assert await asyncio.wait_for(user.read(), 5) == b"to both"
        await first.close()
        await first.close()
        await streams[1][0].write(b"to one")
        assert await asyncio.wait_for(second.read(), 5) == b"to one"
        await second.close()

    asyncio.run(story())


def test_a_user_who_has_left_does_not_close_the_line_again() -> None:
    async def story() -> None:
        guest, line = await pair()
        closed = 0
        close = line.close

        async def counted() -> None:
            nonlocal closed
            closed += 1
            await close()

        line.close = counted  # type: ignore[method-assign]

        async def open_line(server: str, copy: int) -> ByteStream:
            return line

        user = await SerialLines(open_line).join("s", 1)
        await user.close()
        await asyncio.sleep(0.05)
        before = closed
        await user.close()
        assert closed == before
        assert await guest.read() == b""

    asyncio.run(story())
