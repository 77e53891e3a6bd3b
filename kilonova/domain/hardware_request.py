"""Conversion of a flavor's extra specs and an image's properties to the guest's hardware request, by Nova's rules.

The flavor has the operator's values, the image its owner's: an image may set what the flavor leaves open, and never
more than it allows. An invalid value is refused with the key, the value and the allowed ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from kilonova.domain.cpu_topology import topology_of
from kilonova.domain.cpus import format_cpus, parse_cpus, parse_mask
from kilonova.domain.errors import Refused
from kilonova.domain.hardware import HardwareRequest
from kilonova.domain.numa import (
    ANY,
    CPU_POLICIES,
    DEDICATED,
    ISOLATE,
    LARGE,
    MIXED,
    PAGE_CHOICES,
    REQUIRE,
    SHARED,
    THREAD_POLICIES,
    CellRules,
    GuestCell,
)
from kilonova.domain.page_sizes import page_kb
from kilonova.domain.pci import AFFINITIES, DeviceRequest, PciAlias, PciSpec
from kilonova.domain.server import Flavor
from kilonova.domain.two_sources import TwoSources, bad

EMULATOR_POLICIES = ("isolate", "share")
TRUE = ("1", "t", "true", "on", "y", "yes")
ALIAS = "pci_passthrough:alias"
HYPERTHREADING = "trait:HW_CPU_HYPERTHREADING"
MOST_CELLS = 64  # of a guest; no machine has more


def requested_hardware(
    vcpus: int,
    memory_mb: int,
    extra_specs: Mapping[str, str],
    image: Mapping[str, str],
    aliases: Sequence[PciAlias] = (),
) -> HardwareRequest | None:
    """Return the hardware request; None if any host with capacity will do. Raise Refused."""
    sources = TwoSources(extra_specs, image)
    policy = _cpu_policy(sources, vcpus)
    threads = _thread_policy(sources, policy)
    emulator = _emulator_threads(sources, policy)
    realtime = _realtime(sources, vcpus, policy, emulator)
    dedicated = _dedicated(sources, vcpus, policy, realtime)
    page_size = _page_size(sources)
    nodes = _nodes(sources)
    pinned = policy in (DEDICATED, MIXED)
    cells: tuple[GuestCell, ...] = ()
    if nodes or page_size or pinned:
        cells = _cells(sources, nodes or 1, vcpus, memory_mb, dedicated)
    requested = HardwareRequest(
        cells=cells,
        rules=CellRules(threads, page_size),
        emulator_threads=emulator if pinned else "",
        realtime=tuple(sorted(realtime)),
        devices=_devices(sources, aliases),
        topology=topology_of(sources, vcpus),
    )
    return requested if requested != HardwareRequest() else None


def _cpu_policy(sources: TwoSources, vcpus: int) -> str:
    flavor, image = sources.choices("cpu_policy", CPU_POLICIES)
    explicit = _explicit_cpus(sources, vcpus, flavor or image)
    if explicit:
        return explicit
    if (flavor, image) in ((MIXED, DEDICATED), (SHARED, MIXED), (SHARED, DEDICATED)):
        raise bad("hw_cpu_policy", image, f"the flavor sets hw:cpu_policy={flavor}; an image may not request more")
    return flavor or image


def _explicit_cpus(sources: TwoSources, vcpus: int, policy: str) -> str:
    """Return the explicit choice: `resources:PCPU` means dedicated, `resources:VCPU` shared."""
    wanted = {name: sources.flavor[key] for name in ("VCPU", "PCPU") if (key := f"resources:{name}") in sources.flavor}
    wanted = {name: amount for name, amount in wanted.items() if amount not in ("", "0")}
    if not wanted:
        return ""
    name, amount = next(iter(wanted.items()))
    if policy:
        raise bad(f"resources:{name}", amount, "leave it out, or leave out hw:cpu_policy: both choose the CPUs")
    if len(wanted) > 1:
        raise bad(f"resources:{name}", amount, "leave it out, or leave out resources:PCPU")
    if name == "VCPU":
        return SHARED
    needed = vcpus + (sources.flavor.get("hw:emulator_threads_policy") == "isolate")
    if amount != str(needed):
        raise bad("resources:PCPU", amount, f"a flavor of {vcpus} vCPUs needs exactly {needed}")
    return DEDICATED


def _thread_policy(sources: TwoSources, policy: str) -> str:
    flavor, image = sources.choices("cpu_thread_policy", THREAD_POLICIES)
    if flavor not in ("", "prefer") and image not in ("", flavor):
        raise bad(
            "hw_cpu_thread_policy", image, f"the flavor sets hw:cpu_thread_policy={flavor}; use the same value or none"
        )
    chosen = flavor or image
    trait = sources.flavor.get(HYPERTHREADING) or sources.image.get(HYPERTHREADING)
    if chosen and trait:
        raise bad(
            HYPERTHREADING, trait, "leave it out, or leave out hw:cpu_thread_policy: both choose the thread policy"
        )
    if trait:
        return {"forbidden": ISOLATE, "required": REQUIRE}.get(trait, "") if policy in (DEDICATED, MIXED) else ""
    if chosen and policy not in (DEDICATED, MIXED):
        raise bad("hw:cpu_thread_policy", chosen, "it needs hw:cpu_policy=dedicated or mixed")
    return chosen


def _emulator_threads(sources: TwoSources, policy: str) -> str:
    chosen = sources.flavor.get("hw:emulator_threads_policy", "")
    if chosen and chosen not in EMULATOR_POLICIES:
        raise bad("hw:emulator_threads_policy", chosen, f"it must be {' or '.join(EMULATOR_POLICIES)}")
    if chosen == "isolate" and policy not in (DEDICATED, MIXED):
        raise bad("hw:emulator_threads_policy", chosen, "it needs hw:cpu_policy=dedicated or mixed")
    return chosen


def _realtime(sources: TwoSources, vcpus: int, policy: str, emulator: str) -> frozenset[int]:
    if sources.flavor.get("hw:cpu_realtime", "").lower() not in TRUE:
        return frozenset()
    if policy not in (DEDICATED, MIXED):
        raise bad("hw:cpu_realtime", sources.flavor["hw:cpu_realtime"], "it needs hw:cpu_policy=dedicated or mixed")
    flavor, image = sources.both("cpu_realtime_mask")
    mask = image or flavor
    chosen = _mask("hw:cpu_realtime_mask", mask, vcpus) if mask else frozenset(range(vcpus))
    if not chosen or (len(chosen) == vcpus and not emulator):
        right = f"name some but not all of the CPUs 0-{vcpus - 1}, as ^0, or set hw:emulator_threads_policy=isolate"
        raise bad("hw:cpu_realtime_mask", mask, right)
    return chosen


def _dedicated(sources: TwoSources, vcpus: int, policy: str, realtime: frozenset[int]) -> frozenset[int]:
    mask = sources.flavor.get("hw:cpu_dedicated_mask", "")
    if mask and policy != MIXED:
        raise bad("hw:cpu_dedicated_mask", mask, "it needs hw:cpu_policy=mixed")
    if policy == DEDICATED:
        return frozenset(range(vcpus))
    if policy != MIXED:
        return frozenset()
    if bool(mask) == bool(realtime):
        right = "mixed needs either hw:cpu_dedicated_mask or hw:cpu_realtime with hw:cpu_realtime_mask, and not both"
        raise bad("hw:cpu_policy", policy, right)
    chosen = _mask("hw:cpu_dedicated_mask", mask, vcpus) if mask else realtime
    if not 0 < len(chosen) < vcpus:
        raise bad("hw:cpu_dedicated_mask", mask, f"name some but not all of the CPUs 0-{vcpus - 1}, as ^0")
    return chosen


def _mask(key: str, text: str, vcpus: int) -> frozenset[int]:
    try:
        chosen = parse_mask(text, vcpus)
    except ValueError as error:
        raise bad(key, text, str(error)) from None
    if not chosen <= frozenset(range(vcpus)):
        raise bad(key, text, f"the flavor has only the CPUs 0-{vcpus - 1}")
    return chosen


def _page_size(sources: TwoSources) -> str:
    flavor, image = sources.both("mem_page_size")
    if image and flavor not in (ANY, LARGE):
        right = "the flavor must set hw:mem_page_size=large or any before an image may choose"
        raise bad("hw_mem_page_size", image, right)
    chosen, key = (image, "hw_mem_page_size") if image else (flavor, "hw:mem_page_size")
    if not chosen or chosen in PAGE_CHOICES:
        return chosen
    size = page_kb(chosen)
    if not size:
        raise bad(key, chosen, "it must be small, large, any or a size as 2048 (kB), 2MB or 1GB")
    return str(size)


def _nodes(sources: TwoSources) -> int:
    flavor, image = sources.both("numa_nodes")
    if flavor and image:
        raise bad("hw_numa_nodes", image, f"the flavor sets hw:numa_nodes={flavor}; only one of them may set it")
    key = "hw:numa_nodes" if flavor else "hw_numa_nodes"
    return sources.number(key, flavor or image, most=MOST_CELLS)


def _cells(
    sources: TwoSources, nodes: int, vcpus: int, memory_mb: int, dedicated: frozenset[int]
) -> tuple[GuestCell, ...]:
    cpus, memory = sources.numbered("numa_cpus"), sources.numbered("numa_mem")
    if not cpus and not memory:
        return _even_cells(nodes, vcpus, memory_mb, dedicated)
    for name, values in (("numa_cpus", cpus), ("numa_mem", memory)):
        if set(values) != set(range(nodes)):
            given = ", ".join(f"{name}.{number}" for number in sorted(values)) or "none"
            right = f"{nodes} cells need hw:{name}.0 to hw:{name}.{nodes - 1}, all of CPUs and memory or nothing"
            raise bad(f"hw:{name}.N", given, right)
    sets = [_cpus_of(f"hw:numa_cpus.{number}", cpus[number], vcpus) for number in range(nodes)]
    sizes = [sources.number(f"hw:numa_mem.{number}", memory[number]) for number in range(nodes)]
    _check_cells(sets, sizes, vcpus, memory_mb)
    return tuple(_cell(chosen, size, dedicated) for chosen, size in zip(sets, sizes, strict=True))


def _even_cells(nodes: int, vcpus: int, memory_mb: int, dedicated: frozenset[int]) -> tuple[GuestCell, ...]:
    if vcpus % nodes or memory_mb % nodes:
        right = f"{vcpus} vCPUs and {memory_mb} MB cannot be divided evenly; set hw:numa_cpus.N and hw:numa_mem.N"
        raise bad("hw:numa_nodes", str(nodes), right)
    each = vcpus // nodes
    ranges = [range(number * each, (number + 1) * each) for number in range(nodes)]
    return tuple(_cell(chosen, memory_mb // nodes, dedicated) for chosen in ranges)


def _cell(cpus: Collection[int], memory_mb: int, dedicated: frozenset[int]) -> GuestCell:
    shared = tuple(sorted(set(cpus) - dedicated))
    return GuestCell(shared, tuple(sorted(dedicated.intersection(cpus))), memory_mb)


def _cpus_of(key: str, text: str, vcpus: int) -> frozenset[int]:
    try:
        chosen = parse_cpus(text)
    except ValueError as error:
        raise bad(key, text, str(error)) from None
    if not chosen or max(chosen) >= vcpus:
        raise bad(key, text, f"name some of the CPUs 0-{vcpus - 1}")
    return chosen


def _check_cells(cpus: list[frozenset[int]], memory: list[int], vcpus: int, memory_mb: int) -> None:
    seen: set[int] = set()
    for number, chosen in enumerate(cpus):
        if twice := seen & chosen:
            raise bad(
                f"hw:numa_cpus.{number}", format_cpus(chosen), f"CPU {format_cpus(twice)} is in another cell already"
            )
        seen |= chosen
    if missing := set(range(vcpus)) - seen:
        raise bad("hw:numa_cpus.N", format_cpus(seen), f"CPU {format_cpus(missing)} is in no cell")
    if sum(memory) != memory_mb:
        text = "+".join(str(size) for size in memory)
        raise bad("hw:numa_mem.N", text, f"together they must be the flavor's {memory_mb} MB, not {sum(memory)}")


def _devices(sources: TwoSources, aliases: Sequence[PciAlias]) -> tuple[DeviceRequest, ...]:
    flavor, image = sources.choices("pci_numa_affinity_policy", AFFINITIES)
    if flavor and image and flavor != image:
        right = f"the flavor sets hw:pci_numa_affinity_policy={flavor}; use the same value or none"
        raise bad("hw_pci_numa_affinity_policy", image, right)
    text = sources.flavor.get(ALIAS, "")
    return tuple(_device(text, part, aliases, flavor or image) for part in text.split(",")) if text else ()


def _device(text: str, part: str, aliases: Sequence[PciAlias], affinity: str) -> DeviceRequest:
    name, _, count = (field.strip() for field in part.partition(":"))
    if not name or not count.isdecimal() or not 0 < int(count) <= 256:
        raise bad(ALIAS, text, "use NAME:COUNT, comma-separated")
    matches = [alias for alias in aliases if alias.name.strip() == name]
    if not matches:
        known = ", ".join(dict.fromkeys(alias.name for alias in aliases)) or "none"
        raise bad(ALIAS, text, f"PCI alias {name}: not found; [pci] alias has {known}")
    kinds = tuple(PciSpec(alias.vendor_id.lower(), alias.product_id.lower(), alias.device_type) for alias in matches)
    return DeviceRequest(name, int(count), kinds, affinity or matches[0].numa_policy)


def refuse_other_hardware(flavor: Flavor, image: Mapping[str, str], image_id: str) -> None:
    """Refuse an image that asks for other hardware: a rebuilt server stays on its host. Devices are not compared: they
    come from the flavor alone, and an alias may have changed since."""
    specs = {key: value for key, value in flavor.extra_specs.items() if key != ALIAS}
    new = requested_hardware(flavor.vcpus, flavor.memory_mb, specs, image) or HardwareRequest()
    if replace(flavor.hardware or HardwareRequest(), devices=()) != new:
        text = f"Image {image_id} asks for another NUMA topology, CPU policy or page size than the server has"
        raise Refused("hardware_changed", f"{text}; rebuild it with an image that asks for the same")
