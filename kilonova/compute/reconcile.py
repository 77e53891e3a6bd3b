"""Carry out the verdicts on the copies of a returning host: first stop what must not run, then remove, then adopt."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec
from kilonova.domain.messages import Verdict
from kilonova.world import Claims, Driver

logger = logging.getLogger(__name__)
MOST_STARTS = 3  # of one guest; after that the host works without it
Tries = Counter[tuple[str, int]]  # by server and copy: starts that failed since the agent began


@dataclass
class Reconciled:
    destroyed: list[tuple[str, int]] = field(default_factory=list)
    stopped: list[tuple[str, int]] = field(default_factory=list)
    adopted: list[tuple[str, int, bool]] = field(default_factory=list)
    failed: list[tuple[str, int, str]] = field(default_factory=list)  # could not be started, and why


async def carry_out(
    driver: Driver, claims: Claims, verdicts: Sequence[Verdict], running: set[tuple[str, int]], tries: Tries
) -> Reconciled:
    """Carry out the verdicts. Quarantined copies are left exactly as they are; those that are set aside are switched
    off.

    Raise the error of a guest that may still start: the host registers again, and each registration tries it once.
    """
    done = Reconciled()
    for verdict in verdicts:
        if verdict.action in ("stop", "set_aside"):
            await driver.ensure_power(verdict.server, verdict.copy, on=False)
            done.stopped.append((verdict.server, verdict.copy))
    for verdict in verdicts:
        if verdict.action == "destroy":
            await driver.ensure_absent(verdict.server, verdict.copy)
            claims.drop(verdict.server, verdict.copy)
            done.destroyed.append((verdict.server, verdict.copy))
    for verdict in verdicts:
        if verdict.guest is not None and verdict.action != "adopt":
            await driver.ensure_defined(_with_claim(claims, verdict.guest))
    for verdict in verdicts:
        if verdict.action == "adopt":
            copy = (verdict.server, verdict.copy)
            reason = await _adopt(driver, claims, verdict, tries)
            if reason and copy not in running:
                done.failed.append((*copy, reason))
            done.adopted.append((*copy, (verdict.run and not reason) or copy in running))
    return done


def _with_claim(claims: Claims, guest: GuestSpec) -> GuestSpec:
    """Add the claim to the conductor's definition: only this host knows it."""
    return msgspec.structs.replace(guest, claim=claims.of(guest.server, guest.copy))


async def _adopt(driver: Driver, claims: Claims, verdict: Verdict, tries: Tries) -> str:
    """Define the copy, and start it if it should run. Return the reason if that is impossible.

    Other copies must not wait for a guest that can never start here, nor forever for one that fails repeatedly.
    """
    copy = (verdict.server, verdict.copy)
    try:
        if verdict.guest is not None:
            await driver.ensure_defined(_with_claim(claims, verdict.guest))
        if verdict.run:
            await driver.ensure_power(*copy, on=True)
    except Exception as error:
        tries[copy] += 1
        reason = error.message if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
        if not (isinstance(error, Failed) and error.final) and tries[copy] < MOST_STARTS:
            raise
        text = "guest could not be started: server=%s copy=%d tries=%d reason=%s"
        logger.warning(text, *copy, tries.pop(copy), reason, exc_info=not isinstance(error, Failed))
        return reason
    tries.pop(copy, None)
    return ""
