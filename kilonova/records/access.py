"""Access lists: a record is for all projects, or for those that are named. Administrators see all."""

from __future__ import annotations

from sqlalchemy import Select, Table, and_, bindparam, or_, select
from sqlalchemy.sql.elements import ColumnElement

from kilonova.domain.caller import Caller
from kilonova.store import rows
from kilonova.world import Tx

USABLE = "usable"  # a filter: public, or granted to the caller's project


class AccessList:
    """`projects` has rows of `column` and project_id. Statements from `source` take `project_id`."""

    source: Select[tuple[object, ...]]  # the records, and `granted`: NULL, or the caller's project

    def __init__(self, records: Table, key: str, projects: Table, column: str) -> None:
        self._projects, self._column = projects, column
        granted = and_(projects.c[column] == records.c[key], projects.c.project_id == bindparam("project_id"))
        joined = records.outerjoin(projects, granted)
        self.source = select(records, projects.c.project_id.label("granted")).select_from(joined)
        self.usable: ColumnElement[bool] = or_(records.c.is_public == 1, projects.c.project_id.is_not(None))

    async def all(self, tx: Tx, key: str | int) -> list[str]:
        return sorted(row["project_id"] for row in await rows.fetch_all(tx, self._projects, **{self._column: key}))

    async def add(self, tx: Tx, key: str | int, project_id: str) -> bool:
        """Add a project. False: it is on the list."""
        values = {self._column: key, "project_id": project_id}
        return bool(await rows.put(tx, self._projects, unless_there=True, **values))

    async def remove(self, tx: Tx, key: str | int, project_id: str) -> bool:
        """Remove a project. False: it is not on the list."""
        return bool(await rows.remove(tx, self._projects, **{self._column: key, "project_id": project_id}))

    async def clear(self, tx: Tx, key: str | int) -> None:
        await rows.remove(tx, self._projects, **{self._column: key})


def viewer_of(caller: Caller) -> str | None:
    """Return the project whose records the caller sees; None: all."""
    return None if caller.is_admin else caller.project_id
