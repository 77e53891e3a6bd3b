"""One of several processes that claim from the same books: `python -m tests.placement.worker URL NAME SEED ACTS`.

Its servers are its own, the hosts are everybody's. It says in the end what its servers must hold by the answers it got.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys

from kilonova.domain.errors import KilonovaError
from kilonova.placement.claims import Claimed
from kilonova.store.open_stores import open_store
from tests.placement.books import Books, WallClock

HOSTS = ("steady1", "steady2", "shaky")
CAPACITY = 8  # of each, in the smallest servers; the shaky one's comes and goes
SERVERS = 6


class Worker:
    def __init__(self, books: Books, name: str, seed: str) -> None:
        self.books, self.name = books, name
        self.random = random.Random(seed)
        self.host: dict[str, str] = {}  # server → host
        self.source: dict[str, tuple[str, str]] = {}  # server → migration, source
        self.refused = self.moves = 0

    async def act(self) -> None:
        server = f"{self.name}-{self.random.randrange(SERVERS)}"
        hosts = self.random.sample(HOSTS, self.random.randint(1, len(HOSTS)))
        if server not in self.host:
            self._took(server, await self.books.claim(server, *hosts))
        elif server in self.source:
            await self._end_move(server)
        elif self.random.random() < 0.3:
            await self.books.release(server)
            del self.host[server]
        else:
            self.moves += 1
            migration, source = f"{server}-m{self.moves}", self.host[server]
            if self._took(server, await self.books.claim_move(server, migration, *hosts)):
                self.source[server] = (migration, source)

    async def _end_move(self, server: str) -> None:
        migration, source = self.source.pop(server)
        if self.random.random() < 0.5:
            await self.books.drop_move(server, migration)
        else:
            await self.books.return_move(server, migration)
            self.host[server] = source

    def _took(self, server: str, outcome: object) -> bool:
        if not isinstance(outcome, Claimed):
            self.refused += 1
            return False
        self.host[server] = outcome.provider.removeprefix("provider-of-")
        return True

    def holds(self) -> dict[str, str]:
        return self.host | {migration: source for migration, source in self.source.values()}


async def shake(books: Books, seed: str, acts: int) -> None:
    """The host whose inventory changes all the time; never beyond what it had in the beginning."""
    source = random.Random(seed)
    for _ in range(acts):
        size = source.randint(0, CAPACITY)
        await books.host("shaky", vcpu=size, memory=1024 * size, disk=10 * size)
        await books.accept("shaky", source.random() < 0.8)


async def main(url: str, name: str, seed: str, acts: int) -> None:
    store = await open_store("placement", url, clock=WallClock(), upgrading=False, synchronous="OFF")
    books = Books(store)
    worker = Worker(books, name, seed)
    if name == "shaker":
        await shake(books, seed, acts)
    else:
        for _ in range(acts):
            await worker.act()
    await store.close()
    print(json.dumps({"holds": worker.holds(), "refused": worker.refused}))


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
    except KilonovaError as error:
        sys.exit(f"{type(error).__name__}: {error}")
