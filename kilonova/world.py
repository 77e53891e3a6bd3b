"""The interface to the world: clock, ids, randomness, bus, stores, drivers and fence.

Production, tests and the simulator pass different worlds to the same code. Nothing else in the package may call
`time.time`, `random`, `uuid4` or open its own connection: what goes through here can be replayed and crashed.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kilonova.domain.console import ByteStream
from kilonova.domain.driver import Driver as Driver
from kilonova.domain.guest import Copy as Copy
from kilonova.domain.guest import CopyReport as CopyReport
from kilonova.domain.guest import GuestSpec as GuestSpec
from kilonova.domain.guest import GuestVolume as GuestVolume
from kilonova.domain.guest import HostInventory as HostInventory
from kilonova.domain.guest_contents import GuestSecrets as GuestSecrets
from kilonova.domain.guest_ports import GuestPort
from kilonova.domain.hardware import HardwareRequest, HostClaim
from kilonova.domain.host_network import HostNetwork, NetworkDocument
from kilonova.domain.image_bytes import ImageContent, UploadOrder
from kilonova.domain.json import JsonObject
from kilonova.domain.network import Vif, WantedPort
from kilonova.domain.volume import Attached, BootSource, SnapshotState, VolumeConnection, VolumeState
from kilonova.free_space import free_bytes
from kilonova.settings import DEFAULTS, Settings

T = TypeVar("T")
Handler = Callable[[bytes], Awaitable[bytes]]


class Clock(Protocol):
    """The clocks of one process, and a sleep that the simulator can shorten (law 16)."""

    def now(self) -> float:
        """Return the wall time of this machine: only for people, never compared with another machine's."""

    def monotonic(self) -> float:
        """Return seconds since some moment. This clock is never set, so it measures intervals inside a process."""

    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    def uuid(self) -> str: ...


class Bus(Protocol):
    """Questions and wake-ups. Nothing durable is relied upon: a message may be lost, late, doubled, reordered."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def serve(self, subject: str, handler: Handler, *, shared: bool = False) -> None:
        """Answer requests on `subject`; with `shared`, each message reaches one of the subscribers."""

    async def stop_serving(self) -> None:
        """Receive no more requests: others that share the subject get them. Return when the received ones are answered,
        or after a moment. Calls and casts still work."""

    async def call(self, subject: str, body: bytes, *, timeout: float = 10.0) -> bytes:
        """Send a request and wait for the response. Raise `NoAnswer` if there is none in time or the handler failed."""

    async def cast(self, subject: str, body: bytes) -> None:
        """Tell and forget; never raises for a lost message."""

    def is_connected(self) -> bool: ...


class Row(Protocol):
    def __getitem__(self, key: str, /) -> Any: ...

    def keys(self) -> Any: ...

    def __iter__(self) -> Iterator[Any]:
        """The values, in the order of the keys."""


class Tx(Protocol):
    """A transaction. A body awaits nothing but this object: on SQLite it is driven without an event loop."""

    async def one(self, statement: Any, /, **params: Any) -> Row | None: ...

    async def all(self, statement: Any, /, **params: Any) -> Sequence[Row]: ...

    async def run(self, statement: Any, /, **params: Any) -> int:
        """Return how many rows it changed."""

    async def many(self, statement: Any, rows: Sequence[Mapping[str, object]], /) -> None: ...

    async def each(self, statement: Any, rows: Sequence[Mapping[str, object]], /) -> Sequence[Row]:
        """Do the same as `many`; return all that the statements return, in their order."""

    async def now(self) -> float:
        """The database's own clock, in seconds since the epoch. Stored times that decide are judged by it (law 16).

        On PostgreSQL it costs a round trip: to set a column only, see `stamped` in store/rows.py.
        """

    async def mark(self) -> int:
        """The number a changed row carries so that readers find it later; see `store.statements.watermark`."""


Body = Callable[[Tx], Awaitable[T]]


class Store(Protocol):
    """A database: `control`, `placement`, `cell0`, `cell1`, … Bodies may run again, so they change nothing else."""

    name: str

    async def write(self, body: Body[T]) -> T:
        """Run the body in a transaction and commit. Raise CommitFailed (certainly not committed) or CommitUnknown."""

    async def read(self, body: Body[T], *, few: bool = False) -> T:
        """Run a body that only reads. `few`: it reads a few rows by their keys, so that a thread would cost more than
        the read."""

    async def ask(self, statement: Any, /, **params: Any) -> Row | None:
        """Return one row of one statement that reads a few rows, without a transaction, so that it costs one round
        trip."""

    async def close(self) -> None: ...


class Stores(Protocol):
    control: Store
    placement: Store

    @property
    def cloud(self) -> str:
        """The id of the cloud; "" where the databases have no badges."""

    @property
    def halted(self) -> str:
        """Return why nothing may be written; "" if writes are allowed."""

    @property
    def marks(self) -> Any:
        """See store/marks.py; None where there are none."""

    def cell(self, name: str) -> Store: ...

    def cells(self) -> Sequence[str]:
        """Names of all cells, cell0 first."""

    def destinations(self) -> Sequence[str]:
        """Cells that may take new servers: neither disabled nor cell0. Some of them may be away."""

    def unopened(self) -> Sequence[str]:
        """Return the cells that control lists and this process could not open: their content is unknown here."""

    def outage(self, name: str) -> Any:
        """Return the outage of a cell; None while its database answers. See store/cell_store.py."""

    def on_return(self, call: Callable[[str], None]) -> None:
        """Call with the name of a cell whenever its database answers again."""

    def bus_prefix(self, name: str) -> str:
        """Return the prefix of the subjects of this cell's hosts; "" if there is none."""

    def may_go(self, name: str) -> bool:
        """Return True if this cell was created while the cloud ran: such a cell can be deleted."""

    async def learn(self) -> None:
        """Know the cells as control has them now: new ones are opened, deleted ones closed."""

    def journals(self) -> Sequence[Store]:
        """Every database that holds operations: control, then the cells."""


