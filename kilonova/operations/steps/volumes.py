"""Steps about a server's volumes. They live in the control database, so every write is fenced (law 1).

The server's own row says which volumes it has. These steps are skipped for a server without any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from kilonova.domain.errors import Failed, NotYet, Refused
from kilonova.domain.messages import StepResult
from kilonova.domain.params import Params, RetryParams, ServerSpec, VolumeParams
from kilonova.domain.server import Server, to_json
from kilonova.domain.volume import Attached, BootSource, ServerVolume, WantedVolume, server_volumes
from kilonova.engine.context import AnyContext, Context, HostContext
from kilonova.operations.facts import CreateFacts, MoveFacts, RetryFacts, VolumeFacts
from kilonova.operations.steps.fenced import fence_of
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import GuestVolume, Tx, VolumeService

VolumeContext = Context[VolumeFacts, VolumeParams]
CreateContext = Context[CreateFacts, ServerSpec]
ATTACHMENT_GONE = "attachment_not_found"


def has_volumes(server: Server) -> bool:
    return any(one.attachment_id for one in server_volumes(server.volume_info))


async def reserve(ctx: VolumeContext) -> None:
    """Reserve the volume: from now on no other server can have it."""
    facts = ctx.facts
    attachment = await service_of(ctx).reserve(
        fence_of(ctx),
        project_id=ctx.row.project_id,
        volume_id=facts.volume_id,
        device=facts.device,
    )

    def become(there: list[ServerVolume]) -> list[ServerVolume]:
        mine = facts.volume_id
        return [msgspec.structs.replace(o, attachment_id=attachment) if o.volume_id == mine else o for o in there]

    _record(ctx, become)
    facts.attachment = attachment


async def release(ctx: VolumeContext) -> None:
    """Release the volume. The attachment is found by the volume: the step that reserved it may have died before
    recording it."""
    volume_id = ctx.facts.volume_id
    for one in await _attached(ctx):
        if one.volume_id == volume_id:
            await service_of(ctx).release(fence_of(ctx), attachment_id=one.id)
    _record(ctx, lambda there: [one for one in there if one.volume_id != volume_id])


async def connect(ctx: VolumeContext) -> None:
    await service_of(ctx).connect(fence_of(ctx), attachment_id=ctx.facts.attachment, host=ctx.facts.host)


async def complete(ctx: VolumeContext) -> None:
    await service_of(ctx).complete(fence_of(ctx), attachment_id=ctx.facts.attachment)


async def connect_to_destination(ctx: Context[MoveFacts, Params]) -> None:
    await _connect_all(ctx, ctx.facts.destination)


async def connect_to_source(ctx: Context[MoveFacts, Params]) -> None:
    await _connect_all(ctx, ctx.facts.source)


async def _connect_all(ctx: AnyContext, host: str) -> None:
    """Connect all volumes again, which invalidates the other host's secret. An attachment that an administrator
    removed meanwhile needs no connection."""
    for one in await _attached(ctx):
        try:
            await service_of(ctx).connect(fence_of(ctx), attachment_id=one.id, host=host)
        except Failed as why:
            if why.code != ATTACHMENT_GONE:
                raise


async def attach_wanted(ctx: CreateContext) -> None:
    """Create and connect all volumes that a new server requests. Creating them takes time."""
    wanted = ctx.params.volumes
    ids = [one.volume_id or await _create_volume(ctx, slot, one) for slot, one in enumerate(wanted)]
    held = {one.volume_id: one.id for one in await _attached(ctx)}  # since it was accepted, or by an earlier try
    for volume_id in ids:
        if volume_id not in held:
            await _until_settled(ctx, volume_id)
    there = [await _taken(ctx, volume_id, one, held) for volume_id, one in zip(ids, wanted, strict=True)]
    ctx.set_server(volume_info=to_json(there))


async def give_back(ctx: AnyContext) -> None:
    """Disconnect the volumes from the host. The server keeps them reserved, for the next attempt."""
    for one in await _attached(ctx):
        await service_of(ctx).disconnect(fence_of(ctx), attachment_id=one.id)
    ctx.set_server(volume_info=to_json([]))


async def complete_all(ctx: AnyContext) -> None:
    """Complete the attachments: the guest has the volumes. From here on the server's own row says which are deleted
    with it."""
    for one in await _attached(ctx):
        await service_of(ctx).complete(fence_of(ctx), attachment_id=one.id)
        await service_of(ctx).set_delete_on_termination(fence_of(ctx), attachment_id=one.id, delete=False)


async def _create_volume(ctx: AnyContext, slot: int, one: WantedVolume) -> str:
    return await service_of(ctx).create_for_boot(
        fence_of(ctx),
        slot=slot,
        project_id=ctx.row.project_id,
        user_id=ctx.row.user_id,
        size=one.size,
        source=BootSource(image_id=one.image_id, snapshot_id=one.snapshot_id),
        volume_type=one.type,
        delete_on_termination=one.delete_on_termination,
    )


async def _until_settled(ctx: AnyContext, volume_id: str) -> None:
    state = await service_of(ctx).state(volume_id)
    if state.is_broken:
        raise Failed("volume_failed", f"volume {volume_id} could not be created: {state.reason}", final=True)
    if not state.is_settled:
        raise NotYet(f"volume {volume_id}, which is {state.status}", 0.5)


async def _taken(ctx: CreateContext, volume_id: str, one: WantedVolume, held: Mapping[str, str]) -> ServerVolume:
    volumes, owner = service_of(ctx), ctx.row.project_id
    attachment = held.get(volume_id) or await volumes.reserve(
        fence_of(ctx), project_id=owner, volume_id=volume_id, device=one.device
    )
    await volumes.connect(fence_of(ctx), attachment_id=attachment, host=ctx.facts.destination)
    return ServerVolume(
        id=ctx.world.ids.uuid(),
        volume_id=volume_id,
        attachment_id=attachment,
        device=one.device,
        tag=one.tag,
        delete_on_termination=one.delete_on_termination,
        is_root=one.is_root,
    )


def named(volumes: Sequence[WantedVolume]) -> dict[str, str]:
    """Return the device of each existing volume that a new server asks for."""
    return {one.volume_id: one.device for one in volumes if one.volume_id}


async def hold_named(ctx: Context[RetryFacts, RetryParams]) -> None:
    """Hold the named volumes of a server that is tried again, as the acceptance of a create does."""
    spec = ctx.params.spec
    service, devices = service_of(ctx), named(spec.volumes)

    async def body(tx: Tx) -> None:
        await service.hold(tx, fence_of(ctx), project_id=spec.project_id, devices=devices)

    try:
        if devices:
            await ctx.world.db.control.write(body)
    except Refused as why:
        raise Failed(why.code, why.message, final=True) from why


async def release_held(ctx: AnyContext) -> None:
    """Release the volumes of a server that never had a host: they were only reserved."""
    await service_of(ctx).release_all(fence_of(ctx))


async def release_volumes(ctx: AnyContext) -> None:
    """Release all volumes, and delete those that are deleted with the server, unless it never got them."""
    there = server_volumes(ctx.row.volume_info)
    going = [one.volume_id for one in there if one.delete_on_termination and one.attachment_id]
    await service_of(ctx).release_all(fence_of(ctx), delete=going)
    ctx.set_server(volume_info=to_json([]))


async def release_unbuilt(ctx: CreateContext) -> None:
    """Release the volumes of a failed build. Volumes made for the server are deleted if the request says so: the
    record may not say so any more, or not yet."""
    wanted = ctx.params.volumes
    slots = [slot for slot, one in enumerate(wanted) if one.delete_on_termination and not one.volume_id]
    await service_of(ctx).release_all(fence_of(ctx), slots=slots)
    ctx.set_server(volume_info=to_json([]))


async def give_volume(host: HostContext) -> StepResult:
    await host.driver.ensure_volume(host.server, host.copy, _of(host.spec.volumes, host.facts.attachment or ""))
    return StepResult()


async def give_volume_back(host: HostContext) -> StepResult:
    """Undo a detach.

    If an administrator removed the attachment meanwhile (os-force_detach), the host may not connect the volume any
    more: the guest must not keep a volume that it cannot open.
    """
    attachment = host.facts.attachment
    if not any(one.attachment == attachment for one in host.spec.volumes):
        await take_volume(host)
        return StepResult(gone=True)
    return await give_volume(host)


def volume_kept_or_gone(ctx: VolumeContext, result: StepResult) -> None:
    """Remove the volume from the server's record if the volume service no longer has it."""
    if result.gone:
        volume_id = ctx.facts.volume_id
        _record(ctx, lambda there: [one for one in there if one.volume_id != volume_id])


async def take_volume(host: HostContext) -> StepResult:
    """Take the volume from the guest. If nothing was reserved, the guest cannot have it."""
    if host.facts.attachment:
        await host.driver.ensure_no_volume(host.server, host.copy, host.facts.attachment)
    return StepResult()


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
    raise Failed("no_attachment", f"attachment {attachment} no longer belongs to the server", final=True)


def _record(ctx: AnyContext, become: Callable[[list[ServerVolume]], list[ServerVolume]]) -> None:
    server_id = ctx.server_id or ""

    async def change(tx: Tx, now: float) -> None:
        await record_volumes(tx, server_id, become)

    ctx.in_transaction(change)


async def _attached(ctx: AnyContext) -> list[Attached]:
    server_id = ctx.server_id or ""
    return (await service_of(ctx).attached([server_id])).get(server_id, [])


def service_of(ctx: AnyContext) -> VolumeService:
    if ctx.world.volume is None:
        raise RuntimeError("this role has no volume service")
    return ctx.world.volume
