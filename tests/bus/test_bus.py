"""What every bus does, on each of them."""

from __future__ import annotations

import asyncio
import logging
import os
import time

import pytest

from kilonova.bus import host_subject
from kilonova.bus.serving import MAX_BODY
from kilonova.domain.errors import Failed, NoAnswer
from kilonova.world import Handler
from tests.bus.conftest import Site

ODD_NAMES = ["c1", "c1.example.org", "c1 example", "*", ">", "ä/ö", "50%", "%2E", ".", "C1", "a\r\nb"]


async def echo(body: bytes) -> bytes:
    return body


def saying(name: bytes) -> Handler:
    async def say(body: bytes) -> bytes:
        return name + b" " + body

    return say


def noting(name: str, heard: list[str]) -> Handler:
    async def note(body: bytes) -> bytes:
        heard.append(f"{name}:{body.decode()}")
        return b""

    return note


async def until_heard(heard: list[str], count: int) -> list[str]:
    """All that was heard, after a moment for one message too many."""
    for _ in range(200):
        if len(heard) >= count:
            break
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    return sorted(heard)


def test_a_question_is_answered(site: Site) -> None:
    async def body(site: Site) -> None:
        asker, server = await site.end("asker"), await site.end("server")
        await server.serve("greet", saying(b"hello"))
        assert await asker.call("greet", b"you") == b"hello you"
        assert await server.call("greet", b"me") == b"hello me"
        assert asker.is_connected()

    site.run(body)


def test_a_question_without_an_answer_ends_with_its_timeout(site: Site) -> None:
    async def body(site: Site) -> None:
        asker, server = await site.end("asker"), await site.end("server")

        async def never(body: bytes) -> bytes:
            await asyncio.sleep(60)
            return b""

        await server.serve("slow", never)
        began = time.monotonic()
        with pytest.raises(NoAnswer, match=r"slow within 0\.3 s"):
            await asker.call("slow", b"", timeout=0.3)
        assert 0.25 < time.monotonic() - began < 2

    site.run(body)


def test_nobody_serves_it(site: Site) -> None:
    async def body(site: Site) -> None:
        asker = await site.end("asker")
        with pytest.raises(NoAnswer, match="no subscriber on nowhere"):
            await asker.call("nowhere", b"", timeout=2)
        await asker.cast("nowhere", b"")

    site.run(body)


def test_a_shared_message_reaches_exactly_one(site: Site) -> None:
    async def body(site: Site) -> None:
        heard: list[str] = []
        asker = await site.end("asker")
        for name in ("one", "two", "three"):
            await (await site.end(name)).serve("work", noting(name, heard), shared=True)
        for number in range(60):
            await asker.cast("work", str(number).encode())
        numbers = [line.split(":")[1] for line in await until_heard(heard, 60)]
        assert sorted(numbers, key=int) == [str(number) for number in range(60)]
        assert {line.split(":")[0] for line in heard} == {"one", "two", "three"}

    site.run(body)


def test_a_plain_cast_reaches_all(site: Site) -> None:
    async def body(site: Site) -> None:
        heard: list[str] = []
        asker = await site.end("asker")
        for name in ("one", "two"):
            await (await site.end(name)).serve("news", noting(name, heard))
        for name in ("three", "four"):
            await (await site.end(name)).serve("news", noting("sharing", heard), shared=True)
        await asker.cast("news", b"x")
        assert await until_heard(heard, 3) == ["one:x", "sharing:x", "two:x"]

    site.run(body)


def test_the_first_of_several_answers_wins(site: Site) -> None:
    async def body(site: Site) -> None:
        asker = await site.end("asker")

        async def late(body: bytes) -> bytes:
            await asyncio.sleep(0.3)
            return b"late"

        await (await site.end("late")).serve("who", late)
        await (await site.end("quick")).serve("who", saying(b"quick"))
        assert await asker.call("who", b"") == b"quick "

    site.run(body)


