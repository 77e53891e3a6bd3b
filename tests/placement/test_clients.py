"""What clients of the API write, against each other and beside the engine's own claims."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from kilonova.domain.errors import Conflict, Refused
from kilonova.placement import aggregates, classes, offers, providers, reading, traits, usages, writing
from kilonova.placement.names import is_custom, is_standard_trait, unknown_classes, unknown_traits
from kilonova.placement.refusals import OverCapacity
from kilonova.placement.reshape import reshape
from kilonova.placement.usages import Usage
from kilonova.placement.writing import ANY, AllocationRequest
from kilonova.store.postgres import PostgresStore
from kilonova.world import Tx
from tests.placement.books import PROVIDERS, SMALL, Books, provider_of

Run = Callable[[Any], None]
PAUSE = 0.2  # seconds; enough for somebody to come to a lock and wait there


def wish(consumer: str, host: str = "", generation: int | None = ANY, **resources: int) -> AllocationRequest:
    wanted: Mapping[str, Mapping[str, int]] = {provider_of(host): resources} if resources else {}
    return AllocationRequest(consumer, wanted, "demo", "alice", generation)


async def write(books: Books, *wishes: AllocationRequest) -> None:
    await writing.replace(books.store, wishes, "alice")


def test_what_an_evacuation_holds_is_not_the_clients(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        await books.claim("s1", "a")
        await books.claim_evacuation("s1", "e1", "b")
        await write(books, wish("s1", "c", VCPU=2))
        assert await books.held() == {"s1": {("a", "e1"): SMALL, ("c", ""): {"VCPU": 2}}}
        assert await writing.drop(books.store, "s1", "alice")
        assert await books.held() == {"s1": {("a", "e1"): SMALL}}
        assert not await writing.drop(books.store, "s1", "alice")
        await books.drop_holder("s1", "e1")
        assert "s1" not in await books.consumers()

    run(story)


def test_a_host_that_takes_no_more_takes_an_administrators(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        await books.accept("a", False)
        await write(books, wish("s1", "a", VCPU=1))
        assert await books.used("a") == 1

    run(story)


def test_never_more_than_there_is_however_many_ask(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=5)
        done = await asyncio.gather(
            *(write(books, wish(f"s{n}", "a", None, VCPU=1)) for n in range(9)), return_exceptions=True
        )
        assert sum(isinstance(each, OverCapacity) for each in done) == 4
        assert await books.used("a") == 5

    run(story)


def test_one_consumer_is_made_once(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        done = await asyncio.gather(
            *(write(books, wish("s1", "a", None, VCPU=1)) for _ in range(6)), return_exceptions=True
        )
        assert sum(each is None for each in done) == 1
        assert {each.code for each in done if isinstance(each, Refused)} == {"generation_conflict"}
        assert await books.used("a") == 1 and (await books.consumers())["s1"]["generation"] == 1

    run(story)


def test_clients_without_generations_all_get_through(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await asyncio.gather(*(write(books, wish("s1", "ab"[n % 2], VCPU=1 + n)) for n in range(6)))
        assert (await books.consumers())["s1"]["generation"] == 6
        ((place, amounts),) = (await books.held())["s1"].items()
        assert await books.used(place[0]) == amounts["VCPU"]

    run(story)


def test_less_than_before_must_fit_the_units_too(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        await write(books, wish("s1", "a", VCPU=8))
        await offers.replace(books.store, provider_of("a"), None, {"VCPU": offers.offer({"total": 4, "step_size": 4})})
        with pytest.raises(Refused, match="not a multiple of 4"):
            await write(books, wish("s1", "a", VCPU=6))
        await write(books, wish("s1", "a", VCPU=8))  # more than there is, but no more than before
        await write(books, wish("s1", "a", VCPU=4))

    run(story)


@pytest.mark.parametrize("units", [{"step_size": 4}, {"min_unit": 4}, {"max_unit": 8}])
def test_what_is_given_up_need_not_fit_the_units(run: Run, units: dict[str, int]) -> None:
    """An operator changed the units after the consumer got its amount."""

    async def story(books: Books) -> None:
        await books.host("a", vcpu=100)
        before = 10 if "max_unit" in units else 3
        await write(books, wish("s1", "a", VCPU=before), wish("s2", "a", VCPU=before))
        await offers.replace(books.store, provider_of("a"), None, {"VCPU": offers.offer({"total": 100, **units})})
        with pytest.raises(Refused):
            await write(books, wish("s1", "a", VCPU=11 if "max_unit" in units else 2))
        fits = 8 if "max_unit" not in units else 7
        await write(books, wish("s1", "a", VCPU=fits))
        await write(books, wish("s1", "a", VCPU=4), wish("s2", "a", VCPU=fits))

    run(story)


def test_claims_and_inventories_at_once(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=4)

        async def resize(total: int) -> None:
            wanted = {"VCPU": offers.offer({"total": total})}
            await offers.replace(books.store, provider_of("a"), None, wanted)

        writes = [write(books, wish(f"s{n}", "a", None, VCPU=1)) for n in range(8)]
        await asyncio.gather(*writes, *(resize(4 + n) for n in range(4)), return_exceptions=True)
        assert await books.used("a") == len(await books.held())

    run(story)


def test_a_reshape_is_all_or_nothing(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await write(books, wish("s1", "a", VCPU=3))
        generations = {row["uuid"]: row["generation"] for row in await books.all(PROVIDERS)}
        cpus = {"VCPU": offers.offer({"total": 8})}
        shapes: Any = {
            provider_of("a"): (generations[provider_of("a")], {}),
            provider_of("b"): (generations[provider_of("b")], cpus),
        }
        before = await books.held()
        for wishes in ([], [wish("s1", "b", VCPU=9)], [wish("s1", "b", 5, VCPU=3)]):
            with pytest.raises(Refused):
                await reshape(books.store, shapes, wishes, "alice")
            assert await books.held() == before
        await reshape(books.store, shapes, [wish("s1", "b", 1, VCPU=3)], "alice")
        assert await books.held() == {"s1": {("b", ""): {"VCPU": 3}}}
        provider, rows = await offers.read(books.store, provider_of("a"))
        assert rows == [] and provider.generation > generations[provider_of("a")]

    run(story)


@pytest.mark.parametrize("noun", ["class", "trait"])
def test_a_name_that_somebody_is_about_to_use_is_not_deleted(run: Run, noun: str) -> None:
    """Whoever uses it is held up in the middle, by a lock on the provider."""

    async def story(books: Books) -> None:
        await books.host("a")
        store, uuid, name = books.store, provider_of("a"), "CUSTOM_A"
        await classes.create(store, name)
        await traits.create(store, name)
        if noun == "class":
            use, delete = offers.add(store, uuid, name, offers.offer({"total": 1})), classes.delete_class(store, name)
        else:
            use, delete = traits.set_traits(store, uuid, None, [name]), traits.delete_trait(store, name)
        async with _locked(books, uuid):
            using = asyncio.create_task(use)
            await asyncio.sleep(PAUSE)
            deleting = asyncio.create_task(delete)
            await asyncio.sleep(PAUSE)
        done = await asyncio.gather(using, deleting, return_exceptions=True)
        assert [isinstance(each, Refused) for each in done] == [False, True]
        _, rows = await offers.read(store, uuid)
        _, given = await traits.of_provider(store, uuid)
        assert name in (given if noun == "trait" else [row["name"] for row in rows])

    run(story)


@contextlib.asynccontextmanager
async def _locked(books: Books, uuid: str) -> AsyncIterator[None]:
    """SQLite has one writer at a time: there is nothing to hold up."""
    if not isinstance(books.store, PostgresStore):
        yield
        return
    held, go = asyncio.Event(), asyncio.Event()

    async def body(tx: Tx) -> None:
        await providers.lock(tx, uuid)
        held.set()
        await go.wait()

    holding = asyncio.create_task(books.store.write(body))
    await held.wait()
    yield
    go.set()
    await holding


def test_every_write_marks_its_provider(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        uuid = provider_of("a")

        async def marks(act: Any) -> None:
            since = await books.watermark()
            await act
            (row,) = await books.all(PROVIDERS)
            assert row["mark"] >= since

        store = books.store
        await classes.create(store, "CUSTOM_A")
        await marks(offers.add(store, uuid, "CUSTOM_A", offers.offer({"total": 1})))
        await marks(classes.rename(store, "CUSTOM_A", "CUSTOM_B"))
        await marks(offers.remove(store, uuid, "CUSTOM_B"))
        await marks(traits.set_traits(store, uuid, None, ["HW_CPU_X86_AVX"]))
        await marks(aggregates.set_aggregates(store, uuid, ["agg"], None, raises=False))
        await marks(aggregates.set_aggregates(store, uuid, [], None, raises=True))
        await marks(write(books, wish("s1", "a", VCPU=1)))
        await marks(writing.drop(store, "s1", "alice"))

    run(story)


def test_what_is_held_and_used_is_told(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        typed = AllocationRequest(
            "s1", {provider_of("a"): {"VCPU": 2}, provider_of("b"): {"DISK_GB": 5}}, "p", "u", None, "SERVER"
        )
        await write(books, typed, AllocationRequest("s2", {provider_of("a"): {"VCPU": 1}}, "p", "v", None))
        consumer, rows = await reading.of_consumer(books.store, "s1")
        assert consumer is not None and (consumer.type_name, consumer.project_id, consumer.generation) == (
            "SERVER",
            "p",
            1,
        )
        assert {(row["uuid"], row["name"], row["used"]) for row in rows} == {
            (provider_of("a"), "VCPU", 2),
            (provider_of("b"), "DISK_GB", 5),
        }
        provider, held = await reading.of_provider(books.store, provider_of("a"))
        assert provider.name == "a" and {(row["consumer"], row["used"]) for row in held} == {("s1", 2), ("s2", 1)}
        assert await reading.of_consumer(books.store, "nobody") == (None, [])
        found = await usages.of_project(books.store, "p")
        assert {name: (usage.consumers, usage.used) for name, usage in found.items()} == {
            "SERVER": (1, {"VCPU": 2, "DISK_GB": 5}),
            "unknown": (1, {"VCPU": 1}),
        }
        assert usages.together(found) == Usage(2, {"VCPU": 3, "DISK_GB": 5})
        assert list(await usages.of_project(books.store, "p", "v")) == ["unknown"]
        assert await usages.of_project(books.store, "q") == {}

    run(story)


def test_a_consumer_that_keeps_an_evacuations_share_stays_whose_and_what_it_was(run: Run) -> None:
    """Its own allocations are gone; usages count the rest under the same project, user and type."""

    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        await books.claim("s1", "a")
        await books.claim_evacuation("s1", "e1", "b")
        await write(books, AllocationRequest("s1", {provider_of("c"): {"VCPU": 2}}, "p", "u", ANY, "SERVER"))
        before, _ = await reading.of_consumer(books.store, "s1")
        assert await writing.drop(books.store, "s1", "alice")
        assert await books.held() == {"s1": {("a", "e1"): SMALL}}
        after, _ = await reading.of_consumer(books.store, "s1")
        assert before is not None and after is not None and after.type_name == "SERVER"
        assert (after.project_id, after.user_id) == (before.project_id, before.user_id) == ("p", "u")

    run(story)


def test_names_are_listed(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        for name in ("CUSTOM_B", "CUSTOM_A"):
            assert await classes.create(books.store, name) and not await classes.create(books.store, name)
            assert await traits.create(books.store, name) and not await traits.create(books.store, name)
        assert (await classes.list_classes(books.store))[-2:] == ["CUSTOM_B", "CUSTOM_A"]
        await traits.set_traits(books.store, provider_of("a"), None, ["CUSTOM_A"])
        assert await traits.list_traits(books.store, associated=True) == ["CUSTOM_A"]
        assert "CUSTOM_A" not in await traits.list_traits(books.store, associated=False)
        assert (await traits.list_traits(books.store))[-1] == max(await traits.list_traits(books.store))
        await books.host("b")
        await aggregates.set_aggregates(books.store, provider_of("b"), ["three"], None, raises=True)
        await aggregates.set_aggregates(books.store, provider_of("a"), ["two", "one"], None, raises=True)
        for host, names in (("a", {"one", "two"}), ("b", {"three"})):
            _, joined = await aggregates.of_provider(books.store, provider_of(host))
            assert set(joined) == names
        with pytest.raises(Refused, match="in use"):
            await traits.delete_trait(books.store, "CUSTOM_A")
        await traits.delete_trait(books.store, "CUSTOM_B")
        await classes.delete_class(books.store, "CUSTOM_B")
        for gone in (traits.delete_trait, classes.delete_class):
            with pytest.raises(Refused, match="No such"):
                await gone(books.store, "CUSTOM_B")

    run(story)


def test_standard_names_are_known_without_having_been_written(run: Run) -> None:
    async def story(books: Books) -> None:
        async def unknown(tx: Tx) -> tuple[list[str], list[str]]:
            names = ["VGPU", "HW_CPU_X86_AVX", "CUSTOM_A", "NONSENSE"]
            return await unknown_classes(tx, names), await unknown_traits(tx, names)

        found = await books.store.read(unknown)
        assert found == (["CUSTOM_A", "HW_CPU_X86_AVX", "NONSENSE"], ["CUSTOM_A", "NONSENSE", "VGPU"])
        with pytest.raises((Refused, Conflict), match="No such trait NONSENSE"):
            await books.host("a")
            await traits.set_traits(books.store, provider_of("a"), None, ["NONSENSE"])

    run(story)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("CUSTOM_A", True), ("CUSTOM_", False), ("CUSTOM_a", False), ("HW_A", False), ("CUSTOM_" + "A" * 249, False)],
)
def test_what_a_custom_name_looks_like(name: str, is_one: bool) -> None:
    assert is_custom(name) is is_one and not is_standard_trait(name)
