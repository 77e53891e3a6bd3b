"""Fenced writes (law 2): one transaction per verb, and a conductor that wakes up late changes nothing.

The row of `claim_fence` is locked first. A repeated request with the same (turn, ordinal) returns the recorded outcome,
whatever has happened since; an older one raises Superseded.

A fence is removed a day after its server's mapping (store/purge.py). So a server without a fence is new, or it was
deleted and a conductor wakes up very late. The claim's own transaction distinguishes them by the age of the conductor's
facts: a mapping that existed a few hours ago, by the databases' clocks, cannot have been purged. Only an older one is
read again, in control, before the claim is retried; a server without a mapping is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
from sqlalchemy import bindparam, select, update
from sqlalchemy.dialects.postgresql import insert as insert_unless_there

from kilonova.domain.errors import Superseded
from kilonova.placement.refusals import ClaimRefused, LostRace
from kilonova.schema.tables.control import server_mappings
from kilonova.schema.tables.placement import claim_fence
from kilonova.store.fences import MAPPED_SECONDS, MappingTooOld, no_mapping
from kilonova.store.statements import Sql, database_time
from kilonova.world import Row, Store, Tx

NEVER = -1
LOCK_FENCE = Sql(
    insert_unless_there(claim_fence)
    .values(server_id=bindparam("server_id"), turn=NEVER, ordinal=NEVER, outcome="")
    # changes nothing, but locks a row that was there; both engines then give the row back
    .on_conflict_do_update(index_elements=["server_id"], set_={"turn": claim_fence.c.turn})
    .returning(claim_fence.c.turn, claim_fence.c.ordinal, claim_fence.c.outcome, database_time().label("now"))
)
RECORD = Sql(
    update(claim_fence)
    .where(claim_fence.c.server_id == bindparam("server"))
    .values(turn=bindparam("turn"), ordinal=bindparam("ordinal"), outcome=bindparam("outcome"))
)
_MAPPED = Sql(select(database_time().label("now")).where(server_mappings.c.server_id == bindparam("server")))

O = TypeVar("O")  # noqa: E741 - an outcome


class Fence(msgspec.Struct, frozen=True):
    """The turn and step of a server that is writing. With `control`, the server had a mapping there at `mapped_at`;
    without, no mapping is required."""

    server: str
    turn: int
    ordinal: int
    control: Store | None = None
    mapped_at: float = 0.0

    def admit(self, row: Row) -> None:
        """Raise `MappingTooOld` if the server has no fence and may have been purged."""
        if row["turn"] == NEVER and self.control is not None and row["now"] - self.mapped_at > MAPPED_SECONDS:
            raise MappingTooOld

    async def look_again(self) -> Fence:
        """Return the fence, with the knowledge that the server is mapped now. Raise Superseded if it is not."""
        assert self.control is not None

        async def body(tx: Tx) -> Row | None:
            return await tx.one(_MAPPED, server=self.server)

        row = await self.control.read(body)
        if row is None:
            raise no_mapping(self.server)
        return msgspec.structs.replace(self, mapped_at=row["now"])


@dataclass(slots=True, frozen=True)
class Attempt:
    careful: bool  # an attempt lost a race before: lock every candidate before looking at it
    previous: str  # JSON of the outcome recorded by the write before this one


Verb = Callable[[Tx, Attempt], Awaitable[O]]


async def fenced(store: Store, fence: Fence, verb: Verb[O], kind: Any) -> O:
    """Run the verb once per (turn, ordinal). `kind` is the type of its outcome, to read a recorded one back.

    Only PostgreSQL can lose a race between looking and writing; the careful attempt cannot lose it again.
    """
    careful, lost = False, 0
    while True:
        try:
            return await store.write(partial(_once, fence, verb, careful, kind))
        except MappingTooOld:
            fence = await fence.look_again()
        except (LostRace, ClaimRefused):
            careful, lost = True, lost + 1
            if lost > 2:
                raise


async def _once(fence: Fence, verb: Verb[O], careful: bool, kind: Any, tx: Tx) -> O:
    row = await tx.one(LOCK_FENCE, server_id=fence.server)
    if row is None:
        raise RuntimeError("an upsert gives its row back")
    fence.admit(row)
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
