"""The keys that tokens are signed with: the newest signs, retired ones check until their last token has expired.

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
    """Encrypts what is kept in the database with a key that is not."""

    def close_text(self, text: str) -> str: ...

    def open_text(self, sealed: str) -> str:
        """Raises a KilonovaError when it was sealed with another key."""


async def add_key(tx: Tx, seal: Sealing, *, uuid: str, secret: str, expiration: float, revoke: bool = False) -> str:
    """The new key signs from now on. `secret` is 32 random bytes in URL-safe base64; `revoke`: the old keys go at once,
    and with them every token that is out."""
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
    until: float | None = None  # retired: worth nothing from then on

    def is_over(self, now: float) -> bool:
        return self.until is not None and self.until <= now

    def may_have_signed(self, claims: TokenClaims, now: float, longest: float) -> bool:
        """Return whether these claims, which have not expired, can be ours; `longest` is the lifetime of our tokens."""
        if self.until is not None and claims.expires_at > self.until:
            return False
        return claims.issued_at <= now + SLACK_SECONDS and claims.expires_at <= claims.issued_at + longest


def open_keys(key_rows: Sequence[Row], seal: Sealing) -> list[SigningKey]:
    """All that can be read, the newest first. A key that was sealed with another `seal.key` is as good as lost: its
    tokens are void, and `Identity.prepare` makes a new one."""
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
    """The newest that has settled; a lone one need not."""
    good = [key for key in keys if not key.is_over(now)]
    settled = (key for key in good if key.created_at + SETTLING_SECONDS <= now)
    return next(settled, good[-1] if good else None)
