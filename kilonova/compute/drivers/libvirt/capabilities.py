"""A host's capabilities in placement's terms: traits, inventory, hypervisor."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import libvirt

from kilonova.compute.drivers.libvirt.accelerator import KVM, TCG
from kilonova.compute.drivers.libvirt.machine import cells_in, devices_in
from kilonova.compute.offer import Classes, Offer, cpu_classes
from kilonova.domain.console import VNC
from kilonova.domain.guest import HostInventory, Hypervisor
from kilonova.domain.hardware import HostHardware
from kilonova.domain.pci import usable
from kilonova.domain.traits import BY_KVM, BY_TCG
from kilonova.settings import Settings

KIND, ARCHITECTURE, MACHINE = "QEMU", "x86_64", "pc"
EMULATED_CPU = "<cpu mode='custom' match='exact'><model>qemu64</model></cpu>"  # of guests under TCG
TRAITS = (  # the abilities of this driver
    *("COMPUTE_NODE", "COMPUTE_DEVICE_TAGGING", "COMPUTE_VOLUME_ATTACH", "COMPUTE_VOLUME_MULTI_ATTACH"),
    *("COMPUTE_IMAGE_TYPE_RAW", "COMPUTE_IMAGE_TYPE_QCOW2", "COMPUTE_STORAGE_BUS_VIRTIO"),
    *("COMPUTE_VOLUME_EXTEND", "COMPUTE_NET_VIF_MODEL_VIRTIO"),
    *("COMPUTE_FIRMWARE_BIOS", "COMPUTE_ARCH_X86_64", "HW_ARCH_X86_64"),
)
SCREEN, NO_SCREEN = "COMPUTE_GRAPHICS_MODEL_VGA", "COMPUTE_GRAPHICS_MODEL_NONE"
CPU_TRAITS = {  # by libvirt's name of the feature, where the trait has another one
    "3dnow": "3DNOW",
    "aes": "AESNI",
    "amd-no-ssb": "AMD_NO_SSB",
    "amd-ssbd": "AMD_SSBD",
    "amx-bf16": "AMXBF16",
    "amx-int8": "AMXINT8",
    "amx-tile": "AMXTILE",
    "bmi1": "BMI",
    "fma": "FMA3",
    "gfni": "AVX512GFNI",
    "ibpb": "AMD_IBPB",
    "md-clear": "INTEL_MD_CLEAR",
    "pcid": "INTEL_PCID",
    "pclmuldq": "CLMUL",
    "pni": "SSE3",
    "rtm": "TSX",
    "sha-ni": "SHA",
    "spec-ctrl": "INTEL_SPEC_CTRL",
    "ssbd": "INTEL_SSBD",
    "sse4.1": "SSE41",
    "sse4.2": "SSE42",
    "vaes": "AVX512VAES",
    "virt-ssbd": "AMD_VIRT_SSBD",
    "vpclmulqdq": "AVX512VPCLMULQDQ",
}
SAME_NAME = frozenset(  # HW_CPU_X86_ and the feature in capitals
    (
        *("mmx", "sse", "sse2", "ssse3", "sse4a", "avx", "avx2", "f16c", "fma4", "xop", "abm", "bmi2", "tbm", "mpx"),
        *("avx512f", "avx512cd", "avx512pf", "avx512er", "avx512vl", "avx512bw", "avx512dq", "avx512vnni"),
        *("avx512vbmi", "avx512ifma", "avx512vbmi2", "avx512bitalg", "sgx", "vmx", "svm", "pdpe1gb", "stibp"),
    )
)
ALSO = {"vmx": "INTEL_VMX", "svm": "AMD_SVM"}


@dataclass(frozen=True)
class Shares:
    """The reserved amount and the allocation ratio of each resource. Nova's names and defaults."""

    reserved_cpus: int = 0
    reserved_memory_mb: int = 512
    reserved_disk_mb: int = 0
    cpu_ratio: float = 0.0  # 0: the initial one, until it is changed in placement
    ram_ratio: float = 0.0
    disk_ratio: float = 0.0
    initial_cpu_ratio: float = 4.0
    initial_ram_ratio: float = 1.0
    initial_disk_ratio: float = 1.0

    @property
    def initial(self) -> list[str]:
        """Return the classes whose ratio is only an initial value."""
        ratios = {"VCPU": self.cpu_ratio, "MEMORY_MB": self.ram_ratio, "DISK_GB": self.disk_ratio}
        return [name for name, ratio in ratios.items() if not ratio]

    @classmethod
    def of(cls, settings: Settings) -> Shares:
        default = settings.default
        return cls(
            default.reserved_host_cpus,
            default.reserved_host_memory_mb,
            default.reserved_host_disk_mb,
            default.cpu_allocation_ratio,
            default.ram_allocation_ratio,
            default.disk_allocation_ratio,
            default.initial_cpu_allocation_ratio,
            default.initial_ram_allocation_ratio,
            default.initial_disk_allocation_ratio,
        )


