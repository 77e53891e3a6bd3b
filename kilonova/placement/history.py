"""The history of consumers' allocations, in the order of the changes: the administrator's ledger.

`ledger.apply` writes it in the same transaction, so every allocation is recorded here. Providers and classes are stored
by number and named when they are shown.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import bindparam, or_, select

from kilonova.schema.tables.placement import ledger, resource_classes, resource_providers
from kilonova.store.statements import Sql, insert_row
from kilonova.world import Store, Tx

Entry = tuple[str, list[list[int | str]]]  # consumer; provider, class, holder, amount of each row
_encode = msgspec.json.Encoder().encode

INSERT = Sql(insert_row(ledger, ("at", "consumer", "server_id", "verb", "turn", "ordinal", "who", "holds")))
READ = Sql(
    select(ledger)
    .where(or_(ledger.c.server_id == bindparam("server"), ledger.c.consumer == bindparam("server")))
    .order_by(ledger.c.id)
)
PROVIDERS = Sql(select(resource_providers.c.id, resource_providers.c.uuid, resource_providers.c.name))
CLASSES = Sql(select(resource_classes))


class Origin(msgspec.Struct, frozen=True):
    """The writer of a change: a step of a server's operation, or a named caller."""

    verb: str
    server: str = ""  # empty: the consumer itself
    turn: int | None = None
    ordinal: int | None = None
    who: str = ""


UNTOLD = Origin("write")


class AllocationRecord(msgspec.Struct, frozen=True):
    provider: str
    provider_name: str
    resource_class: str
    amount: int
    holder: str


class Line(msgspec.Struct, frozen=True):
    """The allocations of a consumer after one change."""

    at: float
    consumer: str
    verb: str
    turn: int | None
    ordinal: int | None
    who: str
    holds: list[AllocationRecord]


async def record(tx: Tx, origin: Origin, now: float, entries: Sequence[Entry]) -> None:
    common = {"at": now, "verb": origin.verb, "turn": origin.turn, "ordinal": origin.ordinal, "who": origin.who}
    rows = [
        common | {"consumer": consumer, "server_id": origin.server or consumer, "holds": _encode(holds).decode()}
        for consumer, holds in entries
    ]
    if rows:
        await tx.many(INSERT, rows)


async def read_history(store: Store, server: str) -> list[Line]:
    """Return the history of the server itself and of its migrations."""

    async def body(tx: Tx) -> list[Line]:
        rows = await tx.all(READ, server=server)
        if not rows:
            return []
        providers = {row["id"]: (row["uuid"], row["name"]) for row in await tx.all(PROVIDERS)}
        classes = {row["id"]: row["name"] for row in await tx.all(CLASSES)}

        def share(provider: int, class_: int, holder: str, amount: int) -> AllocationRecord:
            uuid, name = providers.get(provider, ("", f"removed provider {provider}"))
            return AllocationRecord(uuid, name, classes.get(class_, f"removed class {class_}"), amount, holder)

        return [
            Line(
                at=row["at"],
                consumer=row["consumer"],
                verb=row["verb"],
                turn=row["turn"],
                ordinal=row["ordinal"],
                who=row["who"],
                holds=[share(*each) for each in msgspec.json.decode(row["holds"])],
            )
            for row in rows
        ]

    return await store.read(body)
