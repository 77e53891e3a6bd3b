"""Quotas and types: counted with what is made, also when many ask at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kilonova.domain.errors import Refused
from kilonova.services.volume.files import NoBytes
from kilonova.services.volume.volume import Volume, VolumeType
from tests.unit.services.volume.shop import ADMIN, ALICE, BOB, PROJECT, Story, refusal, shop

Control = Callable[[Story], None]


def test_many_at_once_get_no_more_than_there_is(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes(), quota_defaults={"volumes": 5}) as here:
            told = await asyncio.gather(*(here.new() for _ in range(12)), return_exceptions=True)
            made = [each for each in told if isinstance(each, Volume)]
            assert len(made) == 5
            assert {each.code for each in told if isinstance(each, Refused)} == {"over_quota"}
            for volume in made:
                await here.settled(volume.id)
            for volume in made[:2]:
                await here.volumes.volumes.delete(ALICE, volume.id)
            await here.gone(*(volume.id for volume in made[:2]))
            assert (await here.volumes.quotas.show(PROJECT))["volumes"].in_use == 3
            await here.new()

    control(story)


def test_snapshots_count_too(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        limits = {"snapshots": 1, "gigabytes": 5}
        async with shop(store, tmp_path, NoBytes(), quota_defaults=limits) as here:
            volume = await here.volume(2)
            first = await here.snapshot(volume)
            assert (await here.volumes.quotas.show(PROJECT))["gigabytes"].in_use == 4
            assert await refusal(here.snapshot(volume)) == "over_quota"
            assert await refusal(here.new(2)) == "over_quota"
            await here.volumes.snapshots.delete(ALICE, first.id)
            await here.gone(first.id)
            await here.new(2)

    control(story)


def test_what_is_set_counts_for_one_project_and_a_class_for_all(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            quotas = here.volumes.quotas
            await quotas.set(PROJECT, {"volumes": 0})
            assert await refusal(here.new()) == "over_quota"
            await here.new(who=BOB)
            await quotas.reset(PROJECT)
            await quotas.set_class("default", {"volumes": 1})
            assert (await quotas.defaults())["volumes"] == 1
            await here.new()
            assert await refusal(here.new()) == "over_quota"
            assert await refusal(quotas.set(PROJECT, {"volumes": 0})) == "bad_request"
            assert await refusal(quotas.set(PROJECT, {"paintings": 1})) == "bad_request"
            assert await refusal(quotas.set_class("default", {"paintings": 1})) == "bad_request"
            await quotas.set(PROJECT, {"volumes": -1})
            await here.new()

    control(story)


def test_types_are_for_all_or_for_some(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            types = here.volumes.types
            made = await types.create(VolumeType(id="", name="gold", is_public=False))
            assert await refusal(types.create(VolumeType(id="", name="gold"))) == "type_exists"
            assert await refusal(types.find(ALICE, "gold")) == "type_not_found"
            assert await refusal(here.new(type="gold")) == "type_not_found"
            await types.grant(ADMIN, made.id, PROJECT)
            assert await refusal(types.grant(ADMIN, made.id, PROJECT)) == "type_access_exists"
            assert (await types.find(ALICE, "gold")).id == made.id == (await types.find(ALICE, made.id)).id
            assert await refusal(types.find(BOB, "gold")) == "type_not_found"
            await types.set_default(ADMIN, PROJECT, "gold")
            assert (await here.new()).type_id == made.id
            assert await refusal(types.delete(ADMIN, made.id)) == "type_in_use"
            assert await refusal(types.edit_specs(ADMIN, made.id, lambda old: {"a": "b"})) == "type_in_use"
            await types.drop_default(PROJECT)
            assert (await here.new()).type_name == "__DEFAULT__"
            renamed = await types.update(ADMIN, made.id, {"name": "silver"})
            assert renamed.name == "silver"
            assert await refusal(types.update(ADMIN, made.id, {"name": "__DEFAULT__"})) == "type_exists"

    control(story)
