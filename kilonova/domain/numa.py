"""NUMA: the cells of a host, the cells a guest requests, and fitting one into the other.

Pure functions, the same for the scheduler and for the host itself. A guest's cell goes into one host cell, and no host
cell takes two cells of one guest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

SHARED, DEDICATED, MIXED = CPU_POLICIES = ("shared", "dedicated", "mixed")
PREFER, REQUIRE, ISOLATE = THREAD_POLICIES = ("prefer", "require", "isolate")
SMALL, LARGE, ANY = PAGE_CHOICES = ("small", "large", "any")


class Pages(msgspec.Struct, frozen=True):
    size_kb: int
    total: int


class HostCell(msgspec.Struct, frozen=True, kw_only=True):
    """A NUMA cell of a host. CPUs that are neither shared nor dedicated are not for guests."""

    id: int
    shared: tuple[int, ...]  # many guests run on each
    dedicated: tuple[int, ...]  # each is given to one guest
    cores: tuple[tuple[int, ...], ...]  # CPUs that are threads of the same core
    memory_mb: int
    pages: tuple[Pages, ...]  # the smallest first; together they are the memory
    socket: int = 0

    @property
    def threads(self) -> int:
        return max((len(core) for core in self.cores), default=1)


class GuestCell(msgspec.Struct, frozen=True):
    """A NUMA cell that a guest requests; CPUs by the guest's own numbers."""

    shared: tuple[int, ...]
    dedicated: tuple[int, ...]
    memory_mb: int

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(sorted((*self.shared, *self.dedicated)))


class CellRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rules for every cell of a guest."""

    thread_policy: str = ""  # one of THREAD_POLICIES; nothing means prefer
    page_size: str = ""  # one of PAGE_CHOICES or a number of kB; empty: the smallest, not shown to the guest


class CellClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a host cell that one guest cell got."""

    cell: int  # of the host
    shared: tuple[int, ...] = ()  # the guest's numbers; they float over the cell's shared CPUs
    pinning: tuple[tuple[int, int], ...] = ()  # the guest's number, the host's CPU
    emulator: tuple[int, ...] = ()  # the host's CPUs for the emulator's own threads
    memory_mb: int = 0
    page_kb: int = 0

    @property
    def host_cpus(self) -> tuple[int, ...]:
        """The host's CPUs that no other guest may have."""
        return (*(cpu for _, cpu in self.pinning), *self.emulator)


@dataclass(frozen=True)
class FreeCell:
    """A host cell and its free resources."""

    host: HostCell
    dedicated: frozenset[int]
    shared: int
    pages: dict[int, int]  # free pages by size in kB

    @classmethod
    def of(cls, host: HostCell, claims: Iterable[CellClaim]) -> FreeCell:
        taken: set[int] = set()
        floating = 0
        pages = {page.size_kb: page.total for page in host.pages}
        for claim in claims:
            if claim.cell != host.id:
                continue
            taken.update(claim.host_cpus)
            floating += len(claim.shared)
            if claim.page_kb in pages:
                pages[claim.page_kb] -= pages_for(claim.memory_mb, claim.page_kb)
        return cls(host, frozenset(host.dedicated) - taken, len(host.shared) - floating, pages)

    @property
    def free_cores(self) -> list[list[int]]:
        """Free dedicated CPUs by core, the emptiest core first."""
        cores = [sorted(self.dedicated.intersection(core)) for core in self.host.cores]
        return sorted(filter(None, cores), key=lambda core: (-len(core), core[0]))

    @property
    def free_mb(self) -> int:
        return sum(count * size for size, count in self.pages.items()) // 1024


