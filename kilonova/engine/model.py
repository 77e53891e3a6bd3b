"""The building blocks of an operation: targets, steps, and the operation itself. Operation files use only these and
`Context` of the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import msgspec

from kilonova.domain.json import JsonObject
from kilonova.domain.messages import StepResult
from kilonova.domain.params import Params, ServerSpec
from kilonova.engine.facts import OperationFacts
from kilonova.world import Row, Tx

if TYPE_CHECKING:
    from kilonova.engine.accept import Ask
    from kilonova.engine.context import Context, HostContext, Subject
    from kilonova.engine.core import Engine
    from kilonova.engine.course import Problem
    from kilonova.engine.journal import Op

F = TypeVar("F", bound=OperationFacts)
P = TypeVar("P", bound=Params)
F_contra = TypeVar("F_contra", contravariant=True)
P_contra = TypeVar("P_contra", contravariant=True)


class Target(msgspec.Struct, frozen=True):
    """The host that a step runs on, and the copy; host "" is CONTROL."""

    host: str
    copy: int = 0


@dataclass(frozen=True)
class StepTargets(Generic[F_contra]):
    """A function that reads the targets of a step from the operation's facts when the step is due. Without a target the
    step is skipped."""

    name: str
    targets: Callable[[F_contra], Sequence[Target]]


CONTROL: StepTargets[object] = StepTargets("control", lambda facts: [Target("")])

ControlWork = Callable[["Context[F_contra, P_contra]"], Awaitable[None]]
HostWork = Callable[["HostContext"], Awaitable[StepResult | None]]
Record = Callable[["Context[F_contra, P_contra]", StepResult], None]

# The effect of a silent host on its step (engine/silence.py)
WAIT = "wait"  # only an answer, a fence or an operator's declaration ends it
FAIL = "fail"  # nothing can be left running there: fail, and go elsewhere
DEBT = "debt"  # the work is cleaning: leave a debt and go on

# Tokens of a step, by their names among its secrets (engine/tickets.py)
UPLOAD_TOKEN = "upload_token"  # to upload the image that the facts name
IMAGE_TOKEN = "image_token"  # to fetch the server's image
DISK_TOKEN = "disk_token"  # to send the disks of a move, and to let them in

FOREVER = 1_000_000  # retries of a step that only ever cleans up


@dataclass(frozen=True)
class Step(Generic[F_contra, P_contra]):
    """A step of an operation. `do` gets a Context on CONTROL and a HostContext on a host; `record` writes rows in the
    transaction that finishes the step; `undo` must be safe when nothing happened."""

    name: str
    do: ControlWork[F_contra, P_contra] | HostWork
    on: StepTargets[F_contra]
    undo: ControlWork[F_contra, P_contra] | HostWork | None = None
    record: Record[F_contra, P_contra] | None = None
    record_undo: Record[F_contra, P_contra] | None = None
    plan: bool = False  # reads only: a dry run runs it too
    no_return: bool = False
    deadline: float = 60.0
    retry: int = 0
    task_state: str | None = None
    event: str | tuple[str, ...] | None = None
    starts_guest: bool = False  # needs permission to run (law 3); may leave a guest running
    when_silent: str = WAIT  # when its host is silent (state down, not declared)
    when_declared: str = FAIL  # when its host was fenced or declared down
    undo_starts_guest: bool = False  # its undo needs permission to run, and may leave a guest running
    tries_elsewhere: bool = False  # when it fails, another host may do better
    undo_debt: bool = False  # an undo that cannot reach its host leaves the debt "remove this copy"
    with_guest: bool = False  # its order describes the guest, to do it and to undo it
    with_secrets: bool = False  # it gets those of the operation; a host also the guest's secrets
    tokens: tuple[str, ...] = ()  # that its host gets (engine/tickets.py): UPLOAD_TOKEN, IMAGE_TOKEN, DISK_TOKEN
    only_rows: bool = False  # changes only rows of this cloud: it waits for a database, nothing refuses it
    at_once: bool = (
        False  # CONTROL, cannot fail, shows nothing: done in the transaction that finishes the step before it
    )
    claims: bool = False  # changes allocations in placement; if abandoned, they stay the server's

    def control_work(self, way: str) -> ControlWork[F_contra, P_contra]:
        return cast("ControlWork[F_contra, P_contra]", self.do if way == "do" else self.undo)

    def host_work(self, way: str) -> HostWork:
        return cast("HostWork", self.do if way == "do" else self.undo)

    @property
    def events(self) -> tuple[str, ...]:
        """Names of its events as os-instance-actions shows them; all begin and end with the step."""
        if self.event is None:
            return ()
        return (self.event,) if isinstance(self.event, str) else self.event

    def ends_copy(self, way: str) -> bool:
        """Return whether it stops or removes a copy: if that is skipped, the host owes it (law 17)."""
        return (self.starts_guest or self.undo_debt) if way == "undo" else self.when_declared == DEBT


@dataclass(frozen=True)
class Retired(Generic[F_contra, P_contra]):
    """A step that this release no longer starts but must be able to finish or undo, and the step it leads to."""

    step: Step[F_contra, P_contra]
    then: str


@dataclass(frozen=True)
class Notification:
    """A notification about an operation, by Nova's name `instance.<name>.<phase>` (engine/notifications.py)."""

    name: str
    begins: str = ""  # the step that begins it; "": the operation's acceptance
    ends: str = ""  # the step that ends it; "": the operation's end
    fails_from: str = ""  # failures of this step and later ones are sent as its error; "": Nova has none
    has_phases: bool = True  # else it is sent once, when it begins
    sender: str = "compute"  # | conductor | api: the publisher
    on: str = ""  # the fact that names the host that says it; "": the server's own


