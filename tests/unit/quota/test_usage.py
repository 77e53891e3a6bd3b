"""What a user has is kept with the servers' mappings, and can be told from them at any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kilonova.quota import usage
from kilonova.quota.check import NOTHING, exceeded, exceeded_by, set_limit
from kilonova.schema.tables.quotas import quota_usages
from kilonova.store.statements import Sql
from kilonova.world import Tx

Run = Callable[[Any], None]
ADA, BOB = ("lab", "ada"), ("lab", "bob")
SPOIL = Sql(quota_usages.update().values(cores=99))


async def have(store: Any, server: str, owner: tuple[str, str] = ADA) -> None:
    await store.write(lambda tx: usage.map_server(tx, server, owner, vcpus=2, memory_mb=512, now=0.0))


async def lose(store: Any, server: str) -> None:
    await store.write(lambda tx: usage.unmap_server(tx, server))


async def used(store: Any, user: str = "") -> dict[str, int]:
    found: dict[str, int] = await store.read(lambda tx: usage.used(tx, "lab", user))
    return found


def test_grows_and_shrinks_with_the_servers(control: Run) -> None:
    async def story(store: Any) -> None:
        assert await used(store) == {"instances": 0, "cores": 0, "ram": 0}
        await have(store, "a")
        await have(store, "b", BOB)
        await have(store, "c", ("office", "ada"))
        assert await used(store) == {"instances": 2, "cores": 4, "ram": 1024}
        assert await used(store, "ada") == {"instances": 1, "cores": 2, "ram": 512}
        await lose(store, "a")
        await lose(store, "a")
        assert await used(store) == await used(store, "bob") == {"instances": 1, "cores": 2, "ram": 512}

    control(story)


def test_a_server_counts_with_its_new_size(control: Run) -> None:
    async def story(store: Any) -> None:
        await have(store, "a")
        for _ in range(2):
            await store.write(lambda tx: usage.set_size(tx, "a", {"cores": 5, "ram": 256}))
            assert await used(store, "ada") == {"instances": 1, "cores": 5, "ram": 256}
        await store.write(lambda tx: usage.uncount_server(tx, "a"))
        await store.write(lambda tx: usage.set_size(tx, "a", {"cores": 1, "ram": 64}))
        assert await used(store) == {"instances": 0, "cores": 0, "ram": 0}, "not counted"
        await store.write(lambda tx: usage.count_server(tx, "a"))
        assert await used(store) == {"instances": 1, "cores": 1, "ram": 64}
        await store.write(lambda tx: usage.set_size(tx, "nobody", {"cores": 1, "ram": 64}))
        assert await store.read(usage.miscounted) == []

    control(story)


def test_only_what_grows_is_compared_with_its_limit(control: Run) -> None:
    async def story(store: Any) -> None:
        await have(store, "a")
        await store.write(lambda tx: set_limit(tx, "lab", "instances", 0))
        await store.write(lambda tx: set_limit(tx, "lab", "cores", 3))
        over = {
            amount: await store.read(lambda tx, amount=amount: exceeded_by(tx, ADA, {"cores": amount, "ram": 0}))
            for amount in (-1, 0, 1, 2)
        }
        assert over == {-1: [], 0: [], 1: [], 2: ["cores: requested 2, used 2 of 3"]}

    control(story)


def test_a_wrong_row_is_found_and_counted_again(control: Run) -> None:
    async def story(store: Any) -> None:
        await have(store, "a")
        assert await store.read(usage.miscounted) == []
        await store.write(lambda tx: tx.run(SPOIL))
        right, wrong = ({"instances": 1, "cores": cores, "ram": 512} for cores in (2, 99))
        assert await store.read(usage.miscounted) == [usage.Miscount(*ADA, wrong, right)]
        await store.write(lambda tx: usage.recount(tx, *ADA))
        assert await store.read(usage.miscounted) == []
        assert await used(store) == right

    control(story)


def test_cores_and_memory_may_be_counted_elsewhere(control: Run) -> None:
    async def story(store: Any) -> None:
        await have(store, "a")
        await store.write(lambda tx: set_limit(tx, "lab", "cores", 4))

        async def over(tx: Tx, held: Any) -> list[str]:
            return await exceeded(tx, "lab", {"cores": 1}, user="ada", held=held)

        assert await store.read(lambda tx: over(tx, NOTHING)) == []
        assert await store.read(lambda tx: over(tx, ({"cores": 4}, {}))) == ["cores: requested 1, used 4 of 4"]

    control(story)
