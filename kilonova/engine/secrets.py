"""Secrets of an operation: stored apart, encrypted, and removed with it (law 13). The key is not in the database."""

from __future__ import annotations

import hmac

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from kilonova.domain.errors import Failed
from kilonova.schema.tables.journal import secrets
from kilonova.store import rows
from kilonova.world import Tx


class Seal:
    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(key)
        self._key = key

    def derive(self, purpose: str) -> bytes:
        """Return 32 bytes that look random, always the same for the same words."""
        return hmac.digest(self._key, purpose.encode(), "sha256")

    def close_text(self, text: str) -> str:
        return self._fernet.encrypt(text.encode()).decode()

    def open_text(self, sealed: str) -> str:
        try:
            return self._fernet.decrypt(sealed.encode()).decode()
        except InvalidToken:
            raise Failed("secrets_unreadable", "it was sealed with another key", final=True) from None

    async def put(self, tx: Tx, operation_id: str, values: dict[str, str]) -> None:
        if values:
            await keep_sealed(tx, operation_id, self._fernet.encrypt(msgspec.json.encode(values)).decode())

    async def open(self, tx: Tx, operation_id: str) -> dict[str, str]:
        return self.read(await sealed(tx, operation_id))

    def read(self, text: str) -> dict[str, str]:
        """Return the values that were sealed, from their stored text."""
        if not text:
            return {}
        try:
            opened = self._fernet.decrypt(text.encode())
        except InvalidToken:
            raise Failed("secrets_unreadable", "the secrets were sealed with another key", final=True) from None
        return msgspec.json.decode(opened, type=dict[str, str])


async def sealed(tx: Tx, operation_id: str) -> str:
    """Return the sealed secrets as stored; empty if there are none."""
    row = await rows.fetch(tx, secrets, operation_id=operation_id)
    return "" if row is None else str(row["sealed"])


async def keep_sealed(tx: Tx, operation_id: str, text: str) -> None:
    if text:
        await rows.put(tx, secrets, operation_id=operation_id, sealed=text)


async def forget(tx: Tx, operation_id: str) -> None:
    await rows.remove(tx, secrets, operation_id=operation_id)