def pages_for(memory_mb: int, page_kb: int) -> int:
    return -(-memory_mb * 1024 // page_kb)


def fit_cell(free: FreeCell, guest: GuestCell, rules: CellRules, emulator: int = 0) -> CellClaim | str:
    """Return the host cell's claim for it, or why it cannot. `emulator`: dedicated CPUs beyond the guest's own."""
    host = free.host
    if len(guest.shared) > free.shared:
        return f"cell {host.id} needs {len(guest.shared)} shared CPUs, {max(free.shared, 0)} free of {len(host.shared)}"
    pinned = _pin(free, len(guest.dedicated), emulator, rules.thread_policy)
    if isinstance(pinned, str):
        return pinned
    page_kb = _page_size(free, guest.memory_mb, rules.page_size)
    if isinstance(page_kb, str):
        return page_kb
    return CellClaim(
        cell=host.id,
        shared=guest.shared,
        pinning=tuple(zip(guest.dedicated, pinned, strict=False)),
        emulator=tuple(pinned[len(guest.dedicated) :]),
        memory_mb=guest.memory_mb,
        page_kb=page_kb,
    )


def _pin(free: FreeCell, count: int, emulator: int, policy: str) -> list[int] | str:
    """`count` CPUs for the guest, then those for the emulator."""
    host, needed = free.host, count + emulator
    if not needed:
        return []
    many = f"needs {needed} dedicated CPUs, {len(free.dedicated)} free of {len(host.dedicated)}"
    if needed > len(free.dedicated):
        return f"cell {host.id} {many}"
    if policy == ISOLATE and host.threads > 1:
        return f"cell {host.id} has cores of {host.threads} threads, hw:cpu_thread_policy=isolate needs cores of one"
    cores = free.free_cores
    if policy == REQUIRE:
        cores = [core for core in cores if len(core) > 1]
    chosen = [cpu for core in cores for cpu in core][:count]
    if len(chosen) < count:
        return f"cell {host.id} needs {count} dedicated CPUs on cores with free siblings, {len(chosen)} free there"
    # the emulator uses the rest of cores in use before it opens another one
    rest = [cpu for core in reversed(free.free_cores) for cpu in core if cpu not in chosen]
    return [*chosen, *rest[:emulator]]


def _page_size(free: FreeCell, memory_mb: int, wanted: str) -> int | str:
    """The largest allowed page size that has room, in kB."""
    sizes = sorted(free.pages)
    allowed = {"": sizes[:1], SMALL: sizes[:1], LARGE: sizes[1:], ANY: sizes}.get(wanted)
    if allowed is None:
        allowed = [int(wanted)] if int(wanted) in free.pages else []
    for size in reversed(allowed):
        if memory_mb * 1024 % size == 0 and pages_for(memory_mb, size) <= free.pages[size]:
            return size
    if not allowed:
        has = ", ".join(f"{size} kB" for size in sizes)
        return f"cell {free.host.id} needs memory pages of {_size_text(wanted)}, it has pages of {has}"
    left = ", ".join(f"{max(free.pages[size], 0) * size // 1024} MB free in pages of {size} kB" for size in allowed)
    return f"cell {free.host.id} needs {memory_mb} MB, {left}"


def _size_text(wanted: str) -> str:
    return f"{wanted} kB" if wanted.isdigit() else f"a {wanted} size"


def seat(fitting: Sequence[Sequence[int]]) -> list[int] | None:
    """Return one place for each guest cell, no place twice: `fitting` lists the places of each, the best first."""
    taken: dict[int, int] = {}  # place → its taker

    def assign(who: int, seen: set[int]) -> bool:
        """Take the best free place; only if there is none, move another one."""
        free = next((at for at in fitting[who] if at not in taken), None)
        if free is not None:
            taken[free] = who
            return True
        for at in fitting[who]:
            if at not in seen:
                seen.add(at)
                if assign(taken[at], seen):
                    taken[at] = who
                    return True
        return False

    if not all(assign(who, set()) for who in range(len(fitting))):
        return None
    by_guest = {who: at for at, who in taken.items()}
    return [by_guest[who] for who in range(len(fitting))]
