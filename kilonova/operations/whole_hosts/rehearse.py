"""The dry run of an operation about whole hosts: the same plan as its step makes, over all cells. Nothing is stored."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kilonova.domain.cause import Cause
from kilonova.domain.params import HostsParams
from kilonova.domain.whole_hosts import HostPlan
from kilonova.engine.core import Engine
from kilonova.operations.whole_hosts.drain_plan import plan_drain
from kilonova.operations.whole_hosts.plan import Ground, plan_evacuation
from kilonova.operations.whole_hosts.requests import CHECKS, Bulk, by_cell
from kilonova.operations.whole_hosts.return_plan import plan_return
from kilonova.world import Store, Tx


async def rehearse_host(engine: Engine, kind: str, hosts: Sequence[str], bulk: Bulk, cause: Cause) -> HostPlan:
    """Raise `Refused` exactly when the real request would be refused."""
    plans, params = [], HostsParams(hosts=[*hosts], **msgspec.structs.asdict(bulk))
    for journal, names in await by_cell(engine, hosts):

        async def body(tx: Tx, names: list[str] = names) -> None:
            await CHECKS[kind](engine, tx, names, params)

        await journal.read(body)
        plans.append(await _plan(_ground(engine, journal, cause), kind, names, params))
    return _joined(plans)


def _ground(engine: Engine, journal: Store, cause: Cause) -> Ground:
    assert engine.scheduler is not None
    stores = engine.world.db
    return Ground(journal, stores.control, stores.placement, engine.scheduler, engine.settings, cause)


async def _plan(ground: Ground, kind: str, names: Sequence[str], params: HostsParams) -> HostPlan:
    if kind == "drain_host":
        return await plan_drain(ground, names, params.by)
    if kind == "return_host":
        return await plan_return(ground, names, opened=names)
    return await plan_evacuation(ground, names, params.accept_unfenced)


def _joined(plans: Sequence[HostPlan]) -> HostPlan:
    """Join the plans of several cells, which work in parallel."""
    return HostPlan(
        operation=plans[0].operation,
        hosts={name: proof for plan in plans for name, proof in plan.hosts.items()},
        moves=[move for plan in plans for move in plan.moves],
        misfits={server: misfit for plan in plans for server, misfit in plan.misfits.items()},
        refused={server: why for plan in plans for server, why in plan.refused.items()},
        spared={server: why for plan in plans for server, why in plan.spared.items()},
        bytes=sum(plan.bytes for plan in plans),
        seconds=max(plan.seconds for plan in plans),
    )
