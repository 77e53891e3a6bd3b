"""Names of records by id, many at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Table, select

from kilonova.domain.caller import IdentityRef
from kilonova.schema.tables.identity import projects, roles, user_groups, users
from kilonova.services.identity.records import IdentityRecords
from kilonova.store.statements import Sql, in_list
from kilonova.world import Row, Tx

_domain = projects.alias("domain")


def _named(table: Table) -> Sql:
    return Sql(
        select(table.c.id, table.c.name, table.c.domain_id, _domain.c.name.label("domain_name"))
        .select_from(table.outerjoin(_domain, _domain.c.id == table.c.domain_id))
        .where(in_list(table.c.id, "ids"))
    )


_ALL = [_named(table) for table in (users, user_groups, projects, roles)]


async def names_of(records: IdentityRecords, ids: Iterable[str]) -> dict[str, IdentityRef]:
    """Return the names of users, groups, projects, domains and roles: an id belongs to one kind only."""
    wanted = sorted(set(ids))

    async def body(tx: Tx) -> list[Sequence[Row]]:
        return [await tx.all(statement, ids=wanted) for statement in _ALL]

    by_kind = await records.read(body)
    return {
        row["id"]: IdentityRef(row["id"], row["name"], row["domain_id"], row["domain_name"] or "")
        for part in by_kind
        for row in part
    }
