"""Volumes, snapshots and attachments as kinds: records/query.py lists them. And the sums over all volumes."""

from __future__ import annotations

from functools import cache

from sqlalchemy import Table, bindparam, func, select
from sqlalchemy.sql.elements import ColumnElement

from kilonova.domain.errors import Refused
from kilonova.records.kinds import VIEWER, Filter, Kind, Order
from kilonova.schema.tables.volume import attachments, snapshots, volume_metadata, volumes
from kilonova.services.volume.volume import IMAGE, MOST_SHOWN, USER
from kilonova.store.statements import Sql
from kilonova.world import Tx

NEWEST = (Order("created_at", True), Order("id", True))


def _kind(name: str, table: Table) -> Kind:
    def lost(marker: str) -> Refused:
        return Refused(f"{name}_not_found", f"The marker {marker[:MOST_SHOWN]} is not a {name} that you can see.")

    filters = {kind: _has(table, kind) for kind in (USER, IMAGE)}
    return Kind(name, name, table, filters=filters, order=NEWEST, follows=True, lost=lost)


def _has(table: Table, kind: str) -> Filter:
    """Records with a name and a value in this kind of metadata."""

    def condition(param: str) -> ColumnElement[bool]:
        of = volume_metadata.c
        named, valued = of.name == bindparam(f"{param}_0"), of.value == bindparam(f"{param}_1")
        return table.c.id.in_(select(of.record_id).where(of.kind == kind, named, valued))

    return condition


VOLUME, SNAPSHOT, ATTACHMENT = _kind("volume", volumes), _kind("snapshot", snapshots), _kind("attachment", attachments)


async def summary(tx: Tx, viewer: str | None) -> tuple[int, int, dict[str, list[str]]]:
    """Return the number of volumes, their GB, and the values of each name in their metadata."""
    row = await tx.one(_sums(viewer is None), **{VIEWER: viewer})
    assert row is not None
    metadata: dict[str, list[str]] = {}
    for each in await tx.all(_distinct(viewer is None), **{VIEWER: viewer}):
        metadata.setdefault(each["name"], []).append(each["value"])
    return row["count"], int(row["size"]), metadata


@cache
def _sums(sees_all: bool) -> Sql:
    size = func.coalesce(func.sum(volumes.c.size), 0).label("size")
    return Sql(VOLUME.rows(sees_all).with_only_columns(func.count().label("count"), size))


@cache
def _distinct(sees_all: bool) -> Sql:
    columns = (volume_metadata.c.name, volume_metadata.c.value)
    of_these = volume_metadata.c.record_id.in_(VOLUME.rows(sees_all).with_only_columns(volumes.c.id))
    return Sql(select(*columns).where(volume_metadata.c.kind == USER, of_these).distinct().order_by(*columns))
