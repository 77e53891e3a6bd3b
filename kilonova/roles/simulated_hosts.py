"""Simulated hosts by the settings: their machines, drivers and agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kilonova.roles.wiring import make_world

if TYPE_CHECKING:
    from kilonova.compute.agent import Agent
    from kilonova.compute.drivers.simulated.hardware import Hardware
    from kilonova.compute.simulated_fleet import SimulatedFleet
    from kilonova.settings import Settings
    from kilonova.world import Bus, ConsoleDoor, ImageUploader


def add_host(hardware: Hardware, host: str, settings: Settings) -> None:
    from kilonova.compute.drivers.simulated.driver import SAME_HOST
    from kilonova.compute.drivers.simulated.topology import SimulatedTopology

    shape = settings.simulated
    hardware.add_host(
        host,
        vcpus=shape.vcpus,
        memory_mb=shape.memory_mb,
        disk_gb=shape.disk_gb,
        shared_storage=shape.shared_storage,
        boot_seconds=shape.boot_seconds,
        copy_seconds=shape.copy_seconds,
        topology=SimulatedTopology(shape.numa_nodes, shape.cpu_threads, shape.huge_pages, shape.pci),
        traits=[SAME_HOST] if shape.same_host_cold_migrate else [],
    )


def make_room(
    hardware: Hardware,
    settings: Settings,
    make_bus: Callable[[str], Bus],
    make_uploads: Callable[[Bus], ImageUploader],
    consoles: ConsoleDoor,
    peers: Callable[[Bus], Any] | None = None,
) -> SimulatedFleet:
    from kilonova.compute.agent import Agent
    from kilonova.compute.drivers.simulated.driver import SimulatedDriver, SimulatedMemory
    from kilonova.compute.drivers.simulated.volumes import BusVolumes
    from kilonova.compute.offer import Offer
    from kilonova.compute.simulated_fleet import SimulatedFleet
    from kilonova.operations import REGISTRY

    offer = Offer.of(settings)
    for host in hardware.hosts():
        offer.check(host, range(settings.simulated.vcpus))

    def make_agent(host: str, bus: Bus) -> Agent:
        elsewhere = peers(bus) if peers is not None else None
        driver = SimulatedDriver(hardware, host, elsewhere, offer, BusVolumes(bus))
        memory, uploads = SimulatedMemory(hardware, host), make_uploads(bus)
        world = make_world(bus, settings, driver=driver, memory=memory, uploads=uploads, consoles=consoles)
        interval, storage = settings.default.report_interval, settings.simulated.shared_storage
        cell = settings.compute.cell or simulated_cell(settings, host)
        return Agent(world, host, REGISTRY, report_interval=interval, storage=storage, cell=cell)

    return SimulatedFleet(hardware, make_bus=make_bus, make_agent=make_agent)


def simulated_cell(settings: Settings, host: str) -> str:
    """Return the cell of a simulated host: host1, host2, … are assigned to the cells of `kilonova serve` in turn."""
    number = host.removeprefix("host")
    count = settings.simulated.cells
    return f"cell{(int(number) - 1) % count + 1}" if count > 1 and number.isdigit() else ""
