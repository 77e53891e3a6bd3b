"""POST /servers with block devices: booted from volumes of every source, with data volumes, and what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.api.compute.cloud import Cloud, run
from tests.unit.api.compute.test_server_volumes import address, new_volume, own, until, volumes, written

UNKNOWN = "00000000-0000-4000-8000-000000000000"
BDM = "block_device_mapping_v2"


async def image_of(cloud: Cloud) -> str:
    found = (await cloud.api.client.get("/image/v2/images", headers={"X-Auth-Token": "member"})).json()["images"]
    return str(found[0]["id"])


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
        rebuild = {"rebuild": {"imageRef": image}}
        await cloud.refuses("member", "POST", f"/servers/{shown['id']}/action", rebuild)
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
        snapshot = (await volumes(cloud, "POST", "/snapshots", {"snapshot": {"volume_id": volume}}))["snapshot"]["id"]
        async with asyncio.timeout(60):
            while (await volumes(cloud, "GET", f"/snapshots/{snapshot}"))["snapshot"]["status"] != "available":  # noqa: ASYNC110 - over HTTP there is nothing to wait on
                await asyncio.sleep(0.01)
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
        shown = await made(cloud, [there, blank], image)
        assert (shown["status"], shown["os-extended-volumes:volumes_attached"]) == ("ERROR", [])
        await until(cloud, volume, "available")
        async with asyncio.timeout(60):
            while len((await volumes(cloud, "GET", "/volumes"))["volumes"]) != 1:  # noqa: ASYNC110 - over HTTP there is nothing to wait on
                await asyncio.sleep(0.01)

    run(story, hosts=1)


@pytest.mark.parametrize(
    ("devices", "with_image", "says"),
    [
        ([{"source_type": "blank", "destination_type": "volume", "volume_size": 1}], False, "Boot sequence"),
        ([{"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": 1}], True, "Boot"),
        ([{"source_type": "blank", "destination_type": "volume"}], True, "a blank volume needs a volume_size"),
        ([{"source_type": "volume", "destination_type": "volume"}], True, "needs the uuid of that volume"),
        ([{"source_type": "volume", "destination_type": "local", "uuid": UNKNOWN}], True, "cannot become a local disk"),
        ([{"source_type": "volume", "destination_type": "volume", "uuid": UNKNOWN}], True, "could not be found"),
        ([{"source_type": "snapshot", "destination_type": "volume", "uuid": UNKNOWN}], True, "could not be found"),
        (
            [{"source_type": "blank", "destination_type": "local", "guest_format": "swap"}] * 2,
            True,
            "More than one swap",
        ),
        ([{"source_type": "blank", "destination_type": "local", "volume_size": 9}], True, "larger than the instance"),
        ([{"source_type": "blank", "destination_type": "local"}] * 4, True, "more local devices than the limit"),
        ([{"destination_type": "volume", "uuid": UNKNOWN}], True, "a device needs a source_type"),
    ],
)
def test_what_is_refused(devices: list[dict[str, Any]], with_image: bool, says: str) -> None:
    async def story(cloud: Cloud) -> None:
        body = await asked(cloud, devices, await image_of(cloud) if with_image else "")
        assert says in await cloud.refuses("member", "POST", "/servers", body, at="2.67")

    run(story)


def test_more_that_is_refused() -> None:
    async def story(cloud: Cloud) -> None:
        volume, image = await new_volume(cloud), await image_of(cloud)
        there = {"source_type": "volume", "uuid": volume, "destination_type": "volume"}
        body = await asked(cloud, [{**there, "boot_index": 0}])
        told = await cloud.refuses("member", "POST", "/servers", body, at="2.67")
        assert told == f"Block Device {volume} is not bootable."
        several = await asked(cloud, [there], image, min_count=2)
        told = await cloud.refuses("member", "POST", "/servers", several, at="2.67")
        assert told == "Cannot attach one or more volumes to multiple instances"
        unknown = {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "volume_type": "nope"}
        await cloud.refuses("member", "POST", "/servers", await asked(cloud, [unknown], image), at="2.67")
        both = await asked(cloud, [there], image, block_device_mapping=[{"volume_id": volume}])
        assert "syntaxes" in await cloud.refuses("member", "POST", "/servers", both, at="2.67")
        await until(cloud, volume, "available")

    run(story)
