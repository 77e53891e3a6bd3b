"""The valid values of known extra specs (checked from 2.86 on): a misspelt one would silently do nothing.

Keys without a namespace, or in an unknown one, are the operator's own and are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from kilonova.domain.flags import flag_of

Check = Callable[[str], str]  # the error in a value; "" if it is valid

_CPUS = r"\^?\d+(-\d+)?(,\^?\d+(-\d+)?)*"  # "0-3,^2"
_GROUP = r"([a-zA-Z0-9_-]{1,64})?"  # of granular resource requests
_CLASSES = (
    "VCPU|PCPU|MEMORY_MB|DISK_GB|PCI_DEVICE|SRIOV_NET_VF|NUMA_SOCKET|NUMA_CORE|NUMA_THREAD|NUMA_MEMORY_MB|"
    "IPV4_ADDRESS|VGPU|VGPU_DISPLAY_HEAD|PGPU|FPGA|MEM_ENCRYPTION_CONTEXT|"
    "NET_BW_EGR_KILOBIT_PER_SEC|NET_BW_IGR_KILOBIT_PER_SEC|NET_PACKET_RATE_KILOPACKET_PER_SEC|"
    "NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC|NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC|CUSTOM_[A-Z0-9_]+"
)
_TRAITS = r"(CUSTOM|COMPUTE|HW|STORAGE|MISC|OWNER)_[A-Z0-9_]+"
_NAMESPACES = re.compile(
    "accel|aggregate_instance_extra_specs|capabilities|hw|hw_rng|hw_video|os|pci_passthrough|quota|vmware|"
    f"resources{_GROUP}|trait{_GROUP}"
)


def text(value: str) -> str:
    return ""


def boolean(value: str) -> str:
    return "" if flag_of(value.strip()) is not None else f"'{value}' is not a valid boolean-like value."


def integer(least: int | None = None, most: int | None = None) -> Check:
    def check(value: str) -> str:
        try:
            number = int(value)
        except ValueError:
            return f"'{value}' is not a valid integer value."
        if most is not None and number > most:
            return f"'{value}' is greater than the max value of '{most}'."
        if least is not None and number < least:
            return f"'{value}' is less than the min value of '{least}'."
        return ""

    return check


def one_of(*choices: str) -> Check:
    return lambda value: "" if value in choices else f"'{value}' is not one of: {', '.join(choices)}."


def like(pattern: str) -> Check:
    compiled = re.compile(pattern)
    return lambda value: "" if compiled.fullmatch(value) else f"'{value}' is not of the format '{pattern}'."


COUNT, POSITIVE = integer(0), integer(1)

KNOWN: dict[str, Check] = {
    "hide_hypervisor_id": boolean,
    "group_policy": one_of("isolate", "none"),
    "accel:device_profile": text,
    "os:secure_boot": one_of("disabled", "required"),
    "pci_passthrough:alias": like(r"[^:]+:\d+(?:\s*,\s*[^:]+:\d+)*"),
    "vmware:hw_version": text,
    "vmware:storage_policy": text,
    "hw_rng:allowed": boolean,
    "hw_rng:rate_bytes": COUNT,
    "hw_rng:rate_period": COUNT,
    "hw_video:ram_max_mb": COUNT,
    "hw:boot_menu": boolean,
    "hw:cpu_cores": POSITIVE,
    "hw:cpu_dedicated_mask": like(_CPUS),
    "hw:cpu_max_cores": POSITIVE,
    "hw:cpu_max_sockets": POSITIVE,
    "hw:cpu_max_threads": POSITIVE,
    "hw:cpu_policy": one_of("dedicated", "shared", "mixed"),
    "hw:cpu_realtime": boolean,
    "hw:cpu_realtime_mask": like(_CPUS),
    "hw:cpu_sockets": POSITIVE,
    "hw:cpu_thread_policy": one_of("prefer", "isolate", "require"),
    "hw:cpu_threads": POSITIVE,
    "hw:emulator_threads_policy": one_of("isolate", "share"),
    "hw:ephemeral_encryption": boolean,
    "hw:ephemeral_encryption_format": one_of("plain", "luks", "luksv2"),
    "hw:hide_hypervisor_id": boolean,
    "hw:locked_memory": boolean,
    "hw:mem_encryption": boolean,
    "hw:mem_encryption_model": one_of("amd-sev", "amd-sev-es", "amd-sev-snp"),
    "hw:mem_page_size": like(r"(large|small|any|\d+([kKMGT]i?)?(b|bit|B)?)"),
    "hw:numa_nodes": POSITIVE,
    "hw:pci_numa_affinity_policy": one_of("required", "preferred", "legacy", "socket"),
    "hw:pmem": like(r"[a-zA-Z0-9_]+(,[a-zA-Z0-9_]+)*,?"),
    "hw:pmu": boolean,
    "hw:redirected_usb_ports": integer(0, 15),
    "hw:serial_port_count": COUNT,
    "hw:sound_model": one_of("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio"),
    "hw:tpm_model": one_of("tpm-tis", "tpm-crb"),
    "hw:tpm_secret_security": one_of("user", "host", "deployment"),
    "hw:tpm_version": one_of("1.2", "2.0"),
    "hw:usb_model": one_of("none", "nec-xhci", "qemu-xhci"),
    "hw:vif_multiqueue_enabled": boolean,
    "hw:viommu_model": one_of("intel", "smmuv3", "virtio", "auto"),
    "hw:virtio_packed_ring": boolean,
    "hw:watchdog_action": one_of("none", "pause", "poweroff", "reset", "disabled"),
    "quota:cpu_period": COUNT,
    "quota:cpu_quota": integer(),
    "quota:cpu_shares": COUNT,
}


def _quotas() -> Iterator[tuple[str, Check]]:
    for what in ("cpu", "memory", "disk_io", "vif"):
        yield f"quota:{what}_limit", COUNT
        yield f"quota:{what}_reservation", integer()
        yield f"quota:{what}_shares_level", one_of("custom", "high", "normal", "low")
        yield f"quota:{what}_shares_share", COUNT
    for way in ("read", "write", "total"):
        yield from ((f"quota:disk_{way}_{what}_sec", COUNT) for what in ("bytes", "iops"))
    for way in ("inbound", "outbound"):
        yield from ((f"quota:vif_{way}_{what}", COUNT) for what in ("average", "peak", "burst"))


_CAPABILITIES = """
    id uuid service_id host vcpus memory_mb local_gb vcpus_used memory_mb_used local_gb_used hypervisor_type
    hypervisor_version hypervisor_hostname free_ram_mb free_disk_gb current_workload running_vms disk_available_least
    host_ip mapped cpu_allocation_ratio ram_allocation_ratio disk_allocation_ratio total_usable_ram_mb
    total_usable_disk_gb disk_mb_used free_disk_mb vcpus_total num_instances num_io_ops failed_builds aggregates
    cell_uuid updated
