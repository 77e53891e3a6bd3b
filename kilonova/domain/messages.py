"""Messages between agents and conductors over the bus (JSON by msgspec)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kilonova.domain.guest import CopyReport, GuestSpec, HostInventory
from kilonova.domain.guest_contents import GuestSecrets
from kilonova.domain.hardware import HostClaim
from kilonova.domain.image_bytes import ImageOrder
from kilonova.domain.json import JsonObject

CopyNumber = Annotated[int, Meta(ge=0, le=2**62)]


class Register(msgspec.Struct, frozen=True, kw_only=True):
    """The first message of an agent, also after contact was lost: its hardware and its copies."""

    host: str
    session: str
    key: str  # identity; the name alone proves nothing
    copies: list[CopyReport]
    inventory: HostInventory
    storage: str = ""
    cell: str = ""  # the host's cell; "": its former cell, or the first one
    cloud: str = ""  # the cloud that the host remembers; "": it never joined one
    seen: dict[str, tuple[int, int]] = {}  # by database: the highest era and mark that it received (law 15)
    filters: bool = False  # it filters the traffic of ports, and gets the members of security groups


class Verdict(msgspec.Struct, frozen=True):
    """The decision about one copy that a returning host reported, or owes."""

    server: str
    copy: int
    action: str  # adopt | stop | destroy | quarantine | set_aside (switched off, then as quarantine)
    why: str
    run: bool = False  # adopt, and it should be running
    guest: GuestSpec | None = None  # the definition, if it may have changed while the host was away


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int
    verdicts: list[Verdict] = []
    refused: str = ""
    cloud: str = ""


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts have been carried out; `power`: whether each adopted copy runs."""

    host: str
    session: str
    epoch: int
    destroyed: list[tuple[str, CopyNumber]] = []
    stopped: list[tuple[str, CopyNumber]] = []
    adopted: list[tuple[str, CopyNumber, bool]] = []
    failed: list[tuple[str, CopyNumber, str]] = []  # of those, the copies that could not be started, and why


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    session: str
    epoch: int
    has: list[str] = []  # "operation/ordinal" of the steps it is working on
    pull: bool = False  # it was woken: look for work now
    powers: list[tuple[str, CopyNumber, bool]] = []  # guests that were started (true) or have ended, by whomever
    filters: bool = False  # as in Register
    cloud: str = ""  # as in Register
    seen: dict[str, tuple[int, int]] = {}  # as in Register


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """A message to all conductors from a host whose heartbeat was not answered: the conductor that received it may
    hang."""

    host: str
    session: str
    cloud: str = ""


class StepFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of an operation that its steps on hosts use."""

    source_copy: int = 0
    destination: str = ""
    copy: int = 0
    was: str = ""  # the server's state before the operation
    ends: str = ""  # its state afterwards
    shared: bool | None = None  # an evacuation's request says whether the disk is on shared storage
    takes_disks_at: str = ""  # the URL where the destination takes the disks of a move
    preserve_ephemeral: bool = False
    room: str = ""  # for the new copy of a rebuild: BESIDE the old one or INSTEAD of it
    attachment: str | None = None
    snapshot_image: str = ""
    size: int = 0  # of the snapshot
    disk_format: str = ""


class StepResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a step on its host, as far as the records or people need it."""

    waived: str = ""  # it was not done: its host was declared down
    disk: str = ""  # created | adopted | kept
    claim: HostClaim | None = None
    takes_disks_at: str = ""
    room: str = ""
    running: bool | None = None
    stopped: bool = False
    removed: bool = False
    gone: bool = False  # there was nothing to do it to
    size: int = 0
    disk_format: str = ""


class StepOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order of a step, with everything the host needs: an agent never reads a database."""

    journal: str
    operation: str
    kind: str
    name: str
    way: str  # do | undo
    ordinal: int
    server: str
    turn: int
    copy: int
    facts: StepFacts = StepFacts()
    guest: GuestSpec | None = None
    guest_secrets: GuestSecrets | None = None  # where the step defines the guest
    image: ImageOrder | None = None  # where the step makes or receives disks
    secrets: dict[str, str] = {}


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a heartbeat or a pull: what to do, and whether to register again first."""

    register_again: bool = False
    steps: list[StepOrder] = []
    more: bool = False  # than one message takes: ask again at once
    seen: dict[str, tuple[int, int]] = {}  # further turns to remember
    noted: list[tuple[str, int]] = []  # of the powers that it reported


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """A step ended on a host. Exactly one of result and error."""

    host: str
    session: str
    epoch: int
    journal: str
    operation: str
    ordinal: int
    result: JsonObject | None = None  # a StepResult, unless the host is wrong
    error: JsonObject | None = None
    filters: bool = False  # as in Register
    goes_on: bool = False  # it takes an order from the answer; agents of the release before do not


class Finished(msgspec.Struct, frozen=True):
    """`accepted` false: another runner took over; the agent undoes nothing itself, it asks which copies belong here."""

    accepted: bool
    why: str = ""
    order: StepOrder | None = None  # the next step of the operation, where this host has that too


class Wake(msgspec.Struct, frozen=True):
    journal: str = ""
    operation: str = ""


class ConsoleQuestion(msgspec.Struct, frozen=True, tag="console"):
    """A request for a guest's console output; the response is a text."""

    server: str
    copy: int


class ConsoleOpen(msgspec.Struct, frozen=True, tag="console-open"):
    """Open a console of a guest and connect it to the API that asks; the answer is `ConsoleOpened`."""

    server: str
    copy: int
    kind: str
    url: str = ""  # of the API
    token: str = ""  # for this one connection; "": open nothing, only say whether it could be opened


class ConsoleOpened(msgspec.Struct, frozen=True):
    problem: str = ""  # "no_guest", "guest_off", "console_unavailable", "too_many_consoles"; "": none


class HoldingsQuestion(msgspec.Struct, frozen=True, tag="holdings"):
    """A request for the copies on the host now; the response is `Holdings`."""


class Holdings(msgspec.Struct, frozen=True):
    copies: list[CopyReport]


class CacheOrder(msgspec.Struct, frozen=True, tag="cache"):
    """Images that will be needed on this host; the sender does not wait for an answer."""

    images: list[str]
    orders: list[ImageOrder] = []  # of those that the image service has

    @property
    def wanted(self) -> list[ImageOrder]:
        by_image = {one.image: one for one in self.orders}
        return [by_image.get(image) or ImageOrder(image=image) for image in self.images]
