"""The links and namespaces that a host shall have for its ports and routers. Pure; links.py compares and changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_interface

from kilonova.compute.network.filters import METADATA_ADDRESS
from kilonova.compute.network.names import (
    BRIDGE,
    INSIDE,
    ROUTER,
    SERVICE,
    TAP,
    VXLAN,
    link,
    mac_of,
    router_leg_inside,
    router_namespace,
    service_namespace,
)
from kilonova.compute.network.nat import translations
from kilonova.domain.guest_ports import GuestPort
from kilonova.domain.host_network import HostRouter, RouterLeg

TUNNELLED = "vxlan"
TUNNEL_BYTES = 50  # that VXLAN over IPv4 puts before each frame
LEAST_MTU = 576


@dataclass(frozen=True)
class Link:
    """A wanted link; `inside` is the other end of a veth."""

    name: str
    kind: str  # bridge | tap | vxlan | veth
    mtu: int
    master: str = ""
    is_up: bool = True
    is_isolated: bool = False  # it and other such links of the bridge do not reach each other
    alias: str = ""
    segment: int = 0
    local: str = ""
    namespace: str = ""
    inside: str = ""
    mac: str = ""


@dataclass(frozen=True)
class Namespace:
    name: str
    addresses: tuple[tuple[str, str], ...] = ()  # link and address
    routes: tuple[str, ...] = ()  # as `ip route` takes them
    macs: tuple[tuple[str, str], ...] = ()  # of the links whose neighbours are notified of new addresses
    neighbors: tuple[tuple[str, str, str], ...] = ()  # link, address and MAC: fixed, without ARP
    forwards: bool = False
    rules: str = ""  # for nft


@dataclass(frozen=True)
class Layout:
    links: tuple[Link, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    floods: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by VXLAN link: where unknown frames go


@dataclass(frozen=True)
class HostNetworkOptions:
    """The operator's settings of this host."""

    host: str
    tunnel_address: str = ""  # "": no tunnels
    path_mtu: int = 1500  # of the network between hosts
    external_bridge: str = ""


@dataclass(frozen=True)
class Plugged:
    """A port with a tap here. Not bound to this host any more: its tap is down."""

    server: str
    copy: int
    port: GuestPort
    is_bound: bool = True

    @property
    def alias(self) -> str:
        return f"{self.server}/{self.copy}"


def effective_mtu(options: HostNetworkOptions, network_type: str, mtu: int) -> int:
    """Return the MTU that fits into the tunnel, if the network has one."""
    return max(LEAST_MTU, min(mtu, options.path_mtu - TUNNEL_BYTES)) if network_type == TUNNELLED else mtu


def layout(
    options: HostNetworkOptions,
    plugged: Sequence[Plugged],
    peers: Mapping[str, Sequence[str]],
    routers: Sequence[HostRouter] = (),
) -> Layout:
    networks: dict[str, RouterLeg | GuestPort] = {one.port.network_id: one.port for one in plugged}
    for router in routers:
        networks = {**{leg.network_id: leg for leg in router.legs}, **networks}
    links, namespaces, floods = list[Link](), list[Namespace](), dict[str, tuple[str, ...]]()
    for network_id, example in sorted(networks.items()):
        mtu = effective_mtu(options, example.network_type, example.mtu)
        bridge = link(BRIDGE, network_id)
        links.append(Link(bridge, "bridge", mtu))
        if example.network_type == TUNNELLED and options.tunnel_address:
            tunnel = link(VXLAN, network_id)
            # Isolated, as the services of this host are: DHCP and metadata never cross a tunnel.
            ends = {"segment": example.segment, "local": options.tunnel_address}
            links.append(Link(tunnel, "vxlan", mtu, bridge, is_isolated=True, **ends))  # type: ignore[arg-type]
            floods[tunnel] = tuple(sorted(set(peers.get(network_id, ())) - {options.tunnel_address}))
        here = [one for one in plugged if one.port.network_id == network_id]
        if here:
            service = _service(options, network_id, bridge, mtu, [one.port for one in here])
            links.append(service[0])
            namespaces.append(service[1])
        for one in sorted(here, key=lambda one: one.port.port_id):
            is_up = one.is_bound and one.port.is_up
            links.append(Link(link(TAP, one.port.port_id), "tap", mtu, bridge, is_up=is_up, alias=one.alias))
    for router in sorted(routers, key=lambda router: router.router_id):
        if router.is_up:
            links += _router_links(options, router)
            namespaces.append(_router_namespace(options, router))
    return Layout(tuple(links), tuple(namespaces), floods)


def _service(
    options: HostNetworkOptions, network_id: str, bridge: str, mtu: int, ports: Sequence[GuestPort]
) -> tuple[Link, Namespace]:
    """Return the link and the namespace that serve DHCP and metadata of one network."""
    name = service_namespace(options.host, network_id)
    nets = {str(ip_interface(f"{one.address}/{one.prefix}").network) for port in ports for one in port.addresses}
    routes = [f"{net} dev {INSIDE} scope link src {METADATA_ADDRESS}" for net in sorted(nets) if ":" not in net]
    address = (INSIDE, f"{METADATA_ADDRESS}/32")
    service = Link(
        link(SERVICE, network_id),
        "veth",
        mtu,
        bridge,
        is_isolated=True,
        namespace=name,
        inside=INSIDE,
        mac=service_mac(options.host, network_id),
    )
    # A guest may claim others' addresses, by address pairs or without port security.
    neighbors = [(INSIDE, one.address, port.mac) for port in ports for one in port.addresses if ":" not in one.address]
    return service, Namespace(name, (address,), tuple(routes), neighbors=tuple(sorted(neighbors)))


def service_mac(host: str, network_id: str) -> str:
    return mac_of(f"{host}/{network_id}")


def _router_links(options: HostNetworkOptions, router: HostRouter) -> list[Link]:
    name = router_namespace(options.host, router.router_id)
    links = []
    for leg in _legs(router):
        outside = leg is router.gateway
        master = options.external_bridge if outside else link(BRIDGE, leg.network_id)
        links.append(
            Link(
                link(ROUTER, leg.port_id),
                "veth",
                effective_mtu(options, leg.network_type, leg.mtu),
                master,
                namespace=name,
                inside=router_leg_inside(leg.port_id),
                mac=leg.mac,
            )
        )
    return links


def _legs(router: HostRouter) -> list[RouterLeg]:
    return [*router.legs, *([router.gateway] if router.gateway else [])]


def _router_namespace(options: HostNetworkOptions, router: HostRouter) -> Namespace:
    addresses = [(router_leg_inside(leg.port_id), one) for leg in router.legs for one in leg.addresses]
    routes = [f"{route.destination} via {route.nexthop}" for route in router.routes]
    if router.gateway is not None:
        out = router_leg_inside(router.gateway.port_id)
        addresses += [(out, one) for one in router.gateway.addresses]
        addresses += [(out, f"{one.address}/32") for one in router.floating]
        if router.next_hop:
            routes.append(f"default via {router.next_hop}")
    four = [(inside, one) for inside, one in addresses if ":" not in one]
    return Namespace(
        router_namespace(options.host, router.router_id),
        tuple(four),
        tuple(route for route in routes if ":" not in route),
        macs=tuple((router_leg_inside(leg.port_id), leg.mac) for leg in _legs(router)),
        forwards=True,
        rules=translations(router),
    )
