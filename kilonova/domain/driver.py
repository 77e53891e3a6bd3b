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
    """A driver of guests. Each method declares a wanted state: it may be repeated, and completes a half-done call.

    All raise `Failed` if the hypervisor refuses; after a crash in the middle the next call completes the work.
    """

    filters_ports: bool  # by the rules of their security groups: it gets the members of remote groups then

    async def inventory(self) -> HostInventory: ...

    async def copies(self) -> Sequence[CopyReport]: ...

    async def ensure_disk(self, guest: GuestSpec, *, adopt: int | None = None, image: ImageOrder | None = None) -> str:
        """Create all disks of this copy: root from the image, ephemeral and swap blank. Or take over those of copy
        `adopt`, if this host can reach them (shared storage).

        `image`: the order that lets a host fetch an image that it does not have. Return "created", "adopted" or "kept".
        """

    async def room_for_rebuild(
        self, guest: GuestSpec, *, of_copy: int, keeps_ephemeral: bool, image: ImageOrder | None = None
    ) -> str:
        """Return BESIDE if the host has space for the disks of this copy beside those of `of_copy`; INSTEAD if they
        certainly fit once those are removed, and the image is present.

        Raise `Failed` if they fit in neither way, or the image cannot be used. Remove nothing of a guest.
        """

    async def sees_disk(self, server: str, copy: int) -> bool:
        """Return whether this host sees the complete root disk of that copy, created on any host (shared storage)."""

    async def expect_disk(self, guest: GuestSpec, token: str, image: ImageOrder | None = None) -> str:
        """Accept the disks of this copy from the holder of the token. Return the URL to send them to; "": this host
        takes none over the network."""

    async def send_disk(
        self, server: str, copy: int, *, to_host: str, to_copy: int, route: DiskRoute | None = None
    ) -> None:
        """Copy the root and ephemeral disks of a stopped guest to another host (or this one) as copy `to_copy`; the
        originals stay.

        On storage that both hosts share nothing is copied; otherwise the disks are sent by the route, except pieces
        that arrived before. Swap is not sent: `ensure_disk_size` makes it again.
        """

    async def ensure_disk_size(self, guest: GuestSpec) -> None:
        """Grow the complete disks of a stopped guest to its sizes, make the ephemeral and swap disks that it lacks, and
        remove those that it no longer has. Raise `Failed` if a root or ephemeral disk is larger: none shrinks."""

    async def ensure_ephemeral(self, guest: GuestSpec, *, of_copy: int) -> None:
        """Give this copy the content of the ephemeral disks of the stopped copy `of_copy` on this host. The root disk
        of this copy may come later."""

    async def ensure_defined(self, guest: GuestSpec, secrets: GuestSecrets | None = None) -> None:
        """Define the guest. `secrets`: the private content of its config drive and metadata, beside `guest.contents`; a
        driver keeps it readable for the guest only. None: keep the secrets of the last definition."""

    async def ensure_power(self, server: str, copy: int, *, on: bool) -> None: ...

    async def is_on(self, server: str, copy: int) -> bool:
        """Return whether it runs now."""

    async def power_change(self) -> Copy:
        """Return when a guest was started or has ended since the last call, for any reason; one caller waits at a time.
        A missed change is reported later, or when the host registers."""

    async def ensure_volume(self, server: str, copy: int, volume: GuestVolume) -> None:
        """Attach this volume to the guest, running or not. If the connection has changed, use this one."""

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
        """The kinds of consoles that this guest has (domain/console.py). Raise `Failed` with the code "no_guest", or
        "guest_off" while it does not run."""

    async def open_console(self, server: str, copy: int, kind: str) -> ByteStream:
        """Connect to a console. The stream ends with the guest."""

    async def cache_images(self, images: Sequence[ImageOrder]) -> None:
        """Fetch them before they are needed; this only saves time."""
