"""Keys: a new one signs, the old ones check until their tokens have expired, and none is readable in the database."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kilonova.domain.errors import Refused, StoreError
from kilonova.runtime import new_key
from kilonova.services.identity import tokens
from kilonova.services.identity.keys import SETTLING_SECONDS, SLACK_SECONDS, SigningKey, signer
from kilonova.services.identity.login import Login
from kilonova.services.identity.service import LOOK_SECONDS, Issued
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
        assert await home.identity.check("kn1.AAAA") is None, "any request: no rotation is needed"
        assert first_id not in [key["id"] for key in await home.identity.keys()]
        assert first_id not in home.identity.snapshot.secrets

    at_home(story)


def test_old_keys_that_cannot_be_removed_count_no_more_and_stop_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def story(home: Home) -> None:
        await home.log_in()
        await home.identity.rotate_keys()
        home.clock.time += 3600 + SLACK_SECONDS
        write = home.store.write

        async def broken(body: Any) -> Any:
            raise StoreError("the disk is full")

        home.store.write = broken
        assert await home.identity.check((await home.log_in()).token) is not None
        home.store.write = write
        assert "could not be removed: the disk is full" in caplog.text
        assert len(home.identity.snapshot.keys) == 1 and len(await home.identity.keys()) == 2
        await home.identity.rotate_keys()
        assert len(await home.identity.keys()) == 2, "the one before, and the new one"

    at_home(story)


# -- a key that somebody else has -------------------------------------------------------------------------------------


def forged(key: SigningKey, issued: Issued, *, issued_at: float, expires_at: float) -> str:
    claims = msgspec.structs.replace(issued.claims, issued_at=issued_at, expires_at=expires_at, audit_ids=("forged",))
    return tokens.sign(claims, key.id, key.secret)


def test_no_token_lives_longer_than_ours_do() -> None:
    async def story(home: Home) -> None:
        issued, now = await home.log_in("admin"), home.clock.time
        (key,) = home.identity.snapshot.keys
        for issued_at, expires_at in (
            (now, now + 3600.1),
            (now, now + 10 * 365 * 86400),
            (now + 10 * 365 * 86400, now + 10 * 365 * 86400 + 3600),
            (now, float("nan")),
            (float("nan"), now + 10),
            (float("inf"), float("inf")),
            (now, float("inf")),
        ):
            token = forged(key, issued, issued_at=issued_at, expires_at=expires_at)
            assert await home.identity.check(token) is None, (issued_at, expires_at)
            assert await home.identity.inspect(token) is None
        assert await home.identity.check(forged(key, issued, issued_at=now, expires_at=now + 3600)) is not None

    at_home(story)


def test_a_retired_key_vouches_for_nothing_that_outlives_it(anywhere: Callable[..., None]) -> None:
    async def story(home: Home) -> None:
        issued = await home.log_in("admin")
        (stolen,) = home.identity.snapshot.keys
        await home.identity.rotate_keys()
        until = float((await home.identity.keys())[1]["until"])
        home.clock.time += 1000
        now = home.clock.time
        longest = forged(stolen, issued, issued_at=now, expires_at=until)
        assert now + 3600 > until
        assert await home.identity.check(forged(stolen, issued, issued_at=now, expires_at=now + 3600)) is None
        assert await home.identity.check(longest) is not None, "a plain rotation lets the key die with its last token"
        rescoped = await home.identity.authenticate(Login(token=longest, scope=""))
        assert rescoped.claims.expires_at <= until, "and what is made from it ends with it"
        home.clock.time = until
        for issued_at in (until - 3600, until):
            token = forged(stolen, issued, issued_at=issued_at, expires_at=until + 1)
            assert await home.identity.check(token) is None
        assert await home.identity.check(longest) is None and await home.identity.check(rescoped.token) is None

    anywhere(story)


def test_revoking_ends_every_key_and_token_at_once(anywhere: Callable[..., None]) -> None:
    async def story(home: Home) -> None:
        issued = await home.log_in("admin")
        (stolen,) = home.identity.snapshot.keys
        await home.identity.rotate_keys()
        new_id = await home.identity.rotate_keys(revoke=True)
        assert [key["id"] for key in await home.identity.keys()] == [new_id]
        assert await home.identity.check(issued.token) is None
        now = home.clock.time
        assert await home.identity.check(forged(stolen, issued, issued_at=now, expires_at=now + 10)) is None
        fresh = await home.log_in()
        assert key_of(fresh.token) == new_id, "there is no other to wait with"
        assert await home.identity.check(fresh.token) is not None

    anywhere(story)


def test_another_process_that_has_not_looked_yet_makes_nothing_of_a_revoked_key() -> None:
    """Else a forged token could be changed into a true one, or be remembered, within that second."""

    async def story(home: Home) -> None:
        issued, other, third = await home.log_in("admin"), home.another(), home.another()
        await other.look()
        await third.look()
        (stolen,) = other.snapshot.keys
        now = home.clock.time
        token = forged(stolen, issued, issued_at=now, expires_at=now + 3600)
        await home.identity.rotate_keys(revoke=True)
        with pytest.raises(Refused, match="Failed to validate token"):
            await other.authenticate(Login(token=token, scope=""))
        assert await third.check(token) is None and await third.inspect(token) is None

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


NOW = 1000.0
KEYS = {
    "signs": SigningKey("signs", b"", NOW - SETTLING_SECONDS),
    "new": SigningKey("new", b"", NOW - SETTLING_SECONDS + 0.1),
    "retired": SigningKey("retired", b"", NOW - 100, NOW + 0.1),
    "over": SigningKey("over", b"", NOW - 100, NOW),
}


@pytest.mark.parametrize(
    ("keys", "signing"),
    [
        (["signs"], "signs"),
        (["new"], "new"),
        (["new", "signs", "retired"], "signs"),
        (["new", "retired"], "retired"),
        (["new", "over"], "new"),
        (["over"], None),
        ([], None),
    ],
)
def test_the_newest_key_that_every_process_knows_signs(keys: list[str], signing: str | None) -> None:
    found = signer([KEYS[name] for name in keys], NOW)
    assert (None if found is None else found.id) == signing


@pytest.mark.parametrize(
    ("until", "issued_at", "expires_at", "may_be_ours"),
    [
        (None, NOW, NOW + 60, True),
        (None, NOW, NOW + 60.1, False),
        (None, NOW + SLACK_SECONDS, NOW + 1, True),
        (None, NOW + SLACK_SECONDS + 0.1, NOW + 1, False),
        (NOW + 50, NOW, NOW + 50, True),
        (NOW + 50, NOW, NOW + 50.1, False),
    ],
)
def test_what_a_key_may_have_signed(
    until: float | None, issued_at: float, expires_at: float, may_be_ours: bool
) -> None:
    claims = tokens.TokenClaims("u", tokens.Scope(), (), issued_at, expires_at, ("a",))
    assert SigningKey("k", b"", 0.0, until).may_have_signed(claims, NOW, 60.0) is may_be_ours


def test_a_retired_key_is_over_at_its_time() -> None:
    assert [KEYS["over"].is_over(at) for at in (NOW - 0.1, NOW, NOW + 0.1)] == [False, True, True]
    assert not KEYS["signs"].is_over(NOW * 100)
