"""Rules of security groups as statements of nftables."""

import pytest

from kilonova.compute.network.names import short
from kilonova.compute.network.rules import statement
from kilonova.domain.guest_ports import PortRule


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, "meta nfproto ipv4 return"),
        ({"protocol": "tcp"}, "meta nfproto ipv4 meta l4proto 6 return"),
        ({"protocol": "tcp", "port_min": 22, "port_max": 22}, "meta nfproto ipv4 tcp dport 22-22 return"),
        ({"protocol": "17", "port_min": 1, "port_max": 9}, "meta nfproto ipv4 udp dport 1-9 return"),
        ({"protocol": "icmp", "port_min": 8}, "meta nfproto ipv4 icmp type 8 return"),
        ({"protocol": "icmp", "port_min": 3, "port_max": 4}, "meta nfproto ipv4 icmp type 3 icmp code 4 return"),
        ({"protocol": "icmp", "ethertype": "IPv6"}, "meta nfproto ipv6 meta l4proto 58 return"),
        ({"protocol": "vrrp"}, "meta nfproto ipv4 meta l4proto 112 return"),
        ({"remote_prefix": "10.0.0.0/8"}, "meta nfproto ipv4 ip saddr 10.0.0.0/8 return"),
        ({"direction": "egress", "remote_prefix": "10.0.0.0/8"}, "meta nfproto ipv4 ip daddr 10.0.0.0/8 return"),
        ({"ethertype": "IPv6", "remote_prefix": "fd00::/8"}, "meta nfproto ipv6 ip6 saddr fd00::/8 return"),
        ({"remote_group": "g"}, ""),
        (
            {"remote_group": "g", "remote_members": ["10.0.0.1"]},
            f"meta nfproto ipv4 ip saddr @four-{short('g')} return",
        ),
    ],
)
def test_each_kind_of_rule(rule, expected):
    assert statement(PortRule(**{"direction": "ingress", "ethertype": "IPv4", **rule})) == expected
