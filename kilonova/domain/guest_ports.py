"""Ports as hosts know them: the data for plugging them, serving DHCP and filtering their traffic."""

from __future__ import annotations

import msgspec

ANYONE = None


class HostRoute(msgspec.Struct, frozen=True):
    """A route that the guest is given besides the one to its gateway."""

    destination: str  # CIDR
    nexthop: str


class PortAddress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fixed address of a port, with what its subnet says."""

    address: str
    prefix: int  # length
    version: int  # 4 | 6
    subnet_id: str
    gateway: str = ""  # "": the subnet has none
    dns_servers: list[str] = []
    routes: list[HostRoute] = []
    dhcp: bool = True
    ra_mode: str = ""  # of IPv6: slaac | dhcpv6-stateful | dhcpv6-stateless; "": no router advertisements are sent
    address_mode: str = ""  # of IPv6, the same values; "": the guest reads its address from its config drive


class PortRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Traffic that a security group of the port allows; what no rule allows is dropped."""

    direction: str  # ingress | egress
    ethertype: str  # IPv4 | IPv6
    protocol: str = ""  # a name or a number; "": any
    port_min: int | None = None  # of ICMP: the type
    port_max: int | None = None  # of ICMP: the code
    remote_prefix: str = ""
    remote_group: str = ""  # its id
    remote_members: list[str] = []  # prefixes that cover the addresses of its members, and no others

    @property
    def peers(self) -> list[str] | None:
        """The prefixes that traffic may come from or go to. None: all; an empty list: none."""
        if self.remote_group:
            return self.remote_members
        return [self.remote_prefix] if self.remote_prefix else ANYONE


class AddressPair(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses besides its own that the guest may send from."""

    address: str  # or a CIDR
    mac: str


class GuestPort(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A port of a guest. The order of a guest's ports is that of its network devices."""

    port_id: str
    network_id: str
    network_name: str
    mac: str
    mtu: int
    network_type: str = ""  # vxlan | flat | vlan | ...
    segment: int = 0  # VXLAN network identifier or VLAN; 0: none
    physical_network: str = ""
    tag: str = ""  # of the device, as the request named it
    vif_type: str = "ovs"
    vnic_type: str = "normal"
    is_up: bool = True  # its owner has not switched it off (admin_state_up)
    dns_name: str = ""
    addresses: list[PortAddress] = []
    security_groups: list[str] = []  # names
    port_security: bool = True  # False: nothing is filtered, not even forged addresses
    rules: list[PortRule] = []
    address_pairs: list[AddressPair] = []
