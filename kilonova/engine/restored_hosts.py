"""Hosts that control maps to a cell without a record of them: it was lost, or restored from before they joined.

Their records are made again with their providers in placement: a host that registered as a new one would get another
provider, whose name is taken, and the allocations of the old one would have no owner.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from sqlalchemy import bindparam, select

from kilonova.placement.traits import DISABLED
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.placement import provider_traits, resource_providers, traits
from kilonova.store import rows
from kilonova.store.hosts import UNKNOWN_IDENTITY
from kilonova.store.open_stores import OpenStores
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

_MAPPED = Sql(select(control.host_mappings.c.host).where(control.host_mappings.c.cell == bindparam("cell")))
_RECORDED = Sql(select(cell.hosts.c.name))
_PROVIDERS = Sql(
    select(resource_providers.c.name, resource_providers.c.uuid, traits.c.name.label("disabled"))
    .outerjoin(provider_traits, provider_traits.c.provider_id == resource_providers.c.id)
    .outerjoin(traits, (traits.c.id == provider_traits.c.trait_id) & (traits.c.name == DISABLED))
    .where(in_list(resource_providers.c.name, "names"), resource_providers.c.parent_id.is_(None))
)
REASON = "disabled before the record of the host was lost"


async def record_hosts(stores: OpenStores, name: str) -> int:
    """Record the hosts again, as returning, and return their number: each reports its guests before anything else
    happens there.

    A host without a provider had not finished registering, and registers as new. It may be repeated.
    """

    async def mapped(tx: Tx) -> set[str]:
        return {row["host"] for row in await tx.all(_MAPPED, cell=name)}

    async def recorded(tx: Tx) -> set[str]:
        return {row["name"] for row in await tx.all(_RECORDED)}

    missing = sorted(await stores.control.read(mapped) - await stores.cell(name).read(recorded))
    if not missing:
        return 0

    async def providers(tx: Tx) -> Sequence[Row]:
        return await tx.all(_PROVIDERS, names=missing)

    records = await stores.placement.read(providers)
    ids = {row["name"]: row["uuid"] for row in records}
    disabled = {row["name"] for row in records if row["disabled"]}

    async def body(tx: Tx) -> int:
        now = await tx.now()
        return sum([await _record(tx, host, ids[host], host in disabled, now) for host in sorted(ids)])

    return await stores.cell(name).write(body)


async def _record(tx: Tx, host: str, provider: str, disabled: bool, now: float) -> int:
    return await rows.put(
        tx,
        cell.hosts,
        unless_there=True,
        name=host,
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"service of provider {provider}")),
        provider_id=provider,
        identity=UNKNOWN_IDENTITY,
        session=None,
        session_since=None,
        last_seen=now,
        disabled=int(disabled),
        disabled_reason=REASON if disabled else None,
        forced_down=0,
        fenced=None,
        draining=0,
        returning=1,
        epoch=1,
        address=None,
        storage=None,
        hypervisor=None,
        reported_at=0.0,
        failed_builds=0,
        created_at=now,
    )
