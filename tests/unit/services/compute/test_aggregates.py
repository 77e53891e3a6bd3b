"""Host aggregates in the database: each change touches one of them, holds for zones, and is seen by every copy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from kilonova.domain.errors import Refused
from kilonova.services.compute.aggregate_book import AggregateBook
from kilonova.services.compute.aggregates import Aggregate, Aggregates, forget_host
from tests.unit.control import Clock, Ids

Run = Callable[[Any], None]


def of(store: Any, at: float = 5.0) -> Aggregates:
    return Aggregates(store, Clock(at), Ids())


async def racks(store: Any) -> list[Aggregate]:
    """Two zones with a host each, and an aggregate of both hosts that names no zone."""
    service = of(store)
    east, west, both = [await service.create(name, zone) for name, zone in (("e", "east"), ("w", "west"), ("b", None))]
    for aggregate, hosts in ((east, ["h1"]), (west, ["h2"]), (both, ["h2", "h1"])):
        for host in hosts:
            await service.add_host(aggregate.id, host)
    return await service.all()


Act = Callable[[Any, int], Awaitable[object]]
CHANGES: dict[str, tuple[Act, Callable[[Aggregate], Aggregate | None]]] = {
    "name": (
        lambda store, one: of(store, 9.0).change(one, name="new"),
        lambda before: msgspec.structs.replace(before, name="new", updated_at=9.0),
    ),
    "the same name": (
        lambda store, one: of(store, 9.0).change(one, name="w"),
        lambda before: msgspec.structs.replace(before, updated_at=9.0),
    ),
    "zone": (
        lambda store, one: of(store, 9.0).change(one, metadata={"availability_zone": "north"}),
        lambda before: msgspec.structs.replace(before, metadata={"availability_zone": "north"}, updated_at=9.0),
    ),
    "no zone": (
        lambda store, one: of(store, 9.0).change(one, metadata={"availability_zone": None, "ssd": "true"}),
        lambda before: msgspec.structs.replace(before, metadata={"ssd": "true"}, updated_at=9.0),
    ),
    "new host": (
        lambda store, one: of(store, 9.0).add_host(one, "h0"),
        lambda before: msgspec.structs.replace(before, hosts=("h0", "h2"), updated_at=9.0),
    ),
    "host that leaves": (
        lambda store, one: of(store, 9.0).remove_host(one, "h2"),
        lambda before: msgspec.structs.replace(before, hosts=(), updated_at=9.0),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_of_one_aggregate_and_a_copy_sees_it_at_once(control: Run, change: str) -> None:
    act, changed = CHANGES[change]

    async def story(store: Any) -> None:
        east, west, both = await racks(store)
        book = await AggregateBook(store).sync()
        assert list(book.aggregates) == [east, west, both]
        after = [east, changed(west), both]
        assert await act(store, west.id) == after[1]
        assert await of(store).all() == after == list((await book.sync()).aggregates)
        assert await of(store).find(west.id) == after[1] and await of(store).find(east.id) == east

    control(story)


def test_a_copy_sees_those_that_are_made_and_deleted_and_hosts_that_leave_the_cloud(control: Run) -> None:
    async def story(store: Any) -> None:
        east, west, both = await racks(store)
        service, book = of(store), await AggregateBook(store).sync()
        made = await service.create("new", None)
        assert list((await book.sync()).aggregates) == [east, west, both, made]
        assert (made.name, made.zone, made.hosts, made.created_at, made.updated_at) == ("new", None, (), 5.0, None)
        await service.delete(made.id)
        assert list((await book.sync()).aggregates) == [east, west, both]
        await store.write(lambda tx: forget_host(tx, "h2"))
        assert [one.hosts for one in (await book.sync()).aggregates] == [("h1",), (), ("h1",)]
        assert {host: [one.name for one in of_host] for host, of_host in book.of_host.items()} == {"h1": ["e", "b"]}

    control(story)


def test_a_copy_knows_the_zone_of_each_host(control: Run) -> None:
    async def story(store: Any) -> None:
        await racks(store)
        book = await AggregateBook(store, "somewhere").sync()
        assert [book.zone_of(host) for host in ("h1", "h2", "h3")] == ["east", "west", "somewhere"]
        named = {host: [one.name for one in of_host] for host, of_host in book.of_host.items()}
        assert named == {"h1": ["e", "b"], "h2": ["w", "b"]}

    control(story)


def test_a_copy_is_read_again_only_after_a_change(control: Run) -> None:
    async def story(store: Any) -> None:
        await racks(store)
        book = await AggregateBook(store).sync()
        before = book.aggregates
        assert (await book.sync()).aggregates is before
        await store.write(lambda tx: forget_host(tx, "h3"))  # in no aggregate
        assert (await book.sync()).aggregates is before

    control(story)


REFUSED: dict[str, tuple[Callable[[Aggregates, list[int]], Awaitable[object]], str, str]] = {
    "name of another at first": (
        lambda service, ids: service.create("e", None),
        "aggregate_exists",
        "e already exists",
    ),
    "name of another": (lambda service, ids: service.change(ids[1], name="e"), "aggregate_exists", "e already exists"),
    "change of none": (lambda service, ids: service.change(99, name="new"), "not_found", "Aggregate 99 could not"),
    "find none": (lambda service, ids: service.find(99), "not_found", "Aggregate 99 could not be found."),
    "delete none": (lambda service, ids: service.delete(99), "not_found", "Aggregate 99 could not be found."),
    "delete with hosts": (lambda service, ids: service.delete(ids[2]), "aggregate_in_use", "it has 2 hosts"),
    "host to none": (lambda service, ids: service.add_host(99, "h1"), "not_found", "Aggregate 99 could not be found."),
    "check of none": (lambda service, ids: service.check_host(99, "h1"), "not_found", "Aggregate 99 could not be"),
    "host twice": (lambda service, ids: service.add_host(ids[0], "h1"), "aggregate_host_exists", "already has host h1"),
    "host into a second zone": (
        lambda service, ids: service.add_host(ids[0], "h2"),
        "zone_conflict",
        "Host h2 is already in availability zone west by aggregate w;.* it cannot be in east too",
    ),
    "check before a second zone": (
        lambda service, ids: service.check_host(ids[0], "h2"),
        "zone_conflict",
        "Host h2 is already in availability zone west by aggregate w",
    ),
    "second zone of its hosts": (
        lambda service, ids: service.change(ids[2], metadata={"availability_zone": "east"}),
        "zone_conflict",
        "Host h2 is already in availability zone west by aggregate w",
    ),
    "host from none": (lambda service, ids: service.remove_host(99, "h1"), "not_found", "Aggregate 99 could not"),
    "host of others": (lambda service, ids: service.remove_host(ids[0], "h2"), "no_such_host", "has no host h2"),
}


@pytest.mark.parametrize("refusal", REFUSED)
def test_what_is_refused_changes_nothing(control: Run, refusal: str) -> None:
    act, code, text = REFUSED[refusal]

    async def story(store: Any) -> None:
        before = await racks(store)
        book = await AggregateBook(store).sync()
        with pytest.raises(Refused, match=text) as why:
            await act(of(store, 9.0), [one.id for one in before])
        assert why.value.code == code and await of(store).all() == before
        assert list((await book.sync()).aggregates) == before

    control(story)


def test_what_a_zone_does_not_forbid(control: Run) -> None:
    async def story(store: Any) -> None:
        east, west, both = await racks(store)
        service = of(store)
        for aggregate, host in ((both, "h3"), (east, "h3")):  # no zone yet; one zone
            await service.check_host(aggregate.id, host)
            await service.add_host(aggregate.id, host)
        also_east = await service.create("e2", "east")
        await service.add_host(also_east.id, "h3")  # the same zone twice
        await service.check_host(west.id, "h2")  # there already: adding it says so
        await service.change(west.id, metadata={"availability_zone": "north"})  # its own hosts go along
        empty = await service.create("w2", "west")
        assert (await service.change(empty.id, metadata={"availability_zone": "east"})).zone == "east"

    control(story)


def test_of_several_hosts_in_another_zone_the_first_is_named(control: Run) -> None:
    async def story(store: Any) -> None:
        east, west, both = await racks(store)
        await of(store).change(east.id, metadata={"availability_zone": None})
        await of(store).add_host(west.id, "h0")
        await of(store).add_host(both.id, "h0")
        with pytest.raises(Refused, match="Host h0 is already in availability zone west"):
            await of(store).change(both.id, metadata={"availability_zone": "north"})

    control(story)


def test_two_who_put_a_host_into_two_zones_at_once_do_not_both_succeed(control: Run) -> None:
    async def story(store: Any) -> None:
        service = of(store)
        zones = [await service.create(name, name) for name in ("a", "b", "c")]
        added = await asyncio.gather(*(service.add_host(one.id, "h1") for one in zones), return_exceptions=True)
        assert sorted(type(one).__name__ for one in added) == ["Aggregate", "Refused", "Refused"]

    control(story)
