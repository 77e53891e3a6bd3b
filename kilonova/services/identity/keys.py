"""The keys that sign tokens: the newest signs; retired keys verify until their last token has expired.

An attacker who has read a key can sign any token with it. So a key is trusted within limits only: no token lives longer
than ours do, and no token signed by a retired key outlives that key.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import bindparam, delete, update

from kilonova.domain.errors import KilonovaError
from kilonova.schema.tables.identity import token_keys
from kilonova.services.identity.tokens import KEY_ID_BYTES, TokenClaims
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

logger = logging.getLogger(__name__)
# A new key signs only once every process has had the time to read it: else its first tokens would be strangers there.
SETTLING_SECONDS = 5.0
SLACK_SECONDS = 120.0  # that, and clocks that differ a little

_RETIRE = Sql(update(token_keys).where(token_keys.c.until.is_(None)).values(until=bindparam("until")))
_FORGET = Sql(delete(token_keys).where(token_keys.c.until <= bindparam("now")))
_REVOKE = Sql(delete(token_keys))


class Sealing(Protocol):
    """The encryption of stored secrets, with a key that is not in the database."""

    def close_text(self, text: str) -> str: ...

    def open_text(self, sealed: str) -> str:
        """Decrypt. Raise a KilonovaError if another key encrypted the text."""


async def add_key(tx: Tx, seal: Sealing, *, uuid: str, secret: str, expiration: float, revoke: bool = False) -> str:
    """Add a key, which signs from now on. `secret` is 32 random bytes in URL-safe base64.

    `revoke`: remove the old keys immediately, and with them every issued token.
    """
    now = await tx.now()
    key_id = uuid.replace("-", "")[: 2 * KEY_ID_BYTES]
    if revoke:
        await tx.run(_REVOKE)
    else:
        await tx.run(_FORGET, now=now)
        await tx.run(_RETIRE, until=now + expiration + SLACK_SECONDS)
    await rows.put(tx, token_keys, id=key_id, sealed=seal.close_text(secret), created_at=now, until=None)
    return key_id


async def forget_keys(tx: Tx) -> None:
    """Delete the expired keys. They are not valid any more, so no process need be notified."""
    await tx.run(_FORGET, now=await tx.now())


async def list_keys(tx: Tx) -> Sequence[Row]:
    return newest_first(await rows.fetch_all(tx, token_keys))


def newest_first(key_rows: Sequence[Row]) -> list[Row]:
    return sorted(key_rows, key=lambda row: (float(row["created_at"]), row["until"] is None), reverse=True)


@dataclass(frozen=True)
class SigningKey:
    id: str
    secret: bytes
    created_at: float
    until: float | None = None  # retired: verifies nothing after that time

    def is_over(self, now: float) -> bool:
        return self.until is not None and self.until <= now

    def may_have_signed(self, claims: TokenClaims, now: float, longest: float) -> bool:
        """Return whether these claims, which have not expired, can be ours; `longest` is the lifetime of our tokens."""
        if self.until is not None and claims.expires_at > self.until:
            return False
        return claims.issued_at <= now + SLACK_SECONDS and claims.expires_at <= claims.issued_at + longest


def open_keys(key_rows: Sequence[Row], seal: Sealing) -> list[SigningKey]:
    """Return the keys that can be decrypted, the newest first.

    A key that was encrypted with another `seal.key` is skipped: its tokens are invalid, and `Identity.prepare` makes a
    new key.
    """
    keys = []
    for row in newest_first(key_rows):
        try:
            secret = base64.urlsafe_b64decode(seal.open_text(row["sealed"]))
        except (KilonovaError, binascii.Error):
            logger.warning("token key %s cannot be read: it was sealed with another key", row["id"])
            continue
        keys.append(SigningKey(row["id"], secret, float(row["created_at"]), row["until"]))
    return keys


def signer(keys: Sequence[SigningKey], now: float) -> SigningKey | None:
    """Return the newest key that has settled; a single key need not have."""
    good = [key for key in keys if not key.is_over(now)]
    settled = (key for key in good if key.created_at + SETTLING_SECONDS <= now)
    return next(settled, good[-1] if good else None)
