"""The engine's interface to placement: each verb is one transaction, fenced by (server, turn, ordinal) (law 2).

    verb                what happens to the server's own rows      and besides
    claim               become exactly the first candidate's       -
    claim_move          go to the consumer `migration`             the destination's are claimed
    return_move         become the migration's again               the destination's are dropped       (undo, revert)
    drop_move           stay                                       the migration's are dropped         (confirm)
    claim_evacuation    get the holder `evacuation`                the destination's are claimed
    return_evacuation   become those of that holder again          the destination's are dropped       (undo)
    drop_source         stay                                       the migration's are dropped         (source gone)
    drop_holder         stay                                       those of that holder are dropped    (source clean)
    release             are dropped, with every holder's           so are the migrations'              (delete)

A refusal ("no room on any candidate", "nothing to release") is an outcome too and is recorded like the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kilonova.placement import groups, ledger
from kilonova.placement.capacity import CandidateChoice, HostCandidate, choose
from kilonova.placement.fence import Attempt, Fence, fenced
from kilonova.placement.groups import GroupPlacement, GroupRule
from kilonova.placement.history import Origin
from kilonova.placement.ledger import CONSUMER, ConsumerChange, Holding, Rows
from kilonova.placement.outcomes import Claimed, ClaimReturned, Dropped, NotClaimed, Refusal, Released
from kilonova.world import Store, Tx

__all__ = [
    "ClaimReturned",
    "Claimed",
    "Dropped",
    "Fence",
    "GroupRule",
    "HostCandidate",
    "NotClaimed",
    "Refusal",
    "Released",
    "claim",
    "claim_evacuation",
    "claim_move",
    "drop_holder",
    "drop_move",
    "drop_source",
    "release",
    "return_evacuation",
    "return_move",
]


async def claim(
    store: Store,
    fence: Fence,
    candidates: Sequence[HostCandidate],
    *,
    project: str,
    user: str,
    group: GroupRule | None = None,
) -> Claimed | NotClaimed:
    """Claim the first candidate that fits; the server then has no other own allocation."""

    async def verb(tx: Tx, attempt: Attempt) -> Claimed | NotClaimed:
        standing = await _stand(tx, fence.server, group)
        holdings = await ledger.lock(tx, [fence.server])
        server = holdings[fence.server]
        own = server.held_by(CONSUMER)
        choice = await choose(tx, candidates, standing, own=own, lock=_locked(attempt, server))
        if choice.capacity is None:
            return NotClaimed(tuple(choice.refused))
        others = _without(server.rows, own)
        change = ConsumerChange(fence.server, others | choice.rows, project, user, server.type_id)
        await ledger.apply(tx, holdings, [change], accepting=must_accept(choice, own), origin=_by("claim", fence))
        await groups.resettle(tx, standing, gone=_providers(own), here=[choice.capacity.provider])
        return Claimed(choice.capacity.uuid, "", tuple(choice.refused))

    return await fenced(store, fence, verb, Claimed | NotClaimed)


async def claim_move(
    store: Store,
    fence: Fence,
    migration: str,
    candidates: Sequence[HostCandidate],
    *,
    project: str,
    user: str,
    group: GroupRule | None = None,
) -> Claimed | NotClaimed:
    """Claim a destination for the server; its former rows become the migration's. On one host both count."""

    async def verb(tx: Tx, attempt: Attempt) -> Claimed | NotClaimed:
        standing = await _stand(tx, fence.server, group)
        holdings = await ledger.lock(tx, [fence.server, migration])
        server, moving = holdings[fence.server], holdings[migration]
        own = server.held_by(CONSUMER)
        leaving, freed = _leaving(own, again=bool(moving.rows) or _was_claimed_for(attempt, migration))
        choice = await choose(tx, candidates, standing, own=freed, lock=_locked(attempt, server, moving))
        if choice.capacity is None:
            return NotClaimed(tuple(choice.refused))
        source = moving.rows | leaving
        changes = [
            ConsumerChange(migration, source, project, user, moving.type_id),
            ConsumerChange(fence.server, _without(server.rows, own) | choice.rows, project, user, server.type_id),
        ]
        await ledger.apply(tx, holdings, changes, accepting=must_accept(choice, freed), origin=_by("claim_move", fence))
        here = {*_providers(source), choice.capacity.provider}
        await groups.resettle(tx, standing, gone=_providers(freed), here=here)
        return Claimed(choice.capacity.uuid, migration, tuple(choice.refused))

    return await fenced(store, fence, verb, Claimed | NotClaimed)


