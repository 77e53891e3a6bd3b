"""Carrying out the verdicts on what a returning host holds: first stop what must not run, then remove, then adopt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kilonova.domain.errors import Failed
from kilonova.domain.messages import Verdict
from kilonova.world import Claims, Driver


@dataclass
class Settled:
    destroyed: list[tuple[str, int]] = field(default_factory=list)
    stopped: list[tuple[str, int]] = field(default_factory=list)
    adopted: list[tuple[str, int, bool]] = field(default_factory=list)


async def carry_out(
    driver: Driver, claims: Claims, verdicts: Sequence[Verdict], running: set[tuple[str, int]]
) -> Settled:
    """Quarantined copies are left exactly as they are."""
    done = Settled()
    for verdict in verdicts:
        if verdict.word == "stop":
            await driver.ensure_power(verdict.server, verdict.copy, on=False)
            done.stopped.append((verdict.server, verdict.copy))
    for verdict in verdicts:
        if verdict.word == "destroy":
            await driver.ensure_absent(verdict.server, verdict.copy)
            claims.drop(verdict.server, verdict.copy)
            done.destroyed.append((verdict.server, verdict.copy))
    for verdict in verdicts:
        if verdict.guest is not None:
            await driver.ensure_defined(verdict.guest)
    for verdict in verdicts:
        if verdict.word == "adopt":
            runs = (verdict.run and await _started(driver, verdict)) or (verdict.server, verdict.copy) in running
            done.adopted.append((verdict.server, verdict.copy, runs))
    return done


async def _started(driver: Driver, verdict: Verdict) -> bool:
    """A guest that can never start here is off; the others must not wait for it."""
    try:
        await driver.ensure_power(verdict.server, verdict.copy, on=True)
    except Failed as why:
        if not why.final:
            raise
        return False
    return True
