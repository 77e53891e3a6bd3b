"""The periodic purge: one conductor removes what ended longer ago than the retention."""

from __future__ import annotations

import logging

from kilonova.domain.errors import Unreachable
from kilonova.engine.core import Engine
from kilonova.store.purge import log_purge, purge

logger = logging.getLogger(__name__)
SECONDS_BETWEEN = 3600.0


async def purge_all(engine: Engine) -> None:
    days = engine.settings.retention.days
    try:
        counts = await purge(engine.world.db, days, ledger_days=engine.settings.audit.ledger_days)
    except Unreachable as error:
        logger.debug("purge: %s", error)  # another line has reported that it is unreachable
        return
    if counts:
        log_purge(days, counts)
