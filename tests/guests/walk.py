"""`python -m tests.guests.walk URI ROOT IMAGES SERVER`: the whole life of a guest, each verb twice; says what it is at.

A process of its own, so that it can be killed anywhere.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kilonova.compute.drivers.libvirt.images import FolderImages
from kilonova.domain.guest import GuestSpec
from kilonova.store.modes import PRIVATE

if TYPE_CHECKING:
    from kilonova.compute.drivers.libvirt.driver import LibvirtDriver

VERBS = ("ensure_disk", "ensure_defined", "ensure_power on", "ensure_power off", "ensure_absent")


async def walk(driver: LibvirtDriver, guest: GuestSpec) -> None:
    server, copy = guest.server, guest.copy
    for verb in VERBS:
        for time in ("first", "again"):
            print(f"{verb} {time}", flush=True)
            match verb.split():
                case ["ensure_disk"]:
                    await driver.ensure_disk(guest)
                case ["ensure_defined"]:
                    await driver.ensure_defined(guest)
                case ["ensure_power", word]:
                    await driver.ensure_power(server, copy, on=word == "on")
                case _:
                    await driver.ensure_absent(server, copy)
    print("done", flush=True)


if __name__ == "__main__":
    # Not above: tests import this module before libvirt-python is installed.
    from kilonova.compute.drivers.libvirt.driver import LibvirtDriver

    uri, root, images, server = sys.argv[1:]
    os.umask(PRIVATE)  # as the program has it
    folder = FolderImages(Path(images))
    there = LibvirtDriver(uri, "host1", Path(root), folder, virt_type="qemu", shutdown_seconds=0.3)
    spec = GuestSpec(server=server, copy=1, name="walker", vcpus=1, memory_mb=32, disk_gb=1, image="tiny")
    asyncio.run(walk(there, spec))
