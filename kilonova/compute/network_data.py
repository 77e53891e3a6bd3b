"""network_data.json: how a guest sets up its network devices. The format is documented by a JSON schema of Nova."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

from kilonova.domain.guest_ports import GuestPort, PortAddress
from kilonova.domain.json import Json

EVERYWHERE = {4: "0.0.0.0/0", 6: "::/0"}
LINK_NAME = 14  # characters: Linux's limit for the name of a device


def network_data(ports: Sequence[GuestPort]) -> dict[str, Json]:
    links = [_link(port) for port in ports]
    held = [(port, address) for port in ports for address in port.addresses]
    networks = [_network(number, port, address) for number, (port, address) in enumerate(held)]
    servers = dict.fromkeys(server for _, address in held for server in address.dns_servers)
    return {"links": links, "networks": networks, "services": [_dns(server) for server in servers]}


def link_of(port: GuestPort) -> str:
    """The name of the port's device on its host."""
    return f"tap{port.port_id}"[:LINK_NAME]


def _link(port: GuestPort) -> dict[str, Json]:
    return {
        "id": link_of(port),
        "vif_id": port.port_id,
        "type": port.vif_type,
        "mtu": port.mtu or None,
        "ethernet_mac_address": port.mac,
    }


def _network(number: int, port: GuestPort, address: PortAddress) -> dict[str, Json]:
    common = {"id": f"network{number}", "link": link_of(port), "network_id": port.network_id}
    if address.version == 4 and address.dhcp:
        return {**common, "type": "ipv4_dhcp"}
    kind = f"ipv{address.version}"
    if address.dhcp and address.address_mode:
        kind = f"ipv6_{address.address_mode}"
    return {
        **common,
        "type": kind,
        "ip_address": address.address,
        "netmask": str(ip_network(f"{address.address}/{address.prefix}", strict=False).netmask),
        "routes": _routes(address),
        "services": [_dns(server) for server in address.dns_servers],
    }


def _routes(address: PortAddress) -> list[dict[str, str]]:
    given = [(one.destination, one.nexthop) for one in address.routes]
    if address.gateway:
        given.insert(0, (EVERYWHERE[address.version], address.gateway))
    return [
        {"network": str(net.network_address), "netmask": str(net.netmask), "gateway": gateway}
        for net, gateway in ((ip_network(destination), gateway) for destination, gateway in given)
    ]


def _dns(server: str) -> dict[str, str]:
    return {"type": "dns", "address": server}
