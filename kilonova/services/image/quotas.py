"""The limit on the bytes of a project's images; -1 is unlimited.

The usage is the sum of its images, read while the project's row is locked: uploads that end together see each other.
Bytes in transfer count too, so that many uploads at once cannot fill the disk first and be refused afterwards.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from sqlalchemy import bindparam, func, or_, select

from kilonova.domain.errors import Refused
from kilonova.records.quotas import UNLIMITED
from kilonova.schema.tables.image import image_limits, images
from kilonova.services.image.image import ACTIVE, DEACTIVATED
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.world import Store, Tx

_USED = Sql(
    select(func.coalesce(func.sum(images.c.size), 0).label("bytes"), func.count().label("number")).where(
        images.c.owner == bindparam("project"), or_(images.c.status == ACTIVE, images.c.status == DEACTIVATED)
    )
)


class ImageUsage(NamedTuple):
    used: int  # bytes
    limit: int  # bytes
    images: int  # with data


class ImageQuotas:
    def __init__(self, control: Store, default: int = UNLIMITED) -> None:
        self._control, self._default = control, default
        self._coming: Counter[str] = Counter()  # bytes of uploads under way here, by project

    async def show(self, project_id: str) -> ImageUsage:
        async def body(tx: Tx) -> ImageUsage:
            return await self._usage(tx, project_id)

        return await self._control.read(body)

    async def set(self, project_id: str, limit: int | None) -> ImageUsage:
        """Set the limit; None: the default again. A limit below the usage refuses only new images."""

        async def body(tx: Tx) -> ImageUsage:
            if limit is None:
                await rows.remove(tx, image_limits, project_id=project_id)
            else:
                values = {"project_id": project_id, "hard_limit": limit}
                await rows.put_or_change(tx, image_limits, ("hard_limit",), **values)
            return await self._usage(tx, project_id)

        return await self._control.write(body)

    async def admit(self, project_id: str | None, more: int) -> None:
        """Count bytes that are on their way. Raise `Refused`; the caller gives them back with `forget` in any case."""
        if not project_id:
            return
        self._coming[project_id] += more
        usage = await self.show(project_id)
        if 0 <= usage.limit < usage.used + self._coming[project_id]:
            raise _exceeded(project_id, usage.used + self._coming[project_id] - more, more, usage.limit)

    def forget(self, project_id: str | None, amount: int) -> None:
        if project_id:
            self._coming[project_id] -= amount

    async def check(self, tx: Tx, project_id: str | None, more: int) -> None:
        """Check the quota in the transaction that makes an image active; others of the project wait for it."""
        if not project_id:
            return
        await rows.put(tx, image_limits, unless_there=True, project_id=project_id, hard_limit=None)
        await rows.fetch(tx, image_limits, lock=True, project_id=project_id)
        usage = await self._usage(tx, project_id)
        if 0 <= usage.limit < usage.used + more:
            raise _exceeded(project_id, usage.used, more, usage.limit)

    async def _usage(self, tx: Tx, project_id: str) -> ImageUsage:
        own, used = await rows.fetch(tx, image_limits, project_id=project_id), await tx.one(_USED, project=project_id)
        limit = self._default if own is None or own["hard_limit"] is None else own["hard_limit"]
        return ImageUsage(int(used["bytes"]), limit, used["number"]) if used is not None else ImageUsage(0, limit, 0)


def _exceeded(project_id: str, used: int, more: int, limit: int) -> Refused:
    text = f"Project {project_id} has {used} bytes of images and may have {limit}; {more} more were refused."
    return Refused("image_over_quota", f"{text} Delete images, or ask for a larger quota.")
