"""Steps on a host: what shall be there, said to the driver. Each is safe to repeat and safe when nothing happened."""

from __future__ import annotations

from kilonova.domain.errors import Failed
from kilonova.domain.hardware import HostClaim
from kilonova.domain.image_bytes import DiskRoute
from kilonova.domain.messages import StepResult
from kilonova.domain.server import ACTIVE, POWER_RUNNING, POWER_SHUTDOWN, STOPPED
from kilonova.engine.context import AnyContext, HostContext
from kilonova.engine.model import DISK_TOKEN


def take_claim(host: HostContext, *, beside: int | None = None) -> HostClaim | None:
    """Take the copy's share of the host's hardware before anything is made: if it fails, another host may do."""
    return host.claims.take(host.server, host.copy, host.spec.hardware, beside=beside)


async def build_guest(host: HostContext) -> StepResult:
    """Take the claim, then create the disk from the image, define the guest and start it."""
    claim = take_claim(host)
    disk = await host.driver.ensure_disk(host.spec, image=host.image)
    await host.driver.ensure_defined(host.spec, host.guest_secrets)
    await host.driver.ensure_power(host.server, host.copy, on=True)
    return StepResult(disk=disk, claim=claim)


async def rebuild_guest(host: HostContext) -> StepResult:
    """Make the guest after its source died: take its disk over if this host can see it, else make a new one."""
    claim = take_claim(host)
    await _check_storage(host)
    disk = await host.driver.ensure_disk(host.spec, adopt=host.facts.source_copy, image=host.image)
    await host.driver.ensure_defined(host.spec, host.guest_secrets)
    if host.facts.ends != STOPPED:
        await host.driver.ensure_power(host.server, host.copy, on=True)
    return StepResult(disk=disk, claim=claim)


async def _check_storage(host: HostContext) -> None:
    """Fail if the request says something else about shared storage than the host finds. Nothing is made then."""
    shared = host.facts.shared
    if shared is None or shared == await host.driver.sees_disk(host.server, host.facts.source_copy):
        return
    what = "does not see" if shared else "sees"
    text = f"host {host.host} {what} the disk of server {host.server}, but the request says onSharedStorage={shared}"
    raise Failed("storage_differs", f"{text}; repeat the request with the other value", elsewhere=True)


async def prepare_guest(host: HostContext) -> StepResult:
    """Take hardware and define the guest; the source sends the disk and gets the URL for it."""
    claim = take_claim(host)
    await host.driver.ensure_defined(host.spec, host.guest_secrets)
    url = await host.driver.expect_disk(host.spec, host.secrets.get(DISK_TOKEN, ""), host.image)
    return StepResult(claim=claim, takes_disks_at=url or "")


async def stop_and_send(host: HostContext) -> StepResult:
    """Stop the guest and copy its disk to the destination; the original stays for a revert."""
    await host.driver.ensure_power(host.server, host.copy, on=False)
    facts = host.facts
    route = DiskRoute(url=facts.takes_disks_at, token=host.secrets.get(DISK_TOKEN, ""))
    await host.driver.send_disk(host.server, host.copy, to_host=facts.destination, to_copy=facts.copy, route=route)
    return StepResult(stopped=True)


async def start_guest(host: HostContext) -> StepResult:
    """Restore the power state from before the operation."""
    on = host.facts.was == ACTIVE
    if on:
        await host.driver.ensure_power(host.server, host.copy, on=True)
    return StepResult(running=on)


async def finish_guest(host: HostContext) -> StepResult:
    """Define the copy with the received disk, and start it if it ran before."""
    await host.driver.ensure_defined(host.spec)
    return await start_guest(host)


async def finish_moved_guest(host: HostContext) -> StepResult:
    """Resize the received disks to the guest's sizes and make swap again; then do as `finish_guest`."""
    await host.driver.ensure_disk_size(host.spec)
    return await finish_guest(host)


async def stop_guest(host: HostContext) -> StepResult:
    """Stop the guest and keep its disks: the other copy may run only after this."""
    await host.driver.ensure_power(host.server, host.copy, on=False)
    return StepResult(stopped=True)


async def remove_guest(host: HostContext) -> StepResult:
    """Remove this copy and drop its claim on the host's hardware."""
    await host.driver.ensure_absent(host.server, host.copy)
    host.claims.drop(host.server, host.copy)
    return StepResult(removed=True)


def copy_gone(ctx: AnyContext, result: StepResult) -> None:
    """Record that the copy was removed, or that a debt says that it must be."""
    if result.waived:
        ctx.set_copy(ctx.target.copy, ctx.target.host, "leaving")
    else:
        ctx.drop_copy(ctx.target.copy, ctx.target.host)


def copy_whole(ctx: AnyContext, result: StepResult) -> None:
    ctx.set_copy(ctx.target.copy, ctx.target.host, "whole", result.claim)


def copy_begun(ctx: AnyContext, result: StepResult) -> None:
    """Record a copy that is not whole yet, with its share of the hardware."""
    ctx.set_copy(ctx.target.copy, ctx.target.host, "making", result.claim)


def power_of(vm_state: str) -> int:
    return POWER_RUNNING if vm_state == ACTIVE else POWER_SHUTDOWN
