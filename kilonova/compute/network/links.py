"""The difference between a host's present and wanted links, as lines for `ip -batch`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from kilonova.compute.network.layout import Layout, Link, Namespace
from kilonova.compute.network.names import TAP, is_ours


class LinkData(TypedDict, total=False):
    id: int
    local: str
    isolated: bool


class LinkInfo(TypedDict, total=False):
    info_kind: str
    info_data: LinkData
    info_slave_data: LinkData


class ShownAddress(TypedDict):
    family: str
    local: str
    prefixlen: int


class Shown(TypedDict, total=False):
    """One entry of the JSON output of ip and bridge: a link, a namespace, a route, a neighbour."""

    name: str
    ifname: str
    linkinfo: LinkInfo
    mtu: int
    master: str
    flags: list[str]
    ifalias: str
    addr_info: list[ShownAddress]
    mac: str
    dst: str
    protocol: str
    dev: str
    lladdr: str


TUNNEL_PORT = 4789
EVERYBODY = "00:00:00:00:00:00"
# A bridge asks for connection tracking itself: the machine's other bridges stay as they are.
BRIDGE_OPTIONS = "nf_call_iptables 1 nf_call_ip6tables 1 mcast_snooping 0"


@dataclass(frozen=True)
class Present:
    """A link as `ip -j -d link` shows it."""

    name: str
    kind: str
    mtu: int
    master: str
    is_up: bool
    is_isolated: bool
    alias: str
    segment: int = 0
    local: str = ""


@dataclass
class LinkChanges:
    new_namespaces: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)  # lines for ip -batch
    floods: list[str] = field(default_factory=list)  # lines for bridge -batch
    old_namespaces: list[str] = field(default_factory=list)


def present(interfaces: Iterable[Shown]) -> dict[str, Present]:
    links = {}
    for one in interfaces:
        info = one.get("linkinfo", {})
        data, slave = info.get("info_data", {}), info.get("info_slave_data", {})
        links[one["ifname"]] = Present(
            name=one["ifname"],
            kind=info.get("info_kind", ""),
            mtu=one["mtu"],
            master=one.get("master", ""),
            is_up="UP" in one.get("flags", ()),
            is_isolated=bool(slave.get("isolated")),
            alias=one.get("ifalias", ""),
            segment=data.get("id", 0) if info.get("info_kind") == "vxlan" else 0,
            local=data.get("local", ""),
        )
    return links


def flood_entries(forwarding: Iterable[Shown]) -> dict[str, set[str]]:
    """Return, by link, where frames to unknown addresses go, as `bridge -j fdb` shows it."""
    entries: dict[str, set[str]] = {}
    for one in forwarding:
        if one.get("mac") == EVERYBODY and one.get("dst") and one.get("ifname"):
            entries.setdefault(one["ifname"], set()).add(one["dst"])
    return entries


def changes(
    wanted: Layout, links: Mapping[str, Present], namespaces: Collection[str], floods: Mapping[str, set[str]]
) -> LinkChanges:
    """`namespaces` are this host's own."""
    todo = LinkChanges()
    names = {one.name for one in wanted.namespaces}
    todo.new_namespaces = sorted(names - set(namespaces))
    todo.old_namespaces = sorted(set(namespaces) - names)
    stale = {one.name for one in wanted.links if one.name in links and _is_another(one, links[one.name], todo)}
    wanted_names = {one.name for one in wanted.links}
    # A tap is removed when it is unplugged, and only then: without its record it is closed (filters.py), not lost.
    gone = {name for name in links if is_ours(name) and name not in wanted_names and not name.startswith(TAP)}
    todo.links = [f"link delete {name}" for name in sorted(stale | gone)]
    for one in wanted.links:
        there = links.get(one.name) if one.name not in stale else None
        todo.links += _link(one, there)
    for name, peers in sorted(wanted.floods.items()):
        known = floods.get(name, set()) if name not in stale else set()
        todo.floods += [f"fdb append {EVERYBODY} dev {name} dst {peer}" for peer in peers if peer not in known]
        todo.floods += [f"fdb delete {EVERYBODY} dev {name} dst {peer}" for peer in sorted(known - set(peers))]
    return todo


