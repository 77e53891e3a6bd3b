"""Query hosts for their current holdings. Their reports from registration may be hours old."""

from __future__ import annotations

import msgspec

from kilonova.audit.surroundings import AskHost
from kilonova.bus import in_cell, question_subject
from kilonova.domain.errors import KilonovaError
from kilonova.domain.guest import CopyReport
from kilonova.domain.messages import Holdings, HoldingsQuestion
from kilonova.world import Bus, Stores

ANSWER_SECONDS = 5.0
_QUESTION = msgspec.json.encode(HoldingsQuestion())


def asking(bus: Bus, stores: Stores) -> AskHost:
    """Ask any host, for an audit."""

    async def ask(cell: str, host: str) -> list[CopyReport] | None:
        return await ask_host(bus, stores, cell, host)

    return ask


async def ask_host(bus: Bus, stores: Stores, cell: str, host: str) -> list[CopyReport] | None:
    """Return the copies on the host; None if it does not answer, or the response cannot be parsed."""
    subject = in_cell(stores.bus_prefix(cell), question_subject(host))
    try:
        answer = await bus.call(subject, _QUESTION, timeout=ANSWER_SECONDS)
        return msgspec.json.decode(answer, type=Holdings).copies
    except (KilonovaError, msgspec.MsgspecError):
        return None
