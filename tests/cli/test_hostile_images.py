"""Images of an enemy in a whole cloud: it ends in good time, and servers that boot from them say why they cannot."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.cli.test_volumes import V3, done, new_volume
from tests.support.program import Cloud, until
from tests.support.qcow2 import bomb, qcow2
from tests.support.servers import children

LENGTH = 34 * 1024**2
SIZE = 30 * 1024**3  # a disk that takes minutes to unpack, and holds nothing but zeros
FIVE = "--set=volume.file_tasks=5"  # one project may take four of them
SERVERS = "/compute/v2.1/servers"


def hostile_image(cloud: Cloud, content: bytes, size: int = SIZE) -> str:
    """Put there by another hand: the file was not inspected."""
    formats = {"name": "hostile", "disk_format": "qcow2", "container_format": "bare"}
    image: str = done(cloud, "POST", "/image/v2/images", formats)["id"]
    headers, folder = {"Content-Type": "application/octet-stream"}, cloud.data / "images"
    before = {path.name for path in folder.iterdir()}
    done(cloud, "PUT", f"/image/v2/images/{image}/file", qcow2(size=size), headers)
    (file,) = [path for path in folder.iterdir() if path.name not in before]
    file.write_bytes(content)
    return image


def convert(cloud: Cloud, count: int) -> None:
    """So many volumes of images that take minutes; returns once all are at work."""
    image = hostile_image(cloud, bomb(SIZE, letter=b"\0").ljust(LENGTH, b"x"))
    for _ in range(count):
        new_volume(cloud, size=31, imageRef=image)
    until(lambda: len(converting(cloud)) >= count, 60.0, f"{count} conversions are at work")


def converting(cloud: Cloud) -> list[int]:
    found = []
    for number in children(cloud.process.pid):
        try:
            command = Path(f"/proc/{number}/cmdline").read_text()
        except OSError:
            continue
        if "converting" in command:
            found.append(number)
    return found


def test_the_program_ends_while_hostile_images_are_converted(tmp_path: Path) -> None:
    with Cloud(tmp_path / "var", "--hosts", 1, FIVE) as cloud:
        convert(cloud, 4)
        at_work = converting(cloud)
        began = time.monotonic()
        assert cloud.terminate(seconds=60.0) == 0
        assert time.monotonic() - began < 15.0
        assert not [number for number in at_work if Path(f"/proc/{number}").exists()], "no conversion outlives it"
        assert not list((tmp_path / "var" / "volumes").glob("*.part"))


def test_a_server_whose_image_volume_fails_says_why_and_can_be_deleted(tmp_path: Path) -> None:
    with Cloud(tmp_path / "var", "--hosts", 1) as cloud:
        image = hostile_image(cloud, qcow2(backing=4096), 1024**2)
        device = {"source_type": "image", "destination_type": "volume", "uuid": image, "boot_index": 0}
        mapping = [{**device, "volume_size": 1, "delete_on_termination": True}]
        wish = {"name": "bad", "flavorRef": "1", "networks": "none", "block_device_mapping_v2": mapping}
        version = {"OpenStack-API-Version": "compute 2.90"}
        made = cloud.http.ask("POST", SERVERS, {"server": wish}, version)
        assert made.status == 202, made.body
        path = f"{SERVERS}/{made.json['server']['id']}"

        def shown() -> Any:
            return cloud.http.ask("GET", path, headers=version).json["server"]

        until(lambda: shown()["status"] == "ERROR", 60.0, lambda: str(shown()))
        server = shown()
        assert server["OS-EXT-STS:task_state"] is None
        assert "backing file" in server["fault"]["details"], server["fault"]
        assert cloud.http.ask("DELETE", path).status == 204
        until(lambda: cloud.http.ask("GET", path).status == 404, 60.0, "it is gone")
        until(lambda: not done(cloud, "GET", f"{V3}/volumes")["volumes"], 60.0, "its volume is gone too")
        assert cloud.http.get("/operations?state=waiting")["operations"] == []
        assert "Traceback" not in cloud.log()