class Network(Protocol):
    """The ports of servers. Every write carries a fence (server, turn, ordinal): an older one changes nothing, the same
    one again finds what it did (law 2)."""

    async def allocate(
        self,
        fence: tuple[str, int, int],
        *,
        project_id: str,
        user_id: str,
        wanted: Sequence[WantedPort],
        security_groups: Sequence[str],
        host: str,
        availability_zone: str = "nova",
        hostname: str = "",
    ) -> list[Vif]:
        """Allocate all ports, bound to the host, or none: then raise `Failed`."""

    async def bind(self, fence: tuple[str, int, int], *, server_id: str, host: str) -> list[Vif]: ...

    async def release(self, fence: tuple[str, int, int], *, server_id: str) -> None: ...

    async def vifs(self, server_ids: Sequence[str]) -> dict[str, list[Vif]]: ...

    async def guest_ports(self, server_ids: Sequence[str], *, members: bool = True) -> dict[str, list[GuestPort]]:
        """Return, by server and in the order of its network devices, the data with which a host plugs and filters its
        ports.

        `members`: with the addresses of remote groups, of which there may be thousands.
        """

    async def changed_ports(self, server_ids: Sequence[str]) -> set[str]:
        """Return the servers whose ports changed since an operation bound them."""

    async def host_document(self, host: str, *, tunnel_address: str, is_node: bool) -> NetworkDocument:
        """Return the network data of this host. Its tunnel address is recorded: other hosts send frames there."""


class VolumeService(Protocol):
    """The volumes of servers. Every write has a fence (server, turn, ordinal): an older one changes nothing, a repeated
    one finds its result (law 2). A call that raises `Failed` has changed nothing."""

    async def create_for_boot(
        self,
        fence: tuple[str, int, int],
        *,
        slot: int,
        project_id: str,
        user_id: str,
        size: int | None,
        source: BootSource,
        volume_type: str = "",
        name: str = "",
        zone: str = "",
        delete_on_termination: bool = False,
    ) -> str:
        """Create the server's volume in this slot, or find it after an earlier attempt, and return its id; `state` says
        when it can be used. `size` None: as large as its source."""

    async def state(self, volume_id: str) -> VolumeState:
        """Raise `Refused` when there is no such volume."""

    async def hold(self, tx: Tx, fence: tuple[str, int, int], *, project_id: str, devices: Mapping[str, str]) -> None:
        """Reserve the volumes that a new server names, each with its device, in the control transaction that accepts
        it. If `Refused` is raised, none is reserved."""

    async def reserve(
        self,
        fence: tuple[str, int, int],
        *,
        project_id: str,
        volume_id: str,
        mode: str = "rw",
        device: str = "",
        delete_on_termination: bool = False,
    ) -> str:
        """Reserve a volume and return the attachment's id. From then on only a multiattach volume can be reserved
        again."""

    async def disconnect(self, fence: tuple[str, int, int], *, attachment_id: str) -> None:
        """Replace the connection by a reservation: the server still has the volume and its former host does not."""

    async def connect(self, fence: tuple[str, int, int], *, attachment_id: str, host: str) -> VolumeConnection:
        """Return what the host needs to open the volume, with a secret of this attachment. Once it is connected
        elsewhere, the former host's secret is invalid."""

    async def complete(self, fence: tuple[str, int, int], *, attachment_id: str) -> None:
        """Record that the guest has the volume."""

    async def snapshot(
        self, fence: tuple[str, int, int], *, snapshot_id: str, attachment_id: str, name: str, user_id: str
    ) -> None:
        """Begin to copy an attached volume as it is now; `snapshot_state` says when it is done."""

    async def snapshot_state(self, snapshot_id: str) -> SnapshotState | None:
        """Return the state of a snapshot. None: it was deleted."""

    async def drop_snapshot(self, fence: tuple[str, int, int], *, snapshot_id: str) -> None:
        """Delete the snapshot; if it is gone already, nothing happens."""

    async def reimage(self, fence: tuple[str, int, int], *, attachment_id: str, image_id: str) -> None:
        """Begin to replace the volume's content by that of an image, while no guest has it open; `state` says when it
        is done.

        The old content stays until the new one is whole: if that fails, `reason` says why.
        """

    async def release(self, fence: tuple[str, int, int], *, attachment_id: str) -> None:
        """Release an attachment, reserved or connected; its secret is gone. If it is gone already, nothing happens."""

    async def release_all(
        self, fence: tuple[str, int, int], *, delete: Sequence[str] = (), slots: Sequence[int] = ()
    ) -> None:
        """Release every attachment of the server. Volumes that go with it, these, and those that were made for it in
        these slots are deleted unless another server needs them."""

    async def set_delete_on_termination(
        self, fence: tuple[str, int, int], *, attachment_id: str, delete: bool
    ) -> None: ...

    async def attached(self, server_ids: Sequence[str]) -> dict[str, list[Attached]]:
        """Return the volumes by server; servers without volumes are left out."""

    async def connection(self, attachment_id: str) -> VolumeConnection:
        """Return what `connect` gave, for an order: so secrets need not be in a journal."""


