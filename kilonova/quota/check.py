"""Use and limits of a project; -1 means without limit.

What one user may have within a project only matters where an administrator has set it: each user's use is part of the
project's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kilonova.quota.resources import COUNTED, EVERYTHING, Limits
from kilonova.quota.usage import used
from kilonova.records.quotas import LimitRows
from kilonova.schema.tables.quotas import quota_classes, quotas
from kilonova.store.quota_locks import lock_project_quota
from kilonova.world import Tx

Held = tuple[dict[str, int], dict[str, int]]  # of a project and of one user in it, where that is not counted here
NOTHING: Held = ({}, {})
LIMITS = LimitRows(quotas, quota_classes)
given, set_limit = LIMITS.given, LIMITS.put


class Bound(NamedTuple):
    """The limits of a project or user, and the use that is not counted here."""

    owner: tuple[str, str]
    limits: Limits
    held: dict[str, int]


async def exceeded(
    tx: Tx,
    project: str,
    delta: Mapping[str, int],
    *,
    user: str = "",
    defaults: Limits = EVERYTHING,
    held: Held = NOTHING,
    among: Collection[str] | None = None,
) -> list[str]:
    """Return a sentence per resource that would be over its limit; an empty list if none is. `among`: the resources
    that matter; None: all."""
    for bound in await _bounds(tx, project, user, defaults, held):
        amounts = {**await used(tx, *bound.owner), **bound.held}
        over = [
            f"{resource}: requested {delta.get(resource, 0)}, used {amounts[resource]} of {limit}"
            for resource, limit in bound.limits.items()
            if (among is None or resource in among) and 0 <= limit < amounts[resource] + delta.get(resource, 0)
        ]
        if over:
            return over
    return []


async def exceeded_by(
    tx: Tx, owner: tuple[str, str], more: Mapping[str, int], *, defaults: Limits = EVERYTHING, held: Held = NOTHING
) -> list[str]:
    """Do as `exceeded` for the resources that grow: a limit lowered below the use forbids no other change."""
    grows = {resource: amount for resource, amount in more.items() if amount > 0}
    if not grows:
        return []
    return await exceeded(tx, owner[0], grows, user=owner[1], defaults=defaults, held=held, among=grows)


async def room(
    tx: Tx,
    project: str,
    each: Mapping[str, int],
    most: int,
    *,
    user: str = "",
    defaults: Limits = EVERYTHING,
    held: Held = NOTHING,
    locks: bool = True,
) -> int:
    """Return how many more of this size fit, at most `most`. The next caller waits until this transaction has ended,
    unless this one only reads (`locks=False`)."""
    bounds = await _bounds(tx, project, user, defaults, held)
    if bounds and locks:
        await lock_project_quota(tx, project)
    for bound in bounds:
        amounts = {**await used(tx, *bound.owner), **bound.held}
        for resource, limit in bound.limits.items():
            if limit >= 0 and each[resource]:
                most = min(most, max(0, limit - amounts[resource]) // each[resource])
    return most


async def _bounds(tx: Tx, project: str, user: str, defaults: Limits, held: Held) -> list[Bound]:
    """Return the bounds of the project, and of the user if an administrator has set one. Without a limit nothing is
    read."""
    limits = await given(tx, project, defaults)
    bounds = [Bound((project, ""), {name: limits.of_project(name) for name in COUNTED}, held[0])]
    if user in limits.users:
        bounds.append(Bound((project, user), {name: limits.of_user(user, name) for name in COUNTED}, held[1]))
    return [bound for bound in bounds if any(limit >= 0 for limit in bound.limits.values())]
