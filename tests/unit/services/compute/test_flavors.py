"""Flavors in the database: seeded once, unique, and changed by one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.domain.errors import Refused
from kilonova.services.compute.flavors import CLASSIC, Flavors, NewFlavor
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
