"""Limits of projects, by rows; -1 is unlimited. Each service has its own usage: counted, or stored in rows.

A limit is the user's own, else the project's, else the default class's, else the configuration's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Select, Table, bindparam, literal, select, union_all

from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Store, Tx

UNLIMITED = -1
DEFAULT_CLASS = "default"
Limits = Mapping[str, int]  # by resource; one that is missing has no limit


class Quota(msgspec.Struct, frozen=True):
    limit: int
    in_use: int = 0


class ProjectLimits:
    """The settings for a project, in one read: its own limits, its users', and the defaults that they replace."""

    def __init__(self, defaults: Limits) -> None:
        self.defaults = dict(defaults)
        self.project: dict[str, int] = {}
        self.users: dict[str, dict[str, int]] = {}

    def of_project(self, resource: str) -> int:
        return self.project.get(resource, self.defaults.get(resource, UNLIMITED))

    def of_user(self, user: str, resource: str) -> int:
        return self.users.get(user, {}).get(resource, self.of_project(resource))

    def all(self) -> dict[str, int]:
        return {**self.defaults, **self.project}


class LimitRows:
    """Tables of `hard_limit`: by project (and user, where the table has one) and resource; by class and resource."""

    def __init__(self, own: Table, classes: Table | None = None) -> None:
        self._own, self._classes = own, classes
        self._has_users = "user_id" in own.c
        self._read = Sql(self._limits())

    def _limits(self) -> Any:
        own = self._own.c
        user: Any = own.user_id if self._has_users else literal("").label("user_id")
        of_project: Select[Any] = select(own.resource, own.hard_limit, user, literal(0).label("by_default"))
        of_project = of_project.where(own.project_id == bindparam("project_id"))
        if self._classes is None:
            return of_project
        by_class = self._classes.c
        of_class = select(by_class.resource, by_class.hard_limit, literal(""), literal(1))
        return union_all(of_project, of_class.where(by_class.class_name == DEFAULT_CLASS))

    async def given(self, tx: Tx, project_id: str, configured: Limits) -> ProjectLimits:
        limits = ProjectLimits(configured)
        for row in await tx.all(self._read, project_id=project_id):
            if row["by_default"]:
                limits.defaults[row["resource"]] = row["hard_limit"]
            elif row["user_id"]:
                limits.users.setdefault(row["user_id"], {})[row["resource"]] = row["hard_limit"]
            else:
                limits.project[row["resource"]] = row["hard_limit"]
        return limits

    async def put(self, tx: Tx, project_id: str, resource: str, limit: int, user: str = "") -> None:
        of = {"user_id": user} if self._has_users else {}
        await _put(tx, self._own, limit, project_id=project_id, resource=resource, **of)

    async def remove(self, tx: Tx, project_id: str, user: str = "") -> None:
        """Remove a project's limits with those of its users, or those of one user."""
        await rows.remove(tx, self._own, project_id=project_id, **({"user_id": user} if user else {}))

    async def of_class(self, tx: Tx, name: str) -> dict[str, int]:
        assert self._classes is not None
        limit_rows = await rows.fetch_all(tx, self._classes, class_name=name)
        return {row["resource"]: row["hard_limit"] for row in limit_rows}

    async def put_class(self, tx: Tx, name: str, resource: str, limit: int) -> None:
        assert self._classes is not None
        await _put(tx, self._classes, limit, class_name=name, resource=resource)


async def _put(tx: Tx, table: Table, limit: int, **of: str) -> None:
    """Set a limit, whether there was one or not; another request may insert it at the same moment."""
    await rows.put_or_change(tx, table, ("hard_limit",), **of, hard_limit=limit)


class ServiceQuotas:
    """The verbs that the quotas of every service have."""

    def __init__(self, control: Store, limits: LimitRows, configured: Limits) -> None:
        self._control, self._limits, self._configured = control, limits, dict(configured)

    async def reset(self, project_id: str, user: str = "") -> None:
        """Reset the limits to the defaults; of a project, its users' too."""

        async def body(tx: Tx) -> None:
            await self._limits.remove(tx, project_id, user)

        await self._control.write(body)

    async def known(self, tx: Tx) -> dict[str, int]:
        """Return the limits of a class that says nothing."""
        return self._configured

    async def of_class(self, name: str) -> dict[str, int]:
        async def body(tx: Tx) -> dict[str, int]:
            return {**await self.known(tx), **await self._limits.of_class(tx, name)}

        return await self._control.read(body)

    async def defaults(self) -> dict[str, int]:
        return await self.of_class(DEFAULT_CLASS)

    async def set_class(self, name: str, limits: Limits) -> None:
        async def body(tx: Tx) -> None:
            for resource, limit in limits.items():
                await self._limits.put_class(tx, name, resource, limit)

        await self._control.write(body)
