"""Password guessing: so many wrong ones a minute by user and address, in bounded memory, and fair between addresses."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.services.identity import passwords
from kilonova.services.identity.guesses import WINDOW_SECONDS, Guess, Guesses, Turns
from kilonova.services.identity.login import Login, Which
from kilonova.services.identity.service import Identity
from tests.unit.services.identity.home import Home, at_home

DEMO = Which(name="demo", domain_id="default")
HERE, THERE = "203.0.113.7", "198.51.100.1"


async def code_of(identity: Identity, user: Which, password: str, address: str) -> str:
    try:
        await identity.authenticate(Login(user, password, address=address))
    except Refused as why:
        return why.code
    return ""


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passwords that argon2 was asked about."""
    asked: list[str] = []

    class Hasher:
        def hash(self, password: str) -> str:
            return password

        def verify(self, kept: str, password: str) -> bool:
            from argon2.exceptions import VerifyMismatchError

            asked.append(password)
            if password != "of demo":
                raise VerifyMismatchError
            return True

    monkeypatch.setattr(passwords.Passwords, "_loaded", lambda self: Hasher())
    return asked


def guessing(story: Any) -> None:
    async def whole(home: Home) -> None:
        identity = home.another(failed_logins=10)
        home.identity = identity
        await story(home, identity)

    at_home(whole)


def test_the_eleventh_guess_of_a_minute_is_refused_without_a_comparison(compared: list[str]) -> None:
    async def story(home: Home, identity: Identity) -> None:
        for _ in range(10):
            assert await code_of(identity, DEMO, "wrong", HERE) == "unauthorized"
        assert len(compared) == 10
        assert await code_of(identity, DEMO, "wrong", HERE) == "too_many_logins"
        assert await code_of(identity, DEMO, "of demo", HERE) == "too_many_logins", "right or wrong is not told"
        assert len(compared) == 10, "argon2 is not run for a blocked pair"
        assert await code_of(identity, DEMO, "of demo", THERE) == "", "its owner logs in elsewhere"
        assert await code_of(identity, Which(name="admin", domain_id="default"), "wrong", HERE) == "unauthorized"

    guessing(story)


def test_one_user_is_one_user_however_it_is_named(compared: list[str]) -> None:
    async def story(home: Home, identity: Identity) -> None:
        user_id = await home.user_id("demo")
        ways = [DEMO, Which(name="demo", domain_name="Default"), Which(id=user_id)]
        for number in range(9):
            assert await code_of(identity, ways[number % 3], "wrong", HERE) == "unauthorized"
        with pytest.raises(Refused, match="original password"):
            await identity.users.change_own_password(user_id, "wrong", "new", address=HERE)
        assert [await code_of(identity, way, "of demo", HERE) for way in ways] == ["too_many_logins"] * 3
        with pytest.raises(Refused, match="Too many failed log-ins"):
            await identity.users.change_own_password(user_id, "of demo", "new", address=HERE)

    guessing(story)


def test_users_that_do_not_exist_are_counted_alike(compared: list[str]) -> None:
    async def story(home: Home, identity: Identity) -> None:
        nobody = Which(name="nobody", domain_id="default")
        answers = [await code_of(identity, nobody, "wrong", HERE) for _ in range(11)]
        assert answers == ["unauthorized"] * 10 + ["too_many_logins"]

    guessing(story)


def test_guesses_at_the_same_time_count(compared: list[str]) -> None:
    async def story(home: Home, identity: Identity) -> None:
        answers = await asyncio.gather(*(code_of(identity, DEMO, "wrong", HERE) for _ in range(50)))
        assert answers.count("unauthorized") == len(compared) <= 10 + passwords.AT_ONCE - 1

    guessing(story)


def test_many_right_ones_at_the_same_time_are_let_in(compared: list[str]) -> None:
    async def story(home: Home, identity: Identity) -> None:
        answers = await asyncio.gather(*(code_of(identity, DEMO, "of demo", HERE) for _ in range(50)))
        assert set(answers) == {""}

    guessing(story)


class Watch:
    time = 1000.0

    def __call__(self) -> float:
        return self.time