class SnapshotImages(Protocol):
    """The images that operations make of servers. The id of each belongs to one operation; see
    services/image/servers.py."""

    async def create(self, image: Mapping[str, Any]) -> None:
        """Record the image, unless it is there or was deleted."""

    async def status(self, image_id: str) -> str | None:
        """Return the status of the image. None: it was deleted."""

    async def content(self, image_id: str) -> ImageContent | None:
        """Return what a host must find when it fetches the image. None: it was deleted, or has no bytes."""

    async def discard(self, image_id: str) -> bool:
        """Delete the image, with the bytes that have arrived. False: it is active, and stays."""

    async def activate_empty(self, image_id: str, properties: Mapping[str, str]) -> bool:
        """Make a queued image active without bytes. Return False if it was deleted."""


class ImageUploader(Protocol):
    """The upload of an image's bytes from a host."""

    async def send(self, order: UploadOrder, content: Callable[[], AsyncIterator[bytes]]) -> None:
        """Upload the bytes, and return when the image is active; repeating it changes nothing. `content` may be read
        several times.

        Raise `Failed`: final if the image service refused, not final if it did not answer.
        """


class ConsoleDoor(Protocol):
    """The connection of a host's console to the API that requested it."""

    async def carry(self, url: str, token: str, stream: ByteStream) -> None:
        """Return when the connection has ended, whatever the reason; the stream is closed then."""


class HostMemory(Protocol):
    """The memory of an agent on its own host across restarts, by name: its identity, the highest turn per server, and
    the hardware that each copy holds."""

    def load(self) -> JsonObject: ...

    def keep(self, name: str, value: Any) -> None:
        """Keep a value. The cost does not depend on the number of kept values: it is called at every order."""

    def drop(self, name: str) -> None: ...


class Claims(Protocol):
    """The host's own hardware that its copies hold; see compute/host_claims.py."""

    def of(self, server: str, copy: int) -> HostClaim | None: ...

    def take(
        self, server: str, copy: int, requested: HardwareRequest | None, *, beside: int | None = None
    ) -> HostClaim | None:
        """Stored when this returns; raises `Failed` when the hardware does not do."""

    def drop(self, server: str, copy: int) -> None: ...


class HostFence(Protocol):
    """The fence of a host: it returns the proof that the host is stopped, or raises `Failed`."""

    async def fence(self, host: str) -> str: ...


@dataclass
class World:
    """The world of a role. Members that it does not have are None: an agent has no stores."""

    clock: Clock
    ids: Ids
    random: random.Random
    bus: Bus
    stores: Stores | None = None
    settings: Settings = DEFAULTS
    machine: str = ""  # the name of this machine in notifications
    driver: Driver | None = None
    memory: HostMemory | None = None
    fence: HostFence | None = None
    network: Network | None = None
    volume: VolumeService | None = None
    image: SnapshotImages | None = None
    uploads: ImageUploader | None = None  # of a host
    consoles: ConsoleDoor | None = None  # of a host
    host_network: HostNetwork | None = None  # of a host
    free_bytes: Callable[[Path], int] = free_bytes

    @property
    def db(self) -> Stores:
        if self.stores is None:
            raise RuntimeError("this role has no database; agents never open one")
        return self.stores
