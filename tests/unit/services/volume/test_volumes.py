"""A volume from its record to its end: real files, the books, what it is made from, who may."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.api.volume import attachments, snapshots, volumes
from kilonova.api.volume.query import ListOptions, QueryFilter, moments, pairs, text
from kilonova.records.kinds import Order
from kilonova.records.query import COMPARISONS, EQUAL, LIKE, Condition, ListQuery
from kilonova.services.image.image import Image
from kilonova.services.volume.changing import Said
from kilonova.services.volume.files import GIBIBYTE, NoBytes
from kilonova.services.volume.volume import VolumeType
from tests.unit.services.volume.shop import ADMIN, ALICE, BOB, PROJECT, Shop, Story, refusal, shop

Control = Callable[[Story], None]
BYTES = b"kilonova" * 1000


def test_an_empty_one_is_a_sparse_file_and_goes_with_it(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            begun = await here.new(2, name="data", metadata={"a": "b"})
            assert (begun.status, begun.size, begun.metadata) == ("creating", 2, {"a": "b"})
            assert begun.type_name == "__DEFAULT__"
            volume = await here.settled(begun.id)
            assert (volume.status, volume.bootable, volume.marker) == ("available", False, "")
            told = os.stat(here.path(volume))
            assert (told.st_size, told.st_blocks) == (2 * GIBIBYTE, 0)
            await here.volumes.volumes.delete(ALICE, volume.id)
            await here.gone(volume.id)
            assert here.files() == set()
            assert (await here.volumes.quotas.show(PROJECT))["gigabytes"].in_use == 0

    control(story)


def test_from_an_image_a_snapshot_and_a_volume(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            image = await here.image(BYTES, min_disk=1, name="disk", properties={"os": "linux"})
            first = await here.volume(1, image=image)
            assert first.bootable and first.marker == f"image:{image.id}"
            assert (first.image_metadata["image_id"], first.image_metadata["os"]) == (image.id, "linux")
            snapshot = await here.snapshot(first)
            assert (snapshot.status, snapshot.progress, snapshot.marker) == ("available", "100%", first.marker)
            second = await here.volume(None, snapshot_id=snapshot.id)
            third = await here.volume(3, source_id=second.id)
            assert (second.size, third.size) == (1, 3)
            assert second.bootable and third.image_metadata == first.image_metadata and third.marker == first.marker
            for made in (first, snapshot, second, third):
                content = here.path(made).open("rb").read(len(BYTES) + 1)
                assert content == BYTES + b"\0"
                assert os.stat(here.path(made)).st_blocks * 512 < 1024 * 1024, "the copy is as sparse as its source"
            assert os.stat(here.path(third)).st_size == 3 * GIBIBYTE

    control(story)


def test_what_cannot_be_made_is_refused_and_costs_nothing(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            image = await here.image(BYTES, min_disk=3)
            strange = await here.image(b"KDMV", disk_format="vmdk")
            volume = await here.volume(2)
            snapshot = await here.snapshot(volume)
            for wish in (
                {"size": 2, "image": image},
                {"size": 2, "image": strange},
                {"size": None},
                {"size": 1, "snapshot_id": snapshot.id},
                {"size": 1, "source_id": volume.id},
                {"size": 9, "source_id": volume.id, "snapshot_id": snapshot.id},
                {"size": 1, "zone": "elsewhere"},
            ):
                assert await refusal(here.new(**wish)) == "invalid_input", wish
            assert await refusal(here.new(type="none")) == "type_not_found"
            assert await refusal(here.new(None, who=BOB, source_id=volume.id)) == "volume_not_found"
            assert await refusal(here.new(None, who=BOB, snapshot_id=snapshot.id)) == "snapshot_not_found"
            assert len((await here.volumes.volumes.list_(None, ListQuery()))[0]) == 1

    control(story)


def test_a_volume_that_is_needed_stays(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            volume = await here.volume()
            snapshot = await here.snapshot(volume)
            assert await refusal(here.volumes.volumes.delete(ALICE, volume.id)) == "invalid_volume"
            assert await refusal(here.volumes.volumes.delete(BOB, volume.id)) == "volume_not_found"
            await here.volumes.changes.reset(ADMIN, volume.id, Said(status="maintenance"))
            assert await refusal(here.volumes.volumes.delete(ALICE, volume.id, cascade=True)) == "invalid_volume"
            await here.volumes.volumes.delete(ADMIN, volume.id, cascade=True, force=True)
            await here.gone(volume.id, snapshot.id)
            assert here.files() == set()

    control(story)


@pytest.mark.parametrize("said", [Said(status="in-use"), Said(attach_status="attached")])
def test_a_volume_without_attachments_is_not_declared_attached(control: Control, tmp_path: Path, said: Said) -> None:
    """Nobody could detach it."""

    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            volume = await here.volume()
            assert await refusal(here.volumes.changes.reset(ADMIN, volume.id, said)) == "invalid_input"
            assert (await here.settled(volume.id)).status == "available"

    control(story)


def test_it_grows_and_never_shrinks(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, quota_defaults={"gigabytes": 5, "per_volume_gigabytes": 4}) as here:
            volume = await here.volume(2)
            extend = here.volumes.changes.extend
            assert await refusal(extend(ALICE, volume.id, 2)) == "invalid_input"
            assert await refusal(extend(ALICE, volume.id, 5)) == "volume_too_large"
            assert (await extend(ALICE, volume.id, 3)).status == "extending"
            grown = await here.settled(volume.id)
            assert (grown.size, grown.status, os.stat(here.path(grown)).st_size) == (3, "available", 3 * GIBIBYTE)
            await here.volume(1)
            assert await refusal(extend(ALICE, volume.id, 5)) == "volume_too_large"
            assert await refusal(here.new(2)) == "over_quota"

    control(story)


def test_a_file_that_is_lost_ends_in_error_with_the_reason(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            volume = await here.volume()
            here.path(volume).unlink()
            await here.volumes.changes.extend(ALICE, volume.id, 2)
            broken = await here.settled(volume.id)
            assert (broken.status, broken.size) == ("error_extending", 1)
            assert "to 2 GB" in broken.reason and "missing" in broken.reason
            await here.volumes.changes.reset(ADMIN, volume.id, Said(status="available"))
            snapshot = await here.snapshot(volume)
            assert snapshot.status == "error" and "missing" in snapshot.reason
            copy = await here.volume(None, source_id=volume.id)
            assert copy.status == "error" and "missing" in copy.reason
            assert here.files() == set()

    control(story)


def test_it_becomes_an_image_and_goes_back_to_a_snapshot(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            volume = await here.volume()
            snapshot = await here.snapshot(volume)
            here.path(volume).open("r+b").write(b"changed")
            assert (await here.volumes.changes.revert(ALICE, volume.id, snapshot.id)).status == "reverting"
            back = await here.settled(volume.id)
            assert back.status == "available" and here.path(back).open("rb").read(7) == bytes(7)
            assert (await here.volumes.snapshots.find(ALICE, snapshot.id)).status == "available"
            other = await here.volume()
            assert await refusal(here.volumes.changes.revert(ALICE, other.id, snapshot.id)) == "invalid_input"

    control(story)


def test_it_is_re_imaged(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            volume, image = await here.volume(), await here.image(b"new", name="linux", properties={"os": "linux"})
            here.path(volume).open("r+b").write(b"old data")
            begun = await here.volumes.changes.reimage(ALICE, volume.id, image)
            assert (begun.status, begun.previous_status) == ("downloading", "available")
            after = await here.settled(volume.id)
            assert (after.status, after.bootable, after.marker) == ("available", True, f"image:{image.id}")
            assert (after.image_metadata["image_id"], after.image_metadata["os"]) == (image.id, "linux")
            assert here.path(after).open("rb").read(8) == b"new" + bytes(5)
            assert here.path(after).stat().st_size == 1024**3, "what the image does not fill is empty, not the old data"
            await here.check_books()

    control(story)


def test_what_cannot_be_re_imaged_is_as_it_was(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            volume, image = await here.volume(), await here.image(b"new")
            here.path(volume).open("r+b").write(b"old data")
            os.unlink((await here.images.file(image.id)).path)
            await here.volumes.changes.reimage(ALICE, volume.id, image)
            after = await here.settled(volume.id)
            assert after.status == "available" and after.reason.startswith("It could not be re-imaged: ")
            assert here.path(after).open("rb").read(8) == b"old data" and after.image_metadata == {}
            large = await here.image(b"x", min_disk=2)
            assert await refusal(here.volumes.changes.reimage(ALICE, volume.id, large)) == "invalid_input"
            await here.volumes.changes.reset(ADMIN, volume.id, Said(status="error"))
            await here.volumes.changes.reimage(ALICE, volume.id, await here.image(b"good"))
            after = await here.settled(volume.id)
            assert (after.status, after.reason) == ("available", "")
            await here.volumes.changes.reset(ADMIN, volume.id, Said(status="reserved"))
            assert await refusal(here.volumes.changes.reimage(ALICE, volume.id, image)) == "invalid_volume"
            await here.volumes.changes.reimage(ALICE, volume.id, await here.image(b"good"), reserved=True)
            assert (await here.settled(volume.id)).status == "reserved"

    control(story)


def test_an_image_without_bytes_does_not_stay_behind(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            volume = await here.volume()
            here.path(volume).unlink()
            formats = {"container_format": "bare", "disk_format": "raw"}
            begun, image = await here.volumes.changes.upload(ALICE, volume.id, Image(id="", owner=PROJECT, **formats))
            assert begun.status == "uploading" and (await here.images.find(ALICE, image.id)).status == "queued"
            after = await here.settled(volume.id)
            assert after.status == "available" and "missing" in after.reason
            assert await refusal(here.images.find(ALICE, image.id)) == "image_not_found"

    control(story)


def test_another_type_changes_hands_in_the_books(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            specs = {"multiattach": "<is> True"}
            shared = await here.volumes.types.create(VolumeType(id="", name="shared", extra_specs=specs))
            volume = await here.volume()
            changed = await here.volumes.changes.retype(ALICE, volume.id, "shared")
            assert (changed.type_id, changed.multiattach) == (shared.id, True)
            used = await here.volumes.quotas.show(PROJECT)
            assert (used["volumes_shared"].in_use, used["volumes___DEFAULT__"].in_use) == (1, 0)
            assert await refusal(here.volumes.changes.retype(ALICE, volume.id, "shared")) == "invalid_volume"
            await here.volumes.quotas.set(PROJECT, {"volumes_shared": 1})
            assert await refusal(here.new(type="shared")) == "over_quota"
            assert await refusal(here.volumes.types.delete(ADMIN, shared.id)) == "type_in_use"

    control(story)


def test_lists_are_pages_in_any_order(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            await _fill(here)
            whole = await _names(here, ListQuery(order=(Order("name", False),)))
            assert whole == ["", "a", "b_1", "b_2", "b%3"] or whole == ["", "a", "b%3", "b_1", "b_2"]
            for order in ((), (Order("name", True),), (Order("size", False), Order("name", False))):
                wanted, found = ListQuery(order=order, limit=2), []
                while page := (await here.volumes.volumes.list_(None, wanted))[0]:
                    found += [volume.name or "" for volume in page]
                    wanted = wanted._replace(marker=page[-1].id)
                assert found == await _names(here, ListQuery(order=order)) and len(found) == 5
            like = ListQuery(conditions=(Condition("name", LIKE, "%b\\_%"),))
            assert sorted(await _names(here, like)) == ["b_1", "b_2"]
            assert await _names(here, ListQuery(conditions=(Condition("user", EQUAL, ("n", "b_1")),))) == ["b_1"]
            assert (await here.volumes.volumes.list_(None, ListQuery(limit=1), counted=True))[1] == 5
            assert await _names(here, ListQuery(), "bolt") == []
            marker = (await here.volumes.volumes.list_(None, ListQuery()))[0][0].id
            assert await refusal(here.volumes.volumes.list_("bolt", ListQuery(marker=marker))) == "volume_not_found"
            assert await here.volumes.volumes.summary(PROJECT) == (5, 7, {"n": ["b_1"]})

    control(story)


async def _fill(here: Shop) -> None:
    for name, size in (("b_1", 1), ("a", 2), (None, 1), ("b%3", 2), ("b_2", 1)):
        await here.volume(size, name=name, metadata={"n": "b_1"} if name == "b_1" else {})


async def _names(here: Shop, wanted: ListQuery, viewer: str | None = None) -> list[str]:
    return [volume.name or "" for volume in (await here.volumes.volumes.list_(viewer, wanted))[0]]


@pytest.mark.parametrize("noun", ["volume", "snapshot", "attachment"])
def test_every_filter_and_order_of_the_api_is_understood_by_the_database(
    control: Control, tmp_path: Path, noun: str
) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            volume = await here.volume(name="one")
            await here.snapshot(volume, name="one")
            await here.volumes.attachments.create(ALICE, volume.id, server_id="5e000000-0000-4000-8000-000000000001")
            nouns: dict[str, tuple[ListOptions, Any]] = {
                "volume": (volumes.OPTIONS, here.volumes.volumes.list_),
                "snapshot": (snapshots.OPTIONS, here.volumes.snapshots.list_),
                "attachment": (attachments.LISTED, here.volumes.attachments.list_),
            }
            listed, find = nouns[noun]
            for column in listed.orders.values():
                for descending in (True, False):
                    first = await find(None, ListQuery(order=(Order(column, descending),)))
                    found = first[0] if isinstance(first, tuple) else [one for _, one in first]
                    assert len(found) == 1
                    rest = await find(None, ListQuery(order=(Order(column, descending),), marker=found[0].id))
                    assert rest in (([], 0), []), f"nothing comes after the last by {column}"
            for name, one in listed.filters.items():
                await find(None, ListQuery(conditions=tuple(_sample(one))))
                assert name

    control(story)


def _sample(one: QueryFilter) -> list[Condition]:
    if one.read is pairs:
        return [Condition(one.column, EQUAL, ("a", "b"))]
    if one.read is moments:
        return [Condition(one.column, operator, 1.5) for operator in COMPARISONS]
    value: Any = "x" if one.read is text else 1
    return [
        Condition(one.column, EQUAL, value),
        *([Condition(one.column, LIKE, "%x%")] if value == "x" else []),
    ]