"""
_NESTED = (
    "cpu_info|metrics|stats|numa_topology|supported_hv_specs|pci_device_pools|nodename|pci_stats|"
    "supported_instances|limits|instances"
)

KNOWN |= dict(_quotas())
KNOWN |= {f"capabilities:{name}": text for name in _CAPABILITIES.split()}
PATTERNS: list[tuple[re.Pattern[str], Check]] = [
    (re.compile(r"hw:numa_cpus\.\d+"), like(_CPUS)),
    (re.compile(r"hw:numa_mem\.\d+"), POSITIVE),
    (re.compile(rf"capabilities:({_NESTED})(:\w+)*"), text),
    (re.compile("aggregate_instance_extra_specs:.+"), text),
    (re.compile(f"resources{_GROUP}:({_CLASSES})"), integer()),
    (re.compile(f"trait{_GROUP}:{_TRAITS}"), one_of("required", "forbidden")),
]


def fault_of(key: str, value: str) -> str:
    """Return an error; empty if the value is valid or the key's namespace is unknown."""
    check = KNOWN.get(key) or next((candidate for pattern, candidate in PATTERNS if pattern.fullmatch(key)), None)
    if check is not None:
        wrong = check(value)
        return f"Validation failed; {wrong}" if wrong else ""
    namespace, colon, _ = key.partition(":")
    if colon and _NAMESPACES.fullmatch(namespace):
        return f"Validation failed; extra spec '{key}' does not appear to be a valid extra spec."
    return ""
