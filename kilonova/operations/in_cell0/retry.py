"""The retry of a server in cell0: its original request is read, and its quota is checked again."""

from __future__ import annotations

import msgspec

from kilonova.domain.errors import Failed, Refused
from kilonova.domain.json import JsonObject
from kilonova.domain.params import ServerSpec
from kilonova.engine.accept import Accepted, Ask
from kilonova.engine.core import Engine
from kilonova.engine.submit import submit
from kilonova.operations.checks.held import held_in_placement
from kilonova.quota.check import NOTHING, exceeded
from kilonova.quota.resources import default_limits
from kilonova.schema.tables import control
from kilonova.store import rows
from kilonova.world import Row, Tx

ANY_FAILURE: JsonObject = {
    "any_failure": True
}  # the parameter of a retry by our own REST: also after a build that failed


async def rebuild_unplaced(engine: Engine, ask: Ask) -> Accepted:
    """Rebuild a server from cell0. `ask` has the changes to the original request; without a password the original one
    stays."""
    return await submit(engine, await whole_request(engine, ask))


async def whole_request(engine: Engine, ask: Ask) -> Ask:
    """Add what the original request asked for. Raise `Refused` if that cannot be read, or is above the quota now."""
    request = await request_of(engine, ask.server_id)
    spec = msgspec.json.decode(request["spec"], type=ServerSpec)
    try:
        secrets = {**engine.seal.read(request["sealed"] or ""), **ask.secrets}
    except Failed as why:
        text = f"Instance {ask.server_id} cannot be rebuilt: {why.message}; create a new server"
        raise Refused("secrets_unreadable", text) from None
    await _check_quota(engine, spec)
    whole: Ask = msgspec.structs.replace(
        ask, kind="rebuild_in_cell0", params={**msgspec.to_builtins(ask.params), "spec": spec}, secrets=secrets
    )
    return whole


async def request_of(engine: Engine, server_id: str) -> Row:
    async def body(tx: Tx) -> Row | None:
        return await rows.fetch(tx, control.request_specs, server_id=server_id)

    row = await engine.world.db.control.read(body, few=True)
    if row is None:
        raise Refused("invalid_state", f"Instance {server_id} cannot be rebuilt: its request is not recorded")
    return row


async def _check_quota(engine: Engine, spec: ServerSpec) -> None:
    """Check the quota. The server is counted already, but not by placement, where it holds nothing."""
    project, user = spec.project_id, spec.user_id
    held = await held_in_placement(engine.world.db.placement, engine.settings.quota, project, user)
    more = {} if held == NOTHING else {"cores": spec.flavor.vcpus, "ram": spec.flavor.memory_mb}

    async def body(tx: Tx) -> list[str]:
        return await exceeded(tx, project, more, user=user, defaults=default_limits(engine.settings.quota), held=held)

    over = await engine.world.db.control.read(body)
    if over:
        raise Refused("quota_exceeded", f"Quota exceeded: {'; '.join(over)}")
