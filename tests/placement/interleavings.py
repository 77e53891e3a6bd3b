"""Many workers on the same books at once, and what must hold afterwards.

The database itself watches: a trigger notes each change that raises `used` above the capacity of that moment. Notes of
a transaction that was rolled back go with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from hypothesis import strategies as st
from sqlalchemy import select, text

from kilonova.domain.errors import Superseded
from kilonova.placement import ledger
from kilonova.placement.claims import GroupRule
from kilonova.placement.ledger import ConsumerChange
from kilonova.placement.refusals import ClaimRefused, LostRace
from kilonova.schema.tables import placement as tables
from kilonova.store.statements import Sql
from kilonova.world import Tx
from tests.placement.books import Books

HOSTS, SERVERS = 3, 4
GROUP = {"policy": "anti-affinity", "max_per_host": 2}
VCPU_SLOTS = Sql(
    select(tables.inventories.c.provider_id, tables.inventories.c.class_id, tables.resource_providers.c.name)
    .join(tables.resource_providers, tables.resource_providers.c.id == tables.inventories.c.provider_id)
    .join(tables.resource_classes, tables.resource_classes.c.id == tables.inventories.c.class_id)
    .where(tables.resource_classes.c.name == "VCPU")
)
RAISED = Sql(text("SELECT provider_id, class_id, before, after, capacity FROM raised"))
EMPTY_CONSUMERS = Sql(text("SELECT uuid FROM consumers WHERE uuid NOT IN (SELECT consumer FROM allocations)"))

_TABLE = "CREATE TABLE raised (provider_id BIGINT, class_id BIGINT, before BIGINT, after BIGINT, capacity BIGINT)"
_NOTE = "INSERT INTO raised VALUES (NEW.provider_id, NEW.class_id, OLD.used, NEW.used, NEW.capacity);"
_TOO_MUCH = "NEW.used > OLD.used AND NEW.used > NEW.capacity"
WATCH = {
    "sqlite": [
        _TABLE,
        f"CREATE TRIGGER watch AFTER UPDATE OF used ON inventories WHEN {_TOO_MUCH} BEGIN {_NOTE} END",
    ],
    "postgresql": [
        _TABLE,
        f"CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {_NOTE} RETURN NEW; END $$",
        f"CREATE TRIGGER watch AFTER UPDATE ON inventories FOR EACH ROW WHEN ({_TOO_MUCH}) EXECUTE FUNCTION note()",
    ],
}


class Act(msgspec.Struct, frozen=True):
    """One verb of one worker; hosts and servers by number."""

    verb: str
    server: int = 0
    hosts: tuple[int, ...] = ()
    amount: int = 1
    flag: bool = True


Script = Sequence[Sequence[Act]]  # one list per worker

_MOVES = ["claim_move", "return_move", "drop_move"]
_EVACUATIONS = ["claim_evacuation", "return_evacuation", "drop_holder"]
_VERBS = ["claim", "claim", "claim", "release", "put", "put", "inventory", "accept", *_MOVES, *_EVACUATIONS]
acts = st.builds(
    Act,
    verb=st.sampled_from(_VERBS),
    server=st.integers(0, SERVERS - 1),
    hosts=st.permutations(range(HOSTS)).map(tuple),
    amount=st.integers(1, 4),
    flag=st.sampled_from([True, True, False]),
)
scripts = st.lists(st.lists(acts, min_size=3, max_size=8), min_size=3, max_size=6)


def watched(dialect: str) -> Callable[[Tx], Any]:
    async def body(tx: Tx) -> None:
        for statement in WATCH[dialect]:
            await tx.run(Sql(text(statement.replace(":", "\\:"))))

    return body


class Stage:
    """One script's own hosts and servers in books that are shared by many scripts."""

    def __init__(self, books: Books, name: str) -> None:
        self.books = books
        self.name = name

    def host(self, number: int) -> str:
        return f"{self.name}-h{number}"

    def server(self, number: int) -> str:
        return f"{self.name}-s{number}"

    def group(self, number: int) -> GroupRule | None:
        """Every other server is in the group; those outside are also written to as REST does, past the groups."""
        return GroupRule(self.name, **GROUP) if number % 2 else None  # type: ignore[arg-type]

    async def play(self, script: Script) -> None:
        for number in range(HOSTS):
            await self.books.host(self.host(number), vcpu=4)
        await asyncio.gather(*(self._work(acts) for acts in script))

    async def _work(self, acts: Sequence[Act]) -> None:
        for act in acts:
            try:
                await getattr(self, f"_{act.verb}")(act)
            except (Superseded, ClaimRefused, LostRace):  # another worker's step on the same server came first
                continue

    async def _claiming(self, act: Act, verb: Callable[..., Any]) -> None:
        hosts = [self.host(number) for number in act.hosts]
        await verb(*hosts, size={"VCPU": act.amount, "MEMORY_MB": 64}, group=self.group(act.server))

    async def _claim(self, act: Act) -> None:
        await self._claiming(act, partial(self.books.claim, self.server(act.server)))

    async def _claim_move(self, act: Act) -> None:
        server = self.server(act.server)
        await self._claiming(act, partial(self.books.claim_move, server, f"m-{server}"))

    async def _claim_evacuation(self, act: Act) -> None:
        server = self.server(act.server)
        await self._claiming(act, partial(self.books.claim_evacuation, server, f"e{act.amount % 2}-{server}"))

    async def _return_move(self, act: Act) -> None:
        server = self.server(act.server)
        await self.books.return_move(server, f"m-{server}")

    async def _drop_move(self, act: Act) -> None:
        server = self.server(act.server)
        await self.books.drop_move(server, f"m-{server}")

    async def _return_evacuation(self, act: Act) -> None:
        server = self.server(act.server)
        await self.books.return_evacuation(server, f"e{act.amount % 2}-{server}")

    async def _drop_holder(self, act: Act) -> None:
        server = self.server(act.server)
        await self.books.drop_holder(server, f"e{act.amount % 2}-{server}")

    async def _release(self, act: Act) -> None:
        server = self.server(act.server)
        await self.books.release(server, f"m-{server}")

    async def _inventory(self, act: Act) -> None:
        await self.books.host(self.host(act.hosts[0]), vcpu=2 * act.amount)

    async def _accept(self, act: Act) -> None:
        await self.books.accept(self.host(act.hosts[0]), act.flag)

    async def _put(self, act: Act) -> None:
        """What REST will do: a consumer's rows replaced, with nothing but the ledger to refuse it."""
        consumer = self.server(act.server - act.server % 2)
        host = self.host(act.hosts[0])
        slot = next(row for row in await self.books.all(VCPU_SLOTS) if row["name"] == host)
        rows = {(slot["provider_id"], slot["class_id"], ""): act.amount} if act.flag else {}

        async def body(tx: Tx) -> None:
            holdings = await ledger.lock(tx, [consumer])
            await ledger.apply(tx, holdings, [ConsumerChange(consumer, rows, "p", "u")])

        await self.books.store.write(body)


async def check(books: Books) -> None:
    """used == sum of the allocations; no write raised use above capacity; nobody empty; groups count what is held."""
    await books.check()
    assert [dict(row) for row in await books.all(RAISED)] == []
    assert [row["uuid"] for row in await books.all(EMPTY_CONSUMERS)] == []
    await _check_groups(books)


async def _check_groups(books: Books) -> None:
    counted: dict[str, set[str]] = {}
    for server, host in await books.counted():
        counted.setdefault(server, set()).add(host)
    places = await books.places()
    members = {server for server in places if server.startswith("x") and server[-1] in "13"}
    for server in counted.keys() | members:
        own = {host for host, holder in places.get(server, ()) if holder == ""}
        moving = {host for host, _ in places.get(f"m-{server}", ())}
        seen = counted.get(server, set())
        assert own <= seen <= own | moving, (server, own, seen, moving)
