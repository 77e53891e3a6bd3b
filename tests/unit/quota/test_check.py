"""What is counted, against which limit: the user's, the project's, the default class's, the configuration's."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from kilonova.quota.check import exceeded, exceeded_by, room, set_limit
from kilonova.quota.service import Quotas
from kilonova.quota.usage import map_server, unmap_server
from kilonova.world import Tx

Run = Callable[[Any], None]
NUMBERS = itertools.count()
NOVAS = {"instances": 10, "cores": 20, "ram": 51200}
ONE = {"instances": 1, "cores": 2, "ram": 512}


async def have(store: Any, count: int, *, project: str = "lab", user: str = "bob", gone: bool = False) -> None:
    async def body(tx: Tx) -> None:
        for _ in range(count):
            server = f"s{next(NUMBERS)}"
            await map_server(tx, server, (project, user), vcpus=2, memory_mb=512, now=0.0)
            if gone:
                await unmap_server(tx, server)

    await store.write(body)


async def over(store: Any, defaults: dict[str, int], more: dict[str, int] = ONE, user: str = "bob") -> list[str]:
    async def body(tx: Tx) -> list[str]:
        return await exceeded(tx, "lab", more, user=user, defaults=defaults)

    found: list[str] = await store.read(body)
    return found


def test_the_configuration_counts_where_nothing_is_set(control: Run) -> None:
    async def story(store: Any) -> None:
        await have(store, 9)
        await have(store, 5, project="office")
        await have(store, 5, gone=True)
        assert await over(store, NOVAS) == []
        await have(store, 1)
        both = ["instances: requested 1, used 10 of 10", "cores: requested 2, used 20 of 20"]
        assert await over(store, NOVAS) == both
        assert await over(store, NOVAS, {}) == []  # at the limit is not over it
        assert await over(store, {}) == []

    control(story)


def test_the_default_class_replaces_the_configuration_and_a_project_the_class(control: Run) -> None:
    async def story(store: Any) -> None:
        quotas = Quotas(store, NOVAS)
        await have(store, 3)
        await quotas.set_class("default", {"instances": 3})
        await quotas.set_class("gold", {"instances": 0})
        assert await over(store, NOVAS) == ["instances: requested 1, used 3 of 3"]
        await quotas.set("lab", {"instances": -1, "cores": 7})
        assert await over(store, NOVAS) == ["cores: requested 2, used 6 of 7"]
        await quotas.reset("lab")
        assert await over(store, NOVAS) == ["instances: requested 1, used 3 of 3"]

    control(story)


def test_a_limit_of_nothing_allows_nothing_and_one_below_it_everything(control: Run) -> None:
    async def story(store: Any) -> None:
        async def ask(limits: dict[str, int]) -> tuple[bool, bool, int]:
            async def body(tx: Tx) -> tuple[bool, bool, int]:
                more = await exceeded(tx, "lab", ONE, defaults=limits)
                growing = await exceeded_by(tx, ("lab", "bob"), ONE, defaults=limits)
                return bool(more), bool(growing), await room(tx, "lab", ONE, 5, defaults=limits)

            found: tuple[bool, bool, int] = await store.write(body)
            return found

        free = dict.fromkeys(ONE, -1)
        assert await ask(free) == (False, False, 5)
        for name in ONE:
            assert await ask({**free, name: 0}) == (True, True, 0)

    control(story)


def test_a_users_own_limit_counts_what_the_user_has(control: Run) -> None:
    async def story(store: Any) -> None:
        async def limit(tx: Tx) -> None:
            await set_limit(tx, "lab", "instances", 2, "bob")

        await store.write(limit)
        await have(store, 1)
        await have(store, 7, user="eve")
        assert await over(store, NOVAS) == []
        await have(store, 1)
        assert await over(store, NOVAS) == ["instances: requested 1, used 2 of 2"]
        assert await over(store, NOVAS, user="eve") == []

    control(story)


async def fitting(store: Any, most: int, defaults: dict[str, int] = NOVAS, user: str = "bob") -> int:
    async def body(tx: Tx) -> int:
        return await room(tx, "lab", ONE, most, user=user, defaults=defaults)

    found: int = await store.write(body)
    return found


def test_as_many_as_fit(control: Run) -> None:
    async def story(store: Any) -> None:
        assert await fitting(store, 99) == 10, "both of instances and of cores"
        assert await fitting(store, 4) == 4
        assert await fitting(store, 99, {**NOVAS, "cores": 9}) == 4
        assert await fitting(store, 99, {**NOVAS, "ram": 1024}) == 2
        assert await fitting(store, 99, {"instances": -1}) == 99
        await have(store, 9)
        assert await fitting(store, 99) == 1
        await have(store, 3)
        assert await fitting(store, 99) == 0
        await set_for_bob(store, 14)
        assert await fitting(store, 99, {"instances": 99}) == 2

    control(story)


async def set_for_bob(store: Any, instances: int) -> None:
    async def body(tx: Tx) -> None:
        await set_limit(tx, "lab", "instances", instances, "bob")

    await store.write(body)


def test_those_who_ask_at_once_get_no_more_than_there_is(control: Run) -> None:
    async def story(store: Any) -> None:
        async def take(n: int) -> int:
            async def body(tx: Tx) -> int:
                count = await room(tx, "lab", ONE, 3, user=f"user{n}", defaults=NOVAS)
                for number in range(count):
                    await map_server(tx, f"{n}-{number}", ("lab", f"user{n}"), vcpus=2, memory_mb=512, now=0.0)
                return count

            taken: int = await store.write(body)
            return taken

        assert sorted(await asyncio.gather(*(take(n) for n in range(6)))) == [0, 0, 1, 3, 3, 3]

    control(story)


def test_nothing_is_counted_where_nothing_is_limited(control: Run) -> None:
    """A create costs the same in a project with 20,000 servers."""

    class Counting:
        def __init__(self, tx: Tx) -> None:
            self.tx, self.statements = tx, 0

        async def all(self, statement: Any, **params: Any) -> Any:
            self.statements += 1
            return await self.tx.all(statement, **params)

        async def one(self, statement: Any, **params: Any) -> Any:
            self.statements += 1
            return await self.tx.one(statement, **params)

    async def story(store: Any) -> None:
        async def body(tx: Tx, defaults: dict[str, int]) -> int:
            counting: Any = Counting(tx)
            await exceeded(counting, "lab", ONE, user="bob", defaults=defaults)
            return int(counting.statements)

        assert await store.read(lambda tx: body(tx, {"instances": -1, "cores": -1})) == 1
        assert await store.read(lambda tx: body(tx, NOVAS)) == 2

    control(story)


def test_who_only_wants_to_know_locks_nothing(control: Run) -> None:
    """In a transaction that may not write at all."""

    async def story(store: Any) -> None:
        await have(store, 3)

        async def body(tx: Tx) -> int:
            return await room(tx, "lab", ONE, 100, user="bob", defaults=NOVAS, locks=False)

        assert await store.read(body) == 7

    control(story)


def test_what_grows_is_compared_with_every_limit(control: Run) -> None:
    """A project's limit of something else, lowered below its use, must not hide that its user's limit is reached."""

    async def story(store: Any) -> None:
        await have(store, 2)

        async def body(tx: Tx) -> list[str]:
            await set_limit(tx, "lab", "instances", 1)
            await set_limit(tx, "lab", "cores", 4, user="bob")
            return await exceeded_by(tx, ("lab", "bob"), {"cores": 4}, defaults=NOVAS)

        assert await store.write(body) == ["cores: requested 4, used 4 of 4"]

    control(story)
