"""Usage of each user of a project: rows that change with the servers' mappings, in the same transaction.

A check reads one row per user of the project, however many servers there are. `kilonova audit` compares the rows with
the mappings (`miscounted`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from sqlalchemy import BigInteger, Label, bindparam, func, select, update
from sqlalchemy import cast as sql_cast
from sqlalchemy.dialects.postgresql import insert as insert_or_else

from kilonova.quota.resources import COUNTED
from kilonova.schema.tables.control import server_mappings
from kilonova.schema.tables.quotas import quota_usages
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

Amounts = Mapping[str, int]  # by resource
Owner = tuple[str, str]  # project, user


def _sum(column: str) -> Label[int]:
    return sql_cast(func.coalesce(func.sum(quota_usages.c[column]), 0), BigInteger).label(column)


_USED = select(*(_sum(name) for name in COUNTED)).where(quota_usages.c.project_id == bindparam("project"))
_OF_PROJECT = Sql(_USED)
_OF_USER = Sql(_USED.where(quota_usages.c.user_id == bindparam("user")))
_MORE = {name: bindparam(name, type_=BigInteger) for name in COUNTED}
_ADD = Sql(
    insert_or_else(quota_usages)
    .values(project_id=bindparam("project_id"), user_id=bindparam("user_id"), **_MORE)
    .on_conflict_do_update(
        index_elements=["project_id", "user_id"], set_={name: quota_usages.c[name] + _MORE[name] for name in COUNTED}
    )
)
_SET = Sql(
    update(quota_usages)
    .where(quota_usages.c.project_id == bindparam("project"), quota_usages.c.user_id == bindparam("user"))
    .values(_MORE)
)
_COUNT = select(
    server_mappings.c.project_id,
    server_mappings.c.user_id,
    func.count().label("instances"),
    sql_cast(func.sum(server_mappings.c.vcpus), BigInteger).label("cores"),
    sql_cast(func.sum(server_mappings.c.memory_mb), BigInteger).label("ram"),
).where(server_mappings.c.counted == 1)
_COUNT_ALL = Sql(_COUNT.group_by(server_mappings.c.project_id, server_mappings.c.user_id))
_COUNT_OF = Sql(
    _COUNT.where(
        server_mappings.c.project_id == bindparam("project"), server_mappings.c.user_id == bindparam("user")
    ).group_by(server_mappings.c.project_id, server_mappings.c.user_id)
)


class Miscount(msgspec.Struct, frozen=True):
    """A recorded use that differs from the project's servers."""

    project: str
    user: str
    recorded: dict[str, int]
    counted: dict[str, int]


async def used(tx: Tx, project: str, user: str = "") -> dict[str, int]:
    """Return the use by the whole project, or by one user in it."""
    row = await (tx.one(_OF_USER, project=project, user=user) if user else tx.one(_OF_PROJECT, project=project))
    assert row is not None
    return {name: int(row[name]) for name in COUNTED}


async def map_server(tx: Tx, server_id: str, owner: Owner, *, vcpus: int, memory_mb: int, now: float) -> None:
    """Map a new server that is in no cell yet, and count it."""
    project, user = owner
    await rows.put(
        tx,
        server_mappings,
        server_id=server_id,
        cell=None,
        project_id=project,
        user_id=user,
        vcpus=vcpus,
        memory_mb=memory_mb,
        queued_for_delete=0,
        counted=1,
        created_at=now,
    )
    await _add(tx, owner, {"instances": 1, "cores": vcpus, "ram": memory_mb})


async def unmap_server(tx: Tx, server_id: str) -> None:
    """Mark the server as deleted and stop counting it. This may be repeated."""
    await uncount_server(tx, server_id)
    await rows.change(tx, server_mappings, {"queued_for_delete": 1}, server_id=server_id)


async def uncount_server(tx: Tx, server_id: str) -> None:
    """Exclude a server from the usage. This may be repeated."""
    if await rows.change(tx, server_mappings, {"counted": 0}, server_id=server_id, counted=1):
        await _add_server(tx, server_id, -1)


async def count_server(tx: Tx, server_id: str) -> None:
    """Include a server in the usage again. This may be repeated."""
    if await rows.change(tx, server_mappings, {"counted": 1}, server_id=server_id, counted=0):
        await _add_server(tx, server_id, 1)


async def size_of(tx: Tx, server_id: str) -> Amounts:
    """Return the amounts that the server counts with; empty if it is not mapped."""
    server = await rows.fetch(tx, server_mappings, lock=True, server_id=server_id)
    return {} if server is None else {"cores": server["vcpus"], "ram": server["memory_mb"]}


async def set_size(tx: Tx, server_id: str, size: Amounts) -> None:
    """Count the server with these cores and this ram. This may be repeated."""
    server = await rows.fetch(tx, server_mappings, lock=True, server_id=server_id)
    if server is None:
        return
    more = {"instances": 0, "cores": size["cores"] - server["vcpus"], "ram": size["ram"] - server["memory_mb"]}
    columns = {"vcpus": size["cores"], "memory_mb": size["ram"]}
    await rows.change(tx, server_mappings, columns, server_id=server_id)
    if server["counted"] and any(more.values()):
        await _add(tx, (server["project_id"], server["user_id"]), more)


async def _add_server(tx: Tx, server_id: str, times: int) -> None:
    server = await rows.fetch(tx, server_mappings, server_id=server_id)
    assert server is not None
    amounts = {"instances": times, "cores": times * server["vcpus"], "ram": times * server["memory_mb"]}
    await _add(tx, (server["project_id"], server["user_id"]), amounts)


async def _add(tx: Tx, owner: Owner, amounts: Amounts) -> None:
    await tx.run(_ADD, project_id=owner[0], user_id=owner[1], **amounts)


# -- audit ------------------------------------------------------------------------------------------------------------


async def miscounted(tx: Tx) -> list[Miscount]:
    """Return wrong counts, read in one transaction, so that no server comes or goes between the two queries."""
    counted = {(row["project_id"], row["user_id"]): _amounts(row) for row in await tx.all(_COUNT_ALL)}
    recorded = {(row["project_id"], row["user_id"]): _amounts(row) for row in await rows.fetch_all(tx, quota_usages)}
    nothing = dict.fromkeys(COUNTED, 0)
    return [
        Miscount(*owner, recorded.get(owner, nothing), counted.get(owner, nothing))
        for owner in sorted({*counted, *recorded})
        if recorded.get(owner, nothing) != counted.get(owner, nothing)
    ]


async def recount(tx: Tx, project: str, user: str) -> None:
    """Count again under the row's lock: mapping or unmapping a server of this user waits for it."""
    nothing = dict.fromkeys(COUNTED, 0)
    await _add(tx, (project, user), nothing)
    counted = await tx.one(_COUNT_OF, project=project, user=user)
    await tx.run(_SET, project=project, user=user, **(_amounts(counted) if counted is not None else nothing))


def _amounts(row: Row) -> dict[str, int]:
    return {name: int(row[name]) for name in COUNTED}
