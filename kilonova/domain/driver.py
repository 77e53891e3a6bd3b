"""The interface between a host's agent and its hypervisor: the verbs that every driver has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from kilonova.domain.console import ByteStream
from kilonova.domain.guest import Copy, CopyReport, GuestSpec, GuestVolume, HostInventory
from kilonova.domain.guest_contents import GuestSecrets
from kilonova.domain.image_bytes import DiskRoute, DiskSnapshot, ImageOrder

BESIDE, INSTEAD = "beside", "instead"  # where a rebuild makes the new disks: beside the old ones, or in their room


class Driver(Protocol):
    """Verbs declare the wanted state: repeating one is harmless, continuing a half-done one is normal.

    All raise `Failed` when the hypervisor refuses; a crash in the middle leaves something the next call completes.
    """

    filters_ports: bool  # by the rules of their security groups: it gets the members of remote groups then

    async def inventory(self) -> HostInventory: ...

    async def copies(self) -> Sequence[CopyReport]: ...

    async def ensure_disk(self, guest: GuestSpec, *, adopt: int | None = None, image: ImageOrder | None = None) -> str:
        """Complete disks for this copy: root from the image, ephemeral and swap blank; or all taken over from copy
        `adopt` where this host can see that copy's (shared storage). `image`: what lets a host fetch the image that it
        does not have. Returns "created", "adopted" or "kept"."""

    async def room_for_rebuild(
        self, guest: GuestSpec, *, of_copy: int, keeps_ephemeral: bool, image: ImageOrder | None = None
    ) -> str:
        """BESIDE if the host has room for the disks of this copy beside those of `of_copy`; INSTEAD if they are sure to
        fit once those are gone, and the image is there. Raises `Failed` if they fit in neither way, or the image cannot
        be used. Removes nothing of a guest."""

    async def sees_disk(self, server: str, copy: int) -> bool:
        """Return whether this host sees the complete root disk of that copy, created on any host (shared storage)."""

    async def expect_disk(self, guest: GuestSpec, token: str, image: ImageOrder | None = None) -> str:
        """Accept the disks of this copy from the holder of the token. Return the URL to send them to; "": this host
        takes none over the network."""

    async def send_disk(
        self, server: str, copy: int, *, to_host: str, to_copy: int, route: DiskRoute | None = None
    ) -> None:
        """Copy the root and ephemeral disks of a stopped guest to another host (or this one) as copy `to_copy`; the
        originals stay. Where both hosts see the same storage nothing is copied; elsewhere the disks go by the route,
        without what arrived there before. Swap is not sent: `ensure_disk_size` makes it again."""

    async def ensure_disk_size(self, guest: GuestSpec) -> None:
        """Grow the complete disks of a stopped guest to its sizes, make the ephemeral and swap disks that it lacks, and
        remove those that it no longer has. A root or ephemeral disk that is larger raises `Failed`: none shrinks."""

    async def ensure_ephemeral(self, guest: GuestSpec, *, of_copy: int) -> None:
        """The ephemeral disks of this copy hold what those of the stopped copy `of_copy` on this host hold. The root
        disk of this copy may come later."""

    async def ensure_defined(self, guest: GuestSpec, secrets: GuestSecrets | None = None) -> None:
        """Define the guest. `secrets`: what it shall find on its config drive and at the metadata service besides
        `guest.contents`; a driver keeps them readable for the guest only. None: those that it was defined with
        before."""

    async def ensure_power(self, server: str, copy: int, *, on: bool) -> None: ...

    async def is_on(self, server: str, copy: int) -> bool:
        """Return whether it runs now."""

    async def power_change(self) -> Copy:
        """Return when a guest was started or has ended since the last call, for any reason; one caller waits at a time.
        A missed change is reported later, or when the host registers."""

    async def ensure_volume(self, server: str, copy: int, volume: GuestVolume) -> None:
        """The guest has this volume, running or not; with another connection than before, with this one."""

    async def ensure_no_volume(self, server: str, copy: int, attachment: str) -> None: ...

    async def ensure_absent(self, server: str, copy: int) -> None:
        """Stop and remove this copy only; a disk that another copy has adopted stays."""

    async def ensure_snapshot(self, server: str, copy: int, name: str) -> DiskSnapshot:
        """Snapshot the root disk as it is now, of a running guest as after a power cut, under this name; an existing
        snapshot of this name stays. A copy has one at a time."""

    def read_snapshot(self, server: str, copy: int, name: str) -> AsyncIterator[bytes]: ...

    async def ensure_no_snapshot(self, server: str, copy: int, name: str) -> None: ...

    async def console(self, server: str, copy: int) -> str: ...

    async def consoles(self, server: str, copy: int) -> Sequence[str]:
        """The kinds of consoles that this guest has (domain/console.py). Raises `Failed` with the code "no_guest", or
        "guest_off" while it does not run."""

    async def open_console(self, server: str, copy: int, kind: str) -> ByteStream:
        """Connect to a console. The stream ends with the guest."""

    async def cache_images(self, images: Sequence[ImageOrder]) -> None:
        """Fetch them before they are needed; this only saves time."""
