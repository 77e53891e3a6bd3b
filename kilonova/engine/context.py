"""The context of a step: the operation's facts, the server, the world, and a list of row changes for its finishing
transaction.

A step never opens a transaction on its own journal's database: its changes there are committed together with its result
and the next step, or not at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Superseded
from kilonova.domain.guest import GuestSpec, GuestVolume
from kilonova.domain.guest_contents import GuestContents, GuestSecrets, is_mandatory, shutdown_seconds
from kilonova.domain.hardware import HostClaim
from kilonova.domain.host import HostState
from kilonova.domain.image_bytes import ImageOrder
from kilonova.domain.json import JsonObject
from kilonova.domain.messages import StepFacts
from kilonova.domain.params import Params
from kilonova.domain.server import Flavor, Server
from kilonova.engine.course import Problem
from kilonova.engine.facts import OperationFacts
from kilonova.engine.model import Target
from kilonova.placement.fence import Fence
from kilonova.scheduler.service import Scheduler
from kilonova.schema.tables import cell
from kilonova.settings import Settings
from kilonova.store import rows
from kilonova.store.host_hardware import claim_document, touch
from kilonova.world import Claims, Driver, ImageUploader, Row, Store, Tx, World

if TYPE_CHECKING:
    from kilonova.engine.accept import Accepted
    from kilonova.engine.conclude import Next

Change = Callable[[Tx, float], Awaitable[None]]
Begin = Callable[[Tx, Store, "Newborn"], Awaitable["Next"]]
FindBegun = Callable[[Tx, Store, str], Awaitable["Next | None"]]
AskChild = Callable[[Store, str, str, str, Params], Awaitable["Accepted"]]
F_co = TypeVar("F_co", covariant=True)
P_co = TypeVar("P_co", covariant=True)


@dataclass(frozen=True)
class Newborn:
    """An operation that another one starts: `build` after `place`, with the same id and counting on."""

    kind: str
    id: str
    server_id: str
    turn: int
    ordinal: int
    params: Any  # of its kind
    facts: Any
    cause: Cause
    sealed: str  # its secrets, as they are stored
    has_action: bool = False  # that of the one before it came along
    begun: tuple[str, ...] = ()  # its CONTROL steps that the one before has done: it undoes them if it has to
    server: Server | None = None
    is_mine: bool = False  # the worker that begins it takes its first step, if that is a CONTROL step


@dataclass
class Subject(Generic[P_co]):
    """The input of `check`, all read in the accepting transaction."""

    server: Server | None
    host: HostState | None  # the server's own host
    target: HostState | None  # a host named in the request, if known
    migration: Row | None  # the newest open one
    live: Row | None  # the live operation of the server
    params: P_co
    cause: Cause
    source: HostState | None = None  # the host that the open migration left


@dataclass
class Context(Generic[F_co, P_co]):
    """The context of a CONTROL step, or of the recording of a host's step."""

    world: World
    journal: Store
    operation_id: str
    kind: str
    turn: int
    ordinal: int
    server_id: str | None
    params: P_co
    facts: F_co  # changes of a CONTROL step are stored when it ends
    cause: Cause
    target: Target
    server: Server | None = None
    server_is_locked: bool = False  # it was read and locked in the transaction that this is used in
    scheduler: Scheduler | None = None
    problem: Problem | None = None
    attempt: int = 1
    accepted_at: float = 0.0  # by the journal's clock
    rehearsing: bool = False  # a dry run: the choice is not going to be claimed
    begin: Begin | None = None  # start another operation in the given transaction
    ask: AskChild | None = None  # accept a child operation on a server
    wake: Callable[[str, str], Awaitable[None]] | None = None  # (journal, operation): there is work
    find_begun: FindBegun | None = None  # the same after an unknown COMMIT
    pass_on: Callable[[Store, Next], Awaitable[None]] | None = None  # what was begun goes on from its first step
    destination: str | None = None  # set when limits shall count this operation there (law 11)
    sealed: str = ""  # the secrets, for a step that hands them on; only hosts get to see them open
    documents: dict[str, JsonObject] = field(default_factory=dict)  # findings that stay in the row of their step
    changes: list[Change] = field(default_factory=list)
    wrote_rows: bool = False  # one of the changes is the operation's own: it may be of the server's record
    server_changes: dict[str, str | float | None] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        return self.world.settings

    @property
    def fence(self) -> Fence:
        return self.fence_of(self.server_id or "", self.turn)

    def fence_of(self, server: str, turn: int) -> Fence:
        """Return the fence for a database. The clock is control's or the cell's, whichever recorded the acceptance."""
        return Fence(server, turn, self.ordinal, self.world.db.control, self.accepted_at)

    @property
    def row(self) -> Server:
        if self.server is None:
            raise Superseded(f"server {self.server_id} is no longer in {self.journal.name}")
        return self.server

    def set_server(self, **columns: Any) -> None:
        """Set columns of the server, in the finishing transaction and only while the turn is unchanged."""
        self.server_changes.update(columns)

    def in_transaction(self, change: Change) -> None:
        self.changes.append(change)
        self.wrote_rows = True

    def set_migration(self, migration_id: str, **columns: Any) -> None:
        async def change(tx: Tx, now: float) -> None:
            await rows.change(tx, cell.migrations, {**columns, "updated_at": now}, id=migration_id)

        self.changes.append(change)

    def set_copy(self, copy: int, host: str, state: str, claim: HostClaim | None = None) -> None:
        """Record a copy. `claim`: the hardware that the copy holds, by its host; None keeps the recorded claim."""

        async def change(tx: Tx, now: float) -> None:
            await rows.put_or_change(
                tx,
                cell.copies,
                ("state",) if claim is None else ("state", "claim"),
                server_id=self.server_id,
                copy=copy,
                host=host,
                state=state,
                claim=claim_document(claim),
                operation_id=self.operation_id,
                created_at=now,
            )

        self.changes.append(change)
        self._claims_change(host)

    def drop_copy(self, copy: int, host: str) -> None:
        async def change(tx: Tx, now: float) -> None:
            await rows.remove(tx, cell.copies, server_id=self.server_id, copy=copy, host=host)

        self.changes.append(change)
        self._claims_change(host)

    def forget_planned_copy(self, copy: int, host: str) -> None:
        """Remove the record of a planned copy, unless its host has begun to make it."""

        async def change(tx: Tx, now: float) -> None:
            await rows.remove(tx, cell.copies, server_id=self.server_id, copy=copy, host=host, state="making")

        self.changes.append(change)
        self._claims_change(host)

    def _claims_change(self, host: str) -> None:
        """Let the scheduler read this host again; most servers need nothing of its hardware."""
        if self._needs_hardware():

            async def change(tx: Tx, now: float) -> None:
                await touch(tx, host)

            self.changes.append(change)

    def _needs_hardware(self) -> bool:
        """Return whether the flavor (in a resize, either flavor) asks for hardware of a host."""
        flavors = [self.server.flavor] if self.server is not None else []
        if isinstance(self.facts, OperationFacts):
            flavors += self.facts.flavors()
        return any(flavor.hardware is not None and flavor.hardware.needs_claim for flavor in flavors)

    @property
    def changed_server(self) -> Server | None:
        """Return the server as `apply` writes it, so that the next step need not read it again."""
        if self.server is None or not self.server_changes:
            return self.server
        return self.server.changed(self.server_changes)

    def copied(self) -> Context[F_co, P_co]:
        """Return a context with its own list of changes. `copy.copy` would cost as much as two of a step's
        statements."""
        same = object.__new__(Context)
        same.__dict__.update(self.__dict__)
        same.changes, same.server_changes = [*self.changes], {**self.server_changes}
        return same

    async def apply(self, tx: Tx, now: float) -> None:
        """Write the changes; the engine calls this inside the finishing transaction."""
        for change in self.changes:
            await change(tx, now)
        if not self.server_changes:
            return
        values = {**self.server_changes, "updated_at": now}
        if not await rows.change(tx, cell.servers, values, id=self.server_id, turn=self.turn):
            raise Superseded(f"server {self.server_id} has left turn {self.turn}")


