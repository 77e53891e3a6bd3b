"""Secrets of an operation live apart, encrypted, and go with it (law 13). The key is not in the database."""

from __future__ import annotations

from typing import Any

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from kilonova.domain.errors import Failed
from kilonova.store import rows
from kilonova.store.tables.journal import secrets
from kilonova.world import Tx


class Seal:
    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(key)

    async def put(self, tx: Tx, operation_id: str, values: dict[str, Any]) -> None:
        if values:
            sealed = self._fernet.encrypt(msgspec.json.encode(values)).decode()
            await rows.put(tx, secrets, operation_id=operation_id, sealed=sealed)

    async def open(self, tx: Tx, operation_id: str) -> dict[str, Any]:
        row = await rows.fetch(tx, secrets, operation_id=operation_id)
        if row is None:
            return {}
        try:
            opened = self._fernet.decrypt(row["sealed"].encode())
        except InvalidToken:
            raise Failed("secrets_unreadable", "the secrets were sealed with another key", final=True) from None
        values: dict[str, Any] = msgspec.json.decode(opened)
        return values


async def forget(tx: Tx, operation_id: str) -> None:
    await rows.remove(tx, secrets, operation_id=operation_id)
