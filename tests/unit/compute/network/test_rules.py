"""Rules of security groups as statements of nftables."""

import pytest

from kilonova.compute.network.names import short
from kilonova.compute.network.rules import sets, statement
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


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"protocol": "any"}, ""),
        ({"protocol": "ip"}, ""),
        ({"protocol": "0"}, " meta l4proto 0"),
        ({"protocol": "255"}, " meta l4proto 255"),
        ({"protocol": "tcp", "port_min": 22}, " tcp dport 22-22"),
        ({"protocol": "136", "port_min": 0, "port_max": 9}, " udplite dport 0-9"),
        ({"protocol": "tcp", "port_max": 9}, " meta l4proto 6"),
        ({"protocol": "gre", "port_min": 1, "port_max": 9}, " meta l4proto 47"),
        ({"protocol": "icmp", "port_min": 0, "port_max": 0}, " icmp type 0 icmp code 0"),
        ({"protocol": "icmp", "port_max": 0}, " meta l4proto 1"),
        ({"protocol": "1", "port_min": 8}, " icmp type 8"),
        ({"protocol": "icmpv6", "port_min": 128, "ethertype": "IPv6"}, " icmpv6 type 128"),
        ({"protocol": "icmp", "port_min": 128, "ethertype": "IPv6"}, " icmpv6 type 128"),
        ({"protocol": "1", "ethertype": "IPv6"}, " meta l4proto 58"),
        ({"protocol": "tcp", "ethertype": "IPv6"}, " meta l4proto 6"),
        ({"direction": "egress", "remote_group": "g", "remote_members": ["10.0.0.1"]}, f" ip daddr @four-{short('g')}"),
        (
            {"remote_group": "g", "remote_members": ["fd00::1"], "ethertype": "IPv6"},
            f" ip6 saddr @six-{short('g')}",
        ),
    ],
)
def test_numbers_and_names_of_protocols(rule, expected):
    whole = {"direction": "ingress", "ethertype": "IPv4", **rule}
    version = "ipv6" if whole["ethertype"] == "IPv6" else "ipv4"
    assert statement(PortRule(**whole)) == f"meta nfproto {version}{expected} return"


def test_sets_are_of_groups_with_members():
    def rule(**more):
        return PortRule(**{"direction": "ingress", "ethertype": "IPv4", **more})

    rules = [
        rule(),
        rule(remote_prefix="10.0.0.0/8"),
        rule(remote_group="empty"),
        rule(remote_group="g", remote_members=["10.0.0.1"]),
        rule(remote_group="g", remote_members=["fd00::1"], ethertype="IPv6"),
        rule(remote_members=["10.0.0.9"]),
    ]
    assert sets(rules) == {
        f"four-{short('g')}": ("ipv4_addr", ["10.0.0.1"]),
        f"six-{short('g')}": ("ipv6_addr", ["fd00::1"]),
    }
