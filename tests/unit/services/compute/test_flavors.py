"""Flavors in the database: seeded once, unique, and changed by one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.domain.errors import Refused
from kilonova.schema.tables.flavors import flavor_projects
from kilonova.services.compute.flavors import CLASSIC, FlavorRecord, Flavors, NewFlavor
from kilonova.store import rows
from kilonova.world import Tx
from tests.support.locks import Locking
from tests.unit.control import Clock, Ids

Run = Callable[[Any], None]
ADMIN = Caller(user=IdentityRef("root", "root"), project=IdentityRef("office", "office"), roles=("admin",))
MEMBER = Caller(user=IdentityRef("bob", "bob"), project=IdentityRef("lab", "lab"), roles=("member",))


def new(name: str, **more: Any) -> NewFlavor:
    return NewFlavor(**{"name": name, "id": f"id-{name}", "vcpus": 1, "memory_mb": 64, "disk_gb": 1, **more})


def flavors_of(store: Any) -> Flavors:
    return Flavors(store, Clock(), Ids())


async def names(flavors: Flavors, caller: Caller = ADMIN) -> list[str]:
    return sorted(flavor.name for flavor in await flavors.list_(caller))


def test_the_classic_sizes_are_made_once_in_the_life_of_a_cloud(control: Run) -> None:
    async def story(store: Any) -> None:
        flavors = flavors_of(store)
        await asyncio.gather(*(flavors.prepare() for _ in range(3)))  # several processes of a fleet start at once
        tiny = await flavors.find("1", caller=MEMBER)
        assert (tiny.name, tiny.vcpus, tiny.memory_mb, tiny.disk_gb) == ("m1.tiny", 1, 512, 1)
        found = {(one.id, one.name, one.vcpus, one.memory_mb, one.disk_gb) for one in await flavors.list_(MEMBER)}
        assert found == set(CLASSIC)
        await flavors.delete("1")
        await flavors_of(store).prepare()
        assert "m1.tiny" not in await names(flavors)

    control(story)


def test_what_an_operator_made_before_the_first_start_is_left_alone(control: Run) -> None:
    async def story(store: Any) -> None:
        flavors = flavors_of(store)
        await flavors.create(new("m1.tiny", id="mine", vcpus=3))
        await flavors.prepare()
        assert (await flavors.find("mine", caller=ADMIN)).vcpus == 3
        assert len(await flavors.list_(ADMIN)) == len(CLASSIC)

    control(story)


def test_names_and_ids_are_unique_also_when_two_make_them_at_once(control: Run) -> None:
    async def story(store: Any) -> None:
        flavors = flavors_of(store)
        same = await asyncio.gather(
            *(flavors.create(new("twin", id=f"t{n}")) for n in range(4)), return_exceptions=True
        )
        lost = [one for one in same if isinstance(one, Refused)]
        assert [why.message for why in lost] == ["Flavor with name twin already exists."] * 3
        with pytest.raises(Refused, match="Flavor with ID id-a already exists"):
            for name in ("a", "b"):
                await flavors.create(new(name, id="id-a"))
        assert await names(flavors) == ["a", "twin"]

    control(story)


def test_extra_specs_that_are_added_at_once_are_all_there(control: Run) -> None:
    async def story(store: Any) -> None:
        flavors = flavors_of(store)
        await flavors.create(new("big"))

        async def add(number: int) -> None:
            await flavors.edit_specs("id-big", lambda old: {**old, f"k{number}": str(number)}, caller=ADMIN)

        await asyncio.gather(*(add(number) for number in range(8)))
        assert (await flavors.find("id-big", caller=ADMIN)).extra_specs == {f"k{n}": str(n) for n in range(8)}
        kept = await flavors.edit_specs("id-big", lambda old: {"k1": old["k1"]}, caller=ADMIN)
        assert kept == (await flavors.find("id-big", caller=ADMIN)).extra_specs == {"k1": "1"}

    control(story)


def test_a_private_flavor_is_seen_by_those_on_its_list_alone(control: Run) -> None:
    async def story(store: Any) -> None:
        flavors = flavors_of(store)
        await flavors.create(new("open"))
        await flavors.create(new("secret", is_public=False))
        assert await names(flavors, MEMBER) == ["open"] and await names(flavors) == ["open", "secret"]
        with pytest.raises(Refused) as why:
            await flavors.find("id-secret", caller=MEMBER)
        assert why.value.code == "not_found"
        assert await flavors.grant("id-secret", "lab", caller=ADMIN, only_private=True) == ["lab"]
        assert await names(flavors, MEMBER) == ["open", "secret"]
        shape = (await flavors.find("id-secret", caller=MEMBER)).shape()
        assert (shape.id, shape.name, shape.memory_mb) == ("id-secret", "secret", 64)
        assert await flavors.withdraw("id-secret", "lab", caller=ADMIN) == []
        assert await names(flavors, MEMBER) == ["open"]

    control(story)


def test_a_deleted_flavor_takes_its_access_list_along(control: Run) -> None:
    async def story(store: Any) -> None:
        flavors = flavors_of(store)
        for _ in range(2):
            await flavors.create(new("secret", is_public=False))
            assert await flavors.projects("id-secret", caller=ADMIN) == []
            await flavors.grant("id-secret", "lab", caller=ADMIN, only_private=True)
            await flavors.delete("id-secret")
        with pytest.raises(Refused, match="could not be found"):
            await flavors.delete("id-secret")

    control(story)


async def everything(store: Any) -> tuple[list[FlavorRecord], list[tuple[int, str]]]:
    async def lists(tx: Tx) -> list[tuple[int, str]]:
        return sorted((row["flavor_number"], row["project_id"]) for row in await rows.fetch_all(tx, flavor_projects))

    return await flavors_of(store).list_(ADMIN), await store.read(lists)


async def three(store: Any) -> list[FlavorRecord]:
    """Private ones, with a project on each list."""
    flavors = flavors_of(store)
    made = [await flavors.create(new(name, is_public=False)) for name in ("a", "b", "c")]
    for one in made:
        await flavors.grant(one.id, f"of-{one.name}", caller=ADMIN, only_private=True)
    return made


Act = Callable[[Flavors], Awaitable[object]]
CHANGES: dict[str, tuple[Act, dict[str, object], set[str]]] = {
    "description": (
        lambda flavors: flavors.describe("id-b", "large", caller=ADMIN),
        {"description": "large", "updated_at": 9.0},
        {"of-b"},
    ),
    "extra specs": (
        lambda flavors: flavors.edit_specs("id-b", lambda _: {"k": "v"}, caller=ADMIN),
        {"extra_specs": {"k": "v"}, "updated_at": 9.0},
        {"of-b"},
    ),
    "grant": (
        lambda flavors: flavors.grant("id-b", "new", caller=ADMIN, only_private=True),
        {},
        {"of-b", "new"},
    ),
    "withdrawal": (lambda flavors: flavors.withdraw("id-b", "of-b", caller=ADMIN), {}, set()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_of_one_flavor(control: Run, change: str) -> None:
    act, values, projects = CHANGES[change]

    async def story(store: Any) -> None:
        a, b, c = await three(store)
        await act(Flavors(store, Clock(9.0), Ids()))
        after, lists = await everything(store)
        assert after == [a, msgspec.structs.replace(b, **values), c]
        assert lists == sorted([(a.number, "of-a"), *((b.number, one) for one in projects), (c.number, "of-c")])
        assert await flavors_of(store).projects("id-b", caller=ADMIN) == sorted(projects)

    control(story)


def test_a_deletion_is_of_one_flavor(control: Run) -> None:
    async def story(store: Any) -> None:
        a, b, c = await three(store)
        await flavors_of(store).delete(b.id)
        assert await everything(store) == ([a, c], [(a.number, "of-a"), (c.number, "of-c")])

    control(story)


def test_a_description_is_answered_as_it_is_kept(control: Run) -> None:
    async def story(store: Any) -> None:
        await three(store)
        flavors = Flavors(store, Clock(9.0), Ids())
        for text in ("large", None):
            answered = await flavors.describe("id-b", text, caller=ADMIN)
            assert answered == await flavors.find("id-b", caller=ADMIN)
            assert (answered.description, answered.updated_at) == (text, 9.0)

    control(story)


@pytest.mark.parametrize("given", ["", "mine"])
def test_a_new_flavor_has_the_id_that_is_given_or_a_new_one(control: Run, given: str) -> None:
    async def story(store: Any) -> None:
        made = await flavors_of(store).create(new("a", id=given))
        assert made.id == given if given else len(made.id) == 36
        assert made == await flavors_of(store).find(made.id, caller=ADMIN)

    control(story)


REFUSED: dict[str, tuple[Act, str, str]] = {
    "id taken": (lambda flavors: flavors.create(new("x", id="id-a")), "exists", "Flavor with ID id-a already exists."),
    "name taken": (lambda flavors: flavors.create(new("a", id="x")), "exists", "Flavor with name a already exists."),
    "find": (lambda flavors: flavors.find("x" * 300, caller=ADMIN), "not_found", f"Flavor {'x' * 255} could not"),
    "describe": (lambda flavors: flavors.describe("x", "", caller=ADMIN), "not_found", "Flavor x could not be found."),
    "delete": (lambda flavors: flavors.delete("x"), "not_found", "Flavor x could not be found."),
    "specs": (lambda flavors: flavors.edit_specs("x", dict, caller=ADMIN), "not_found", "Flavor x could not be found."),
    "projects": (lambda flavors: flavors.projects("x", caller=ADMIN), "not_found", "Flavor x could not be found."),
    "of another": (lambda flavors: flavors.projects("id-a", caller=MEMBER), "not_found", "Flavor id-a could not be"),
    "specs of another": (lambda flavors: flavors.edit_specs("id-a", dict, caller=MEMBER), "not_found", "Flavor id-a"),
    "public": (lambda flavors: flavors.projects("id-open", caller=ADMIN), "not_found", "Access list not available for"),
    "grant": (lambda flavors: flavors.grant("x", "p", caller=ADMIN, only_private=True), "not_found", "Flavor x could"),
    "grant twice": (
        lambda flavors: flavors.grant("id-a", "of-a", caller=ADMIN, only_private=True),
        "exists",
        "Flavor access already exists for flavor id-a and project of-a combination.",
    ),
    "grant public": (
        lambda flavors: flavors.grant("id-open", "p", caller=ADMIN, only_private=True),
        "exists",
        "Can not add access to a public flavor.",
    ),
    "withdraw": (lambda flavors: flavors.withdraw("x", "p", caller=ADMIN), "not_found", "Flavor x could not be found."),
    "withdraw another's": (
        lambda flavors: flavors.withdraw("id-a", "of-b", caller=ADMIN),
        "not_found",
        "Flavor access not found for id-a / of-b combination.",
    ),
}


@pytest.mark.parametrize("refusal", REFUSED)
def test_what_is_refused_changes_nothing(control: Run, refusal: str) -> None:
    act, code, text = REFUSED[refusal]

    async def story(store: Any) -> None:
        await three(store)
        await flavors_of(store).create(new("open"))
        before = await everything(store)
        with pytest.raises(Refused, match=text) as why:
            await act(flavors_of(store))
        assert why.value.code == code and await everything(store) == before

    control(story)


def test_old_versions_grant_public_ones_too(control: Run) -> None:
    async def story(store: Any) -> None:
        flavors = flavors_of(store)
        await flavors.create(new("open"))
        assert await flavors.grant("id-open", "lab", caller=ADMIN, only_private=False) == ["lab"]
        assert (await flavors.find("id-open", caller=MEMBER)).granted

    control(story)


LOCKED: dict[str, Act] = {
    "description": lambda flavors: flavors.describe("id-b", "large", caller=ADMIN),
    "withdrawal": lambda flavors: flavors.withdraw("id-b", "of-b", caller=ADMIN),
    "extra specs": lambda flavors: flavors.edit_specs("id-b", dict, caller=ADMIN),
    "grant": lambda flavors: flavors.grant("id-b", "new", caller=ADMIN, only_private=True),
    "deletion": lambda flavors: flavors.delete("id-b"),
}


@pytest.mark.parametrize("act", LOCKED)
def test_changes_of_one_flavor_wait_for_each_other(control: Run, act: str) -> None:
    async def story(store: Any) -> None:
        await three(store)
        locking = Locking(store)
        await LOCKED[act](flavors_of(locking))
        assert locking.locked == [("flavors", {"id": "id-b"})]

    control(story)


def test_looking_at_a_flavor_locks_nothing(control: Run) -> None:
    async def story(store: Any) -> None:
        await three(store)
        locking = Locking(store)
        await flavors_of(locking).find("id-b", caller=ADMIN)
        await flavors_of(locking).projects("id-b", caller=ADMIN)
        assert locking.locked == []

    control(story)
