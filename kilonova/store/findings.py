"""Findings and interventions as readers see them, over control and all cells that answer (law 17)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from sqlalchemy import bindparam, select

from kilonova.domain.errors import Unreachable
from kilonova.schema.tables.journal import findings, interventions
from kilonova.store.operations import Journaled
from kilonova.store.statements import Sql
from kilonova.world import Row, Store, Stores, Tx

OPEN = Sql(select(findings).where(findings.c.open == 1).order_by(findings.c.created_at, findings.c.id))
_ALL = Sql(select(findings).order_by(findings.c.created_at, findings.c.id))
_OF = Sql(select(findings).where(findings.c.operation_id == bindparam("id")).order_by(findings.c.ordinal))
_INTERVENTIONS = Sql(
    select(interventions)
    .where(interventions.c.operation_id == bindparam("id"))
    .order_by(interventions.c.ordinal, interventions.c.number)
)
_ONE = Sql(select(findings).where(findings.c.id == bindparam("id")))


async def all_findings(stores: Stores, *, settled: bool) -> list[Row]:
    """Return findings, oldest first within each database; settled ones only if requested."""

    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(_ALL if settled else OPEN)

    findings: list[Row] = []
    for journal in stores.journals():
        with contextlib.suppress(Unreachable):
            findings += await journal.read(body)
    return findings


async def journal_of(stores: Stores, finding_id: str) -> Store | None:
    """The database that has this finding. Raise `Unreachable` when one that may have it does not answer."""

    async def body(tx: Tx) -> bool:
        return await tx.one(_ONE, id=finding_id) is not None

    away = None
    for journal in stores.journals():
        try:
            if await journal.read(body):
                return journal
        except Unreachable as why:
            away = why
    if away is not None:
        raise away
    return None


async def findings_of(one: Journaled) -> Sequence[Row]:
    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(_OF, id=one.row["id"])

    return await one.journal.read(body)


async def interventions_of(one: Journaled) -> Sequence[Row]:
    async def body(tx: Tx) -> Sequence[Row]:
        return await tx.all(_INTERVENTIONS, id=one.row["id"])

    return await one.journal.read(body)
