"""The format of tokens: claims, packed and signed. Whether the claims still hold is read elsewhere.

A token is `kn1.` and, in URL-safe base64: the key's id (4 bytes), the claims (MessagePack), HMAC-SHA256 over both.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping

import msgspec

PREFIX = "kn1."
LONGEST = 2048  # characters; a real one has about 250
KEY_ID_BYTES = 4
MAC_BYTES = 32

PROJECT, DOMAIN, SYSTEM, UNSCOPED = "project", "domain", "system", ""
ALL = "all"  # the id of the one system


class Scope(msgspec.Struct, frozen=True, array_like=True):
    kind: str = UNSCOPED
    id: str = ""


class TokenClaims(msgspec.Struct, frozen=True, array_like=True):
    user_id: str
    scope: Scope
    methods: tuple[str, ...]
    issued_at: float
    expires_at: float
    audit_ids: tuple[str, ...]  # its own; then, if it was made from another token, that of the first one

    @property
    def audit_id(self) -> str:
        return self.audit_ids[0]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TokenClaims).decode
_TO_STANDARD = str.maketrans("-_", "+/")


def sign(claims: TokenClaims, key_id: str, key: bytes) -> str:
    body = bytes.fromhex(key_id) + _encode(claims)
    return PREFIX + base64.urlsafe_b64encode(body + _mac(key, body)).rstrip(b"=").decode()


def read(token: str, keys: Mapping[str, bytes]) -> tuple[str, TokenClaims] | None:
    """Return the key's id and the claims; None unless one of the keys signed the token."""
    if not token.startswith(PREFIX) or len(token) > LONGEST or "=" in token:
        return None
    text = token[len(PREFIX) :].translate(_TO_STANDARD)
    try:
        whole = binascii.a2b_base64((text + "=" * (-len(text) % 4)).encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    body, mac = whole[:-MAC_BYTES], whole[-MAC_BYTES:]
    key_id = body[:KEY_ID_BYTES].hex()
    key = keys.get(key_id)
    if key is None or not hmac.compare_digest(mac, _mac(key, body)):
        return None
    try:
        return key_id, _decode(body[KEY_ID_BYTES:])
    except msgspec.MsgspecError:  # signed by a Kilonova that said it in another way
        return None


def _mac(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, PREFIX.encode() + body, "sha256")


def audit_id_of(uuid: str) -> str:
    """Return an audit id: 22 characters, as Keystone's."""
    return base64.urlsafe_b64encode(bytes.fromhex(uuid.replace("-", ""))).rstrip(b"=").decode()