class Described(NamedTuple):
    """Libvirt's description of the machine."""

    capabilities: str
    devices: list[str]  # an XML document each
    features: list[str]  # of the CPU that guests see, by libvirt's names
    version: int  # of QEMU


def describe(connection: libvirt.virConnect, accelerator: str, with_devices: bool) -> Described:
    listed = connection.listAllDevices(libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV) if with_devices else []
    return Described(
        connection.getCapabilities(),
        [device.XMLDesc() for device in listed],
        _features(connection, accelerator),
        connection.getVersion(),
    )


def _features(connection: libvirt.virConnect, accelerator: str) -> list[str]:
    document = connection.getDomainCapabilities(None, ARCHITECTURE, MACHINE, accelerator)
    model = ElementTree.fromstring(document).find("./cpu/mode[@name='host-model']")
    cpu = EMULATED_CPU if accelerator != KVM or model is None else _cpu_of(model)
    expanded = connection.baselineHypervisorCPU(
        None, ARCHITECTURE, MACHINE, accelerator, [cpu], libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
    )
    required = ElementTree.fromstring(expanded).iterfind("./feature")
    return sorted(one.get("name", "") for one in required if one.get("policy", "require") == "require")


def _cpu_of(model: Element) -> str:
    cpu = Element("cpu", mode="custom", match="exact")
    cpu.extend(list(model))
    return ElementTree.tostring(cpu, encoding="unicode")


def inventory_of(
    host: str,
    described: Described,
    accelerator: str,
    offer: Offer,
    shares: Shares,
    root: Path,
    consoles: Collection[str] = (),
) -> HostInventory:
    """Raise `Refused` where the options name CPUs that the host does not have. `consoles`: kinds that guests get."""
    capabilities = ElementTree.fromstring(described.capabilities)
    offer.check(host, (int(cpu.get("id", "0")) for cpu in capabilities.iterfind("./host/topology/cells/cell/cpus/cpu")))
    cells = cells_in(capabilities, offer)
    hardware = HostHardware(cells, usable(devices_in(described.devices), offer.devices))
    threads = ["HW_CPU_HYPERTHREADING"] if any(cell.threads > 1 for cell in cells) else []
    by = BY_KVM if accelerator == KVM else BY_TCG
    return HostInventory(
        classes_of(hardware, shares, root),
        sorted({*TRAITS, *threads, *cpu_traits(described.features), by, SCREEN if VNC in consoles else NO_SCREEN}),
        _hypervisor(capabilities, described, accelerator),
        hardware,
        initial=shares.initial,
    )


def classes_of(hardware: HostHardware, shares: Shares, root: Path) -> Classes:
    """Return the host's resources. Memory is the kernel's number, since libvirt may see less; disk is the guests' file
    system."""
    classes = cpu_classes(hardware)
    if "VCPU" in classes:
        total = classes["VCPU"][0]
        classes["VCPU"] = (total, min(shares.reserved_cpus, total), shares.cpu_ratio or shares.initial_cpu_ratio)
    memory, disk = memory_mb(), shutil.disk_usage(root).total // 1024**3
    reserved_disk = -(-shares.reserved_disk_mb // 1024)  # placement counts whole GB
    classes["MEMORY_MB"] = (
        memory,
        min(shares.reserved_memory_mb, memory),
        shares.ram_ratio or shares.initial_ram_ratio,
    )
    classes["DISK_GB"] = (disk, min(reserved_disk, disk), shares.disk_ratio or shares.initial_disk_ratio)
    return classes


def memory_mb(meminfo: Path = Path("/proc/meminfo")) -> int:
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) // 1024
    raise ValueError(f"{meminfo}: no line MemTotal")


def cpu_traits(features: list[str]) -> set[str]:
    names = {CPU_TRAITS[one] for one in features if one in CPU_TRAITS}
    names |= {one.upper() for one in features if one in SAME_NAME}
    names |= {ALSO[one] for one in features if one in ALSO}
    return {f"HW_CPU_X86_{name}" for name in names}


def _hypervisor(capabilities: Element, described: Described, accelerator: str) -> Hypervisor:
    cpu = capabilities.find("./host/cpu")
    facts = {"arch": ARCHITECTURE}
    if cpu is not None:
        facts |= {tag: text for tag in ("model", "vendor") if (text := cpu.findtext(tag))}
    kinds = [KVM, TCG] if accelerator == KVM else [TCG]
    return Hypervisor(KIND, described.version, [(ARCHITECTURE, kind, "hvm") for kind in kinds], facts)


def qemu_owner(connection: libvirt.virConnect) -> tuple[int, int] | None:
    """User and group that libvirt starts QEMU as; None: it does not say."""
    for model in ElementTree.fromstring(connection.getCapabilities()).iterfind("./host/secmodel"):
        label = model.find("./baselabel")
        if model.findtext("./model") == "dac" and label is not None and label.text:
            user, _, group = label.text.partition(":")
            return int(user.lstrip("+")), int(group.lstrip("+"))
    return None
