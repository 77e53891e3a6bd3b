"""The facts of operations, by family: each operation finds them out and keeps them in its journal (engine/facts.py)."""

from __future__ import annotations

import msgspec

from kilonova.domain.json import Json, JsonObject
from kilonova.domain.params import ServerSpec
from kilonova.domain.server import Flavor, flavor_from
from kilonova.domain.whole_hosts import Proof
from kilonova.engine.facts import OperationFacts
from kilonova.engine.model import StepTargets, Target


class HostChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host that the scheduler offers, to be claimed."""

    provider: str
    host: str
    cell: str = ""
    allocations: dict[str, dict[str, int]] = {}  # by provider; none: the flavor, on the host's own
    names: dict[str, str] = {}  # of those providers that are not the host's own


class RecordBefore(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The server's record before a rebuild, to be put back."""

    name: str = ""
    image: str = ""
    flavor: str = ""
    properties: dict[str, str] = {}
    format: str = ""
    marker: str = ""
    details: JsonObject = {}


# -- copies -------------------------------------------------------------------------------------------------------


class CopyFacts(OperationFacts, kw_only=True):
    """An operation on the copy that has permission to run, where it is: start, stop, reboot, attach, snapshot."""

    host: str = ""
    copy: int = 0
    was: str = ""  # the server's state before
    running: bool = False  # its host reported the guest running


class PlacedFacts(OperationFacts, kw_only=True):
    """An operation that makes a copy on a destination."""

    candidates: list[HostChoice] = []  # best first
    tried: list[str] = []  # destinations that did not work
    destination: str = ""
    cell: str = ""
    copy: int = 0
    claimed: str | None = None  # more than the flavor, by provider name
    ports: bool = False
    devices: bool = False  # volumes that the request asks for


HERE: StepTargets[CopyFacts] = StepTargets("its host", lambda facts: [Target(facts.host, facts.copy)])
DESTINATION: StepTargets[PlacedFacts] = StepTargets(
    "destination", lambda facts: [Target(facts.destination, facts.copy)] if facts.destination else []
)
# From the second attempt on: the operation before this one chose the first destination.
ELSEWHERE: StepTargets[PlacedFacts] = StepTargets("control", lambda facts: [Target("")] if facts.tried else [])
WITH_PORTS: StepTargets[PlacedFacts] = StepTargets("control", lambda facts: [Target("")] if facts.ports else [])


# -- creation -----------------------------------------------------------------------------------------------------


class FailedChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The reason for which no host was found for the servers of one request."""

    code: str
    message: str
    details: Json = None


class CreateFacts(PlacedFacts, kw_only=True):
    """Place and build."""

    from_cell0: bool = False  # tried again
    refused: FailedChoice | None = None  # by `place_many`
    handed_over: bool = False
    deleted: bool = False  # its owner deleted it meanwhile
    buried: str = ""  # the class of the failure
    leaves: bool = False  # for cell0
    released: int = 0


class ManyFacts(OperationFacts, kw_only=True):
    """Place many: by server."""

    choices: dict[str, list[HostChoice]] = {}
    decisions: dict[str, JsonObject] = {}
    places: dict[str, HostChoice] = {}
    devices: bool = False
    begun: int = 0

    def consumers_held(self) -> list[str]:
        return [*self.choices]


class RetryFacts(OperationFacts, kw_only=True):
    """A server in cell0 that is tried again."""

    devices: bool = False
    before: RecordBefore = RecordBefore()


class OpenMove(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The resources that an open migration holds at its source."""

    source_host: str
    source_copy: int
    source_gone: bool
    old_flavor: str
    old_claimed: str | None = None


class DeleteFacts(OperationFacts, kw_only=True):
    """Delete, wherever the server is."""

    copies: list[tuple[str, int]] = []
    consumers: list[str] = []
    volumes: bool = False
    devices: bool = False
    buried: bool = False
    images: list[tuple[str, list[str]]] = []  # unfinished ones, each with the snapshots that it names
    cells: list[str] | None = None  # where rows of it may be; None: in all
    released: int = 0
    open_migrations: list[OpenMove] = []  # in a dry run
    build_request: ServerSpec | None = None  # of a server that has no record any more

    def consumers_held(self) -> list[str]:
        return self.consumers


