"""The reads of a snapshot: the providers marked since the last time, each complete, and the removed ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, ScalarSelect, Table, Text, bindparam, exists, or_, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

from kilonova.schema.tables.placement import (
    aggregates,
    inventories,
    provider_aggregates,
    provider_traits,
    removed_providers,
    resource_classes,
    resource_providers,
    traits,
)
from kilonova.store.statements import Sql, watermark
from kilonova.world import Row, Store, Tx

ALL = ""  # as the uuid of a removed provider: records up to its mark were cleared away

_ROOT = resource_providers.alias("root")
_PARENT = resource_providers.alias("parent")
_SINCE: Any = bindparam("since")


class _with_commas(GenericFunction[str]):  # named as it reads in SQL
    """The values of a group in one text. SQLAlchemy's own needs its separator bound again at each execution."""

    inherit_cache = True
    type = Text()


@compiles(_with_commas, "sqlite")
def _with_commas_sqlite(element: Any, compiler: Any, **kw: Any) -> str:
    return f"group_concat({compiler.process(element.clauses, **kw)}, ',')"


@compiles(_with_commas, "postgresql")
def _with_commas_postgres(element: Any, compiler: Any, **kw: Any) -> str:
    return f"string_agg({compiler.process(element.clauses, **kw)}, ',')"


def _joined(names: Column[str], links: Table, key: Column[int]) -> ScalarSelect[str]:
    """Return the expression for all names of a provider in one text: a row per name would make a first load many times
    longer.

    They are names, not ids: SQLite gives the id of a deleted trait to the next one.
    """
    return (
        select(_with_commas(names))
        .select_from(links.join(names.table, key == names.table.c.id))
        .where(links.c.provider_id == resource_providers.c.id)
        .correlate(resource_providers)
        .scalar_subquery()
    )


READ_PROVIDERS = Sql(
    select(
        resource_providers.c.id,
        resource_providers.c.uuid,
        resource_providers.c.name,
        resource_providers.c.generation,
        resource_providers.c.accepting,
        resource_providers.c.updated_at,
        _ROOT.c.uuid.label("root"),
        _PARENT.c.uuid.label("parent"),
        _joined(traits.c.name, provider_traits, provider_traits.c.trait_id).label("traits"),
        _joined(aggregates.c.uuid, provider_aggregates, provider_aggregates.c.aggregate_id).label("aggregates"),
    )
    .select_from(resource_providers)
    .outerjoin(_ROOT, _ROOT.c.id == resource_providers.c.root_id)
    .outerjoin(_PARENT, _PARENT.c.id == resource_providers.c.parent_id)
    .where(resource_providers.c.mark >= _SINCE)  # not ordered by id: SQLite would read them all in that order
)
READ_INVENTORIES = Sql(
    select(
        inventories.c.provider_id,
        resource_classes.c.name,
        inventories.c.capacity,
        inventories.c.used,
        inventories.c.min_unit,
        inventories.c.max_unit,
        inventories.c.step_size,
    )
    .select_from(resource_providers)
    .join(inventories, inventories.c.provider_id == resource_providers.c.id)
    .join(resource_classes, resource_classes.c.id == inventories.c.class_id)
    .where(resource_providers.c.mark >= _SINCE)
)
# One that was created again under the same uuid is not gone, whichever of the two marks is higher.
READ_REMOVED = Sql(
    select(removed_providers.c.uuid).where(
        removed_providers.c.mark >= _SINCE,
        ~exists().where(resource_providers.c.uuid == removed_providers.c.uuid).correlate(removed_providers),
    )
)


READ_WATERMARK = Sql(select(watermark().label("watermark")))
# Mostly nothing has changed: that takes one statement, and no transaction around it.
IS_NEWS = Sql(
    select(
        watermark().label("watermark"),
        or_(
            exists().where(resource_providers.c.mark >= _SINCE), exists().where(removed_providers.c.mark >= _SINCE)
        ).label("news"),
    )
)


@dataclass(slots=True, frozen=True)
class SnapshotChanges:
    watermark: int
    providers: Sequence[Row]
    inventories: Sequence[Row]  # of these providers, all of them
    removed: Sequence[str]  # uuids


def _id(row: Row) -> int:
    number: int = row["id"]
    return number


async def read_changes(store: Store, since: int) -> SnapshotChanges:
    news = await store.ask(IS_NEWS, since=since) if since else None
    if news is not None and not news["news"]:
        return SnapshotChanges(news["watermark"], (), (), ())

    async def body(tx: Tx) -> SnapshotChanges:
        before = await tx.one(READ_WATERMARK)  # first: later commits are read now or the next time
        providers = await tx.all(READ_PROVIDERS, since=since)
        offers = await tx.all(READ_INVENTORIES, since=since) if providers else ()
        removed = await tx.all(READ_REMOVED, since=since) if since else ()
        providers = sorted(providers, key=_id)
        return SnapshotChanges(
            before["watermark"] if before else 0, providers, offers, [row["uuid"] for row in removed]
        )

    return await store.read(body, few=since > 0)
