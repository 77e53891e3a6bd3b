"""A log line for every change of a host's recorded state."""

from __future__ import annotations

import logging

from kilonova.domain.errors import KilonovaError
from kilonova.domain.host import HostState
from kilonova.engine.core import Engine
from kilonova.store.hosts import judge_all
from kilonova.world import Store, Tx

logger = logging.getLogger(__name__)


class HostLog:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._states: dict[tuple[str, str], str] = {}  # by cell and host

    async def keep_looking(self, seconds: float) -> None:
        while True:
            for name in self._engine.world.db.cells():
                try:
                    await self.look(self._engine.world.db.cell(name))
                except KilonovaError as error:
                    logger.debug("host states of %s: %s", name, error)  # another line reports the unreachable cell
                except Exception:
                    logger.exception("host states of %s cannot be read", name)
            await self._engine.world.clock.sleep(seconds)

    async def look(self, cell: Store) -> None:
        down_after = self._engine.settings.default.service_down_time

        async def body(tx: Tx) -> dict[str, HostState]:
            return await judge_all(tx, down_after)

        for host, state in (await cell.read(body)).items():
            before = self._states.get((cell.name, host))
            self._states[cell.name, host] = state.status
            if before != state.status and (before or not state.is_up):  # a host that is up at the start has not changed
                text = "host state changed: host=%s cell=%s state=%s before=%s reason=%s"
                logger.info(text, host, cell.name, state.status, before or "not seen", state.sentence)
