"""Tokens as text: only what a key has signed is read, whatever comes."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilonova.services.identity import tokens
from kilonova.services.identity.tokens import PREFIX, Scope, TokenClaims, audit_id_of, read, sign

KEYS = {"0a0b0c0d": b"k" * 32, "00000001": b"o" * 32}
CLAIMS = TokenClaims("user", Scope("project", "p1"), ("password",), 1.5, 3600.5, ("audit", "first"))
TOKEN = sign(CLAIMS, "0a0b0c0d", KEYS["0a0b0c0d"])


def raw(token: str) -> bytes:
    text = token.removeprefix(PREFIX)
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def as_token(content: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def test_what_is_signed_is_read() -> None:
    assert read(TOKEN, KEYS) == ("0a0b0c0d", CLAIMS)
    assert CLAIMS.audit_id == "audit"
    assert len(TOKEN) < 300 and TOKEN.isascii()


def test_every_changed_byte_is_noticed() -> None:
    content = raw(TOKEN)
    for place in range(len(content)):
        tampered = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        assert read(as_token(tampered), KEYS) is None, place


def test_every_cut_is_noticed() -> None:
    for length in range(len(TOKEN)):
        assert read(TOKEN[:length], KEYS) is None


def test_a_key_that_is_not_known_or_another_one() -> None:
    assert read(TOKEN, {"00000001": KEYS["00000001"]}) is None
    assert read(TOKEN, {"0a0b0c0d": KEYS["00000001"]}) is None
    other = sign(CLAIMS, "00000001", KEYS["00000001"])
    content = bytes.fromhex("0a0b0c0d") + raw(other)[4:]
    assert read(as_token(content), KEYS) is None, "another key's id over its signature"


def test_claims_of_another_person_under_a_true_signature() -> None:
    """The signature of one token on the claims of another."""
    other = raw(sign(TokenClaims("admin", *CLAIMS.__reduce__()[1][1:]), "0a0b0c0d", KEYS["0a0b0c0d"]))
    mixed = other[:-32] + raw(TOKEN)[-32:]
    assert read(as_token(mixed), KEYS) is None


@pytest.mark.parametrize(
    "token",
    [
        "",
        PREFIX,
        "kn1",
        "admin",
        TOKEN.removeprefix(PREFIX),
        "kn2." + TOKEN.removeprefix(PREFIX),
        TOKEN + "=",
        TOKEN + "A",
        TOKEN + "\u00e9",
        TOKEN.replace(PREFIX, PREFIX + " "),
        PREFIX + "\U0001f511" * 40,
        PREFIX + "A" * 10_000_000,
        PREFIX + "!" * 100,
    ],
    ids=lambda token: token[:12] or "empty",
)
def test_strange_ones(token: str) -> None:
    assert read(token, KEYS) is None


def test_what_an_other_kilonova_may_have_signed() -> None:
    for content in (b"", b"\xc0", b"\x91\xa1x", b"\x96" + b"\xa1x" * 6):
        body = bytes.fromhex("0a0b0c0d") + content
        assert read(as_token(body + tokens._mac(KEYS["0a0b0c0d"], body)), KEYS) is None


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=400), st.binary(max_size=300).map(as_token)))
def test_random_ones(token: str) -> None:
    assert read(token, KEYS) is None


def test_audit_ids_look_like_keystones() -> None:
    assert len(audit_id_of("5d3523ef-0abb-4fcd-b989-68823f4e5616")) == 22
