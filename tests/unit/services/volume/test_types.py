"""Types: whose they are, what they are called, when they can change or go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kilonova.records.query import ListQuery
from kilonova.schema.tables.volume import volume_default_types, volume_type_projects, volume_types
from kilonova.services.volume.types import no_such_spec
from kilonova.services.volume.volume import DEFAULT_TYPE, VolumeType, no_such_type
from kilonova.store import rows
from tests.unit.services.volume.ledger import Ledger, code, ledger, refused
from tests.unit.services.volume.records import volume
from tests.unit.services.volume.shop import ADMIN, ALICE, BOB, PROJECT, Story

Control = Callable[[Story], None]
IN_USE = "type_in_use"


async def row(here: Ledger, name: str) -> dict[str, Any] | None:
    return next((one for one in await here.rows(volume_types) if one["id"] == name), None)


def test_the_first_type_is_made_once_in_the_life_of_a_cloud(control: Control) -> None:
    async def story(here: Ledger) -> None:
        await here.volumes.prepare()
        (made,) = [one for one in await here.rows(volume_types) if one["name"] == DEFAULT_TYPE]
        assert (made["description"], made["is_public"], made["created_at"]) == (
            *("Default Volume Type", 1),
            here.clock.at,
        )
        await here.volumes.prepare()
        await here.store.write(lambda tx: rows.remove(tx, volume_types, id=made["id"]))
        await here.volumes.prepare()
        assert not [one for one in await here.rows(volume_types) if one["name"] == DEFAULT_TYPE], "it was deleted"

    ledger(control, story)


def test_a_first_type_that_is_there_already_is_left_alone(control: Control) -> None:
    async def story(here: Ledger) -> None:
        await here.type(DEFAULT_TYPE)
        await here.volumes.prepare()
        assert (await row(here, DEFAULT_TYPE) or {})["created_at"] == 0

    ledger(control, story)


def test_a_type_is_found_by_its_id_or_its_name(control: Control) -> None:
    async def story(here: Ledger) -> None:
        types = here.volumes.types
        for name in ("a", "z"):
            await here.type(name, name="x" if name == "a" else "a")
        assert (await types.find(ALICE, "a")).id == "a", "an id wins over a name"
        assert (await types.find(ALICE, "x")).id == "a" and (await types.find(ALICE, "z")).name == "a"
        assert await code(types.find(ALICE, "none")) == "type_not_found"
        assert no_such_type("x" * 100).message == f"Volume type {'x' * 80} could not be found."

    ledger(control, story)


def test_who_sees_a_private_type(control: Control) -> None:
    async def story(here: Ledger) -> None:
        types = here.volumes.types
        for name in ("private", "other"):
            await here.type(name, is_public=0)
        assert await code(types.find(ALICE, "private")) == "type_not_found"
        assert not (await types.find(ADMIN, "private")).is_public
        await types.grant(ADMIN, "private", PROJECT)
        assert (await types.find(ALICE, "private")).granted
        assert await code(types.find(ALICE, "other")) == "type_not_found"
        for caller, seen in ((ALICE, {"private"}), (BOB, set[str]()), (ADMIN, {"private", "other"})):
            listed = {one.id for one in await types.list_(caller, ListQuery())}
            assert listed == {"t", "plain", "shared", *seen}
        assert await types.projects(ADMIN, "private") == [PROJECT]
        assert await code(types.projects(BOB, "private")) == "type_not_found"
        await types.grant(ADMIN, "private", "bolt")
        assert await types.projects(ALICE, "private") == [PROJECT, "bolt"]
        told = await refused(types.grant(ADMIN, "private", PROJECT))
        assert told == f"Volume type access for private / {PROJECT} combination already exists."
        await types.withdraw(ADMIN, "private", PROJECT)
        assert await types.projects(ADMIN, "private") == ["bolt"]
        told = await refused(types.withdraw(ADMIN, "private", PROJECT))
        assert told == f"Volume type access not found for private / {PROJECT} combination."

    ledger(control, story)


def test_a_public_type_has_no_list(control: Control) -> None:
    async def story(here: Ledger) -> None:
        types = here.volumes.types
        assert await code(types.projects(ADMIN, "plain")) == "type_access_not_found"
        for verb in (types.grant, types.withdraw):
            assert await code(verb(ADMIN, "plain", PROJECT)) == "invalid_type"
        assert await here.rows(volume_type_projects) == []

    ledger(control, story)


def test_a_new_type(control: Control) -> None:
    async def story(here: Ledger) -> None:
        types = here.volumes.types
        wish = VolumeType(id="", name="gold", description="d", is_public=False, extra_specs={"a": "b"})
        made = await types.create(wish)
        assert made.id and made.created_at == here.clock.at and await types.find(ADMIN, "gold") == made
        assert (made.description, made.is_public, made.extra_specs, made.updated_at) == ("d", False, {"a": "b"}, None)
        assert await refused(types.create(wish)) == "Volume Type gold already exists."
        both = {"multiattach": "<is> True", "cacheable": "<is> True"}
        for specs, expected in (
            (both, "bad_request"),
            ({**both, "multiattach": "no"}, ""),
            ({**both, "cacheable": "no"}, ""),
        ):
            new = VolumeType(id="", name=f"of {specs}", extra_specs=specs)
            assert await code(types.create(new)) == expected

    ledger(control, story)


def test_a_type_that_is_changed(control: Control) -> None:
    async def story(here: Ledger) -> None:
        types = here.volumes.types
        before = await row(here, "plain")
        changed = await types.update(ADMIN, "shared", {"name": "gold", "description": "d", "is_public": False})
        assert changed == await types.find(ADMIN, "shared") and changed.updated_at == here.clock.at
        assert (changed.name, changed.description, changed.is_public) == ("gold", "d", False)
        assert changed.extra_specs == {"multiattach": "<is> True"}
        await types.update(ADMIN, "shared", {"name": "gold"})
        assert await refused(types.update(ADMIN, "shared", {"name": "plain"})) == "Volume Type plain already exists."
        assert await row(here, "plain") == before
        assert await code(types.update(ADMIN, "none", {})) == "type_not_found"

    ledger(control, story)


def test_extra_specs_are_those_that_volumes_were_made_by(control: Control) -> None:
    async def story(here: Ledger) -> None:
        edit = here.volumes.types.edit_specs
        changed = await edit(ADMIN, "shared", lambda old: {**old, "a": "b"})
        assert changed.extra_specs == {"multiattach": "<is> True", "a": "b"} and changed.updated_at == here.clock.at
        assert await here.volumes.types.find(ADMIN, "shared") == changed
        assert await code(edit(ADMIN, "shared", lambda old: {**old, "cacheable": "<is> True"})) == "bad_request"
        await here.put_one(volume(type_id="shared"))
        assert await code(edit(ADMIN, "shared", lambda old: {})) == IN_USE
        assert (await here.volumes.types.find(ADMIN, "shared")).extra_specs == changed.extra_specs
        await edit(ADMIN, "plain", lambda old: {"c": "d"})
        assert no_such_spec("t", "x" * 300).message.endswith(f"with key {'x' * 255}.")

    ledger(control, story)


def test_when_a_type_can_go(control: Control) -> None:
    async def story(here: Ledger) -> None:
        types = here.volumes.types
        for name in ("private", "other"):
            await here.type(name, is_public=0)
            await types.grant(ADMIN, name, PROJECT)
        await here.put_one(volume(type_id="private"))
        assert await refused(types.delete(ADMIN, "private")) == "Target volume type is still in use."
        await here.clear()
        await types.set_default(ADMIN, "bolt", "private")
        assert "is a default and cannot be deleted" in await refused(types.delete(ADMIN, "private"))
        await types.set_default(ADMIN, "bolt", "plain")
        await types.delete(ADMIN, "private")
        assert await row(here, "private") is None and await row(here, "other") is not None
        assert [one["type_id"] for one in await here.rows(volume_type_projects)] == ["other"]
        await types.drop_default("bolt")
        assert "The volume type plain is a default" in await refused(types.delete(ADMIN, "plain"))
        assert await code(types.delete(ADMIN, "none")) == "type_not_found"

    ledger(control, story)


def test_a_projects_own_default(control: Control) -> None:
    async def story(here: Ledger) -> None:
        types = here.volumes.types
        assert (await types.default(ALICE)).id == "plain"
        assert (await types.set_default(ADMIN, PROJECT, "shared")).id == "shared"
        await types.set_default(ADMIN, "bolt", "plain")
        assert await types.defaults() == {PROJECT: "shared", "bolt": "plain"}
        assert ((await types.default(ALICE)).id, (await types.default(BOB)).id) == ("shared", "plain")
        await types.set_default(ADMIN, PROJECT, "t")
        await types.drop_default("bolt")
        assert await types.defaults() == {PROJECT: "t"} and len(await here.rows(volume_default_types)) == 1
        assert await code(types.set_default(ADMIN, "bolt", "none")) == "type_not_found"

    ledger(control, story)


@pytest.mark.parametrize("default", ["none", ""])
def test_a_default_that_does_not_exist_is_told(control: Control, default: str) -> None:
    async def story(here: Ledger) -> None:
        told = await refused(here.volumes.types.default(ALICE))
        assert told.startswith(f"The default volume type {default} does not exist; create it")

    ledger(control, story, default_type=default)
