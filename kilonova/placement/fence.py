"""Fenced writes (law 2): one transaction per verb, and a conductor that wakes up late changes nothing.

The row of `claim_fence` is locked first. Asked again for the same (turn, ordinal), the recorded outcome is the answer,
whatever has happened since; asked for an older one, the answer is Superseded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
from sqlalchemy import bindparam, update
from sqlalchemy.dialects.postgresql import insert as insert_unless_there

from kilonova.domain.errors import Superseded
from kilonova.placement.refusals import ClaimRefused, LostRace
from kilonova.store.statements import Sql
from kilonova.store.tables.placement import claim_fence
from kilonova.world import Store, Tx

NEVER = -1
LOCK_FENCE = Sql(
    insert_unless_there(claim_fence)
    .values(server_id=bindparam("server_id"), turn=NEVER, ordinal=NEVER, outcome="")
    # changes nothing, but locks a row that was there; both engines then give the row back
    .on_conflict_do_update(index_elements=["server_id"], set_={"turn": claim_fence.c.turn})
    .returning(claim_fence.c.turn, claim_fence.c.ordinal, claim_fence.c.outcome)
)
RECORD = Sql(
    update(claim_fence)
    .where(claim_fence.c.server_id == bindparam("server"))
    .values(turn=bindparam("turn"), ordinal=bindparam("ordinal"), outcome=bindparam("outcome"))
)

O = TypeVar("O")  # noqa: E741 - an outcome


class Fence(msgspec.Struct, frozen=True):
    """Which step of which turn of a server is writing."""

    server: str
    turn: int
    ordinal: int


@dataclass(slots=True, frozen=True)
class Attempt:
    careful: bool  # an attempt lost a race before: lock every candidate before looking at it
    previous: str  # JSON of the outcome recorded by the write before this one


Verb = Callable[[Tx, Attempt], Awaitable[O]]


async def fenced(store: Store, fence: Fence, verb: Verb[O], kind: Any) -> O:
    """Run the verb once per (turn, ordinal). `kind` is the type of its outcome, to read a recorded one back.

    Only PostgreSQL can lose a race between looking and writing; the careful attempt cannot lose it again.
    """
    for careful in (False, True):
        try:
            return await store.write(partial(_once, fence, verb, careful, kind))
        except (LostRace, ClaimRefused):
            continue
    return await store.write(partial(_once, fence, verb, True, kind))


async def _once(fence: Fence, verb: Verb[O], careful: bool, kind: Any, tx: Tx) -> O:
    row = await tx.one(LOCK_FENCE, server_id=fence.server)
    if row is None:
        raise RuntimeError("an upsert gives its row back")
    reached = (row["turn"], row["ordinal"])
    if reached == (fence.turn, fence.ordinal):
        recorded: O = msgspec.json.decode(row["outcome"], type=kind)
        return recorded
    if reached > (fence.turn, fence.ordinal):
        raise Superseded(
            f"server {fence.server}: placement has already seen turn {reached[0]} step {reached[1]}, "
            f"turn {fence.turn} step {fence.ordinal} comes too late"
        )
    outcome = await verb(tx, Attempt(careful, row["outcome"]))
    text = msgspec.json.encode(outcome).decode()
    await tx.run(RECORD, server=fence.server, turn=fence.turn, ordinal=fence.ordinal, outcome=text)
    return outcome
