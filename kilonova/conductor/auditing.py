"""The periodic audit: one of the conductors runs it, keeps the report and logs what it found."""

from __future__ import annotations

import contextlib
import logging

from kilonova.audit.holdings import asking
from kilonova.audit.run import audit, keep
from kilonova.domain.errors import Unreachable
from kilonova.engine.core import Engine
from kilonova.store.expiry import forget_keys, forget_ledger

logger = logging.getLogger(__name__)


async def audit_all(engine: Engine) -> None:
    db, clock = engine.world.db, engine.world.clock
    report = await audit(db, clock, mend=True, ask=asking(engine.world.bus, db))
    await keep(db, report)
    for finding in report.findings:
        logger.warning("audit: %s: %s (%s)", finding.outcome, finding.sentence, finding.why or finding.kind)
    for usage in report.unbalanced:
        logger.warning(
            "audit: %s: provider %s %s: recorded used=%s, allocations=%s %s",
            *(usage.outcome, usage.provider, usage.resource_class, usage.used, usage.held, usage.why),
        )
    for one in report.miscounted:
        logger.warning(
            "audit: %s: recorded quota use of user %s in project %s differs from the servers",
            one.outcome,
            one.user,
            one.project,
        )
    for difference in report.differences:
        logger.warning("audit: found: %s: %s", difference.kind, difference.sentence)
    for sentence in report.hardware:
        logger.warning("audit: found: %s", sentence)
    for sentence in report.abandoned:
        logger.warning("audit: left: %s", sentence)
    for cell, why in report.unreachable.items():
        logger.warning("audit: %d consumers are unknown, cell %s: %s", len(report.unknown), cell, why)
    await forget_ledger(db.placement, engine.settings.audit.ledger_days)
    for journal in db.journals():
        with contextlib.suppress(Unreachable):  # named in the report
            await forget_keys(journal)
