"""Make a consumer hold what it owns. The proof of the finding is the token: after any later write nothing is changed.
Less is always safe if no copy of the server is recorded; more is safe if it fits."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, select

from kilonova.audit.findings import Finding, Unbalanced
from kilonova.audit.reading import Reading
from kilonova.placement import ledger
from kilonova.placement.classes import class_ids
from kilonova.placement.fence import LOCK_FENCE, NEVER
from kilonova.placement.history import Origin
from kilonova.placement.inventories import LOCK_PROVIDER
from kilonova.placement.ledger import ConsumerChange, Rows
from kilonova.placement.refusals import ClaimRefused, LostRace
from kilonova.schema.tables.placement import claim_fence, resource_providers
from kilonova.store.statements import Sql, in_list
from kilonova.world import Store, Tx

VERB = "audit"
_PROVIDERS = Sql(
    select(resource_providers.c.id, resource_providers.c.name).where(in_list(resource_providers.c.name, "names"))
)
_PROVIDER = Sql(select(resource_providers.c.uuid).where(resource_providers.c.name == bindparam("name")))
_DROP_FENCE = Sql(
    delete(claim_fence).where(claim_fence.c.server_id == bindparam("server"), claim_fence.c.turn == NEVER)
)


class RepairSkipped(Exception):
    """Nothing was changed; the message is the reason."""


async def repair(placement: Store, reading: Reading, finding: Finding) -> str:
    """Empty when it was put right, else why it was left as it is."""
    cell = reading.mapped.get(finding.server)
    if cell and finding.server not in reading.turns:  # perhaps the cell was restored from a backup (law 15)
        return f"control has the server in {cell}, which has no record of it; a missing record frees nothing"
    hosts = {share.host for share in finding.holds} - {share.host for share in finding.owns}
    quarantined = sorted(host for server, host in reading.quarantined if server == finding.server)
    if quarantined:  # an operator says first which copy counts
        return f"a copy of the server is in quarantine on {', '.join(quarantined)}; adopt or remove it first"
    for host in sorted(hosts):
        if finding.owns and (finding.server, host) in reading.copies:
            return f"a copy of the server is still recorded on {host}"
    try:
        await placement.write(lambda tx: _settle(tx, finding, reading.owners.get(finding.server, ("", ""))))
    except (RepairSkipped, ClaimRefused, LostRace) as why:
        return str(why)
    return ""


async def _settle(tx: Tx, finding: Finding, owner: tuple[str, str]) -> None:
    fence = await tx.one(LOCK_FENCE, server_id=finding.server)
    reached = (fence["turn"], fence["ordinal"]) if fence is not None else (NEVER, NEVER)
    holdings = await ledger.lock(tx, [finding.consumer])
    holding = holdings[finding.consumer]
    generation = holding.generation if holding.exists else None
    if (reached, generation) != (finding.proof.fence or (NEVER, NEVER), finding.proof.generation):
        raise RepairSkipped("modified concurrently; the next audit compares it again")
    rows = await _rows(tx, finding)
    project, user = (holding.project, holding.user) if holding.exists else owner
    change = ConsumerChange(finding.consumer, rows, project, user, holding.type_id)
    await ledger.apply(tx, holdings, [change], origin=Origin(VERB, finding.server, who=VERB))
    await tx.run(_DROP_FENCE, server=finding.server)  # created by the lock above if there was none


async def _rows(tx: Tx, finding: Finding) -> Rows:
    names = sorted({share.host for share in finding.owns})
    providers = {row["name"]: row["id"] for row in await tx.all(_PROVIDERS, names=names)} if names else {}
    classes = await class_ids(tx, {name for share in finding.owns for name in share.resources})
    rows: Rows = {}
    for share in finding.owns:
        if share.host not in providers:
            raise RepairSkipped(f"provider {share.host}: not found")
        for name, amount in share.resources.items():
            rows[providers[share.host], classes[name], share.holder] = amount
    return rows


async def recount(placement: Store, unbalanced: Unbalanced) -> str:
    """Recompute `used` from the allocations, under the provider's lock. A class with allocations but without an
    inventory stays."""

    async def body(tx: Tx) -> None:
        named = await tx.one(_PROVIDER, name=unbalanced.provider)
        row = await tx.one(LOCK_PROVIDER, uuid=named["uuid"]) if named is not None else None
        if row is None:
            raise RepairSkipped(f"provider {unbalanced.provider}: not found")
        if unbalanced.used is None:
            raise RepairSkipped(f"provider {unbalanced.provider}: it does not offer {unbalanced.resource_class}")
        now, mark = await tx.now(), await tx.mark()
        await tx.run(ledger.TOUCH_PROVIDER, provider=row["id"], raised=1, mark=mark, updated_at=now)
        await ledger.recount(tx, row["id"])

    try:
        await placement.write(body)
    except RepairSkipped as why:
        return str(why)
    return ""
