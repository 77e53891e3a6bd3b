"""Claims of several servers of one request in one transaction: all of them or none.

Every lock is taken before anything is read, in the ledger's order, so free capacity stays free: fences, the group,
consumers, providers. A server with a higher fence (it was deleted meanwhile) is left out; the others do not wait for
it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from kilonova.domain.errors import Superseded
from kilonova.placement import groups, ledger
from kilonova.placement.capacity import (
    LOCK_PROVIDERS,
    CandidateChoice,
    HostCandidate,
    ProviderCapacity,
    first_fitting,
    read_capacities,
)
from kilonova.placement.claims import must_accept
from kilonova.placement.fence import LOCK_FENCE, RECORD, Fence
from kilonova.placement.groups import GroupPlacement, GroupRule
from kilonova.placement.history import Origin
from kilonova.placement.ledger import ConsumerChange
from kilonova.placement.outcomes import Claimed, NotClaimed, Refusal
from kilonova.store.fences import MappingTooOld
from kilonova.world import Row, Store, Tx

Outcome = Claimed | NotClaimed
Outcomes = dict[str, Outcome]  # by server; one that has gone its own way is missing


class BatchMember(msgspec.Struct, frozen=True):
    fence: Fence
    candidates: tuple[HostCandidate, ...]  # best first


class _NoRoomForAll(Exception):
    """The claims do not fit together; nothing is written. `refused` belongs to the first member without capacity."""

    def __init__(self, refused: Sequence[Refusal]) -> None:
        super().__init__()
        self.refused = tuple(refused)


async def claim_many(
    store: Store, members: Sequence[BatchMember], *, project: str, user: str, group: GroupRule | None = None
) -> Outcomes:
    """Claim for all members, or for none. A repeated call with the same (turn, ordinal) returns the recorded
    outcomes."""
    ordered = sorted(members, key=lambda member: member.fence.server)
    while True:
        try:
            return await _claim_or_refuse(store, ordered, project, user, group)
        except MappingTooOld:
            ordered = await _still_mapped(ordered)


async def _still_mapped(members: Sequence[BatchMember]) -> list[BatchMember]:
    mapped = []
    for member in members:
        with contextlib.suppress(Superseded):
            mapped.append(msgspec.structs.replace(member, fence=await member.fence.look_again()))
    return mapped


async def _claim_or_refuse(
    store: Store, ordered: Sequence[BatchMember], project: str, user: str, group: GroupRule | None
) -> Outcomes:
    try:
        return await store.write(lambda tx: _claim(tx, ordered, project, user, group))
    except _NoRoomForAll as why:
        refused = NotClaimed(why.refused)
        return await store.write(lambda tx: _record_all(tx, ordered, refused))


async def _claim(tx: Tx, members: Sequence[BatchMember], project: str, user: str, group: GroupRule | None) -> Outcomes:
    known, waiting = await _fenced(tx, members)
    if not waiting:
        return known
    standings = [
        await groups.stand(tx, member.fence.server, group) if group else GroupPlacement(member.fence.server)
        for member in waiting
    ]
    holdings = await ledger.lock(tx, [member.fence.server for member in waiting])
    choices = await _choices(tx, waiting, standings)
    changes = [
        ConsumerChange(member.fence.server, choice.rows, project, user)
        for member, choice in zip(waiting, choices, strict=True)
    ]
    accepting = {provider for choice in choices for provider in must_accept(choice, {})}
    first = waiting[0].fence
    origin = Origin("claim", turn=first.turn, ordinal=first.ordinal)
    await ledger.apply(tx, holdings, changes, accepting=accepting, origin=origin)
    for member, standing, choice in zip(waiting, standings, choices, strict=True):
        assert choice.capacity is not None
        await groups.resettle(tx, standing, gone=(), here=[choice.capacity.provider])
        known[member.fence.server] = Claimed(choice.capacity.uuid, "", tuple(choice.refused))
    await _record(tx, waiting, known)
    return known


async def _fenced(tx: Tx, members: Sequence[BatchMember]) -> tuple[Outcomes, list[BatchMember]]:
    """Return the outcomes recorded for exactly this step, and the members that still need one."""
    known: Outcomes = {}
    waiting: list[BatchMember] = []
    for member in members:
        row: Row | None = await tx.one(LOCK_FENCE, server_id=member.fence.server)
        assert row is not None, "an upsert gives its row back"
        member.fence.admit(row)
        reached, requested = (row["turn"], row["ordinal"]), (member.fence.turn, member.fence.ordinal)
        if reached == requested:
            known[member.fence.server] = msgspec.json.decode(row["outcome"], type=Outcome)
        elif reached < requested:
            waiting.append(member)
    return known, waiting


async def _choices(
    tx: Tx, members: Sequence[BatchMember], standings: Sequence[GroupPlacement]
) -> list[CandidateChoice]:
    uuids = list(dict.fromkeys(uuid for member in members for each in member.candidates for uuid in each.parts()))
    await tx.all(LOCK_PROVIDERS, uuids=uuids, ids=[])
    capacities = await read_capacities(tx, uuids)
    choices: list[CandidateChoice] = []
    for number, (member, standing) in enumerate(zip(members, standings, strict=True)):
        choice = first_fitting(member.candidates, capacities, standing)
        if choice.capacity is None:
            raise _NoRoomForAll(choice.refused)
        _take(capacities, choice)
        for other in standings[number + 1 :]:
            other.others.setdefault(choice.capacity.root, set()).add(member.fence.server)
        choices.append(choice)
    return choices


def _take(capacities: Mapping[str, ProviderCapacity], choice: CandidateChoice) -> None:
    """Count what one member has taken as used for the next."""
    by_id = {capacity.provider: capacity for capacity in capacities.values()}
    for (provider, class_id, _), amount in choice.rows.items():
        classes = by_id[provider].classes
        for name, of_class in classes.items():
            if of_class.class_id == class_id:
                classes[name] = replace(of_class, used=of_class.used + amount)


async def _record_all(tx: Tx, members: Sequence[BatchMember], outcome: Outcome) -> Outcomes:
    known, waiting = await _fenced(tx, members)
    await _record(tx, waiting, outcomes := {member.fence.server: outcome for member in waiting})
    return known | outcomes


async def _record(tx: Tx, members: Sequence[BatchMember], outcomes: Outcomes) -> None:
    rows = [
        {
            "server": member.fence.server,
            "turn": member.fence.turn,
            "ordinal": member.fence.ordinal,
            "outcome": msgspec.json.encode(outcomes[member.fence.server]).decode(),
        }
        for member in members
    ]
    await tx.many(RECORD, rows)