AnyContext = Context[Any, Any]


@dataclass
class HostContext:
    """The context of a step on a host: the driver, its copy, and the facts that the order brought."""

    driver: Driver
    claims: Claims
    host: str
    server: str
    copy: int
    facts: StepFacts
    guest: GuestSpec | None
    secrets: dict[str, str]
    uploads: ImageUploader | None = None
    guest_secrets: GuestSecrets | None = None
    image: ImageOrder | None = None

    @property
    def spec(self) -> GuestSpec:
        if self.guest is None:
            raise Superseded(f"server {self.server} is gone, or its step is not one with a guest")
        return msgspec.structs.replace(self.guest, claim=self.claims.of(self.server, self.copy))


def guest_spec(server: Server, copy: int, flavor: Flavor | None = None) -> GuestSpec:
    """Return the guest without what other databases know of it (engine/connections.py)."""
    chosen, details = flavor or server.flavor, server.details
    return GuestSpec(
        server=server.id,
        copy=copy,
        name=server.name,
        vcpus=chosen.vcpus,
        memory_mb=chosen.memory_mb,
        disk_gb=chosen.disk_gb,
        ephemeral_gb=chosen.ephemeral_disks,
        swap_mb=chosen.swap_disk_mb,
        disk_tags=details.disk_tags,
        image=server.image_ref,
        image_format=details.image_format,
        image_marker=details.image_marker,
        hardware=chosen.hardware,
        volumes=[
            GuestVolume(
                attachment=one.attachment_id,
                volume=one.volume_id,
                device=one.device,
                is_root=one.is_root,
                tag=one.tag or "",
            )
            for one in server.volumes
            if one.attachment_id
        ],
        contents=_contents(server, chosen),
        shutdown_seconds=shutdown_seconds(details.image_properties),
    )


def _contents(server: Server, flavor: Flavor) -> GuestContents:
    details, key = server.details, server.details.public_key
    return GuestContents(
        hostname=details.hostname,
        public_keys=[key] if key else [],
        metadata=details.metadata,
        config_drive=details.config_drive or is_mandatory(details.image_properties),
        availability_zone=details.availability_zone or "",
        launch_index=details.launch_index,
        project_id=server.project_id,
        user_id=server.user_id,
        reservation_id=details.reservation_id,
        flavor_name=flavor.name,
        created_at=server.created_at,
    )