class Operation(Generic[F, P]):
    """The base of all operations: class attributes describe it; three functions and a list of steps do it.

    `F` and `P` are the types of its facts and parameters; mypy checks its steps against them.
    """

    facts_type: type[F]
    params_type: type[P]
    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    action: ClassVar[str | None] = None  # as os-instance-actions shows it
    task_state: ClassVar[str | None] = None
    from_states: ClassVar[frozenset[str]] = frozenset()
    supersedes: ClassVar[bool] = False  # takes over from a live operation instead of being refused
    inherits: ClassVar[bool] = True  # undoes what the superseded operation had begun; delete works from records instead
    again_from: ClassVar[str | None] = None  # the step to return to when another host may do better
    steps: Sequence[Step[F, P]] = ()
    ending: Sequence[Step[F, P]] = ()  # after everything was undone
    retired: Sequence[Retired[F, P]] = ()  # of the previous release
    safe_message: ClassVar[str] = "The operation failed."
    notifications: ClassVar[tuple[Notification, ...]] = ()
    task: ClassVar[str] = ""  # compute_task.<task>.error tells that no host was found, or none was left

    def check(self, subject: Subject[P]) -> F:
        """Read only; raise `Refused`, or return the first facts."""
        return self.facts_type()

    async def admit(self, engine: Engine, ask: Ask, mapping: Row) -> None:
        """Raise `Refused` before the request is accepted, for what another database knows: the owner's quota."""

    async def accepted(self, tx: Tx, op: Op, facts: F, subject: Subject[P], now: float) -> None:
        """Write rows in the accepting transaction beyond the server's own."""

    def joins(self, subject: Subject[P]) -> bool:
        """Return True if the live operation already does what is requested: the caller joins it (law 10)."""
        return False

    def outlook(self, subject: Subject[P], facts: F) -> JsonObject:
        """Return, for a dry run, what happens to each disk (kept, lost, re-created) and what is claimed."""
        return {}

    def requested_server(self, facts: F, params: P) -> ServerSpec | None:
        """Return the request of a server that has no record."""
        return params if isinstance(params, ServerSpec) else None

    def message_for(self, problem: Problem) -> str:
        """Return the text that the owner may read when a step failed; the whole reason is for the administrator."""
        return self.safe_message

    def finish(self, ctx: Context[F, P]) -> None:
        """Write the rows of the ending transaction when all steps are done."""

    def finish_undone(self, ctx: Context[F, P]) -> None:
        """Write the rows of the ending transaction when it was undone; the engine clears the server's task_state."""

    @cached_property
    def course(self) -> list[Step[F, P]]:
        """Return all steps in order, forward and then the ending."""
        return [*self.steps, *self.ending]

    @cached_property
    def _by_name(self) -> dict[str, Step[F, P]]:
        return {step.name: step for step in (*(retired.step for retired in self.retired), *self.course)}

    @cached_property
    def _positions(self) -> dict[str, int]:
        positions = {step.name: position for position, step in enumerate(self.course)}
        return positions | {retired.step.name: positions[retired.then] for retired in self.retired}

    def step(self, name: str) -> Step[F, P]:
        """Find a step by name; also one of the previous release as long as that may have left some (law 14)."""
        if name not in self._by_name:
            raise LookupError(f"operation {self.name} has no step {name}; it may come from another release")
        return self._by_name[name]

    def position_of(self, name: str) -> int:
        """Return a step's position in the course; a retired step has the position of the step it led to."""
        return self._positions[name]

    def position_after(self, name: str) -> int:
        retired = any(r.step.name == name for r in self.retired)
        return self.position_of(name) + (0 if retired else 1)


AnyOperation = Operation[Any, Any]
AnyStep = Step[Any, Any]
Registry = Mapping[str, AnyOperation]
