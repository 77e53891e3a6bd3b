"""This machine as a host of the cloud: an agent with the libvirt driver, by the settings."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from kilonova.compute.memory import FILE_NAME, FileMemory
from kilonova.compute.network.user import FIRST as FIRST_FORWARD
from kilonova.compute.network.user import LOOPBACK
from kilonova.compute.network.wiring import Networking, is_bridged
from kilonova.domain.console import SERIAL, VNC
from kilonova.domain.errors import Failed, Refused
from kilonova.domain.host import host_name_error
from kilonova.roles.wiring import make_world
from kilonova.runtime import SystemClock, machine_name
from kilonova.store.modes import INSTANCES_NAME, RELAYS_NAME

if TYPE_CHECKING:
    from kilonova.compute.agent import Agent
    from kilonova.compute.drivers.libvirt.driver import LibvirtDriver
    from kilonova.compute.drivers.libvirt.fetching import Fetch
    from kilonova.compute.drivers.libvirt.images import ImageSource
    from kilonova.domain.host_network import HostNetwork
    from kilonova.settings import Settings
    from kilonova.world import Bus, ConsoleDoor, ImageUploader

NETWORK_NAME = "network"  # the directory that remembers the plugged ports
PASSABLE = stat.S_IXGRP | stat.S_IXOTH


class RealHost:
    """The counterpart of `compute.simulated_fleet.SimulatedFleet`, with one host."""

    def __init__(self, agent: Agent, driver: LibvirtDriver, memory: FileMemory, networking: Networking) -> None:
        self.agent, self._driver, self._memory, self._networking = agent, driver, memory, networking
        self.receiver = driver.receiver  # of disks that other hosts send
        self.refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._ending: asyncio.Task[None] | None = None

    async def check(self) -> None:
        """Raise `Failed` if libvirtd does not answer, so that an operator sees it at the start."""
        await self._driver.is_on("", 0)

    async def start(self) -> None:
        if self._driver.volumes is not None:
            await self._driver.volumes.start()
            await self._driver.volumes.serve(self.agent.host, self._driver.show_size)
        await self._networking.network.start()
        await self.agent.start()
        await self._networking.follow(self.agent)
        self._ending = asyncio.create_task(self._await_refusal())

    async def stop(self) -> None:
        """Stop the agent. Guests go on running."""
        if self._ending is not None:
            self._ending.cancel()
        await self.agent.stop()
        await self._networking.stop()
        await self._driver.close()
        self._memory.close()

    def awaited(self) -> list[str]:
        return [] if self.agent.welcomed or self.agent.refused else [self.agent.host]

    async def _await_refusal(self) -> None:
        await self.agent.ended()
        if self.agent.refused and not self.refused.done():
            self.refused.set_result(f"host {self.agent.host}: registration refused: {self.agent.refused}")


def login_advice(settings: Settings) -> str:
    """Return how to log in to the first guest, if its ssh port is forwarded to this machine."""
    if is_bridged(settings.network):
        return ""
    command = f"ssh -p {FIRST_FORWARD} root@{LOOPBACK}"
    return f"kilonova: once the first guest has booted, its key pair opens it: {command}"


def own_name(settings: Settings) -> str:
    name = machine_name(settings)
    if wrong := host_name_error(name):
        raise Refused("bad_configuration", f"{wrong}; set [DEFAULT] host")
    return name


def make_real_host(
    settings: Settings,
    host: str,
    path: Path,
    bus: Bus,
    uploads: ImageUploader,
    images: ImageSource,
    consoles: ConsoleDoor,
    disk_url: str = "",
) -> RealHost:
    """`path`: the data directory. `disk_url`: where the host takes disks from other hosts."""
    from kilonova.compute.agent import Agent
    from kilonova.compute.drivers.libvirt.disks import storage_id
    from kilonova.operations import REGISTRY

    networking = Networking(bus, SystemClock(), settings.network, settings.default.report_interval)
    network = networking.make(host, path / NETWORK_NAME)
    driver = make_driver(settings, host, path, images, network, bus, disk_url)
    memory = FileMemory(path / FILE_NAME)
    world = make_world(bus, settings, driver=driver, memory=memory, uploads=uploads, consoles=consoles)
    interval, cell = settings.default.report_interval, settings.compute.cell
    storage = storage_id(driver.root)
    agent = Agent(world, host, REGISTRY, report_interval=interval, storage=storage, cell=cell)
    return RealHost(agent, driver, memory, networking)


def instances_root(settings: Settings, path: Path) -> Path:
    """The directory of disks. `path`: the data directory."""
    return Path(settings.default.instances_path or path / INSTANCES_NAME).absolute()


def agent_images(settings: Settings, host: str, path: Path, image_bytes: Fetch) -> ImageSource:
    """Return the source of images for an agent of a fleet."""
    from kilonova.compute.drivers.libvirt.fetching import FetchedImages
    from kilonova.compute.drivers.libvirt.images import FolderImages

    if settings.libvirt.images_path:
        return FolderImages(Path(settings.libvirt.images_path))
    return FetchedImages(instances_root(settings, path), host, image_bytes)


def make_driver(
    settings: Settings,
    host: str,
    path: Path,
    images: ImageSource,
    network: HostNetwork,
    bus: Bus,
    disk_url: str = "",
) -> LibvirtDriver:
    need_libvirt()
    from kilonova.compute.drivers.libvirt.capabilities import Shares
    from kilonova.compute.drivers.libvirt.driver import LibvirtDriver
    from kilonova.compute.drivers.libvirt.volumes import HostVolumes
    from kilonova.compute.offer import Offer

    named, root = settings.default.instances_path, instances_root(settings, path)
    uri = settings.libvirt.connection_uri or ("qemu:///system" if os.geteuid() == 0 else "qemu:///session")
    if os.geteuid() == 0:
        let_qemu_pass(root, None if named else path.absolute())
        path.chmod(stat.S_IMODE(path.stat().st_mode) | PASSABLE)  # on the way to the sockets of volumes
    driver = LibvirtDriver(
        uri,
        host,
        root,
        images,
        virt_type=settings.libvirt.virt_type,
        shutdown_seconds=settings.default.shutdown_timeout,
        offer=Offer.of(settings),
        shares=Shares.of(settings),
        network=network,
        always_config_drive=not network.filters,  # QEMU's own network has no metadata service
        disk_url=disk_url,
        disk_ca_file=settings.libvirt.disk_ca_file,
        kinds=console_kinds(settings),
    )
    driver.volumes = HostVolumes(bus, path / RELAYS_NAME, driver.qemu_owner)
    return driver


def console_kinds(settings: Settings) -> list[str]:
    return [*([VNC] if settings.vnc.enabled else []), *([SERIAL] if settings.serial_console.enabled else [])]


def need_libvirt() -> None:
    try:
        import libvirt  # noqa: F401
    except ImportError:
        text = "--driver libvirt needs libvirt-python, which is not installed: pip install 'kilonova[libvirt]'"
        raise Refused("bad_configuration", text) from None


def let_qemu_pass(root: Path, data: Path | None) -> None:
    """Let libvirt's QEMU reach the disks: if root runs libvirt, QEMU runs as another user, who must be able to pass
    through the directories, but not to read them.

    `data`: the data directory, if the disks are in it; its mode is ours to change.
    """
    if not root.is_dir():
        root.mkdir(parents=True)
        root.chmod(stat.S_IRWXU | PASSABLE)
    for folder in (root, *root.parents):
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & stat.S_IXOTH:
            continue
        if folder == root or (data is not None and folder.is_relative_to(data)):
            folder.chmod(mode | PASSABLE)
            continue
        text = f"[DEFAULT] instances_path {root}: QEMU's user cannot pass {folder}, which has the mode {mode:04o}"
        raise Refused("bad_configuration", f"{text}; use another directory, e.g. /var/lib/kilonova/instances")


async def checked(host: RealHost) -> RealHost:
    try:
        await host.check()
    except Failed as why:
        await host.stop()
        raise Failed(why.code, f"{why.message}; start libvirtd, or set [libvirt] connection_uri") from why
    return host
