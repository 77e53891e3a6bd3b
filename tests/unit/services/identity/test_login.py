"""Logging in: by password or token, into each scope, and every way it is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.services.identity import passwords
from kilonova.services.identity.guesses import Guess
from kilonova.services.identity.login import Login, Which
from kilonova.services.identity.passwords import LONGEST, Passwords
from kilonova.services.identity.tokens import DOMAIN, PROJECT, SYSTEM, UNSCOPED, Scope
from tests.unit.services.identity.home import Home, at_home

DEMO = Which(name="demo", domain_id="default")


@pytest.fixture(autouse=True)
def costly_passwords(quick_passwords: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Here passwords cost as much as users' do."""
    for name, value in quick_passwords.items():
        monkeypatch.setattr(passwords, name, value)


async def refusal(home: Home, login: Login) -> tuple[str, str]:
    with pytest.raises(Refused) as caught:
        await home.identity.authenticate(login)
    return caught.value.code, caught.value.message


def test_a_user_is_found_by_id_and_by_names(anywhere: Callable[..., None]) -> None:
    async def story(home: Home) -> None:
        user_id, place = await home.user_id("demo"), await home.identity.project_named("demo")
        for user in (Which(id=user_id), DEMO, Which(name="demo", domain_name="Default")):
            for where in (Which(id=place), DEMO, Which(name="demo", domain_name="Default")):
                issued = await home.identity.authenticate(Login(user, "of demo", scope=PROJECT, target=where))
                assert (issued.claims.user_id, issued.claims.scope) == (user_id, Scope(PROJECT, place))
                assert issued.claims.methods == ("password",)

    anywhere(story)


def test_each_scope() -> None:
    async def story(home: Home) -> None:
        admin = Which(name="admin", domain_id="default")
        for scope, place, kind in (
            (DOMAIN, Which(id="default"), DOMAIN),
            (DOMAIN, Which(name="Default"), DOMAIN),
            (SYSTEM, Which(), SYSTEM),
            (UNSCOPED, Which(), UNSCOPED),
            (None, Which(), UNSCOPED),
        ):
            issued = await home.identity.authenticate(Login(admin, "of admin", scope=scope, target=place))
            assert issued.claims.scope.kind == kind
            assert bool(issued.standing.roles) == (kind != UNSCOPED)

    at_home(story)


def test_everything_that_is_wrong_gets_the_same_answer() -> None:
    async def story(home: Home) -> None:
        await home.user("off", password="of off", enabled=False)
        await home.user("mute")
        other = await home.project("elsewhere", is_domain=True)
        closed = await home.project("closed", enabled=False)
        user_id = await home.user_id("demo")
        await home.give(user_id, "member", Scope(PROJECT, closed))
        wrong = [
            Login(DEMO, "wrong"),
            Login(DEMO, ""),
            Login(Which(name="nobody", domain_id="default"), "of demo"),
            Login(Which(id="nobody"), "of demo"),
            Login(Which(name="demo", domain_id=other), "of demo"),
            Login(Which(name="demo", domain_name="nowhere"), "of demo"),
            Login(Which(name="off", domain_id="default"), "of off"),
            Login(Which(name="mute", domain_id="default"), ""),
            Login(DEMO, "of demo", scope=PROJECT, target=Which(id="nowhere")),
            Login(DEMO, "of demo", scope=PROJECT, target=Which(id=closed)),
            Login(DEMO, "of demo", scope=PROJECT, target=Which(name="nowhere", domain_id="default")),
            Login(DEMO, "of demo", scope=PROJECT, target=Which(name="demo", domain_id=other)),
            Login(DEMO, "of demo", scope=PROJECT, target=Which(name="admin", domain_id="default")),
            Login(DEMO, "of demo", scope=PROJECT, target=Which(id="default")),
            Login(DEMO, "of demo", scope=DOMAIN, target=Which(id="default")),
            Login(DEMO, "of demo", scope=DOMAIN, target=Which(name="nowhere")),
            Login(DEMO, "of demo", scope=DOMAIN, target=Which(id=await home.identity.project_named("demo"))),
            Login(DEMO, "of demo", scope=SYSTEM),
        ]
        answers = {await refusal(home, login) for login in wrong}
        assert answers == {("unauthorized", "The request you have made requires authentication.")}

    at_home(story)


