"""Tokens that open one console of one copy of a server for a few minutes.

They are not stored: the key of the cloud's secrets makes and reads them, and the server's record says whether that copy
is still the one that may run.
"""

from __future__ import annotations

import base64

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from kilonova.domain.errors import Refused
from kilonova.engine.core import Engine
from kilonova.engine.secrets import Seal
from kilonova.store.server_records import ServerRecord, find

PURPOSE = "console of a server"
LONGEST = 2048  # characters; nothing longer was ever issued


class ConsoleTicket(msgspec.Struct, frozen=True, array_like=True):
    """The content of a console token. It is sealed, not only signed: users do not learn the names of hosts."""

    server: str
    host: str
    copy: int
    kind: str
    expires: float  # seconds since the epoch


def issue_console(seal: Seal, ticket: ConsoleTicket) -> str:
    return _fernet(seal).encrypt(msgspec.json.encode(ticket)).decode().rstrip("=")


def _fernet(seal: Seal) -> Fernet:
    """Return a cipher with its own key, so that data sealed for another purpose is not a token."""
    return Fernet(base64.urlsafe_b64encode(seal.derive(PURPOSE)))


def _read(seal: Seal, token: str) -> ConsoleTicket:
    if len(token) > LONGEST or not token.isascii():
        raise _refused("it is not one of this cloud's")
    try:
        content = _fernet(seal).decrypt(token + "=" * (-len(token) % 4))
        return msgspec.json.decode(content, type=ConsoleTicket)
    except (InvalidToken, msgspec.MsgspecError):  # the latter: of another release
        raise _refused("it is not one of this cloud's") from None


async def redeem_console(engine: Engine, token: str) -> tuple[ConsoleTicket, ServerRecord]:
    """Raise `Refused` unless the token has time left and its copy is still the server's."""
    ticket = _read(engine.seal, token)
    if ticket.expires <= engine.world.clock.now():
        raise _refused("it has expired")
    record = await find(engine.world.db, ticket.server)
    if record is None or (record.host, record.copy) != (ticket.host, ticket.copy):
        raise _refused("the server was moved, rebuilt or deleted")
    return ticket, record


def _refused(why: str) -> Refused:
    return Refused("bad_console_token", f"console token: {why}; ask for a new URL (openstack console url show)")
