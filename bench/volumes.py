"""Volumes over NBD: writes to a file itself, to its export, and through the relay beside a guest, on the same machine
and over TLS. The figures of decision 012.

Usage: python -m bench.volumes

The programs are those that the volume service and a host start; `qemu-img bench` is in the place of the guest.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from bench.report import Report, median, rounds
from kilonova.compute.drivers.libvirt.volumes import HostVolumes
from kilonova.domain.guest import GuestVolume
from tests.guests.test_exports import Served, end_processes, served
from tests.support.servers import NotAvailable, need
from tests.unit.control import open_control

ROUNDS = 3
SECONDS = 600.0


class Load(NamedTuple):
    figure: str
    words: tuple[str, ...]
    writes: int
    unit: str
    amount: float  # of the unit, for each write


LOADS = (
    Load("4 kB, one at a time", ("-d", "1", "-s", "4096"), 4000, "1/s", 1),
    Load("4 kB, 16 at a time", ("-d", "16", "-s", "4096"), 8000, "1/s", 1),
    Load("1 MB, 8 at a time", ("-d", "8", "-s", "1M"), 200, "MB/s", 1.048576),
)


def bench(target: str, load: Load) -> float:
    words = ["qemu-img", "bench", "-w", "-c", str(load.writes), *load.words, "--image-opts", target]
    told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=SECONDS).stdout
    found = re.search(r"([0-9.]+) seconds", told)
    assert found, told
    return load.writes * load.amount / float(found.group(1))


def at_socket(path: str, volume: str) -> str:
    return f"driver=nbd,export={volume},server.type=unix,server.path={path}"


async def targets(here: Served, host: HostVolumes) -> dict[str, str]:
    """What QEMU opens, by how a volume is reached; one volume for each."""
    plain = await here.volume()
    exported = await here.volume()
    _, connection = await here.attached(exported)
    found = {
        "the file itself": f"driver=raw,file.driver=file,file.filename={here.path(plain)}",
        "an export by its socket": at_socket(await here.socket(connection), exported.id),
    }
    for how, name in (("with a relay, on one machine", "host1"), ("with a relay over TLS", "host2")):
        volume = await here.volume()
        attachment, connection = await here.attached(volume, name)
        opened = await host.open(how, 1, GuestVolume(attachment=attachment, volume=volume.id, connection=connection))
        found[how] = at_socket(opened.connection["data"]["socket"], volume.id)
    return found


async def measure(here: Served, host: HostVolumes, report: Report) -> None:
    opened = await targets(here, host)
    speeds: dict[tuple[str, Load], list[float]] = {(how, load): [] for how in opened for load in LOADS}
    for _ in range(ROUNDS):  # in turn: what else the machine does slows all of them down
        for how, load in speeds:
            speeds[how, load].append(await asyncio.to_thread(bench, opened[how], load))
    for (how, load), found in speeds.items():
        report.add(f"{how}: {load.figure}", median(found), load.unit, rounds(found, 0))
    alone, together = (median(speeds["with a relay over TLS", load]) for load in LOADS[:2])
    report.at_least("over TLS: 16 at a time, compared with one", together / alone, "times", 1)


def main() -> int:
    report = Report("volumes")

    async def nobody() -> None:
        return None

    with tempfile.TemporaryDirectory(prefix="kn-") as name:  # short enough for the paths of sockets
        folder = Path(name)

        async def story(store: Any) -> None:
            async with served(store, folder) as here:
                host = HostVolumes(here.bus, folder / "relays", nobody)
                try:
                    await measure(here, host, report)
                finally:
                    await host.stop()

        try:
            need("libvirt")  # for qemu-nbd and qemu-img
            asyncio.run(open_control(f"sqlite:///{folder / 'control.db'}", story, SECONDS))
        except NotAvailable as missing:
            report.not_run(str(missing))
        finally:
            end_processes(folder)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
