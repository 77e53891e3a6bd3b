"""The shape of a simulated cloud: its hosts, cells and stock, and the options of its services."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kilonova.compute.drivers.simulated.topology import SimulatedTopology
from kilonova.compute.offer import Offer
from kilonova.notifications.target import NotificationTarget
from kilonova.settings import Settings
from kilonova.sim.lab.settings import SIMULATED


@dataclass
class CloudShape:
    hosts: int = 3
    cells: int = 1  # besides cell0; hosts are dealt out to them one after the other
    conductors: int = 1
    vcpus: int = 8
    memory_mb: int = 16384
    disk_gb: int = 100
    shared_storage: str = ""
    boot_seconds: float = 0.5
    copy_seconds: float = 1.0
    addresses: int = 0  # of its network; without any it has none
    ports: int = 0  # existing ports for servers; each has one of the addresses
    topology: SimulatedTopology = field(default_factory=SimulatedTopology)  # NUMA cells, threads and cards of each host
    offer: Offer = field(default_factory=Offer)  # and the hardware that guests may have
    traits: Sequence[str] = ()  # that each host announces besides its driver's own
    volumes: int = 0  # existing volumes to attach
    rare_volumes: bool = False  # besides: one for several servers at once, and a snapshot to boot from
    groups: tuple[str, ...] = ()  # the policies of server groups that are there, each named like its policy
    settings: Settings = SIMULATED
    flush_seconds: float = 1.0  # how often heartbeats are written
    notified: NotificationTarget | None = None  # gets the notifications, where the settings turn them on
    most_notifications: int = 10_000  # that may wait in each database
    marks: bool = False  # processes and hosts notice an older copy of a database (law 15)
