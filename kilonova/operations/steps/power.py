"""Steps that switch a guest on or off, for start, stop, reboot, restore, soft_delete and follow_power: on the copy that
has permission to run, on its host. `its_copy` is also the check of other operations on that copy."""

from __future__ import annotations

from kilonova.domain.errors import Refused
from kilonova.domain.messages import StepResult
from kilonova.domain.params import Params
from kilonova.engine.context import HostContext, Subject
from kilonova.operations.facts import CopyFacts


def its_copy(subject: Subject[Params]) -> CopyFacts:
    """The copy to switch. Raise `Refused` while its host could not do it."""
    server, host = subject.server, subject.host
    assert server is not None
    if server.host is None or host is None or (server.runner_host, server.runner_copy) != (server.host, server.copy):
        raise Refused("not_ready", f"Instance {server.id} is not ready")
    if not host.is_up:
        raise Refused("host_down", f"The host of instance {server.id} does not answer; try again when it is back")
    return CopyFacts(host=server.host, copy=server.copy or 0, was=server.vm_state)


async def power_on(host: HostContext) -> StepResult:
    await host.driver.ensure_power(host.server, host.copy, on=True)
    return StepResult(running=True)


async def power_off(host: HostContext) -> StepResult:
    await host.driver.ensure_power(host.server, host.copy, on=False)
    return StepResult(running=False)


async def off_and_on(host: HostContext) -> StepResult:
    """Turn the guest off and on; write its definition in between, which corrects a guest that was changed by hand."""
    await host.driver.ensure_power(host.server, host.copy, on=False)
    await host.driver.ensure_defined(host.spec)
    await host.driver.ensure_power(host.server, host.copy, on=True)
    return StepResult(running=True)