EACH_COPY: StepTargets[DeleteFacts] = StepTargets(
    "each copy", lambda facts: [Target(host, copy) for host, copy in facts.copies]
)
WITH_DEVICES: StepTargets[PlacedFacts | DeleteFacts] = StepTargets(
    "control", lambda facts: [Target("")] if facts.devices else []
)
WITH_IMAGES: StepTargets[DeleteFacts] = StepTargets("control", lambda facts: [Target("")] if facts.images else [])


# -- moves --------------------------------------------------------------------------------------------------------


class MoveFacts(PlacedFacts, kw_only=True):
    """Migrate, relocate, adopt; and what all moves have."""

    source: str = ""
    source_copy: int = 0
    source_claimed: str | None = None
    was: str = ""  # the server's state before
    migration: str = ""
    volumes: bool = False
    takes_disks_at: str = ""  # the URL where the destination takes the disks
    source_gone: bool = False  # declared so
    dead_together: bool = False  # both copies are on one host that was declared dead
    proof: str = ""  # why no other copy can run

    def consumers_held(self) -> list[str]:
        return [self.migration] if self.migration else []


class ResizeFacts(MoveFacts, kw_only=True):
    """Resize, and the end of any move: both flavors, as documents."""

    old_flavor: str = ""
    new_flavor: str = ""

    def flavor_of(self, copy: int) -> Flavor | None:
        """Return the old flavor for the source's copy, the new one for the destination's."""
        if not self.new_flavor:
            return None
        if copy == self.source_copy:
            return flavor_from(self.old_flavor)
        return flavor_from(self.new_flavor) if copy == self.copy else None

    def flavors(self) -> list[Flavor]:
        return [flavor_from(self.old_flavor), flavor_from(self.new_flavor)] if self.new_flavor else []


class RevertFacts(ResizeFacts, kw_only=True):
    destination_down: bool = False  # when the revert was accepted
    destination_stopped: bool = False  # it reported so
    given_back: bool = False  # permission to run: from here on only forward


class EvacuateFacts(MoveFacts, kw_only=True):
    ends: str = ""  # the state afterwards
    shared: bool | None = None  # the request says whether the disk is on shared storage
    declared: list[str] = []  # hosts that count as dead for this operation
    down: list[str] = []  # that were down when it was accepted
    child: bool = False
    brought_back: bool = False  # to a living host, by undoing the interrupted operation
    shares_storage: bool = False  # in a dry run: the destination sees the source's disks


class RebuildFacts(MoveFacts, kw_only=True):
    """Rebuild: both copies are on one host."""

    image: str = ""
    format: str = ""
    marker: str = ""
    properties: dict[str, str] = {}
    before: RecordBefore = RecordBefore()
    preserve_ephemeral: bool = False
    room: str = ""  # BESIDE or INSTEAD
    volume: str = ""  # the root disk
    attachment: str = ""
    reimage: bool = False


SOURCE: StepTargets[MoveFacts] = StepTargets("source", lambda facts: [Target(facts.source, facts.source_copy)])
WITH_VOLUMES: StepTargets[MoveFacts | DeleteFacts] = StepTargets(
    "control", lambda facts: [Target("")] if facts.volumes else []
)


# -- volumes and images -------------------------------------------------------------------------------------------


class VolumeFacts(CopyFacts, kw_only=True):
    volume_id: str = ""
    attachment: str = ""
    record: str = ""  # the id of the server's record of it
    device: str = ""
    tag: str | None = None
    delete_on_termination: bool = False


class VolumeSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A volume of a server that is made into an image."""

    snapshot: str
    attachment: str
    volume: str
    device: str
    is_root: bool
    goes: bool  # with the server
    tag: str | None = None


class SnapshotFacts(CopyFacts, kw_only=True):
    snapshot_image: str = ""
    size: int = 0
    disk_format: str = ""
    image_stays: bool = False  # it was active when it should be discarded
    snapshots: list[VolumeSnapshot] = []
    sizes: list[int] = []


# -- whole hosts --------------------------------------------------------------------------------------------------


class HostsFacts(OperationFacts, kw_only=True):
    """Evacuate, drain and return hosts."""

    drained_before: list[str] = []  # hosts that were closed by an earlier drain
    proofs: dict[str, Proof] = {}  # of dead hosts, as they were accepted (law 3)
    refused: dict[str, str] = {}
    account: JsonObject | None = None


class GoneFacts(OperationFacts, kw_only=True):
    """A host that is declared gone."""

    identity: str = ""
    provider: str = ""
    proof: str = ""
    reverts: list[str] = []
    confirm_only: list[str] = []
    account: JsonObject | None = None