def _is_another(wanted: Link, there: Present, todo: LinkChanges) -> bool:
    if wanted.kind == "vxlan":
        return (there.segment, there.local) != (wanted.segment, wanted.local)
    return wanted.kind == "veth" and wanted.namespace in todo.new_namespaces  # its other end went with the namespace


def _link(one: Link, there: Present | None) -> list[str]:
    name, lines = one.name, list[str]()
    if there is None:
        lines.append(_new(one))
        lines.append(f"link set {name} addrgenmode none")  # the machine itself has no address there
    if there is None or there.mtu != one.mtu:
        lines.append(f"link set {name} mtu {one.mtu}")
    if one.master and (there is None or there.master != one.master):
        lines.append(f"link set {name} master {one.master}")
    if one.is_isolated and (there is None or not there.is_isolated or there.master != one.master):
        lines.append(f"link set {name} type bridge_slave isolated on")
    if one.alias and (there is None or there.alias != one.alias):
        lines.append(f"link set {name} alias {one.alias}")
    if there is None or there.is_up != one.is_up:
        lines.append(f"link set {name} {'up' if one.is_up else 'down'}")
    return lines


def _new(one: Link) -> str:
    if one.kind == "tap":
        return f"tuntap add {one.name} mode tap"
    if one.kind == "bridge":
        return f"link add {one.name} type bridge {BRIDGE_OPTIONS}"
    if one.kind == "vxlan":
        return f"link add {one.name} type vxlan id {one.segment} dstport {TUNNEL_PORT} local {one.local}"
    peer = f"name {one.inside} address {one.mac} mtu {one.mtu} netns {one.namespace}"
    return f"link add {one.name} mtu {one.mtu} type veth peer {peer}"


def inside(
    namespace: Namespace, addresses: Sequence[Shown], routes: Sequence[Shown], neighbors: Sequence[Shown] = ()
) -> list[str]:
    """Return the lines for `ip -n NAMESPACE -batch`. The other parameters are the output of `ip -j address`, `ip -j
    route` and `ip -j neighbor show nud permanent` there."""
    wanted = set(namespace.addresses)
    there = {
        (one["ifname"], f"{each['local']}/{each['prefixlen']}")
        for one in addresses
        for each in one.get("addr_info", ())
        if each["family"] == "inet" and one["ifname"] != "lo"
    }
    lines = ["link set lo up"]
    lines += [f"address delete {address} dev {link}" for link, address in sorted(there - wanted)]
    lines += [
        f"address add {address} dev {link}" for link, address in namespace.addresses if (link, address) not in there
    ]
    lines += [f"link set {link} up" for link in dict.fromkeys(link for link, _ in namespace.addresses)]
    destinations = {_destination(route) for route in namespace.routes}
    for one in routes:
        if one.get("protocol") != "kernel" and one["dst"] not in destinations:
            lines.append(f"route delete {one['dst']}")
    return [*lines, *(f"route replace {route}" for route in namespace.routes), *_neighbors(namespace, neighbors)]


def _neighbors(namespace: Namespace, neighbors: Sequence[Shown]) -> list[str]:
    there = {(one["dev"], one["dst"], one.get("lladdr", "")) for one in neighbors}
    wanted = {(link, address) for link, address, _ in namespace.neighbors}
    gone = sorted((link, address) for link, address, _ in there if (link, address) not in wanted)
    lines = [f"neighbor delete {address} dev {link}" for link, address in gone]
    for link, address, mac in namespace.neighbors:
        if (link, address, mac) not in there:
            lines.append(f"neighbor replace {address} lladdr {mac} dev {link} nud permanent")
    return lines


def _destination(route: str) -> str:
    """Return the destination as `ip -j route` shows it."""
    destination = route.split()[0]
    return destination.removesuffix("/32")