def test_an_unknown_user_costs_as_much_as_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: each is one comparison with the same parameters."""
    compared: list[str] = []

    async def story(home: Home) -> None:
        hasher = home.identity._passwords._loaded()
        real = hasher.verify

        class Counting:
            def verify(self, kept: str, password: str) -> bool:
                compared.append(kept)
                return bool(real(kept, password))

        home.identity._passwords._hasher = Counting()
        await home.user_id("demo")
        for user in (DEMO, Which(name="nobody", domain_id="default"), Which(id="nobody")):
            await refusal(home, Login(user, "wrong"))

    at_home(story)
    parameters = {kept.rsplit("$", 2)[0] for kept in compared}
    assert len(compared) == 3 and parameters == {passwords.NOBODY.rsplit("$", 2)[0]}


def test_nobody_has_the_password_of_nobody() -> None:
    async def story() -> None:
        assert not await Passwords().matches("", None)
        kept = await Passwords().hash("x")
        assert await Passwords().matches("x", kept) and not await Passwords().matches("y", kept)
        assert not await Passwords().matches("x", "no hash at all")

    asyncio.run(story())


def test_a_hash_is_argon2_with_a_salt_of_its_own() -> None:
    async def story() -> None:
        one, two = await Passwords().hash("same"), await Passwords().hash("same")
        assert one != two and one.startswith("$argon2id$") and "same" not in one

    asyncio.run(story())


def test_the_loop_goes_on_while_a_password_is_checked() -> None:
    async def story() -> None:
        checking = Passwords()
        kept = await checking.hash("x")
        turns, done = 0, asyncio.gather(*(checking.matches("x", kept) for _ in range(4)))
        longest, last = 0.0, time.perf_counter()
        while not done.done():
            await asyncio.sleep(0)
            now = time.perf_counter()
            turns, longest, last = turns + 1, max(longest, now - last), now
        assert turns > 20, "it turned while the thread worked"

    asyncio.run(story())


def test_a_password_may_not_be_endless() -> None:
    async def story(home: Home) -> None:
        long = "x" * (LONGEST + 1)
        assert (await refusal(home, Login(DEMO, long)))[0] == "bad_request"
        user_id = await home.user("eve", password="x" * LONGEST)
        for change in (
            home.user("long", password=long),
            home.identity.users.change(user_id, {"password": long}),
            home.identity.users.change_own_password(user_id, "x" * LONGEST, long),
            home.identity.users.change_own_password(user_id, long, "new"),
        ):
            with pytest.raises(Refused) as caught:
                await change
            assert caught.value.code == "bad_request"
        assert await home.identity.is_password(Which(id=user_id), "x" * LONGEST)

    at_home(story)


def test_a_password_that_is_changed_while_it_is_checked() -> None:
    """What the old one proved is over when the token would be made."""

    async def story(home: Home) -> None:
        user_id = await home.user_id("demo")
        checking = home.identity._passwords
        real = checking.matches

        async def slow(password: str, kept: str | None, guess: Guess | None = None) -> bool:
            is_right = await real(password, kept, guess)
            checking.matches = real  # type: ignore[method-assign]
            await home.another().users.change(user_id, {"password": "new"})
            return is_right

        checking.matches = slow  # type: ignore[method-assign]
        assert (await refusal(home, Login(DEMO, "of demo")))[0] == "unauthorized"
        assert await home.identity.is_password(DEMO, "new")

    at_home(story)


def test_the_default_project_is_tried() -> None:
    async def story(home: Home) -> None:
        user_id, demo = await home.user("eve", password="of eve"), await home.identity.project_named("demo")

        async def scope() -> Scope:
            return (await home.log_in("eve", scope=None)).claims.scope

        assert await scope() == Scope()
        await home.identity.users.change(user_id, {"default_project_id": demo})
        assert await scope() == Scope(), "no role there"
        await home.give(user_id, "reader", Scope(PROJECT, demo))
        assert await scope() == Scope(PROJECT, demo)
        assert (await home.log_in("eve", scope=UNSCOPED)).claims.scope == Scope(), "said so"
        await home.identity.users.change(user_id, {"default_project_id": "gone"})
        assert await scope() == Scope()

    at_home(story)


# -- by token ---------------------------------------------------------------------------------------------------------


def test_a_token_gets_another_scope_but_no_more_time() -> None:
    async def story(home: Home) -> None:
        first = await home.log_in("admin", scope=UNSCOPED)
        home.clock.time += 1000
        second = await home.identity.authenticate(
            Login(token=first.token, scope=PROJECT, target=Which(name="demo", domain_id="default"))
        )
        assert second.claims.expires_at == first.claims.expires_at
        assert second.claims.issued_at == home.clock.now()
        assert second.claims.methods == ("token", "password")
        assert second.claims.audit_ids[1:] == first.claims.audit_ids
        third = await home.identity.authenticate(Login(token=second.token, scope=SYSTEM))
        assert third.claims.audit_ids[1:] == first.claims.audit_ids, "always the first of the chain"
        await home.identity.revoke(second.claims)
        assert await home.identity.check(third.token) is not None and await home.identity.check(first.token) is not None
        home.clock.time += 2600
        assert await home.identity.check(third.token) is None

    at_home(story)


def test_a_token_that_is_not_good() -> None:
    async def story(home: Home) -> None:
        issued = await home.log_in()
        for token in ("rubbish", issued.token[:-1], "x" * 100_000):
            assert await refusal(home, Login(token=token)) == ("not_found", "Failed to validate token")
        await home.identity.revoke(issued.claims)
        assert (await refusal(home, Login(token=issued.token)))[0] == "not_found"
        late = await home.log_in()
        home.clock.time += 3600
        assert (await refusal(home, Login(token=late.token)))[0] == "not_found"

    at_home(story)


def test_token_and_password_must_mean_the_same_user() -> None:
    async def story(home: Home) -> None:
        demo, admin = await home.log_in(), await home.log_in("admin")
        both = await home.identity.authenticate(Login(DEMO, "of demo", token=demo.token, scope=UNSCOPED))
        assert both.claims.methods == ("password", "token")
        assert (await refusal(home, Login(DEMO, "of demo", token=admin.token)))[0] == "unauthorized"
        assert (await refusal(home, Login(DEMO, "wrong", token=demo.token)))[0] == "unauthorized"

    at_home(story)


def test_the_own_password_is_changed_with_the_old_one() -> None:
    async def story(home: Home) -> None:
        users, user_id = home.identity.users, await home.user_id("demo")
        cases: list[tuple[Any, ...]] = [
            (user_id, "wrong", "new", "unauthorized"),
            ("nobody", "of demo", "new", "unauthorized"),
            (user_id, "of demo", "of demo", "bad_request"),
        ]
        for who, old, new, code in cases:
            with pytest.raises(Refused) as caught:
                await users.change_own_password(who, old, new)
            assert caught.value.code == code
        assert await home.identity.is_password(DEMO, "of demo"), "nothing has changed"
        await users.change_own_password(user_id, "of demo", "new")
        assert await home.identity.is_password(DEMO, "new") and not await home.identity.is_password(DEMO, "of demo")

    at_home(story)
