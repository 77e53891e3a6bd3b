"""An audit: two readings, the differences in both, and the repairs that are safe."""

from __future__ import annotations

import msgspec
from sqlalchemy import bindparam, delete, func, select

from kilonova.audit.findings import Finding, Miscounted, Outcome, Report, Unbalanced, finding_of
from kilonova.audit.reading import Reading, read_all
from kilonova.audit.repair import recount, repair
from kilonova.audit.surroundings import AskHost, find_differences
from kilonova.placement.books import balance
from kilonova.quota import usage
from kilonova.schema.tables.control import audits
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Clock, Stores, Tx

MOST_REPORTS = 100
_FORGET = Sql(
    delete(audits).where(audits.c.id <= select(func.max(audits.c.id) - MOST_REPORTS).correlate(None).scalar_subquery())
)
_NEWEST = Sql(select(audits.c.report).order_by(audits.c.id.desc()).limit(bindparam("limit")))


async def audit(stores: Stores, clock: Clock, *, mend: bool, ask: AskHost | None = None) -> Report:
    """`ask`: query the hosts for their holdings too. Raise StoreError when placement or control cannot be read."""
    began = clock.now()
    first = await read_all(stores)
    second = await read_all(stores) if first.suspects() or first.hardware else first
    both = sorted(first.suspects() & second.suspects())
    agreed = [consumer for consumer in both if _is_same(first, second, consumer)]
    unknown = [consumer for consumer in agreed if second.is_unknown(consumer)]
    foreign = [consumer for consumer in agreed if consumer not in unknown and not second.is_ours(consumer)]
    findings = [finding_of(second, consumer) for consumer in agreed if consumer not in {*unknown, *foreign}]
    unbalanced = [Unbalanced.of(one) for one in await stores.placement.read(balance)]
    miscounted = [_miscounted(one) for one in await stores.control.read(usage.miscounted)]
    if mend:
        findings = [await _repaired(stores, second, finding) for finding in findings]
        unbalanced = [await _recounted(stores, one) for one in unbalanced]
        miscounted = [await _counted_again(stores, one) for one in miscounted]
    differences, silent = await find_differences(stores, ask)
    return Report(
        began=began,
        ended=clock.now(),
        consumers=len(second.held),
        busy=len(second.busy & {*second.held, *second.expected}),
        findings=findings,
        unbalanced=unbalanced,
        miscounted=miscounted,
        unknown=unknown,
        unreachable=second.unreachable,
        foreign=foreign,
        hardware=sorted(first.hardware & second.hardware),
        abandoned=second.abandoned,
        differences=differences,
        silent=silent,
    )


def _is_same(first: Reading, second: Reading, consumer: str) -> bool:
    """A cell that answered only once does not count."""
    return (
        first.unreachable.keys() == second.unreachable.keys()
        and first.held.get(consumer) == second.held.get(consumer)
        and first.expected.get(consumer) == second.expected.get(consumer)
        and first.standing(consumer) == second.standing(consumer)
    )


async def _repaired(stores: Stores, reading: Reading, finding: Finding) -> Finding:
    why = await repair(stores.placement, reading, finding)
    return msgspec.structs.replace(finding, outcome=_outcome(why), why=why)


async def _recounted(stores: Stores, unbalanced: Unbalanced) -> Unbalanced:
    why = await recount(stores.placement, unbalanced)
    return msgspec.structs.replace(unbalanced, outcome=_outcome(why), why=why)


def _miscounted(miscount: usage.Miscount) -> Miscounted:
    return Miscounted(miscount.project, miscount.user, miscount.recorded, miscount.counted)


async def _counted_again(stores: Stores, miscounted: Miscounted) -> Miscounted:
    await stores.control.write(lambda tx: usage.recount(tx, miscounted.project, miscounted.user))
    return msgspec.structs.replace(miscounted, outcome="repaired")


def _outcome(why: str) -> Outcome:
    return "left" if why else "repaired"


async def keep(stores: Stores, report: Report) -> None:
    """Store the report, and keep the hundred before it."""

    async def body(tx: Tx) -> None:
        await rows.put(tx, audits, began=report.began, report=msgspec.json.encode(report).decode())
        await tx.run(_FORGET)

    await stores.control.write(body)


async def read_reports(stores: Stores, limit: int) -> list[Report]:
    """Return stored reports, the newest first."""

    async def body(tx: Tx) -> list[Report]:
        return [msgspec.json.decode(row["report"], type=Report) for row in await tx.all(_NEWEST, limit=limit)]

    return await stores.control.read(body)
