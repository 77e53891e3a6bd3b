"""A new volume: what it takes from its source, what is refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.schema.tables.volume import volumes
from kilonova.services.image.image import Image
from kilonova.services.volume.creating import FORMATS, GIBIBYTE, NewVolume, check_image, image_facts
from kilonova.services.volume.volume import STATES
from tests.unit.services.volume.ledger import Ledger, code, ledger, refused
from tests.unit.services.volume.records import snapshot, volume
from tests.unit.services.volume.shop import ALICE, BACKEND, BOB, PROJECT, Story

Control = Callable[[Story], None]
_BARE = {"disk_format": "raw", "container_format": "bare", "owner": PROJECT}
ACTIVE: dict[str, Any] = {"status": "active", "size": 10, "file": "f", **_BARE}
IMAGE = Image(id="i", **ACTIVE)


async def create(here: Ledger, who: Any = ALICE, **wish: Any) -> Any:
    return await here.volumes.volumes.create(who, NewVolume(**wish))


def test_what_is_asked_is_recorded(control: Control) -> None:
    async def story(here: Ledger) -> None:
        wish = {"name": "n", "description": "d", "metadata": {"a": "b"}, "zone": "nova", "type": "shared"}
        made = await create(here, size=3, **wish, created_for="s", created_slot=2, goes_with_server=True)
        assert made == await here.now(made.id) and here.woken == 1
        assert {name: getattr(made, {"type": "type_id"}.get(name, name)) for name in wish} == wish and made.size == 3
        assert (made.project_id, made.user_id, made.status, made.work) == (PROJECT, "alice", "creating", "create")
        assert (made.created_for, made.created_slot, made.goes_with_server) == ("s", 2, True)
        assert (made.backend, made.created_at, made.multiattach, made.bootable) == (
            *(BACKEND, here.clock.at),
            *(True, False),
        )
        assert made.work_id and made.work_id != made.id
        assert await here.used() == {"volumes": 1, "gigabytes": 3} == await here.used("shared")

    ledger(control, story)


def test_what_a_volume_takes_from_its_source(control: Control) -> None:
    async def story(here: Ledger) -> None:
        await here.backend("another")
        about = {"marker": "m", "bootable": True, "image_metadata": {"os": "linux"}, "backend": "another"}
        await here.volume(volume(size=3, type_id="shared", **about))
        await here.snapshots(snapshot(size=2, type_id="t", marker="older", backend="another"))
        taken = {"bootable": True, "image_metadata": {"os": "linux"}, "backend": "another"}
        for wish, expected in (
            ({"source_id": "v"}, {"size": 3, "type_id": "shared", "marker": "m", "source_id": "v", **taken}),
            ({"snapshot_id": "s"}, {"size": 2, "type_id": "t", "marker": "older", "snapshot_id": "s", **taken}),
            ({"source_id": "v", "size": 4, "type": "t"}, {"size": 4, "type_id": "t", "multiattach": False}),
            ({"snapshot_id": "s", "size": 2}, {"size": 2, "source_id": None, "image_id": None}),
            (
                {"image": IMAGE, "size": 1},
                {"size": 1, "type_id": "plain", "marker": "image:i", "image_id": "i", "bootable": True}
                | {"image_metadata": image_facts(IMAGE), "backend": BACKEND, "source_id": None, "snapshot_id": None},
            ),
        ):
            made = await create(here, **wish)
            assert {name: getattr(made, name) for name in expected} == expected, wish

    ledger(control, story)


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ({}, "Volume size 'None' must be an integer and greater than 0"),
        ({"size": 1, "zone": "elsewhere"}, "Availability zone 'elsewhere' is invalid."),
        ({"source_id": "v", "snapshot_id": "s"}, "one source; snapshot_id and source_volid were given."),
        ({"source_id": "v", "image": IMAGE}, "one source; source_volid and imageRef were given."),
        ({"source_id": "v", "size": 2}, "'2'GB cannot be smaller than the source volume size 3GB."),
        ({"snapshot_id": "s", "size": 2}, "'2'GB cannot be smaller than the snapshot size 3GB."),
        ({"source_id": "none"}, "Volume none could not be found."),
        ({"snapshot_id": "none"}, "Snapshot none could not be found."),
        ({"size": 1, "type": "gold"}, "Volume type gold could not be found."),
        ({"size": 8}, "Requested volume size 8G is larger than maximum allowed limit 7G."),
    ],
)
def test_what_cannot_be_is_refused(control: Control, wish: Any, why: str) -> None:
    async def story(here: Ledger) -> None:
        await here.volume(volume(size=3))
        await here.snapshots(snapshot(size=3))
        assert (await refused(create(here, **wish))).endswith(why)
        assert len(await here.rows(volumes)) == 2 and await here.used() == {} and here.woken == 0

    ledger(control, story, quota_defaults={"per_volume_gigabytes": 7})


def test_the_quota_takes_all_of_it_back(control: Control) -> None:
    async def story(here: Ledger) -> None:
        assert await code(create(here, size=3)) == "over_quota"
        assert await here.rows(volumes) == []

    ledger(control, story, quota_defaults={"gigabytes": 2})


@pytest.mark.parametrize("status", STATES)
def test_in_which_states_a_source_is_copied(control: Control, status: str) -> None:
    async def story(here: Ledger) -> None:
        await here.volume(volume(size=1, status=status))
        await here.snapshots(snapshot(size=1, status=status))
        assert await code(create(here, source_id="v")) == (
            "" if status in ("available", "in-use") else "invalid_volume"
        )
        assert await code(create(here, snapshot_id="s")) == ("" if status == "available" else "invalid_snapshot")
        assert await code(create(here, BOB, source_id="v")) == "volume_not_found"
        assert await code(create(here, BOB, snapshot_id="s")) == "snapshot_not_found"

    ledger(control, story)


@pytest.mark.parametrize(
    ("changed", "size", "why"),
    [
        ({}, 1, ""),
        ({"status": "queued"}, 1, "Image i is not active."),
        ({"status": "deactivated"}, 1, "Image i is not active."),
        ({"disk_format": "vmdk"}, 1, "is a vmdk; volumes are made from raw, iso, ami, ari, aki, qcow2: convert it."),
        ({"disk_format": "qcow2", "virtual_size": 2 * GIBIBYTE}, 2, ""),
        (
            {"disk_format": "qcow2", "virtual_size": 2 * GIBIBYTE + 1},
            *(2, "Size of specified image 3GB is larger than volume size 2GB."),
        ),
        ({"min_disk": 2}, 2, ""),
        ({"min_disk": 3}, 2, "Volume size 2GB cannot be smaller than the image minDisk size 3GB."),
    ],
)
def test_which_image_a_volume_can_hold(changed: Any, size: int, why: str) -> None:
    image = Image(id="i", **{**ACTIVE, **changed})
    if not why:
        check_image(image, size)
        return
    with pytest.raises(Refused) as told:
        check_image(image, size)
    assert told.value.code == "invalid_input" and told.value.message.endswith(why)


def test_an_image_that_only_names_snapshots_has_no_bytes_for_a_volume(control: Control) -> None:
    async def story(here: Ledger) -> None:
        image = Image(id="i", **{**ACTIVE, "file": None})
        assert await code(create(here, size=1, image=image)) == "image_without_data"

    ledger(control, story)


@pytest.mark.parametrize("disk_format", FORMATS)
def test_formats_that_a_volume_is_made_from(disk_format: str) -> None:
    check_image(Image(id="i", **{**ACTIVE, "disk_format": disk_format, "virtual_size": 1}), 1)


def test_an_image_that_is_too_large_is_refused_before(control: Control) -> None:
    async def story(here: Ledger) -> None:
        assert "minDisk" in await refused(create(here, size=1, image=Image(id="i", **ACTIVE, min_disk=2)))
        assert await here.rows(volumes) == []

    ledger(control, story)


def test_what_a_volume_keeps_of_its_image() -> None:
    properties = {"os": "linux", "size": "x"}
    image = Image(id="i", **ACTIVE, name="n", checksum=None, min_disk=1, min_ram=2, properties=properties)
    assert image_facts(image) == {
        "os": "linux",
        "image_id": "i",
        "image_name": "n",
        "container_format": "bare",
        "disk_format": "raw",
        "min_disk": "1",
        "min_ram": "2",
        "size": "10",
    }
