"""A server: its record, its flavor, and its states as the API shows them, with a sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Self

import msgspec

from kilonova.domain.cached import CachedValue
from kilonova.domain.details import Details, details_from
from kilonova.domain.hardware import HardwareRequest
from kilonova.domain.network import Vif, vifs_from
from kilonova.domain.volume import ServerVolume, server_volumes

ACTIVE, BUILDING, STOPPED, RESIZED, ERROR, DELETED = "active", "building", "stopped", "resized", "error", "deleted"
SOFT_DELETED = "soft-delete"

VM_STATES = {
    BUILDING: "no guest has run yet",
    ACTIVE: "a guest runs, or should",
    STOPPED: "the guest is off on purpose",
    RESIZED: "moved or resized; both copies exist until the owner confirms or reverts",
    ERROR: "the last operation failed; one complete copy exists and is owned, or none ever did",
    SOFT_DELETED: "deleted by its owner, and kept for a while: it can be restored",
    DELETED: "gone",
}

# `unsettled`: what the next report of a server's host decides, after its record was restored or lost (law 15).
SETTLED = 0
RESTORED = 1  # whether the runner's copy is there and whole
LOST = 2  # which copy is the server: the record was created again; the only whole copy counts, or the one that runs
LOST_IN_MOVE = 3  # the same, but a move was open: only a copy that runs counts

# `hidden`: between two databases the mapping decides which of the rows is the server (laws 5 and 6).
SHOWN = 0
ARRIVING = 1  # not handed over yet
LEAVING = 2  # its build failed and left nothing: it is on its way to cell0

POWER_NONE, POWER_RUNNING, POWER_SHUTDOWN = 0, 1, 4


class Flavor(msgspec.Struct, frozen=True):
    """The resources of a server; stored with it, so that later changes to the flavor do not matter."""

    name: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    id: str = ""
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: dict[str, str] = {}
    hardware: HardwareRequest | None = None  # requested by these and the image when the server was created
    ephemerals: list[int] = []  # GB of each ephemeral disk that the request named; none: one with all of ephemeral_gb
    requested_swap_mb: int | None = None  # that the request named; None: all of swap_mb

    def resources(self) -> dict[str, int]:
        """Return the amounts per resource class, without zero amounts: placement refuses them."""
        disk = self.disk_gb + self.ephemeral_gb + -(-self.swap_mb // 1024)
        shared = self.vcpus - sum(len(cell.dedicated) for cell in self.hardware.cells) if self.hardware else self.vcpus
        dedicated = self.hardware.dedicated_cpus if self.hardware else 0
        amounts = {"VCPU": shared, "PCPU": dedicated, "MEMORY_MB": self.memory_mb, "DISK_GB": disk}
        return {name: amount for name, amount in amounts.items() if amount}

    @property
    def ephemeral_disks(self) -> list[int]:
        """GB of each ephemeral disk of the server."""
        return self.ephemerals or ([self.ephemeral_gb] if self.ephemeral_gb else [])

    @property
    def swap_disk_mb(self) -> int:
        """MB of the server's swap disk; 0: it has none."""
        return self.swap_mb if self.requested_swap_mb is None else self.requested_swap_mb


@lru_cache(maxsize=1000)  # servers have few different ones, and a list of a thousand decodes a thousand
def flavor_from(document: str | bytes) -> Flavor:
    return msgspec.json.decode(document, type=Flavor)


def flavor_document(flavor: Flavor) -> str:
    return msgspec.json.encode(flavor).decode()


Large = Annotated[int, "64 bits"]  # other numbers have 32 in their column


class Server(msgspec.Struct, dict=True):
    """A server as its cell records it.

    This is the only declaration of its row: schema/tables/cell.py makes the columns of these fields, in their order;
    `from_row` and `columns` convert it. Documents stay encoded until they are read.
    """

    id: str
    project_id: str
    user_id: str
    name: str
    turn: Large
    turn_floor: Large | None  # copies up to here are from before the records were restored (law 15)
    unsettled: int | None  # why its host's next report decides what it is: SETTLED, …
    operation_id: str | None  # the live operation behind task_state
    vm_state: str
    task_state: str | None
    power_state: int
    host: str | None
    copy: Large | None  # the current copy's number
    runner_host: str | None  # permission to run (law 3)
    runner_copy: Large | None
    runner_proof: str | None  # why it could be given: JSON
    image_ref: str
    flavor_document: str = msgspec.field(name="flavor")
    claimed: str | None  # JSON: class → amount by provider's name; None: its flavor, on its host's own provider
    details_document: str = msgspec.field(name="details")  # only the API writes it
    network_info: str | None  # JSON: its ports as last allocated or bound, by operations; see changed_ports
    volume_info: str | None  # JSON: ServerVolume; None: it never had one
    recheck: int  # its host came back meanwhile: look again when the operation ends
    hidden: int  # on its way into this database or out of it: SHOWN, …
    cell0_failure: str | None
    created_at: float
    updated_at: float
    launched_at: float | None
    terminated_at: float | None
    deleted: int

    @classmethod
    def from_row(cls, row: Iterable[Any]) -> Self:
        """Decode a whole row by position."""
        return cls(*row)

    def columns(self) -> dict[str, str | float | None]:
        """Return the values by the names of their columns."""
        return dict(zip(COLUMNS, msgspec.structs.astuple(self), strict=False))  # a kind of server may have more fields

    @property
    def flavor(self) -> Flavor:
        return flavor_from(self.flavor_document)

    @CachedValue
    def details(self) -> Details:
        return details_from(self.details_document)

    @CachedValue
    def vifs(self) -> list[Vif]:
        return vifs_from(self.network_info)

    @CachedValue
    def volumes(self) -> list[ServerVolume]:
        return server_volumes(self.volume_info)

    @property
    def host_name(self) -> str:
        """The name of its host, or "" without one."""
        return self.host or ""

    @property
    def runner(self) -> tuple[str, int] | None:
        """The host and the copy that may run (law 3)."""
        host, copy = self.runner_host, self.runner_copy
        return None if host is None or copy is None else (host, copy)

    @property
    def has_ports(self) -> bool:
        return self.network_info not in (None, "[]")

    def changed(self, columns: Mapping[str, Any]) -> Server:
        """Return the server with other values in these columns."""
        fields = {DOCUMENTS.get(name, name): value for name, value in columns.items()}
        return msgspec.structs.replace(self, **fields)


COLUMNS = tuple(field.encode_name for field in msgspec.structs.fields(Server))
DOCUMENTS = {"flavor": "flavor_document", "details": "details_document"}  # fields that are not called as their column


def to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
