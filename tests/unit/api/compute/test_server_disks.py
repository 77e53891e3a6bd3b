"""POST /servers with volumes: booted from those of every source, with data on them, and what cannot be."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kilonova.domain.volume import VolumeState
from kilonova.operations.create.disks import _image_in
from tests.unit.api.compute.cloud import Cloud, run
from tests.unit.api.compute.test_server_volumes import address, new_volume, own, until, volumes, wish, written

UNKNOWN = "00000000-0000-4000-8000-000000000000"
BDM = "block_device_mapping_v2"
BLANK = {"source_type": "blank", "destination_type": "volume"}


async def image_of(cloud: Cloud) -> str:
    found = (await cloud.api.client.get("/image/v2/images", headers={"X-Auth-Token": "member"})).json()["images"]
    return str(found[0]["id"])


def root_of(image: str) -> dict[str, Any]:
    return {"boot_index": 0, "source_type": "image", "uuid": image, "destination_type": "local"}


async def new_image(cloud: Cloud, **properties: Any) -> str:
    headers = {"X-Auth-Token": "member"}
    wanted = {"name": "own", "disk_format": "raw", "container_format": "bare", **properties}
    image = (await cloud.api.client.post("/image/v2/images", headers=headers, json=wanted)).json()["id"]
    headers |= {"Content-Type": "application/octet-stream"}
    await cloud.api.client.put(f"/image/v2/images/{image}/file", headers=headers, content=b"x" * 512)
    return str(image)


async def new_snapshot(cloud: Cloud, volume: str) -> str:
    made = (await volumes(cloud, "POST", "/snapshots", {"snapshot": {"volume_id": volume}}))["snapshot"]["id"]
    async with asyncio.timeout(60):
        while (await volumes(cloud, "GET", f"/snapshots/{made}"))["snapshot"]["status"] != "available":  # noqa: ASYNC110 - over HTTP there is nothing to wait on
            await asyncio.sleep(0.01)
    return str(made)


async def asked(cloud: Cloud, devices: list[dict[str, Any]], image: str = "", **more: Any) -> dict[str, Any]:
    wanted = {"name": "a", "flavorRef": "1", "imageRef": image, "networks": "none", BDM: devices}
    return {"server": {**wanted, **more}}


async def settled(cloud: Cloud, server: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            shown: dict[str, Any] = (await cloud.get("member", f"/servers/{server}", at="2.3"))["server"]
            if shown["status"] != "BUILD":
                return shown
            await asyncio.sleep(0.01)


async def made(cloud: Cloud, devices: list[dict[str, Any]], image: str = "", **more: Any) -> dict[str, Any]:
    body = await asked(cloud, devices, image, **more)
    server = (await cloud.does("member", "POST", "/servers", body, at="2.67", status=202))["server"]["id"]
    return await settled(cloud, server)


def test_booted_from_a_volume_of_an_image() -> None:
    async def story(cloud: Cloud) -> None:
        image = await image_of(cloud)
        root = {"boot_index": 0, "source_type": "image", "uuid": image, "destination_type": "volume", "volume_size": 1}
        data = {"boot_index": -1, "source_type": "blank", "destination_type": "volume", "volume_size": 1}
        shown = await made(cloud, [{**root, "delete_on_termination": True}, data])
        assert (shown["status"], shown["image"]) == ("ACTIVE", "")
        first, second = shown["os-extended-volumes:volumes_attached"]
        assert (first["delete_on_termination"], second["delete_on_termination"]) == (True, False)
        assert f"root=image:{image} volumes=" in await written(cloud, shown["id"])
        listed = (await cloud.get("member", address(shown["id"])))["volumeAttachments"]
        assert [one["device"] for one in listed] == ["/dev/vda", "/dev/vdb"]
        told = await cloud.refuses("member", "DELETE", address(shown["id"], first["id"]))
        assert told == f"Volume {first['id']} is the root disk of {shown['id']}; it cannot be detached."
        claimed = await own(cloud, "GET", f"/servers/{shown['id']}/ledger")
        assert "DISK_GB" not in str(claimed)
        await cloud.does("member", "DELETE", f"/servers/{shown['id']}", status=204)
        await until(cloud, first["id"], "gone")
        await until(cloud, second["id"], "available")

    run(story, hosts=1)


def test_booted_from_a_volume_that_is_there_and_from_a_snapshot_of_it() -> None:
    async def story(cloud: Cloud) -> None:
        image = await image_of(cloud)
        bootable = {"volume": {"size": 1, "imageRef": image}}
        volume = (await volumes(cloud, "POST", "/volumes", bootable))["volume"]["id"]
        await until(cloud, volume, "available")
        snapshot = await new_snapshot(cloud, volume)
        for source, uuid in (("volume", volume), ("snapshot", snapshot)):
            device = {"boot_index": "0", "source_type": source, "uuid": uuid, "destination_type": "volume"}
            shown = await made(cloud, [device])
            assert (shown["status"], shown["image"]) == ("ACTIVE", "")
            assert f"root=image:{image}" in await written(cloud, shown["id"])
        await until(cloud, volume, "in-use")

    run(story, hosts=1)


def test_the_older_form() -> None:
    async def story(cloud: Cloud) -> None:
        image, volume = await image_of(cloud), await new_volume(cloud)
        older = [{"volume_id": volume, "device_name": "/dev/vdc", "delete_on_termination": "1"}]
        body = {"name": "a", "flavorRef": "1", "imageRef": image, "block_device_mapping": older, "networks": "none"}
        server = (await cloud.does("member", "POST", "/servers", {"server": body}, at="2.37", status=202))["server"][
            "id"
        ]
        shown = await settled(cloud, server)
        assert shown["image"]["id"] == image
        assert shown["os-extended-volumes:volumes_attached"] == [{"id": volume, "delete_on_termination": True}]
        (listed,) = (await cloud.get("member", address(server)))["volumeAttachments"]
        assert listed["device"] == "/dev/vdc"

    run(story, hosts=1)


def test_a_build_that_fails_leaves_no_volume_held() -> None:
    async def story(cloud: Cloud) -> None:
        image, volume = await image_of(cloud), await new_volume(cloud)
        await own(cloud, "POST", "/simulated/hosts/host1", {"fail": {"verb": "ensure_disk", "times": 9}})
        there = {"source_type": "volume", "uuid": volume, "destination_type": "volume"}
        blank = {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "delete_on_termination": True}
        shown = await made(cloud, [root_of(image), there, blank], image)
        assert (shown["status"], shown["os-extended-volumes:volumes_attached"]) == ("ERROR", [])
        await until(cloud, volume, "available")
        async with asyncio.timeout(60):
            while len((await volumes(cloud, "GET", "/volumes"))["volumes"]) != 1:  # noqa: ASYNC110 - over HTTP there is nothing to wait on
                await asyncio.sleep(0.01)

    run(story, hosts=1)


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"min_ram": 513}, "Flavor's memory is too small for requested image: 512 MB, it needs 513 MB."),
        ({"hw_mem_page_size": "wide"}, "hw_mem_page_size"),
    ],
)
def test_the_image_of_a_root_volume_counts(properties: dict[str, Any], says: str) -> None:
    """Whether it is made a volume, is one, or was kept in a snapshot."""

    async def story(cloud: Cloud) -> None:
        image = await new_image(cloud, **properties)
        bootable = {"volume": {"size": 1, "imageRef": image}}
        volume = (await volumes(cloud, "POST", "/volumes", bootable))["volume"]["id"]
        await until(cloud, volume, "available")
        snapshot = await new_snapshot(cloud, volume)
        for source, uuid in (("image", image), ("volume", volume), ("snapshot", snapshot)):
            device = {"boot_index": 0, "source_type": source, "uuid": uuid, "destination_type": "volume"}
            more = {"volume_size": 1} if source == "image" else {}
            body = await asked(cloud, [device | more])
            assert says in await cloud.refuses("member", "POST", "/servers", body, at="2.67"), source

    run(story)


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ({"source_type": "blank"}, "a blank volume needs a volume_size"),
        ({"source_type": "volume", "uuid": UNKNOWN}, f"Volume {UNKNOWN} could not be found"),
        ({"source_type": "snapshot", "uuid": UNKNOWN}, f"Snapshot {UNKNOWN} could not be found"),
        ({"source_type": "image", "uuid": UNKNOWN, "volume_size": 1}, f"Image {UNKNOWN} could not be found"),
        ({"source_type": "blank", "volume_size": 1, "volume_type": "nope"}, "nope"),
    ],
)
def test_what_a_volume_cannot_be_made_of(device: dict[str, Any], says: str) -> None:
    async def story(cloud: Cloud) -> None:
        image = await image_of(cloud)
        body = await asked(cloud, [root_of(image), {**device, "destination_type": "volume"}], image)
        assert says in await cloud.refuses("member", "POST", "/servers", body, at="2.67")

    run(story)


def test_more_that_is_refused() -> None:
    async def story(cloud: Cloud) -> None:
        volume, image = await new_volume(cloud), await image_of(cloud)
        there = {"source_type": "volume", "uuid": volume, "destination_type": "volume"}
        body = await asked(cloud, [{**there, "boot_index": 0}])
        told = await cloud.refuses("member", "POST", "/servers", body, at="2.67")
        assert told == f"Block Device {volume} is not bootable."
        several = await asked(cloud, [root_of(image), there], image, min_count=2)
        told = await cloud.refuses("member", "POST", "/servers", several, at="2.67")
        assert told == "Cannot attach one or more volumes to multiple instances"
        snapshot = await new_snapshot(cloud, volume)
        kept = {"source_type": "snapshot", "uuid": snapshot, "destination_type": "volume"}
        told = await cloud.refuses(
            "member", "POST", "/servers", await asked(cloud, [{**kept, "boot_index": 0}]), at="2.67"
        )
        assert told == f"Block Device {volume} is not bootable."
        unfit = {"source_type": "image", "uuid": image, "destination_type": "volume"}
        told = await cloud.refuses(
            "member", "POST", "/servers", await asked(cloud, [root_of(image), unfit], image), at="2.67"
        )
        assert "needs a volume_size of at least 1 GB, not none" in told
        await until(cloud, volume, "available")

    run(story)


def test_volumes_of_the_own_zone_only() -> None:
    async def story(cloud: Cloud) -> None:
        image, volume = await image_of(cloud), await new_volume(cloud)
        await zoned(cloud, "east")
        data = {"source_type": "volume", "uuid": volume, "destination_type": "volume"}
        for devices in ([root_of(image), data], [root_of(image), {**BLANK, "volume_size": 1}]):
            body = await asked(cloud, devices, image, availability_zone="east")
            told = await cloud.refuses("member", "POST", "/servers", body, at="2.67")
            assert told.endswith("not in the same availability zone. Server is in: east. Volumes are in: nova")
        shown = await made(cloud, [root_of(image)], image, availability_zone="east")
        told = await cloud.refuses("member", "POST", address(shown["id"]), wish(volume))
        assert told.endswith("Server is in: east. Volumes are in: nova")

    run(story, "cinder.cross_az_attach=false", hosts=1)


def test_a_server_goes_to_the_zone_of_its_volumes() -> None:
    async def story(cloud: Cloud) -> None:
        image, volume = await image_of(cloud), await new_volume(cloud)
        await zoned(cloud, "nova")
        data = {"source_type": "volume", "uuid": volume, "destination_type": "volume"}
        with_volume, without = (
            await made(cloud, [root_of(image), data], image),
            await made(cloud, [root_of(image)], image),
        )
        pinned = [
            (await cloud.get("member", f"/servers/{one['id']}", at="2.96"))["server"] for one in (with_volume, without)
        ]
        assert [one["pinned_availability_zone"] for one in pinned] == ["nova", None]

    run(story, "cinder.cross_az_attach=false", "DEFAULT.default_availability_zone=home", hosts=1)


async def zoned(cloud: Cloud, zone: str) -> None:
    """host1 is there."""
    made = await cloud.does("admin", "POST", "/os-aggregates", {"aggregate": {"name": zone, "availability_zone": zone}})
    where = f"/os-aggregates/{made['aggregate']['id']}/action"
    await cloud.does("admin", "POST", where, {"add_host": {"host": "host1"}})


def test_no_local_disks_at_all() -> None:
    async def story(cloud: Cloud) -> None:
        image = await image_of(cloud)
        local = {"server": {"name": "a", "flavorRef": "1", "imageRef": image, "networks": "none"}}
        told = await cloud.refuses("member", "POST", "/servers", local, at="2.67")
        assert told.endswith("You specified more local devices than the limit allows: 1 of 0")
        root = {"boot_index": 0, "source_type": "image", "uuid": image, "destination_type": "volume", "volume_size": 1}
        await cloud.does("member", "POST", "/servers", await asked(cloud, [root]), at="2.67", status=202)

    run(story, "DEFAULT.max_local_block_devices=0")


@pytest.mark.parametrize(("text", "read"), [("512", 512), ("", 0), ("x", 0), ("-1", 0), ("²", 0), (None, 0)])
def test_an_owner_may_write_anything_over_the_min_ram_of_a_volumes_image(text: str | None, read: int) -> None:
    about = {"image_id": "i1", **({} if text is None else {"min_ram": text})}
    image = _image_in(VolumeState(id="v1", status="available", size=1, image_metadata=about))
    assert image is not None and image.min_ram == read
