"""Options about hardware: what an operator may write, and what no single option can know alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from kilonova.domain.cpus import format_cpus, parse_cpus
from kilonova.domain.errors import Refused
from kilonova.domain.pci import DeviceSpec, Hex4, PciAlias


class SimulatedCard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """PCI cards that each simulated host has; with `vfs` each is a physical function with that many virtual ones."""

    vendor_id: Hex4
    product_id: Hex4
    count: Annotated[int, Meta(ge=1, le=64)] = 1
    numa_node: Annotated[int, Meta(ge=0)] | None = None
    vfs: Annotated[int, Meta(ge=0, le=255)] = 0
    vf_product_id: Hex4 | None = None


PageSize = Annotated[int, Meta(ge=8, le=2**31)]  # kB
PageCount = Annotated[int, Meta(ge=1)]
Pages = Annotated[dict[PageSize, PageCount], Meta(description='pages in each cell by size in kB, as {"2048" = 512}')]
Cpus = Annotated[str, Meta(description='CPUs as "0-3,8,^2"')]
Cards = Annotated[list[SimulatedCard], Meta(description="a list of tables with vendor_id and product_id")]
Aliases = Annotated[list[PciAlias], Meta(description="a list of tables with name, vendor_id and product_id")]
DeviceSpecs = Annotated[list[DeviceSpec], Meta(description="a list of tables with vendor_id, product_id or address")]


def check_cpus(dedicated: str, shared: str) -> None:
    sets = []
    for option, text in (("cpu_dedicated_set", dedicated), ("cpu_shared_set", shared)):
        try:
            sets.append(parse_cpus(text))
        except ValueError as error:
            raise _bad(f"[compute] {option} = {text!r} is not allowed: {error}") from None
    if both := sets[0] & sets[1]:
        raise _bad(
            f"[compute] cpu_dedicated_set and cpu_shared_set both name CPU {format_cpus(both)}; it can be in one only"
        )


def check_aliases(aliases: Sequence[PciAlias]) -> None:
    """Check that entries of one name are alternatives: they may differ in the device, but not in its type and NUMA
    policy."""
    for alias in aliases:
        first = next(other for other in aliases if other.name == alias.name)
        for option in ("device_type", "numa_policy"):
            if getattr(alias, option) != getattr(first, option):
                given = f"{getattr(first, option)} and {getattr(alias, option)}"
                raise _bad(f"[pci] alias {alias.name} has {option} {given}; all entries of one name must agree")


def check_machine(nodes: int, memory_mb: int, huge_pages: Mapping[int, int], cards: Sequence[SimulatedCard]) -> None:
    for card in cards:
        if card.numa_node is not None and card.numa_node >= nodes:
            text = f"[simulated] pci has a card in NUMA node {card.numa_node}"
            raise _bad(f"{text}; with numa_nodes = {nodes} the last one is {nodes - 1}")
    reserved = sum(size * count for size, count in huge_pages.items()) // 1024 * nodes
    if reserved > memory_mb:
        text = f"[simulated] huge_pages take {reserved} MB in {nodes} cells, the host has {memory_mb}"
        raise _bad(f"{text}; ask for fewer")


def _bad(message: str) -> Refused:
    return Refused("bad_configuration", message)
