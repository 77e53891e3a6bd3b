"""Secrets of a server that only its guest may read: user data and files, sealed in the server's row (law 13)."""

from __future__ import annotations

import logging

import msgspec

from kilonova.domain.errors import Failed
from kilonova.domain.guest_contents import GuestFile, GuestSecrets
from kilonova.domain.server import Server
from kilonova.engine.secrets import Seal

logger = logging.getLogger(__name__)
_FILES = msgspec.json.Decoder(list[tuple[str, str]])


def server_secrets(seal: Seal, server: Server, password: str = "") -> GuestSecrets:
    """Open them for an order. Those sealed with a key that was lost are left out, so that the server can still leave a
    dead host."""
    details = server.details
    files = _opened(seal, server, "personality", details.personality)
    return GuestSecrets(
        user_data=_opened(seal, server, "user_data", details.user_data),
        files=[GuestFile(*one) for one in _FILES.decode(files)] if files else [],
        admin_password=password,
    )


def _opened(seal: Seal, server: Server, name: str, sealed: str | None) -> str:
    try:
        return seal.open_text(sealed) if sealed else ""
    except Failed as why:
        logger.warning("guest goes without its %s: server=%s reason=%s", name, server.id, why.message)
        return ""
