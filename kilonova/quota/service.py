"""Quotas as the API sees and sets them: per project, per user in it, and by default for all."""

from __future__ import annotations

from collections.abc import Mapping

from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused
from kilonova.quota.check import LIMITS, exceeded, given, set_limit
from kilonova.quota.resources import OF_A_PROJECT, RESOURCES, Limits, filled
from kilonova.quota.usage import used
from kilonova.records.quotas import ProjectLimits, Quota, ServiceQuotas
from kilonova.schema.tables.server_groups import server_groups
from kilonova.store import rows
from kilonova.world import Store, Tx


class Quotas(ServiceQuotas):
    def __init__(self, control: Store, defaults: Limits) -> None:
        """`defaults` are the configuration's."""
        super().__init__(control, LIMITS, filled(defaults))

    async def show(self, project: str, user: str = "", *, counted: bool = False) -> dict[str, Quota]:
        """Return quotas by resource. Only resources counted per project have a use here; others are checked where they
        are created."""

        async def body(tx: Tx) -> tuple[ProjectLimits, dict[str, int]]:
            limits = await given(tx, project, self._configured)
            return limits, await _counted(tx, project, user) if counted else {}

        limits, amounts = await self._control.read(body, few=not counted)
        return {name: Quota(_limit(limits, user, name), amounts.get(name, 0)) for name in RESOURCES}

    async def limit(self, resource: str, project: str, user: str = "") -> int:
        """Return a limit; -1 is unlimited."""
        return (await self.show(project, user))[resource].limit

    async def check_metadata(self, caller: Caller, items: int) -> None:
        """Check the metadata of one server that does not exist yet."""
        if items:
            check_metadata(await self.limit("metadata_items", caller.project_id, caller.user_id), items)

    async def check_use(self, project: str, user: str, more: Mapping[str, int]) -> None:
        async def body(tx: Tx) -> list[str]:
            return await exceeded(tx, project, more, user=user, defaults=self._configured)

        if over := await self._control.read(body, few=True):
            raise Refused("quota_exceeded", f"Quota exceeded: {'; '.join(over)}")

    async def set(self, project: str, limits: Mapping[str, int], user: str = "", *, force: bool = False) -> None:
        """Set all of these limits, or none. Without `force`, refuse a limit below the usage or below the limits of
        single users."""

        async def body(tx: Tx) -> None:
            given_limits, amounts = await given(tx, project, self._configured), await used(tx, project, user)
            for resource, limit in limits.items():
                of = "" if resource in OF_A_PROJECT else user
                if not force:
                    _check_range(given_limits, of, resource, limit, amounts.get(resource, 0))
                await set_limit(tx, project, resource, limit, of)

        await self._control.write(body)


def check_metadata(limit: int, items: int) -> None:
    """Check the metadata of one server; if it exists, in the transaction that changes it."""
    if 0 <= limit < items:
        raise Refused("quota_exceeded", f"Maximum number of metadata items exceeds {limit}")


async def _counted(tx: Tx, project: str, user: str) -> dict[str, int]:
    of = {"project_id": project, "user_id": user} if user else {"project_id": project}
    return {**await used(tx, project, user), "server_groups": len(await rows.fetch_all(tx, server_groups, **of))}


def _limit(limits: ProjectLimits, user: str, resource: str) -> int:
    return limits.of_user(user, resource) if user else limits.of_project(resource)


def _check_range(given_limits: ProjectLimits, user: str, resource: str, limit: int, in_use: int) -> None:
    promised = sum(
        max(limits.get(resource, 0), 0) for name, limits in given_limits.users.items() if name != user
    )  # to others, or to all of them
    whole = given_limits.of_project(resource)
    least = in_use if user or whole < 0 else max(in_use, promised)
    if 0 <= limit < least:
        text = f"Quota limit {limit} for {resource} must be greater than or equal to already used and reserved {least}."
        raise Refused("bad_request", text)
    most = max(whole - promised, 0) if user and whole >= 0 else -1
    if most >= 0 and not 0 <= limit <= most:
        raise Refused("bad_request", f"Quota limit {limit} for {resource} must be less than or equal to {most}.")