def test_a_failing_handler_is_told_from_an_answer(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def body(site: Site) -> None:
        asker, server = await site.end("asker"), await site.end("server")

        async def refuse(body: bytes) -> bytes:
            raise Failed("no_disk", "host c1 hat für w1 no disk: 3 GB free of 20")

        async def crash(body: bytes) -> bytes:
            raise ValueError("the database password is 12345")

        await server.serve("refuse", refuse)
        await server.serve("crash", crash)
        with pytest.raises(NoAnswer, match=r"^host c1 hat für w1 no disk: 3 GB free of 20$"):
            await asker.call("refuse", b"")
        with pytest.raises(NoAnswer, match=r"^internal error$"):
            await asker.call("crash", b"")
        await asker.cast("crash", b"")

    with caplog.at_level(logging.WARNING, "kilonova.bus"):
        site.run(body)
    assert "3 GB free" in caplog.text
    assert "the database password" in caplog.text  # the server's own log has it


def test_a_slow_handler_holds_up_nobody(site: Site) -> None:
    async def body(site: Site) -> None:
        asker, server = await site.end("asker"), await site.end("server")
        gate = asyncio.Event()

        async def wait_or_answer(body: bytes) -> bytes:
            if body == b"slow":
                await gate.wait()
            return body

        await server.serve("work", wait_or_answer)
        slow = asyncio.create_task(asker.call("work", b"slow"))
        await asyncio.sleep(0.05)
        assert await asker.call("work", b"quick", timeout=2) == b"quick"
        assert not slow.done()
        gate.set()
        assert await slow == b"slow"

    site.run(body)


@pytest.mark.parametrize("size", [0, 1, 65536, MAX_BODY])
def test_bytes_arrive_as_they_were(site: Site, size: int) -> None:
    async def body(site: Site) -> None:
        asker, server = await site.end("asker"), await site.end("server")
        await server.serve("echo", echo)
        sent = os.urandom(size)
        assert await asker.call("echo", sent) == sent

    site.run(body)


def test_a_message_too_large_says_so(site: Site) -> None:
    async def body(site: Site) -> None:
        asker, server = await site.end("asker"), await site.end("server")

        async def too_much(body: bytes) -> bytes:
            return bytes(MAX_BODY + 1)

        await server.serve("echo", too_much)
        for send in (asker.call, asker.cast):
            with pytest.raises(Failed, match=f"bus subject echo: a message of {MAX_BODY + 1} bytes"):
                await send("echo", bytes(MAX_BODY + 1))
        with pytest.raises(NoAnswer, match=f"a message of {MAX_BODY + 1} bytes"):
            await asker.call("echo", b"")

    site.run(body)


def test_many_questions_at_once(site: Site) -> None:
    async def body(site: Site) -> None:
        asker, server = await site.end("asker"), await site.end("server")

        async def later(body: bytes) -> bytes:
            await asyncio.sleep(0.01 * (int(body) % 7))
            return b"%d" % (int(body) * 2)

        await server.serve("double", later)
        answers = await asyncio.gather(*(asker.call("double", b"%d" % number) for number in range(200)))
        assert answers == [b"%d" % (number * 2) for number in range(200)]

    site.run(body)


def test_each_host_hears_only_its_own(site: Site) -> None:
    async def body(site: Site) -> None:
        asker = await site.end("asker")
        for name in ODD_NAMES:
            await (await site.end(name)).serve(host_subject(name), saying(name.encode()))
        for name in ODD_NAMES:
            assert await asker.call(host_subject(name), b"?") == name.encode() + b" ?"

    site.run(body)


def test_one_host_is_one_word() -> None:
    subjects = [host_subject(name) for name in ODD_NAMES]
    assert len(set(subjects)) == len(ODD_NAMES)
    assert all(subject.count(".") == 1 and not set(subject) & set(" *>\r\n") for subject in subjects)
    with pytest.raises(ValueError, match="empty"):
        host_subject("")


def test_a_closed_end_neither_asks_nor_answers(site: Site) -> None:
    async def body(site: Site) -> None:
        asker, server = await site.end("asker"), await site.end("server")
        await server.serve("echo", echo)
        await server.close()
        assert not server.is_connected()
        with pytest.raises(NoAnswer):
            await asker.call("echo", b"", timeout=0.5)
        with pytest.raises(NoAnswer):
            await server.call("echo", b"", timeout=0.5)
        await server.cast("echo", b"")

    site.run(body)
