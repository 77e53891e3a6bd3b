"""The quota check before a resize, or the revert of a resize, is accepted: it may need more than its owner has left.

The operation counts in its first steps, where the result is final; here the request is refused with 403. If a server's
host died after a resize, only the old copy is left: its revert is not refused.
"""

from __future__ import annotations

from kilonova.domain.errors import Refused
from kilonova.domain.host import HostState
from kilonova.domain.server import Flavor, flavor_from
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.operations.checks.held import held_in_placement
from kilonova.operations.steps.counting import growth, size_of
from kilonova.quota.check import exceeded_by
from kilonova.quota.resources import default_limits
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.store.hosts import judge_host
from kilonova.world import Row, Tx


async def check_growth(engine: Engine, mapping: Row, flavor: Flavor) -> None:
    """Raise `Refused` if the owner's quota has no room for what the server would use more than it counts with now."""
    more = growth({"cores": mapping["vcpus"], "ram": mapping["memory_mb"]}, size_of(flavor))
    if not more:
        return
    owner, defaults = (mapping["project_id"], mapping["user_id"]), default_limits(engine.settings.quota)
    held = await held_in_placement(engine.world.db.placement, engine.settings.quota, *owner)

    async def body(tx: Tx) -> list[str]:
        return await exceeded_by(tx, owner, more, defaults=defaults, held=held)

    if over := await engine.world.db.control.read(body, few=True):
        raise Refused("quota_exceeded", f"Quota exceeded: {'; '.join(over)}")


async def flavor_before(engine: Engine, ask: Ask, mapping: Row) -> Flavor | None:
    """Return the flavor that a revert goes back to; None if there is no resize to revert, or if only a revert keeps the
    server."""

    async def body(tx: Tx) -> tuple[Row | None, HostState | None]:
        move = await rows.fetch(tx, cell.migrations, server_id=ask.server_id, open=1, status="finished")
        down_after = engine.settings.default.service_down_time
        return move, None if move is None else await judge_host(tx, move["dest_host"], down_after)

    move, destination = await engine.world.db.cell(mapping["cell"]).read(body, few=True)
    is_dead = destination is not None and destination.status == "down"
    return None if move is None or is_dead else flavor_from(move["old_flavor"])
