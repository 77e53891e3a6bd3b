"""The parameters of operations, as requests give them and journals keep them. Defaults are not stored."""

from __future__ import annotations

import msgspec

from kilonova.domain.details import Details
from kilonova.domain.json import JsonObject
from kilonova.domain.network import WantedPort
from kilonova.domain.server import Flavor
from kilonova.domain.volume import WantedVolume
from kilonova.domain.whole_hosts import MIGRATE, SKIP


class Params(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The parameters that every operation may have."""

    host: str | None = None  # a host that the request names


class ServerSpec(Params, kw_only=True):
    """A new server, as its owner asked for it."""

    project_id: str
    user_id: str
    created_at: float
    name: str
    flavor: Flavor
    image: str = ""
    forced: bool = False  # no filter is asked about `host`
    details: Details = msgspec.field(default_factory=Details)
    networks: list[WantedPort] = []
    security_groups: list[str] = []  # ids
    volumes: list[WantedVolume] = []


class BuildRequest(ServerSpec, kw_only=True):
    """A server that is in no cell, as control records it."""

    vm_state: str


class SpecOfMany(msgspec.Struct, frozen=True, kw_only=True):
    """The spec of one server in a request for several."""

    server_id: str
    operation_id: str
    params: ServerSpec


class ManyParams(ServerSpec, kw_only=True):
    """Several new servers: what the first of them has, and each."""

    servers: list[SpecOfMany] = []


class MoveParams(Params, kw_only=True):
    planned: str = ""  # the host that an earlier plan chose: preferred
    child: bool = False  # of an operation about whole hosts
    forced: bool = False  # no filter is asked about `host`
    stopped: bool = False  # an evacuated server is not started
    shared: bool | None = None  # the request says whether the disk is on shared storage
    accept_unfenced: bool | None = None  # of a host that only silence proves dead; None: the API does not ask


class ResizeParams(MoveParams, kw_only=True):
    flavor: Flavor
    disk_config: str | None = None


class AdoptParams(MoveParams, kw_only=True):
    copy: int


class RebuildParams(Params, kw_only=True):
    image: str
    image_format: str = ""
    image_marker: str = ""
    image_properties: dict[str, str] = {}
    image_before: str = ""  # of a volume
    reimage: bool = False  # the image replaces the content of the volume
    preserve_ephemeral: bool = False
    name: str | None = None
    details: JsonObject = {}  # those that change


class RetryParams(Params, kw_only=True):
    """A retry of a server in cell0: the original request, and the changes to it."""

    spec: ServerSpec
    any_failure: bool = False
    name: str | None = None
    image: str | None = None
    flavor: Flavor | None = None
    details: JsonObject = {}


class ImageParams(Params, kw_only=True):
    image: JsonObject  # the record of the new image


class VolumeParams(Params, kw_only=True):
    volume_id: str
    id: str = ""  # of the server's record of it
    device: str | None = None
    tag: str | None = None
    delete_on_termination: bool = False


class StateParams(Params, kw_only=True):
    state: str


class HostsParams(Params, kw_only=True):
    """An operation about whole hosts."""

    hosts: list[str] = []
    reason: str = ""
    on_misfit: str = SKIP  # one of domain.whole_hosts.ON_MISFIT
    deadline: float | None = None  # seconds after which no more servers are begun
    accept_unfenced: bool | None = None
    by: str = MIGRATE  # one of domain.whole_hosts.DRAIN_BY

    @property
    def names(self) -> list[str]:
        """The hosts that the operation is about."""
        return self.hosts or [self.host or ""]
