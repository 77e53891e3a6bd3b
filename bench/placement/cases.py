"""What is asked: candidates, claims, moves; and how many times less CPU than the original each may take."""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from bench.placement.data import Provider, allocations
from bench.placement.load import Caller, request

SMALL = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}
QUERY = "resources=" + ",".join(f"{name}:{amount}" for name, amount in SMALL.items())
SQLITE, POSTGRES = "ours on SQLite", "ours on PostgreSQL"
ENDLESS = 1_000_000

Prepare = Callable[[int, int, str, int], Awaitable[Iterator[bytes]]]  # port, providers, seed, how many
Targets = dict[tuple[str, int], float]  # (side, providers) → times


@dataclass(frozen=True)
class Case:
    name: str
    prepare: Prepare
    targets: Targets


def _candidates(limit: int) -> Prepare:
    async def prepare(port: int, providers: int, seed: str, count: int) -> Iterator[bytes]:
        return itertools.repeat(request(port, "GET", f"/allocation_candidates?{QUERY}&limit={limit}"))

    return prepare


async def _claims(port: int, providers: int, seed: str, count: int) -> Iterator[bytes]:
    return (
        request(port, "PUT", f"/allocations/{consumer}", allocations(here.uuid, SMALL, None))
        for consumer, here in _consumers(providers, seed)
    )


async def _moves(port: int, providers: int, seed: str, count: int) -> Iterator[bytes]:
    """As a cold migration does it: what the server holds goes to the migration, and it takes as much elsewhere."""
    moving = list(itertools.islice(_consumers(providers, f"{seed} moves"), count))
    async with Caller(port) as caller:
        for server, here in moving:
            await caller.ask("PUT", f"/allocations/{server}", allocations(here.uuid, SMALL, None), expect=(204,))

    def move(server: str, here: Provider) -> bytes:
        there, migration = Provider((here.number + 1) % providers), uuid.uuid4()
        body = {
            server: allocations(there.uuid, SMALL, 1),
            str(migration): allocations(here.uuid, SMALL, None),
        }
        return request(port, "POST", "/allocations", body)

    return iter([move(server, here) for server, here in moving])


def _consumers(providers: int, seed: str) -> Iterator[tuple[str, Provider]]:
    source = random.Random(seed)
    while True:
        yield str(uuid.UUID(int=source.getrandbits(128), version=4)), Provider(source.randrange(providers))


def _both(at_1000: float, at_10_000: float) -> Targets:
    return {
        (side, count): times for side in (SQLITE, POSTGRES) for count, times in ((1000, at_1000), (10_000, at_10_000))
    }


WRITES = {(side, count): times for side, times in ((SQLITE, 15), (POSTGRES, 8)) for count in (100, 1000, 10_000)}
CASES = [
    Case("candidates, limit=10", _candidates(10), _both(150, 800)),
    Case("candidates, limit=1000", _candidates(1000), _both(40, 200)),
    Case("claim", _claims, WRITES),
    Case("move", _moves, WRITES),
]
