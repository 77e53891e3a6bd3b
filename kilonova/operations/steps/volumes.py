"""Steps about a server's volumes. They live in the control database, so every write is fenced (law 2).

The server's own row says which volumes it has. A server without any has no such steps: their place finds no target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kilonova.domain.errors import Failed
from kilonova.domain.server import to_json
from kilonova.domain.volume import Attached, ServerVolume, server_volumes
from kilonova.engine.context import Context, HostContext
from kilonova.engine.model import Facts, Place, Target
from kilonova.store import rows
from kilonova.store.tables import cell
from kilonova.world import GuestVolume, Tx, Volume

WITH_VOLUMES = Place("control", lambda facts: [Target("")] if facts.get("volumes") else [])


def has_volumes(row: Any) -> bool:
    return any(one.attachment_id for one in server_volumes(row.volume_info))


async def reserve(ctx: Context) -> Facts:
    """From now on nobody else can have it."""
    facts = ctx.facts
    attachment = await _service(ctx).reserve(
        _fence(ctx),
        project_id=ctx.row.project_id,
        volume_id=facts["volume_id"],
        device=facts["device"],
    )

    def become(there: list[ServerVolume]) -> list[ServerVolume]:
        mine = facts["volume_id"]
        return [msgspec.structs.replace(o, attachment_id=attachment) if o.volume_id == mine else o for o in there]

    _record(ctx, become)
    return {"attachment": attachment}


async def release(ctx: Context) -> Facts:
    """Found by the volume: who reserved it may not have lived to say so."""
    volume_id = ctx.facts["volume_id"]
    for one in await _attached(ctx):
        if one.volume_id == volume_id:
            await _service(ctx).release(_fence(ctx), attachment_id=one.id)
    _record(ctx, lambda there: [one for one in there if one.volume_id != volume_id])
    return {}


async def connect(ctx: Context) -> Facts:
    await _service(ctx).connect(_fence(ctx), attachment_id=ctx.facts["attachment"], host=ctx.facts["host"])
    return {}


async def complete(ctx: Context) -> Facts:
    await _service(ctx).complete(_fence(ctx), attachment_id=ctx.facts["attachment"])
    return {}


async def connect_to_destination(ctx: Context) -> Facts:
    return await _connect_all(ctx, ctx.facts["destination"])


async def connect_to_source(ctx: Context) -> Facts:
    return await _connect_all(ctx, ctx.facts["source"])


async def _connect_all(ctx: Context, host: str) -> Facts:
    """Connected anew, the secret that the other host has is worth nothing any more."""
    for one in await _attached(ctx):
        await _service(ctx).connect(_fence(ctx), attachment_id=one.id, host=host)
    return {}


async def release_volumes(ctx: Context) -> Facts:
    """All of them; those that shall go with the server are deleted, unless it never came to have them."""
    there = server_volumes(ctx.row.volume_info)
    going = [one.volume_id for one in there if one.delete_on_termination and one.attachment_id]
    await _service(ctx).release_all(_fence(ctx), delete=going)
    ctx.set_server(volume_info=to_json([]))
    return {}


async def give_volume(host: HostContext) -> Facts:
    await host.driver.ensure_volume(host.server, host.copy, _of(host.spec.volumes, host.facts["attachment"]))
    return {}


async def take_volume(host: HostContext) -> Facts:
    """Nothing was reserved: nothing can be there."""
    if host.facts.get("attachment"):
        await host.driver.ensure_no_volume(host.server, host.copy, host.facts["attachment"])
    return {}


async def record_volumes(tx: Tx, server_id: str, become: Callable[[list[ServerVolume]], list[ServerVolume]]) -> None:
    """Read, changed and written in one transaction: the owner may decide about a volume's fate at any time."""
    row = await rows.fetch(tx, cell.servers, lock=True, id=server_id)
    if row is not None:
        changed = to_json(become(server_volumes(row["volume_info"])))
        await rows.change(tx, cell.servers, {"volume_info": changed}, id=server_id)


def _of(volumes: Sequence[GuestVolume], attachment: str) -> GuestVolume:
    for one in volumes:
        if one.attachment == attachment:
            return one
    raise Failed("no_attachment", f"attachment {attachment} is not the server's any more", final=True)


def _record(ctx: Context, become: Callable[[list[ServerVolume]], list[ServerVolume]]) -> None:
    server_id = ctx.server_id or ""

    async def change(tx: Tx, now: float) -> None:
        await record_volumes(tx, server_id, become)

    ctx.in_transaction(change)


async def _attached(ctx: Context) -> list[Attached]:
    server_id = ctx.server_id or ""
    return (await _service(ctx).attached([server_id])).get(server_id, [])


def _service(ctx: Context) -> Volume:
    if ctx.world.volume is None:
        raise RuntimeError("this role has no volume service")
    return ctx.world.volume


def _fence(ctx: Context) -> tuple[str, int, int]:
    return ctx.server_id or "", ctx.turn, ctx.ordinal
