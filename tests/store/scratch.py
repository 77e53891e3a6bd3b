"""A table to try transactions on, with a constraint that is only checked at COMMIT."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, Text, bindparam, select, text, update

from kilonova.store.statements import Sql, in_list, insert_row, watermark
from kilonova.world import Store, Tx

things = Table(
    "things",
    MetaData(),
    Column("id", Text, primary_key=True),
    Column("value", Integer, nullable=False),
    Column("owner", Text),
    Column("mark", BigInteger),
)
# A thing without an owner can be asked for; one whose owner does not exist makes the COMMIT fail, not the INSERT.
CREATE = Sql(
    text(
        "CREATE TABLE things (id TEXT PRIMARY KEY, value INTEGER NOT NULL, "
        "owner TEXT REFERENCES things (id) DEFERRABLE INITIALLY DEFERRED, mark BIGINT)"
    )
)
INSERT = Sql(insert_row(things))
ALL = Sql(select(things).order_by(things.c.id))
BY_ID = Sql(select(things).where(things.c.id == bindparam("id")))
SOME = Sql(select(things.c.id).where(in_list(things.c.id, "ids")).order_by(things.c.id))
SOME_VALUES = Sql(select(things.c.id).where(in_list(things.c.value, "values")).order_by(things.c.id))
SINCE = Sql(select(things.c.id).where(things.c.mark >= bindparam("since")).order_by(things.c.id))
WATERMARK = Sql(select(watermark().label("watermark")))
ADD_ONE = Sql(update(things).where(things.c.id == bindparam("key")).values(value=things.c.value + 1))
ADD_ONE_RETURNING = Sql(
    update(things).where(things.c.value < bindparam("below")).values(value=things.c.value + 1).returning(things.c.id)
)
SET_IF = Sql(
    update(things)
    .where(things.c.id == bindparam("key"), things.c.value == bindparam("old"))
    .values(value=bindparam("new"))
)
FORGET_OWNER = Sql(update(things).where(things.c.id == bindparam("key")).values(owner=None, value=7))


async def insert(tx: Tx, thing: str, value: int = 0, owner: str | None = None, mark: int | None = None) -> None:
    await tx.run(INSERT, id=thing, value=value, owner=owner, mark=mark)


def inserting(thing: str, value: int = 0, owner: str | None = None) -> Any:
    async def body(tx: Tx) -> str:
        await insert(tx, thing, value, owner)
        return thing

    return body


async def ids(store: Store) -> list[str]:
    async def body(tx: Tx) -> list[str]:
        return [row["id"] for row in await tx.all(ALL)]

    return await store.read(body)


async def value_of(store: Store, thing: str) -> Any:
    async def body(tx: Tx) -> Any:
        row = await tx.one(BY_ID, id=thing)
        return None if row is None else row["value"]

    return await store.read(body)
