"""Steps on a host: what shall be there, said to the driver. Each is safe to repeat and safe when nothing happened."""

from __future__ import annotations

from typing import Any

import msgspec

from kilonova.domain.errors import Failed
from kilonova.domain.hardware import HostClaim
from kilonova.domain.image_bytes import DiskRoute
from kilonova.domain.server import ACTIVE, POWER_RUNNING, POWER_SHUTDOWN, STOPPED
from kilonova.engine.context import Context, HostContext
from kilonova.engine.model import DISK_TOKEN

TAKES_DISKS_AT = "takes_disks_at"  # the fact: the URL where the destination takes the disks of a move


def take_claim(host: HostContext, *, beside: int | None = None) -> dict[str, Any]:
    """Take the copy's share of the host's hardware before anything is made: if it fails, another host may do."""
    claim = host.claims.take(host.server, host.copy, host.spec.wish, beside=beside)
    return {} if claim is None else {"claim": msgspec.to_builtins(claim)}


def claim_in(result: dict[str, Any]) -> HostClaim | None:
    return msgspec.convert(result["claim"], HostClaim) if "claim" in result else None


async def build_guest(host: HostContext) -> dict[str, Any]:
    """Its share of the hardware, a disk from the image, a definition, power."""
    taken = take_claim(host)
    made = await host.driver.ensure_disk(host.spec, image=host.image)
    await host.driver.ensure_defined(host.spec, host.guest_secrets)
    await host.driver.ensure_power(host.server, host.copy, on=True)
    return {"disk": made, **taken}


async def rebuild_guest(host: HostContext) -> dict[str, Any]:
    """Make the guest after its source died: take its disk over if this host can see it, else make a new one."""
    taken = take_claim(host)
    await _check_storage(host)
    made = await host.driver.ensure_disk(host.spec, adopt=host.facts["source_copy"], image=host.image)
    await host.driver.ensure_defined(host.spec, host.guest_secrets)
    if host.facts["ends"] != STOPPED:
        await host.driver.ensure_power(host.server, host.copy, on=True)
    return {"disk": made, **taken}


async def _check_storage(host: HostContext) -> None:
    """A request may say whether the disk is on shared storage. Where it is wrong, nothing is made."""
    shared = host.facts.get("shared")
    if shared is None or shared == await host.driver.sees_disk(host.server, host.facts["source_copy"]):
        return
    what = "does not see" if shared else "sees"
    text = f"host {host.host} {what} the disk of server {host.server}, but the request says onSharedStorage={shared}"
    raise Failed("storage_differs", f"{text}; repeat the request with the other value", elsewhere=True)


async def prepare_guest(host: HostContext) -> dict[str, Any]:
    """Take hardware and define the guest; the source sends the disk and gets the URL for it."""
    taken = take_claim(host)
    await host.driver.ensure_defined(host.spec, host.guest_secrets)
    url = await host.driver.expect_disk(host.spec, host.secrets.get(DISK_TOKEN, ""), host.image)
    return {**taken, TAKES_DISKS_AT: url} if url else taken


async def stop_and_send(host: HostContext) -> dict[str, Any]:
    """Stop the guest and copy its disk to the destination; the original stays for a revert."""
    await host.driver.ensure_power(host.server, host.copy, on=False)
    facts = host.facts
    route = DiskRoute(url=facts.get(TAKES_DISKS_AT, ""), token=host.secrets.get(DISK_TOKEN, ""))
    to = {"to_host": facts["destination"], "to_copy": facts["copy"]}
    await host.driver.send_disk(host.server, host.copy, **to, route=route)
    return {"stopped": True}


async def start_guest(host: HostContext) -> dict[str, Any]:
    """Power as it was before the operation."""
    on = host.facts["was"] == ACTIVE
    if on:
        await host.driver.ensure_power(host.server, host.copy, on=True)
    return {"running": on}


async def finish_guest(host: HostContext) -> dict[str, Any]:
    """The copy with the received disk is defined as it shall be now, and started if it ran before."""
    await host.driver.ensure_defined(host.spec)
    return await start_guest(host)


async def finish_moved_guest(host: HostContext) -> dict[str, Any]:
    """The received disks get the sizes that the guest shall have, and swap is made again; then as `finish_guest`."""
    await host.driver.ensure_disk_size(host.spec)
    return await finish_guest(host)


async def stop_guest(host: HostContext) -> dict[str, Any]:
    """Off, and nothing lost: the other copy may run only after this."""
    await host.driver.ensure_power(host.server, host.copy, on=False)
    return {"stopped": True}


async def remove_guest(host: HostContext) -> dict[str, Any]:
    """This copy only; then what it held of the hardware is free."""
    await host.driver.ensure_absent(host.server, host.copy)
    host.claims.drop(host.server, host.copy)
    return {"removed": True}


def copy_gone(ctx: Context, result: dict[str, Any]) -> None:
    """The copy is gone, or a debt says that it must go."""
    if "settled" in result:
        ctx.set_copy(ctx.target.copy, ctx.target.host, "leaving")
    else:
        ctx.drop_copy(ctx.target.copy, ctx.target.host)


def copy_whole(ctx: Context, result: dict[str, Any]) -> None:
    ctx.set_copy(ctx.target.copy, ctx.target.host, "whole", claim_in(result))


def copy_begun(ctx: Context, result: dict[str, Any]) -> None:
    """Record a copy that is not whole yet, with its share of the hardware."""
    ctx.set_copy(ctx.target.copy, ctx.target.host, "making", claim_in(result))


def power_of(vm_state: str) -> int:
    return POWER_RUNNING if vm_state == ACTIVE else POWER_SHUTDOWN
