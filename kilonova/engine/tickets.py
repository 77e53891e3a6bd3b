"""Tokens that let a host send or fetch the bytes of one image, or send disks to another host.

They come with the order and are not stored: the key of the cloud's secrets makes them, and the journal says whether the
step of an image's token is still under way. Both hosts of a move get the same token; the destination knows it from its
own order, and checks it without a query.
"""

from __future__ import annotations

import base64
import binascii
import hmac

import msgspec

from kilonova.domain.errors import Refused
from kilonova.engine.core import Engine
from kilonova.engine.secrets import Seal
from kilonova.schema.tables.journal import operations, steps
from kilonova.store import rows
from kilonova.world import Tx

PURPOSE = "upload of an image"
DISKS_PURPOSE = "disks of a move"
SEND, FETCH = "send", "fetch"
CACHE_SECONDS = 3600.0  # for a host to begin to fetch an image that no step needs yet


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    """The content of a token."""

    journal: str
    operation: str
    ordinal: int
    host: str
    image: str
    verb: str = SEND
    expires: float = 0.0  # by the API's clock; 0: with its step


def issue(seal: Seal, ticket: Ticket) -> str:
    content = base64.urlsafe_b64encode(msgspec.json.encode(ticket)).decode()
    return f"{content}.{_signature(seal, content)}"


def _signature(seal: Seal, content: str) -> str:
    return hmac.digest(seal.derive(PURPOSE), content.encode(), "sha256").hex()


def _read(seal: Seal, token: str) -> Ticket:
    content, _, signature = token.partition(".")
    if not hmac.compare_digest(_signature(seal, content).encode(), signature.encode()):
        raise _refused("its signature is wrong")
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(content), type=Ticket)
    except (binascii.Error, msgspec.MsgspecError) as why:  # of another release
        raise _refused("it cannot be read") from why


def issue_for_cache(seal: Seal, host: str, image: str, now: float) -> str:
    """Return a token for a host that fetches an image before a step needs it."""
    return issue(seal, Ticket("", "", 0, host, image, FETCH, now + CACHE_SECONDS))


def disk_token(seal: Seal, operation: str, server: str, host: str, copy: int) -> str:
    """Return a token for the disks that this operation sends to this host, as this copy of the server."""
    content = msgspec.json.encode([operation, server, host, copy])
    return hmac.digest(seal.derive(DISKS_PURPOSE), content, "sha256").hex()


async def redeem(engine: Engine, token: str, image: str, verb: str = SEND) -> Ticket:
    """Raise `Refused` unless the token was issued for this image and this verb, and its host has the step now."""
    ticket = _read(engine.seal, token)
    if ticket.image != image:
        raise _refused("it is for another image")
    if ticket.verb != verb:
        raise _refused(f"it lets a host {ticket.verb} the image, not {verb} it")
    if ticket.expires:
        if engine.world.clock.now() > ticket.expires:
            raise _refused("it has expired")
        return ticket
    if ticket.journal not in engine.world.db.cells():
        raise _refused(f"there is no cell {ticket.journal}")
    operation, ordinal = ticket.operation, ticket.ordinal

    async def body(tx: Tx) -> bool:
        op = await rows.fetch(tx, operations, id=operation, live=1, ordinal=ordinal)
        step = await rows.fetch(tx, steps, operation_id=operation, ordinal=ordinal, open=1, way="do", host=ticket.host)
        return op is not None and step is not None and step["state"] == "taken"

    if not await engine.world.db.cell(ticket.journal).read(body, few=True):
        raise _refused("its step has ended")
    return ticket


def _refused(why: str) -> Refused:
    return Refused(
        "bad_image_token", f"image token: {why}; it is handed out with each step that needs an image's bytes"
    )
