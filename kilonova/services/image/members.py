"""Whom an image is shared with: projects that may see it, and whether they want it in their lists."""

from __future__ import annotations

import msgspec
from sqlalchemy import bindparam, func, select

from kilonova.domain.errors import Refused
from kilonova.schema.tables.image import image_members, images
from kilonova.services.image.image import MOST_MEMBERS, MOST_SHOWN, PENDING, Member, no_such_image
from kilonova.store import rows
from kilonova.store.statements import Sql, insert_row
from kilonova.world import Clock, Row, Store, Tx

_COUNT = Sql(
    select(func.count().label("count")).select_from(image_members).where(image_members.c.image_id == bindparam("image"))
)
_ADD = Sql(insert_row(image_members))


class Members:
    def __init__(self, control: Store, clock: Clock) -> None:
        self._control, self._clock = control, clock

    async def all(self, image_id: str) -> list[Member]:
        async def body(tx: Tx) -> list[Member]:
            members = [_member(row) for row in await rows.fetch_all(tx, image_members, image_id=image_id)]
            return sorted(members, key=lambda member: (member.created_at, member.member_id))

        return await self._control.read(body)

    async def find(self, image_id: str, member_id: str) -> Member:
        async def body(tx: Tx) -> Member:
            row = await rows.fetch(tx, image_members, image_id=image_id, member_id=member_id)
            if row is None:
                raise _no_such_member(image_id, member_id)
            return _member(row)

        return await self._control.read(body)

    async def add(self, image_id: str, member_id: str) -> Member:
        now = self._clock.now()
        member = Member(image_id=image_id, member_id=member_id, status=PENDING, created_at=now, updated_at=now)

        async def body(tx: Tx) -> None:
            if await rows.fetch(tx, images, id=image_id, lock=True) is None:  # so that two do not pass the limit
                raise no_such_image(image_id)
            if await rows.fetch(tx, image_members, image_id=image_id, member_id=member_id) is not None:
                text = f"{member_id[:MOST_SHOWN]} is already a member of image {image_id}."
                raise Refused("image_member_exists", text)
            counted = await tx.one(_COUNT, image=image_id)
            assert counted is not None
            if counted["count"] >= MOST_MEMBERS:
                raise Refused("image_limit", f"An image may have at most {MOST_MEMBERS} members.")
            await tx.run(_ADD, **msgspec.structs.asdict(member))

        await self._control.write(body)
        return member

    async def answer(self, image_id: str, member_id: str, status: str) -> Member:
        """Accept or reject the image as the member."""
        now = self._clock.now()

        async def body(tx: Tx) -> Member:
            values = {"status": status, "updated_at": now}
            if not await rows.change(tx, image_members, values, image_id=image_id, member_id=member_id):
                raise _no_such_member(image_id, member_id)
            row = await rows.fetch(tx, image_members, image_id=image_id, member_id=member_id)
            assert row is not None
            return _member(row)

        return await self._control.write(body)

    async def remove(self, image_id: str, member_id: str) -> None:
        async def body(tx: Tx) -> None:
            if not await rows.remove(tx, image_members, image_id=image_id, member_id=member_id):
                raise _no_such_member(image_id, member_id)

        await self._control.write(body)


def _member(row: Row) -> Member:
    return Member(**{name: row[name] for name in Member.__struct_fields__})


def _no_such_member(image_id: str, member_id: str) -> Refused:
    text = f"{member_id[:MOST_SHOWN]} was not found in the member list of image {image_id[:MOST_SHOWN]}."
    return Refused("image_member_not_found", text)
