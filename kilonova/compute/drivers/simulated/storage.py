"""Simulated disks: their pools, contents, holders and users.

A pool is the local storage of one host, or storage that several hosts share. A disk's key is (server, copy), like a
file's path; taking over the disk of another copy adds a key to the same disk. It is removed when no copy holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kilonova.compute.drivers.simulated.state_file import StateFile
from kilonova.domain.errors import Failed
from kilonova.domain.guest import GuestSpec
from kilonova.domain.machine import LocalDisk

Holder = tuple[str, int]  # host, copy
ROOT, SWAP, EPHEMERAL = "root", "swap", "ephemeral"  # local disks are swap, ephemeral0, ephemeral1, …
BETWEEN = "+"  # between the contents of a disk, in its marker


class Disk(msgspec.Struct, kw_only=True):
    """The root disk of a copy, with the ephemeral and swap disks that lie beside it."""

    pool: str
    server: str
    names: list[int]  # copies it was created for or taken over by, oldest first
    holders: list[Holder] = []
    content: list[str] = []  # its origin, then the guest's writes
    whole: bool = False
    size_gb: int = 0  # 0: as large as its image
    others: dict[str, LocalDisk] = {}
    grown: bool = False  # the root disk, since it was created

    @property
    def marker(self) -> str:
        return BETWEEN.join(self.content)

    def described(self) -> list[str]:
        """Return the size of each disk, with the content of local disks: `root=20G`, `ephemeral0=10G:blank+note`."""
        root = [f"{ROOT}={self.size_gb}G"] if self.size_gb else []
        sizes = {name: f"{one.size}{'M' if name == SWAP else 'G'}" for name, one in self.others.items()}
        return root + [f"{name}={sizes[name]}:{one.marker}" for name, one in self.others.items()]

    @property
    def path(self) -> tuple[str, str, int]:
        return (self.pool, self.server, self.names[0])


Others = Mapping[str, LocalDisk]
NONE: Others = {}


class Storage:
    """The disks of all simulated hosts."""

    def __init__(self, state: StateFile) -> None:
        self._state = state
        self._disks: dict[tuple[str, str, int], Disk] = {}  # by pool, server and each of its names
        self._opened: dict[tuple[str, str, int], Holder] = {}  # by path: which copy runs on it
        for _, _, disk in state.all("disk", Disk):
            self._disks.update({(disk.pool, disk.server, name): disk for name in disk.names})

    def find(self, pool: str, server: str, copy: int) -> Disk | None:
        return self._disks.get((pool, server, copy))

    def held(self, pool: str, server: str, holder: Holder) -> Disk | None:
        """The disk of this copy, if that host holds it."""
        disk = self.find(pool, server, holder[1])
        return disk if disk is not None and holder in disk.holders else None

    def begin(self, pool: str, server: str, holder: Holder) -> Disk:
        """Return an unfinished disk for this copy, or the existing one, whole or not."""
        disk = self.find(pool, server, holder[1])
        if disk is None:
            disk = Disk(pool=pool, server=server, names=[holder[1]])
            self._disks[disk.path] = disk
        self._hold(disk, holder)
        return disk

    def complete(self, disk: Disk, content: Sequence[str], size_gb: int = 0, others: Others = NONE) -> None:
        disk.content, disk.size_gb = list(content), size_gb
        disk.others = {name: LocalDisk(one.size, list(one.content)) for name, one in others.items()}
        disk.whole = True
        self._save(disk)

    def append(self, disk: Disk, text: str, name: str = ROOT) -> None:
        """Append a guest's text to its root disk, or to the one of this name."""
        (disk if name == ROOT else disk.others[name]).content.append(text)
        self._save(disk)

    def fits(self, disk: Disk, guest: GuestSpec) -> bool:
        """Return whether `fit` has nothing left to do."""
        sizes = {name: one.size for name, one in disk.others.items()}
        return root_gb(guest) in (0, disk.size_gb) and sizes == local_sizes(guest)

    def fit(self, disk: Disk, guest: GuestSpec) -> None:
        """Make every disk as large as the guest needs it. Nothing shrinks; a missing disk is created blank, and so
        is a swap disk of another size: a guest keeps nothing there."""
        root, sizes = root_gb(guest), local_sizes(guest)
        small = [name for name, one in disk.others.items() if name != SWAP and sizes.get(name, 0) < one.size]
        if (root and root < disk.size_gb) or small:
            text = f"{small[0] if small else 'root'} disk of copy {guest.copy} of server {guest.server} cannot shrink"
            raise Failed("disk_shrinks", text, final=True)
        disk.grown = disk.grown or root > disk.size_gb
        disk.size_gb = root or disk.size_gb
        for name in [name for name in disk.others if name not in sizes]:
            del disk.others[name]
        for name, size in sizes.items():
            there = disk.others.get(name)
            if there is None or (name == SWAP and there.size != size):
                disk.others[name] = LocalDisk(size)
            else:
                there.size = size
        self._save(disk)

    def keep_ephemerals(self, disk: Disk, before: Disk, sizes: Mapping[str, int]) -> None:
        """Copy the content of another copy's ephemeral disks."""
        for name, one in ephemerals(before).items():
            if name in sizes:
                disk.others[name] = LocalDisk(sizes[name], list(one.content))
        self._save(disk)

    def adopt(self, disk: Disk, holder: Holder) -> None:
        """Add a name to the disk. It stays when its former holders release it."""
        half = self.find(disk.pool, disk.server, holder[1])
        if half is not None and half is not disk:
            self._remove(half)  # an unfinished try under the same number
        if holder[1] not in disk.names:
            disk.names.append(holder[1])
            self._disks[disk.pool, disk.server, holder[1]] = disk
        self._hold(disk, holder)

    def release(self, disk: Disk, holder: Holder) -> None:
        """Let go; the last one to do so removes the disk."""
        self.shut(disk, holder)
        disk.holders = [other for other in disk.holders if other != holder]
        if disk.holders:
            self._save(disk)
        else:
            self._remove(disk)

    def open(self, disk: Disk, holder: Holder) -> None:
        """Take the image lock, as QEMU does."""
        other = self._opened.setdefault(disk.path, holder)
        if other != holder:
            raise Failed("disk_in_use", f"disk is in use: copy {other[1]} of server {disk.server} runs on {other[0]}")

    def shut(self, disk: Disk, holder: Holder) -> None:
        if self._opened.get(disk.path) == holder:
            del self._opened[disk.path]

    def opened_by(self, disk: Disk) -> Holder | None:
        return self._opened.get(disk.path)

    def all(self) -> list[Disk]:
        return [disk for path, disk in self._disks.items() if path == disk.path]

    def _hold(self, disk: Disk, holder: Holder) -> None:
        if holder not in disk.holders:
            disk.holders.append(holder)
        self._save(disk)

    def _remove(self, disk: Disk) -> None:
        for name in disk.names:
            del self._disks[disk.pool, disk.server, name]
        self._state.drop("disk", disk.pool, f"{disk.server}/{disk.names[0]}")

    def _save(self, disk: Disk) -> None:
        self._state.put("disk", disk.pool, f"{disk.server}/{disk.names[0]}", disk)


def is_local(name: str) -> bool:
    return name == SWAP or (name.startswith(EPHEMERAL) and name.removeprefix(EPHEMERAL).isdigit())


def ephemerals(disk: Disk) -> dict[str, LocalDisk]:
    return {name: one for name, one in disk.others.items() if name != SWAP}


def root_gb(guest: GuestSpec) -> int:
    """Return the size of the root disk; 0 if it is a volume, or as large as its image."""
    return 0 if any(one.is_root for one in guest.volumes) else guest.disk_gb


def local_sizes(guest: GuestSpec) -> dict[str, int]:
    """Return sizes by name: GB of each ephemeral disk, MB of swap."""
    sizes = {f"{EPHEMERAL}{number}": size for number, size in enumerate(guest.ephemeral_gb)}
    return sizes | ({SWAP: guest.swap_mb} if guest.swap_mb else {})


def blank_disks(guest: GuestSpec) -> dict[str, LocalDisk]:
    return {name: LocalDisk(size) for name, size in local_sizes(guest).items()}