def test_the_block_ends_a_minute_after_the_first_of_the_failures() -> None:
    watch = Watch()
    guesses, guess = Guesses(3, clock=watch), Guess("u", HERE)
    for _ in range(3):
        guesses.refuse_blocked(guess)
        guesses.note(guess, is_right=False)
        watch.time += 10
    with pytest.raises(Refused) as why:
        guesses.refuse_blocked(guess)
    assert why.value.headers == {"Retry-After": "30"} and "30 seconds" in why.value.message
    watch.time = 1000.0 + WINDOW_SECONDS
    guesses.refuse_blocked(guess)
    guesses.note(guess, is_right=False)  # the failures of second 10, 20 and 60 now count
    with pytest.raises(Refused) as why:
        guesses.refuse_blocked(guess)
    assert why.value.headers == {"Retry-After": "10"}


def test_a_right_password_forgets_the_wrong_ones() -> None:
    guesses, guess = Guesses(3), Guess("u", HERE)
    for is_right in (False, False, True, False, False):
        guesses.refuse_blocked(guess)
        guesses.note(guess, is_right=is_right)
    guesses.refuse_blocked(guess)


def test_the_table_is_bounded_and_forgets_the_oldest() -> None:
    guesses = Guesses(1, most=100)
    for number in range(1000):
        guesses.note(Guess(f"u{number}", HERE), is_right=False)
        guesses.note(Guess("target", HERE), is_right=False)
    assert len(guesses) == 100
    with pytest.raises(Refused):
        guesses.refuse_blocked(Guess("target", HERE))
    guesses.refuse_blocked(Guess("u0", HERE))


def test_a_pair_that_fails_again_takes_nobodys_place() -> None:
    guesses = Guesses(1, most=2)
    for user in ("a", "b", "b"):
        guesses.note(Guess(user, HERE), is_right=False)
    assert len(guesses) == 2
    with pytest.raises(Refused):
        guesses.refuse_blocked(Guess("a", HERE))


def test_without_a_pair_nothing_is_counted() -> None:
    """Of a user who is already logged in, say."""
    guesses = Guesses(1)
    guesses.note(None, is_right=False)
    guesses.refuse_blocked(None)
    assert len(guesses) == 0


def test_without_a_limit_nothing_is_counted() -> None:
    guesses = Guesses(0)
    guesses.note(Guess("u", HERE), is_right=False)
    guesses.refuse_blocked(Guess("u", HERE))
    assert len(guesses) == 0


def test_a_flood_from_one_address_delays_another_by_one_turn() -> None:
    order: list[str] = []

    async def whole() -> None:
        turns = Turns(1)

        async def compare(address: str) -> None:
            async with turns.of(address):
                await asyncio.sleep(0)
                order.append(address)

        flood = [asyncio.create_task(compare("flood")) for _ in range(20)]
        await asyncio.sleep(0)
        await asyncio.gather(*flood, compare("owner"))

    asyncio.run(whole())
    assert order.index("owner") <= 3 and len(order) == 21


def test_one_that_goes_while_it_waits_takes_no_turn() -> None:
    async def whole() -> None:
        turns = Turns(1)
        async with turns.of("a"):
            waiting = [asyncio.create_task(turns._take("b")) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
        waiting[1].cancel()  # its turn was given, and it goes before it can use it
        async with asyncio.timeout(60):
            await waiting[2]
        turns._give()
        async with asyncio.timeout(60), turns.of("c"):
            second = asyncio.create_task(turns._take("d"))
            await asyncio.sleep(0)
            assert not second.done(), "there is one turn, as before"
        await second

    asyncio.run(whole())


def test_a_blocked_guess_waits_for_no_turn() -> None:
    async def whole() -> None:
        checking, guess = passwords.Passwords(1), Guess("u", HERE)
        checking._guesses.note(guess, is_right=False)
        async with contextlib.AsyncExitStack() as all_turns:
            for _ in range(passwords.AT_ONCE):
                await all_turns.enter_async_context(checking._turns.of("elsewhere"))
            with pytest.raises(Refused):
                async with asyncio.timeout(10):
                    await checking.matches("x", None, guess)

    asyncio.run(whole())