async def return_move(store: Store, fence: Fence, migration: str) -> ClaimReturned:
    """Return the migration's allocations to the server, and free those that the server had meanwhile."""

    async def verb(tx: Tx, attempt: Attempt) -> ClaimReturned:
        standing = await groups.stand_again(tx, fence.server)
        holdings = await ledger.lock(tx, [fence.server, migration])
        server, moving = holdings[fence.server], holdings[migration]
        if not moving.rows and not _was_claimed_for(attempt, migration):
            return ClaimReturned(0, 0)
        own = server.held_by(CONSUMER)
        owner = server if server.exists else moving
        rows = _without(server.rows, own) | moving.rows
        changes = [
            ConsumerChange(fence.server, rows, owner.project, owner.user, owner.type_id),
            ConsumerChange(migration, {}, moving.project, moving.user),
        ]
        await ledger.apply(tx, holdings, changes, origin=_by("return_move", fence))
        await groups.resettle(tx, standing, gone=_providers(own), here=_providers(moving.rows))
        return ClaimReturned(len(moving.rows), len(own))

    return await fenced(store, fence, verb, ClaimReturned)


async def drop_move(store: Store, fence: Fence, migration: str) -> Dropped:
    """Release the migration's rows: the move is confirmed."""

    async def verb(tx: Tx, attempt: Attempt) -> Dropped:
        standing = await groups.stand_again(tx, fence.server)
        holdings = await ledger.lock(tx, [fence.server, migration])
        server, moving = holdings[fence.server], holdings[migration]
        if not moving.rows:
            return Dropped(0)
        await ledger.apply(tx, holdings, [_nothing_left(moving)], origin=_by("drop_move", fence))
        here = _providers(server.held_by(CONSUMER))
        await groups.resettle(tx, standing, gone=_providers(moving.rows), here=here)
        return Dropped(len(moving.rows))

    return await fenced(store, fence, verb, Dropped)


async def drop_source(store: Store, server: str, migration: str) -> Dropped:
    """Free the migration's allocations at a source that was declared gone. Needs no fence: the records allow no way
    back to the source any more, so these rows are never claimed again."""

    async def body(tx: Tx) -> Dropped:
        standing = await groups.stand_again(tx, server)
        holdings = await ledger.lock(tx, [server, migration])
        moving = holdings[migration]
        if not moving.rows:
            return Dropped(0)
        await ledger.apply(tx, holdings, [_nothing_left(moving)], origin=Origin("drop_source", server))
        here = _providers(holdings[server].held_by(CONSUMER))
        await groups.resettle(tx, standing, gone=_providers(moving.rows), here=here)
        return Dropped(len(moving.rows))

    return await store.write(body)


async def claim_evacuation(
    store: Store,
    fence: Fence,
    evacuation: str,
    candidates: Sequence[HostCandidate],
    *,
    project: str,
    user: str,
    group: GroupRule | None = None,
) -> Claimed | NotClaimed:
    """Claim a destination for the server; its rows on the dead source stay, held for the evacuation.

    The allocations of an earlier evacuation stay as they are.
    """

    async def verb(tx: Tx, attempt: Attempt) -> Claimed | NotClaimed:
        standing = await _stand(tx, fence.server, group)
        holdings = await ledger.lock(tx, [fence.server])
        server = holdings[fence.server]
        own = server.held_by(CONSUMER)
        again = bool(server.held_by(evacuation)) or _was_claimed_for(attempt, evacuation)
        leaving, freed = _leaving(own, again=again)
        choice = await choose(tx, candidates, standing, own=freed, lock=_locked(attempt, server))
        if choice.capacity is None:
            return NotClaimed(tuple(choice.refused))
        rows = _without(server.rows, own) | _held_for(evacuation, leaving) | choice.rows
        change = ConsumerChange(fence.server, rows, project, user, server.type_id)
        await ledger.apply(
            tx, holdings, [change], accepting=must_accept(choice, freed), origin=_by("claim_evacuation", fence)
        )
        await groups.resettle(tx, standing, gone=_providers(own), here=[choice.capacity.provider])
        return Claimed(choice.capacity.uuid, evacuation, tuple(choice.refused))

    return await fenced(store, fence, verb, Claimed | NotClaimed)


