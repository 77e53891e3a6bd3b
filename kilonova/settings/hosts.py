"""Sections of hosts: of an agent, its driver and its networks."""

from __future__ import annotations

from kilonova.domain.hardware_options import Aliases, Cards, Cpus, DeviceSpecs, Pages
from kilonova.settings.values import (
    Address,
    Amount,
    Count,
    Flag,
    LinkName,
    NetworkDriver,
    Pause,
    PortNumber,
    Section,
    Text,
    VirtType,
)


class ComputeOptions(Section, frozen=True, kw_only=True):
    cell: Text = ""
    consecutive_build_service_disable_threshold: Amount = 10
    cpu_dedicated_set: Cpus = ""
    cpu_shared_set: Cpus = ""


class GlanceOptions(Section, frozen=True, kw_only=True):
    """The address to which an agent uploads images of its servers."""

    endpoint_override: Address = ""
    cafile: Text = ""


class Simulated(Section, frozen=True, kw_only=True):
    hosts: Amount = 3
    cells: Count = 1
    vcpus: Count = 64
    memory_mb: Count = 262144
    disk_gb: Count = 4000
    shared_storage: Text = ""
    boot_seconds: Pause = 0.0
    copy_seconds: Pause = 0.0
    same_host_cold_migrate: Flag = False
    numa_nodes: Count = 2
    cpu_threads: Count = 2
    huge_pages: Pages = {}
    pci: Cards = []


class LibvirtOptions(Section, frozen=True, kw_only=True):
    """Real guests; of each agent."""

    connection_uri: Address = ""
    virt_type: VirtType = ""
    images_path: Text = ""
    default_image: Text = ""
    disk_port: PortNumber = 8790
    disk_cert_file: Text = ""
    disk_key_file: Text = ""
    disk_ca_file: Text = ""


class PciOptions(Section, frozen=True, kw_only=True):
    alias: Aliases = []
    device_spec: DeviceSpecs = []


class NetworkOptions(Section, frozen=True, kw_only=True):
    """The networks of a host with real guests."""

    driver: NetworkDriver = "auto"
    local_ip: Address = ""
    path_mtu: Count = 1500
    node: Flag = False
    external_bridge: LinkName = "kn-external"
