"""Keys: a new one signs, the old ones check until their tokens have expired, and none is readable in the database."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from kilonova.production import new_key
from kilonova.services.identity.keys import SETTLING_SECONDS, SLACK_SECONDS
from kilonova.services.identity.service import LOOK_SECONDS
from tests.unit.services.identity.home import Home, at_home


def key_of(token: str) -> str:
    """The id of the key that signed it."""
    import base64

    text = token.removeprefix("kn1.")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))[:4].hex()


def test_the_newest_signs_and_older_ones_still_check(anywhere: Callable[..., None]) -> None:
    async def story(home: Home) -> None:
        old = (await home.log_in()).token
        new_id = await home.identity.rotate_keys()
        assert key_of(old) != new_id
        settling = (await home.log_in()).token
        assert await home.identity.check(old) and await home.identity.check(settling)
        keys = await home.identity.keys()
        assert [key["until"] is None for key in keys] == [True, False] and keys[0]["id"] == new_id

    anywhere(story)


def test_a_new_key_waits_until_every_process_has_read_it() -> None:
    """Else a token would be refused where the key is not known yet."""

    async def story(home: Home) -> None:
        old, other = (await home.log_in()).token, home.another()
        assert await other.check(old) is not None
        new_id = await home.identity.rotate_keys()
        early = (await home.log_in()).token
        assert key_of(early) == key_of(old)
        assert await other.check(early) is not None, "known there, though it has not looked since"
        assert SETTLING_SECONDS > 2 * LOOK_SECONDS
        home.clock.time += SETTLING_SECONDS
        late = (await home.log_in()).token
        assert key_of(late) == new_id
        assert await other.check(late) is not None and await other.check(old) is not None

    at_home(story)


def test_an_old_key_goes_when_its_last_token_has_expired() -> None:
    async def story(home: Home) -> None:
        first_id = key_of((await home.log_in()).token)
        await home.identity.rotate_keys()
        home.clock.time += SETTLING_SECONDS - 0.1
        last = (await home.log_in()).token
        assert key_of(last) == first_id
        home.clock.time += 3599
        await home.identity.rotate_keys()
        assert first_id in [key["id"] for key in await home.identity.keys()]
        assert await home.identity.check(last) is not None
        home.clock.time += SLACK_SECONDS
        await home.identity.rotate_keys()
        assert first_id not in [key["id"] for key in await home.identity.keys()]

    at_home(story)


def test_the_database_alone_signs_nothing() -> None:
    async def story(home: Home) -> None:
        await home.identity.look()
        (key,) = await home.identity.keys()
        assert key["sealed"].startswith("gAAAA"), "Fernet"
        secret = home.identity.snapshot.keys[0].secret
        assert len(secret) == 32 and secret not in key["sealed"].encode()

    at_home(story)


def test_keys_that_were_sealed_with_another_key(caplog: pytest.LogCaptureFixture) -> None:
    async def story(home: Home) -> None:
        token = (await home.log_in()).token
        home.identity = home.another(seal_key=new_key())
        with caplog.at_level(logging.WARNING):
            assert await home.identity.check(token) is None
        assert "sealed with another key" in caplog.text
        assert not await home.identity.prepare(), "nothing is seeded again"
        assert await home.identity.check((await home.log_in()).token) is not None
        assert await home.identity.check(token) is None

    at_home(story)


def test_before_the_first_cloud_nobody_is_let_in() -> None:
    async def story(home: Home) -> None:
        assert not await home.identity.is_prepared()
        assert await home.identity.check("kn1.AAAA") is None
        assert not await home.identity.prepare(), "without passwords nothing is made"
        assert not await home.identity.is_prepared()

    at_home(story, prepared=False)
