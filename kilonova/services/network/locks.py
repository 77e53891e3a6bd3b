"""The two kinds of locks: a project's row guards its quota and security groups, a network's row guards everything
inside it. A writer that takes several takes projects first, then networks in the order of their ids."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import bindparam
from sqlalchemy.dialects.postgresql import insert as insert_unless_there

from kilonova.schema.tables.network import networks, projects
from kilonova.services.network.kinds import NETWORK
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Row, Tx

_LOCK_PROJECT = Sql(
    insert_unless_there(projects)
    .values(project_id=bindparam("project_id"), default_group_id="")
    # changes nothing, but locks a row that was there; both engines then give the row back
    .on_conflict_do_update(index_elements=["project_id"], set_={"project_id": projects.c.project_id})
    .returning(projects.c.default_group_id)
)


async def lock_project(tx: Tx, project_id: str) -> str:
    """Lock the project, and return the id of its default security group; "" if it has none yet."""
    row = await tx.one(_LOCK_PROJECT, project_id=project_id)
    if row is None:
        raise RuntimeError("an upsert gives its row back")
    group_id: str = row["default_group_id"]
    return group_id


async def lock_networks(tx: Tx, ids: Iterable[str]) -> dict[str, Row]:
    """Lock the networks that exist, and return their rows."""
    locked = {}
    for network_id in sorted(set(ids)):
        row = await rows.fetch(tx, networks, lock=True, id=network_id)
        if row is not None:
            locked[network_id] = row
    return locked


async def lock_network(tx: Tx, network_id: str) -> Row:
    locked = await lock_networks(tx, [network_id])
    if network_id not in locked:
        raise NETWORK.missing(network_id)
    return locked[network_id]
