"""The rows of images: one is read, changed and removed with its properties and tags, and no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.domain.errors import Refused
from kilonova.schema.tables.image import image_files_to_remove, metadata
from kilonova.services.image.image import MOST_PROPERTIES, MOST_TAGS, Image
from kilonova.services.image.records import fetch_image
from kilonova.services.image.servers import ServerImages
from kilonova.store import rows
from tests.support.locks import Locking
from tests.support.neighbours import contents
from tests.unit.control import Clock
from tests.unit.services.image.cloud import ALICE, BOB, Life, life, run

FULL: dict[str, Any] = {"properties": {"os": "x", "arch": "y"}, "tags": ("b", "a"), "min_disk": 2, "name": "n"}


async def rows_of(lived: Life) -> dict[str, list[dict[str, Any]]]:
    async def body(tx: Any) -> dict[str, list[dict[str, Any]]]:
        return {table.name: await contents(tx, table) for table in metadata.tables.values()}

    found: dict[str, list[dict[str, Any]]] = await lived.store.read(body)
    return found


def play(tmp_path: Path, story: Callable[[Life], Awaitable[None]]) -> None:
    """With two images beside it, which have all that it has."""

    async def whole() -> None:
        async with life(tmp_path) as lived:
            for name in ("0", "z"):
                await lived.create(id=name, **FULL)
                await lived.images.members.add(name, "bolt")
            await story(lived)

    run(whole)


def neighbours(rows: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [row for table in rows.values() for row in table if {"0", "z"} & {row.get("id"), row.get("image_id")}]


def test_what_is_made_is_what_is_read(tmp_path: Path) -> None:
    async def story(lived: Life) -> None:
        made = await lived.create(**FULL, protected=True, hidden=True, visibility="public", size=3, marker="m")
        assert len(made.id) == 36 and made.created_at == made.updated_at > 0
        read = await lived.find(made)
        assert read == msgspec.structs.replace(made, tags=("a", "b"))
        assert (read.protected, read.hidden, read.is_member) == (True, True, False)
        bare = await lived.create(id="mine")
        assert await lived.find(bare) == bare and (bare.properties, bare.tags, bare.id) == ({}, (), "mine")

    play(tmp_path, story)


EDITS: dict[str, dict[str, Any]] = {
    "column": {"name": "new"},
    "flag": {"protected": True},
    "properties": {"properties": {"os": "x", "new": "z"}},
    "no properties": {"properties": {}},
    "tags": {"tags": ("a", "c")},
    "no tags": {"tags": ()},
    "all": {"name": None, "properties": {"k": "v"}, "tags": ("t",), "hidden": True},
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_change_is_of_one_image_and_what_is_changed(tmp_path: Path, edit: str) -> None:
    async def story(lived: Life) -> None:
        made = await lived.create(**FULL)
        read, before = await lived.find(made), await rows_of(lived)
        new = msgspec.structs.replace(read, **EDITS[edit])
        changed = await lived.images.change(ALICE, made.id, lambda _: new)
        assert changed.updated_at > made.updated_at
        assert changed == msgspec.structs.replace(new, updated_at=changed.updated_at) == await lived.find(made)
        assert neighbours(await rows_of(lived)) == neighbours(before)

    play(tmp_path, story)


def test_two_changes_in_one_instant(tmp_path: Path) -> None:
    async def story(lived: Life) -> None:
        lived.images._clock = Clock(5.0)
        made = await lived.create(**FULL)
        for edit in ({"tags": ("c",)}, {"properties": {"k": "v"}}, {"name": "new"}):
            await lived.images.change(ALICE, made.id, lambda old, edit=edit: msgspec.structs.replace(old, **edit))  # type: ignore[misc]
        read = await lived.find(made)
        assert (read.tags, read.properties, read.name, read.updated_at) == (("c",), {"k": "v"}, "new", 5.0)

    play(tmp_path, story)


def test_a_file_that_is_to_be_removed_already_is_so_once(tmp_path: Path) -> None:
    """A record from a backup may name the file of an image that was deleted since."""

    async def story(lived: Life) -> None:
        made = await lived.uploaded()
        await lived.store.write(lambda tx: rows.put(tx, image_files_to_remove, file=made.file))
        await lived.images.delete(ALICE, made.id, lambda _: None)
        assert lived.files() == [] and (await rows_of(lived))["image_files_to_remove"] == []

    play(tmp_path, story)


def test_a_change_of_nothing_writes_nothing(tmp_path: Path) -> None:
    async def story(lived: Life) -> None:
        made = await lived.create(**FULL)
        before = await rows_of(lived)
        read = await lived.find(made)
        assert await lived.images.change(ALICE, made.id, lambda old: old) == read
        assert await rows_of(lived) == before

    play(tmp_path, story)


def test_an_image_goes_with_all_that_is_its_own_but_its_id(tmp_path: Path) -> None:
    async def story(lived: Life) -> None:
        before = await rows_of(lived)
        made = await lived.create(**FULL)
        await lived.images.members.add(made.id, "bolt")
        checked: list[str] = []
        await lived.images.delete(ALICE, made.id, lambda image: checked.append(image.id))
        after = await rows_of(lived)
        assert after == before | {
            "image_ids": sorted([*before["image_ids"], {"id": made.id}], key=lambda row: row["id"])
        }
        assert checked == [made.id]
        with pytest.raises(Refused, match=f"Image ID {made.id} already exists!"):
            await lived.create(id=made.id)

    play(tmp_path, story)


STRANGER = Caller(user=IdentityRef("x", "x"), roles=("member",))
ADMIN = Caller(user=IdentityRef("x", "x"), roles=("admin",))
SEEN: list[tuple[dict[str, Any], Caller, bool]] = [
    ({"visibility": "private"}, ALICE, True),
    ({"visibility": "private"}, BOB, False),
    ({"visibility": "private"}, STRANGER, False),
    ({"visibility": "private"}, ADMIN, True),
    ({"visibility": "public"}, STRANGER, True),
    ({"visibility": "community"}, BOB, True),
    ({"visibility": "shared"}, BOB, False),
    ({"visibility": "shared", "member": "bolt"}, BOB, True),
    ({"visibility": "shared", "member": "corp"}, BOB, False),
    ({"visibility": "private", "member": "bolt"}, BOB, False),
    ({"visibility": "private", "owner": None}, STRANGER, False),
    ({"visibility": "private", "owner": ""}, STRANGER, False),
]


def test_who_sees_which_image(tmp_path: Path) -> None:
    """Others do not exist for the caller: neither to look at, nor to change, nor to delete."""

    async def story(lived: Life) -> None:
        with pytest.raises(Refused, match="Image nothing could not be found"):
            await lived.images.find(ADMIN, "nothing")
        for attributes, caller, is_seen in SEEN:
            member = attributes.get("member")
            made = await lived.create(**{name: value for name, value in attributes.items() if name != "member"})
            if member:
                await lived.images.members.add(made.id, member)
            acts: list[Callable[[], Awaitable[Any]]] = [
                lambda id_=made.id, who=caller: lived.images.find(who, id_),  # type: ignore[misc]
                lambda id_=made.id, who=caller: lived.images.change(who, id_, lambda old: old),  # type: ignore[misc]
                lambda id_=made.id, who=caller: lived.images.delete(who, id_, lambda _: None),  # type: ignore[misc]
            ]
            for act in acts:
                if is_seen:
                    await act()
                    continue
                with pytest.raises(Refused, match=f"Image {made.id} could not be found.") as why:
                    await act()
                assert why.value.code == "image_not_found"

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"properties": {str(n): "" for n in range(MOST_PROPERTIES + 1)}}, "at most 128 properties; this would be 129"),
        ({"tags": tuple(str(n) for n in range(MOST_TAGS + 1))}, "at most 128 tags; this would be 129"),
    ],
)
def test_an_image_has_so_many_properties_and_tags(tmp_path: Path, more: dict[str, Any], text: str) -> None:
    async def story(lived: Life) -> None:
        made, before = await lived.find(await lived.create(id="m")), await rows_of(lived)
        with pytest.raises(Refused, match=text) as why:
            await lived.create(id="new", **more)
        assert why.value.code == "image_limit"
        with pytest.raises(Refused, match=text):
            await lived.images.change(ALICE, "m", lambda old: msgspec.structs.replace(old, **more))
        assert await lived.find(made) == made and (await rows_of(lived))["image_ids"] == before["image_ids"]
        (name, values) = next(iter(more.items()))
        most = dict(list(values.items())[1:]) if isinstance(values, dict) else (*values[1:], values[1])
        assert len(getattr(await lived.find(await lived.create(**{name: most})), name)) == 128

    play(tmp_path, story)


def test_a_protected_image_stays(tmp_path: Path) -> None:
    async def story(lived: Life) -> None:
        made = await lived.create(protected=True)
        with pytest.raises(Refused, match=f"Image {made.id} is protected") as why:
            await lived.images.delete(ALICE, made.id, lambda _: None)
        assert why.value.code == "image_protected" and await lived.find(made) == made

        def forbid(_: Image) -> None:
            raise Refused("forbidden", "not yours")

        with pytest.raises(Refused, match="not yours"):
            await lived.images.delete(ALICE, made.id, forbid)

    play(tmp_path, story)


def test_changes_of_one_image_wait_for_each_other(tmp_path: Path) -> None:
    async def story(lived: Life) -> None:
        locking: Any = Locking(lived.store)
        lived.images._control = locking
        servers = ServerImages(locking, Clock())
        made = await lived.create()
        acts: list[Callable[[], Awaitable[Any]]] = [
            lambda: lived.images.change(ALICE, made.id, lambda old: old),
            lambda: servers.activate_empty(made.id, {}),
            lambda: servers.discard(made.id),
            lambda: lived.images.delete(ALICE, made.id, lambda _: None),
        ]
        for act in acts:
            await act()
            assert [params["image"] for _, params in locking.locked] == [made.id]
            locking.locked.clear()
        await locking.read(lambda tx: fetch_image(tx, made.id))
        assert locking.locked == []

    play(tmp_path, story)
