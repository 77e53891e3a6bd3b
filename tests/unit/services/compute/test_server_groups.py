"""Server groups in the database: whose they are, who is in them, and how many there may be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.records.query import ListQuery
from kilonova.schema.tables.quotas import quota_usages
from kilonova.schema.tables.server_groups import server_group_members
from kilonova.services.compute.server_groups import (
    ServerGroups,
    check_room,
    group_named,
    group_of_server,
    join,
    leave,
)
from kilonova.store import rows
from tests.support.locks import Locking
from tests.unit.control import Clock

Run = Callable[[Any], None]


class Ids:
    def __init__(self) -> None:
        self.last = 0

    def uuid(self) -> str:
        self.last += 1
        return f"group-{self.last}"


def made(store: Any) -> ServerGroups:
    return ServerGroups(store, Clock(5.0), Ids())


async def new(groups: ServerGroups, project: str = "lab", user: str = "ada", **more: Any) -> Any:
    return await groups.create(project_id=project, user_id=user, name="web", policy="anti-affinity", **more)


async def joined(store: Any, group: str, servers: list[str], most: int = -1) -> None:
    await store.write(lambda tx: join(tx, group, servers, "ada", most, 1.0))


def test_a_group_is_found_with_its_members_until_it_is_deleted(control: Run) -> None:
    async def story(store: Any) -> None:
        groups = made(store)
        group = await new(groups, max_server_per_host=2)
        assert (group.members, group.max_server_per_host) == ((), 2)
        await joined(store, group.id, ["a", "b"])
        assert (await groups.find(group.id)).members == ("a", "b")
        found = await group_of_server(store, "a")
        assert found is not None and (found.id, found.policy) == (group.id, "anti-affinity")
        await store.write(lambda tx: leave(tx, "a"))
        assert (await groups.find(group.id)).members == ("b",)
        assert await group_of_server(store, "a") is None
        await groups.delete(group.id)
        assert await group_of_server(store, "b") is None
        for lost in (groups.find(group.id), groups.delete(group.id)):
            with pytest.raises(Refused, match=f"Instance group {group.id} could not be found"):
                await lost

    control(story)


def test_room_is_looked_at_without_a_lock(control: Run) -> None:
    """In a transaction that may not write at all."""

    async def story(store: Any) -> None:
        group = await new(made(store))
        await joined(store, group.id, ["a"])
        await store.read(lambda tx: check_room(tx, group.id, 1, "ada", 2))
        with pytest.raises(Refused, match="requested 2, used 1 of 2"):
            await store.read(lambda tx: check_room(tx, group.id, 2, "ada", 2))
        found = await group_named(store, group.id)
        assert found is not None and found.policy == "anti-affinity"
        assert await group_named(store, "nobody") is None

    control(story)


def test_lists_are_of_one_project_or_of_all(control: Run) -> None:
    async def story(store: Any) -> None:
        groups = made(store)
        for project in ("lab", "office", "lab"):
            await new(groups, project)
        assert [one.id for one in await groups.list("lab", ListQuery(limit=9))] == ["group-1", "group-3"]
        assert [one.id for one in await groups.list("lab", ListQuery(limit=1, offset=1))] == ["group-3"]
        assert len(await groups.list(None)) == 3

    control(story)


def test_there_are_limits(control: Run) -> None:
    async def story(store: Any) -> None:
        groups = made(store)
        group = await new(groups, most=(1, -1))
        with pytest.raises(Refused, match="too many server groups: 1 of 1 used"):
            await new(groups, most=(1, -1))
        with pytest.raises(Refused, match="too many server groups"):
            await new(groups, most=(-1, 1))
        await new(groups, user="bob", most=(-1, 1))
        await new(groups, project="field", most=(1, 1))  # a user's groups in another project do not count
        await joined(store, group.id, ["a"], most=2)
        with pytest.raises(Refused, match="requested 2, used 1 of 2"):
            await joined(store, group.id, ["b", "c"], most=2)
        assert (await groups.find(group.id)).members == ("a",)
        with pytest.raises(Refused, match="could not be found"):
            await joined(store, "nowhere", ["d"])

    control(story)


@pytest.mark.parametrize("most", [(5, -1), (-1, 5)], ids=["of the project", "of the user"])
def test_many_at_once_get_no_more_than_the_limit(control: Run, most: tuple[int, int]) -> None:
    async def story(store: Any) -> None:
        groups = made(store)
        told = await asyncio.gather(*(new(groups, most=most) for _ in range(20)), return_exceptions=True)
        assert [error.code for error in told if isinstance(error, Refused)] == ["quota_exceeded"] * 15
        assert len(await groups.list("lab")) == 5

    control(story)


def test_two_at_once_do_not_exceed_the_members(control: Run) -> None:
    async def story(store: Any) -> None:
        group = await new(made(store))
        asked = [joined(store, group.id, [name], most=2) for name in "abcd"]
        refused = [error for error in await asyncio.gather(*asked, return_exceptions=True) if error is not None]
        assert len(refused) == 2 and all(isinstance(error, Refused) for error in refused)

    control(story)


def test_groups_of_one_project_have_their_own_members(control: Run) -> None:
    async def story(store: Any) -> None:
        groups = made(store)
        one, two, three = [await new(groups) for _ in range(3)]
        for group, servers in ((one, ["b", "a"]), (two, ["c"])):
            await joined(store, group.id, servers)
        shown = [(group.id, group.members) for group in await groups.list("lab")]
        assert shown == [(one.id, ("a", "b")), (two.id, ("c",)), (three.id, ())]
        assert (await groups.find(two.id)).members == ("c",) and (await groups.find(three.id)).members == ()
        assert [await group_of_server(store, name) for name in ("a", "c", "d")] == [one, two, None]
        assert await groups.of_server("c") == await group_named(store, two.id) == two
        await groups.delete(one.id)
        assert [(group.id, group.members) for group in await groups.list(None)] == [(two.id, ("c",)), (three.id, ())]
        left = await store.read(lambda tx: rows.fetch_all(tx, server_group_members))
        assert [row["server_id"] for row in left] == ["c"]
        await store.write(lambda tx: leave(tx, "d"))
        assert (await groups.find(two.id)).members == ("c",)

    control(story)


def test_the_members_of_a_group_count_by_user(control: Run) -> None:
    async def story(store: Any) -> None:
        groups = made(store)
        one, two = [await new(groups) for _ in range(2)]
        await joined(store, one.id, ["a", "b"])
        await joined(store, two.id, ["c"])
        await store.write(lambda tx: join(tx, two.id, ["d"], "bob", 1, 1.0))  # another's do not count
        await joined(store, two.id, ["e"], most=2)  # nor those in another group
        for most in (2, 0):
            with pytest.raises(Refused, match=f"requested 1, used 2 of {most}") as why:
                await joined(store, two.id, ["f"], most=most)
            assert why.value.code == "quota_exceeded"
        await joined(store, two.id, ["f"])
        assert (await groups.find(two.id)).members == ("c", "d", "e", "f")

    control(story)


def test_no_group_at_all_may_be_allowed(control: Run) -> None:
    async def story(store: Any) -> None:
        for most in ((0, -1), (-1, 0)):
            with pytest.raises(Refused, match="too many server groups: 0 of 0 used"):
                await new(made(store), most=most)
        assert await made(store).list(None) == []

    control(story)


@pytest.mark.parametrize(("most", "locked"), [((-1, -1), []), ((1, -1), ["lab"]), ((-1, 1), ["lab"]), ((0, -1), [])])
def test_who_counts_groups_waits_for_others_of_the_project(
    control: Run, most: tuple[int, int], locked: list[str]
) -> None:
    async def story(store: Any) -> None:
        if 0 in most:
            with pytest.raises(Refused):
                await new(made(store), most=most)
        else:
            await new(made(store), most=most)
        found = await store.read(lambda tx: rows.fetch_all(tx, quota_usages))
        assert [row["project_id"] for row in found] == locked

    control(story)


def test_who_joins_a_group_waits_for_others(control: Run) -> None:
    async def story(store: Any) -> None:
        group = await new(made(store))
        locking = Locking(store)
        await joined(locking, group.id, ["a"], most=2)
        assert locking.locked == [("server_groups", {"id": group.id})]
        locking.locked.clear()
        await locking.read(lambda tx: check_room(tx, group.id, 1, "ada", 2))
        assert locking.locked == []

    control(story)
