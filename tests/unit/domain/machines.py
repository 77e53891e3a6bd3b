"""Small hosts for tests of fitting, and a fitter that tries everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations, product

from kilonova.domain.hardware import HardwareRequest, HostClaim, HostHardware
from kilonova.domain.numa import CellRules, GuestCell, HostCell, Pages
from kilonova.domain.pci import PHYSICAL, PciDevice


def cell(
    number: int = 0,
    cpus: int = 4,
    *,
    threads: int = 1,
    dedicated: bool = True,
    memory_mb: int = 4096,
    huge: int = 0,
    socket: int = 0,
) -> HostCell:
    """Its CPUs follow those of the cells before it; `huge` pages of 2 MB are cut out of its memory."""
    numbers = tuple(range(number * cpus, (number + 1) * cpus))
    pages = (Pages(4, (memory_mb - 2 * huge) * 256), *((Pages(2048, huge),) if huge else ()))
    return HostCell(
        id=number,
        shared=() if dedicated else numbers,
        dedicated=numbers if dedicated else (),
        cores=tuple(numbers[at : at + threads] for at in range(0, cpus, threads)),
        memory_mb=memory_mb,
        pages=pages,
        socket=socket,
    )


def host(*cells: HostCell, devices: Sequence[PciDevice] = ()) -> HostHardware:
    return HostHardware(cells, tuple(devices))


def pinned(
    *sizes: int, memory_mb: int = 512, threads: str = "", pages: str = "", emulator: str = ""
) -> HardwareRequest:
    """A guest with one cell per size, all of its CPUs dedicated."""
    ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    cells = tuple(
        GuestCell((), tuple(range(end - size, end)), memory_mb) for size, end in zip(sizes, ends, strict=True)
    )
    return HardwareRequest(cells=cells, rules=CellRules(threads, pages), emulator_threads=emulator)


def pinning(claim: HostClaim | str) -> list[dict[int, int]]:
    assert isinstance(claim, HostClaim), claim
    return [dict(cell.pinning) for cell in claim.cells]


# --- everything is tried --------------------------------------------------------------------------------------------


def can_fit(wish: HardwareRequest, hardware: HostHardware, claims: Sequence[HostClaim]) -> bool:
    """The same laws, said a second time and without any cleverness."""
    return any(
        all(_cell_fits(wish, at, one, claims) for at, one in enumerate(seats))
        and _devices_fit(wish, hardware, claims, seats)
        for seats in permutations(hardware.cells, len(wish.cells))
    )


def _cell_fits(wish: HardwareRequest, at: int, one: HostCell, claims: Sequence[HostClaim]) -> bool:
    guest, here = wish.cells[at], [c for claim in claims for c in claim.cells if c.cell == one.id]
    taken = {cpu for c in here for cpu in c.host_cpus}
    free = [cpu for cpu in one.dedicated if cpu not in taken]
    if len(one.shared) - sum(len(c.shared) for c in here) < len(guest.shared):
        return False
    extra = 1 if at == 0 and wish.emulator_threads == "isolate" else 0
    return _memory_fits(wish, guest.memory_mb, one, here) and any(
        _threads_right(wish.rules.thread_policy, one, set(free), set(chosen)) and len(free) - len(chosen) >= extra
        for chosen in combinations(free, len(guest.dedicated))
    )


def _threads_right(policy: str, one: HostCell, free: set[int], chosen: set[int]) -> bool:
    used = [core for core in one.cores if chosen.intersection(core)]
    if policy == "isolate":
        return not chosen or all(len(core) == 1 for core in one.cores)
    if policy == "require":
        alone = [core for core in used if len(chosen.intersection(core)) == 1]
        return len(alone) <= 1 and all(len(free.intersection(core)) > 1 for core in used)
    return True


def _memory_fits(wish: HardwareRequest, memory_mb: int, one: HostCell, here: Sequence) -> bool:  # type: ignore[type-arg]
    smallest = min(page.size_kb for page in one.pages)
    for page in one.pages:
        small = page.size_kb == smallest
        word = wish.rules.page_size
        right = {"": small, "small": small, "large": not small, "any": True}.get(word, word == str(page.size_kb))
        used = sum(c.memory_mb * 1024 // c.page_kb for c in here if c.page_kb == page.size_kb)
        if right and memory_mb * 1024 % page.size_kb == 0 and memory_mb * 1024 // page.size_kb <= page.total - used:
            return True
    return False


def _devices_fit(
    wish: HardwareRequest, hardware: HostHardware, claims: Sequence[HostClaim], seats: Sequence[HostCell]
) -> bool:
    taken = {address for claim in claims for address in claim.addresses}
    return any(_apart(hardware, taken, given) for given in _gifts(wish, hardware, seats))


def _gifts(wish: HardwareRequest, hardware: HostHardware, seats: Sequence[HostCell]) -> Iterator[tuple[PciDevice, ...]]:
    wanted = [one for one in wish.devices for _ in range(one.count)]
    near, sockets = {s.id for s in seats}, {s.socket for s in seats}
    on_socket = {c.id for c in hardware.cells if c.socket in sockets}
    allowed = {"required": near, "legacy": near | {None}, "socket": near | on_socket}
    for given in product(hardware.devices, repeat=len(wanted)):
        if all(
            one.matches(device) and (not seats or one.affinity == "preferred" or device.cell in allowed[one.affinity])
            for one, device in zip(wanted, given, strict=True)
        ):
            yield given


def _apart(hardware: HostHardware, taken: set[str], given: tuple[PciDevice, ...]) -> bool:
    held = [*taken, *(device.address for device in given)]
    parents = {device.parent for device in hardware.devices if device.address in held and device.parent}
    whole = {device.address for device in hardware.devices if device.type == PHYSICAL and device.address in held}
    return len(held) == len(set(held)) and not parents & whole
