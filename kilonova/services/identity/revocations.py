"""Tokens that were given back before their time."""

from __future__ import annotations

from sqlalchemy import bindparam, delete

from kilonova.schema.tables.identity import revoked_tokens
from kilonova.services.identity.tokens import TokenClaims
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Tx

EXTRA_SECONDS = 120.0  # beyond the token's own end: clocks differ
_FORGET = Sql(delete(revoked_tokens).where(revoked_tokens.c.expires_at < bindparam("before")))


async def revoke(tx: Tx, claims: TokenClaims) -> None:
    """Revoke a token, and delete the revocations that have expired."""
    await tx.run(_FORGET, before=await tx.now() - EXTRA_SECONDS)
    await rows.put(tx, revoked_tokens, unless_there=True, audit_id=claims.audit_id, expires_at=claims.expires_at)
