"""The quota check before a request is accepted: a resize, or the revert of a resize, may need more than its owner has
left. The operation counts it in its first steps, where the answer is final; here the request is refused with 403."""

from __future__ import annotations

import msgspec

from kilonova.domain.errors import Refused
from kilonova.domain.server import Flavor, flavor_from
from kilonova.engine.accept import Ask
from kilonova.engine.core import Engine
from kilonova.operations.held import held_in_placement
from kilonova.operations.steps.counting import growth, size_of
from kilonova.quota.check import exceeded_by
from kilonova.store import rows
from kilonova.store.tables import cell
from kilonova.world import Row, Tx


async def check_growth(engine: Engine, ask: Ask, mapping: Row) -> None:
    """Raise `Refused` if the owner's quota has no room for what the server would use more than it counts with now."""
    flavor = await _flavor_after(engine, ask, mapping)
    if flavor is None:
        return
    more = growth({"cores": mapping["vcpus"], "ram": mapping["memory_mb"]}, size_of(flavor))
    if not more:
        return
    owner, defaults = (mapping["project_id"], mapping["user_id"]), engine.limits.quota
    held = await held_in_placement(engine.world.db.placement, engine.limits, *owner)

    async def body(tx: Tx) -> list[str]:
        return await exceeded_by(tx, owner, more, defaults=defaults, held=held)

    if over := await engine.world.db.control.read(body, few=True):
        raise Refused("quota_exceeded", f"Quota exceeded: {'; '.join(over)}")


async def _flavor_after(engine: Engine, ask: Ask, mapping: Row) -> Flavor | None:
    """None: the request changes no flavor."""
    if ask.kind == "resize":
        return msgspec.convert(ask.params["flavor"], Flavor)
    if ask.kind != "revert_resize":
        return None

    async def body(tx: Tx) -> Row | None:
        return await rows.fetch(tx, cell.migrations, server_id=ask.server_id, open=1, status="finished")

    move = await engine.world.db.cell(mapping["cell"]).read(body, few=True)
    return None if move is None else flavor_from(move["old_flavor"])
