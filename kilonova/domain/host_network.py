"""A host's data about networks, and the ports and plugs that its drivers get."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from hashlib import sha256
from typing import Protocol

import msgspec

from kilonova.domain.guest import GuestSpec
from kilonova.domain.guest_contents import GuestSecrets
from kilonova.domain.guest_ports import GuestPort, HostRoute, PortRule


class Forward(msgspec.Struct, frozen=True):
    """A TCP port of the host that leads to one of the guest."""

    address: str
    port: int
    guest_port: int


class Plug(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The target that the driver connects a guest's network device to."""

    kind: str  # tap (of this name) | user (QEMU's own network) | none
    device: str = ""
    mtu: int = 0
    forwards: list[Forward] = []


class HostPort(msgspec.Struct, frozen=True):
    """A port that is bound to the host."""

    server: str
    port: GuestPort


class RouterLeg(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A router's port on a network."""

    port_id: str
    network_id: str
    mac: str
    mtu: int
    network_type: str = ""
    segment: int = 0
    addresses: list[str] = []  # each with its prefix length


class FloatingAddress(msgspec.Struct, frozen=True):
    address: str
    fixed: str


class HostRouter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    router_id: str
    legs: list[RouterLeg] = []
    gateway: RouterLeg | None = None  # its port on an external network
    next_hop: str = ""  # the gateway of that network's subnet
    snat: bool = True
    is_up: bool = True
    routes: list[HostRoute] = []
    floating: list[FloatingAddress] = []


class NetworkDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The network data of one host: its own ports and, on the network node, the routers."""

    ports: list[HostPort] = []
    members: dict[str, list[str]] = {}  # by security group; on the way they are here, and not in each rule
    peers: dict[str, list[str]] = {}  # by network: tunnel addresses of the hosts that have ports on it
    routers: list[HostRouter] = []


class NetworkQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A host asks for its document."""

    host: str
    session: str
    epoch: int
    tunnel_address: str = ""
    is_node: bool = False  # routers and floating IPs are its work
    have: str = ""  # the version that it has


class NetworkAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`document` empty: it is as the host has it, or (version "") the host must register first."""

    version: str = ""
    document: bytes = b""  # see pack()


class ContentsQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A guest's request to the metadata service of its host."""

    host: str
    session: str
    epoch: int
    server: str


class ContentsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`guest` None: this host does not hold the permission to run the server."""

    guest: GuestSpec | None = None
    secrets: GuestSecrets | None = None


def pack(document: NetworkDocument) -> bytes:
    return zlib.compress(msgspec.json.encode(document), 1)


def unpack(packed: bytes) -> NetworkDocument:
    return msgspec.json.decode(zlib.decompress(packed), type=NetworkDocument)


def version_of(packed: bytes) -> str:
    return sha256(packed).hexdigest()[:16]


def with_members(document: NetworkDocument) -> NetworkDocument:
    """The document with the members of groups in each rule, as filters need them."""

    def full(rule: PortRule) -> PortRule:
        if not rule.remote_group:
            return rule
        is_six = rule.ethertype == "IPv6"
        members = [one for one in document.members.get(rule.remote_group, []) if (":" in one) == is_six]
        return msgspec.structs.replace(rule, remote_members=members)

    return msgspec.structs.replace(document, ports=_with_rules(document.ports, full), members={})


def _with_rules(ports: list[HostPort], change: Callable[[PortRule], PortRule]) -> list[HostPort]:
    return [
        HostPort(one.server, msgspec.structs.replace(one.port, rules=[change(rule) for rule in one.port.rules]))
        for one in ports
    ]


class HostNetwork(Protocol):
    """The networks of one host, as its driver and its agent use them. Like a driver's verbs: doing one twice is
    harmless. All raise `Failed`."""

    filters: bool  # by security groups: a driver's `filters_ports` is this

    @property
    def moment(self) -> int:
        """The current moment, for `update`."""

    async def start(self) -> None:
        """Read the present state and change it to the wanted one."""

    async def stop(self) -> None:
        """Stop DHCP and metadata. Guests keep their networks."""

    async def ensure_plugged(self, server: str, copy: int, port: GuestPort) -> Plug:
        """Plug the port, before the guest's device is connected and again before each start."""

    async def ensure_unplugged(self, server: str, copy: int, port_id: str = "") -> None:
        """Unplug one port of this copy, or all (""). A port that another copy uses stays."""

    async def update(self, document: NetworkDocument, requested_at: int) -> None:
        """Apply a document that a conductor wrote at `requested_at` (a `moment`) or later. A port that was plugged
        after it stays; any other that the document does not name is closed."""