async def return_evacuation(store: Store, fence: Fence, evacuation: str) -> ClaimReturned:
    """Return the evacuation's allocations to the server, and free those at the destination."""

    async def verb(tx: Tx, attempt: Attempt) -> ClaimReturned:
        standing = await groups.stand_again(tx, fence.server)
        holdings = await ledger.lock(tx, [fence.server])
        server = holdings[fence.server]
        source, own = server.held_by(evacuation), server.held_by(CONSUMER)
        if not source and not _was_claimed_for(attempt, evacuation):
            return ClaimReturned(0, 0)
        rows = _without(_without(server.rows, own), source) | _held_for(CONSUMER, source)
        change = ConsumerChange(fence.server, rows, server.project, server.user, server.type_id)
        await ledger.apply(tx, holdings, [change], origin=_by("return_evacuation", fence))
        await groups.resettle(tx, standing, gone=_providers(own), here=_providers(source))
        return ClaimReturned(len(source), len(own))

    return await fenced(store, fence, verb, ClaimReturned)


async def drop_holder(store: Store, server: str, evacuation: str) -> Dropped:
    """Release the source's share: it is clean or gone. This needs no fence: it touches only this evacuation's rows, and
    after an undo there are none."""

    async def body(tx: Tx) -> Dropped:
        holdings = await ledger.lock(tx, [server])
        held = holdings[server]
        source = held.held_by(evacuation) if evacuation != CONSUMER else {}
        if not source:
            return Dropped(0)
        rows = _without(held.rows, source)
        await ledger.apply(
            tx,
            holdings,
            [ConsumerChange(server, rows, held.project, held.user, held.type_id)],
            origin=Origin("drop_holder"),
        )
        return Dropped(len(source))

    return await store.write(body)


async def release(store: Store, fence: Fence, consumers: Sequence[str]) -> Released:
    """Release all allocations of these consumers, and remove the server from its group's count."""

    async def verb(tx: Tx, attempt: Attempt) -> Released:
        standing = await groups.stand_again(tx, fence.server)
        holdings = await ledger.lock(tx, consumers)
        existing = [holding for holding in holdings.values() if holding.exists]
        if existing:
            await ledger.apply(
                tx, holdings, [_nothing_left(holding) for holding in existing], origin=_by("release", fence)
            )
        await groups.leave(tx, standing)
        return Released(len(existing), sum(len(holding.rows) for holding in existing))

    return await fenced(store, fence, verb, Released)


def _by(verb: str, fence: Fence) -> Origin:
    return Origin(verb, fence.server, fence.turn, fence.ordinal)


async def _stand(tx: Tx, server: str, group: GroupRule | None) -> GroupPlacement:
    return await groups.stand(tx, server, group) if group else GroupPlacement(server)


def _locked(attempt: Attempt, *holdings: Holding) -> set[int] | None:
    """The providers a careful attempt locks besides the candidates: those it will touch anyway."""
    if not attempt.careful:
        return None
    return {provider for holding in holdings for provider in _providers(holding.rows)}


def _leaving(own: Rows, *, again: bool) -> tuple[Rows, Rows]:
    """Return the rows that stay at the source, and those that are given back.

    If this move has claimed before (a retry, or the next destination), the server's own rows are the earlier
    destination's: the source's are safe.
    """
    return ({}, own) if again else (own, {})


def must_accept(choice: CandidateChoice, own: Rows) -> set[int]:
    """Return the providers that give more than the server had there, and the host itself then: a renewed claim is not
    a new one."""
    more = {key[0] for key, amount in choice.rows.items() if amount > own.get(key, 0)}
    return more | {choice.capacity.provider} if more and choice.capacity is not None else more


def _was_claimed_for(attempt: Attempt, on_behalf_of: str) -> bool:
    """Return True if the move has claimed. A server without allocations leaves no rows with the migration: then the
    last outcome decides."""
    if not attempt.previous:
        return False
    return bool(msgspec.json.decode(attempt.previous).get("on_behalf_of") == on_behalf_of)


def _nothing_left(holding: Holding) -> ConsumerChange:
    return ConsumerChange(holding.consumer, {}, holding.project, holding.user, holding.type_id)


def _without(rows: Rows, taken: Rows) -> Rows:
    return {key: amount for key, amount in rows.items() if key not in taken}


def _held_for(holder: str, rows: Rows) -> Rows:
    return {(provider, class_, holder): amount for (provider, class_, _), amount in rows.items()}


def _providers(rows: Rows) -> set[int]:
    return {provider for provider, _, _ in rows}
