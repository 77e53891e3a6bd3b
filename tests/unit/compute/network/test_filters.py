"""The text for nftables. What it does to packets is seen in tests/guests/network."""

from __future__ import annotations

import re
from ipaddress import ip_address

import msgspec
import pytest

from kilonova.compute.network.filters import Outside, link_local, no_rules, ruleset
from kilonova.compute.network.names import BRIDGE, LINKS, TAP, link, short
from kilonova.domain.guest_ports import AddressPair, GuestPort, PortAddress, PortRule

PORT = GuestPort(
    port_id="p",
    network_id="n",
    network_name="net",
    mac="fa:16:3e:00:00:05",
    mtu=1450,
    addresses=[PortAddress(address="10.7.0.5", prefix=24, version=4, subnet_id="s")],
)


def chain(text: str, name: str) -> list[str]:
    found = re.search(rf"  chain {name} {{\n(.*?)  }}\n", text, re.DOTALL)
    assert found is not None, name
    return [line.strip() for line in found[1].splitlines()]


def test_a_tap_of_which_nothing_is_known_is_closed():
    assert chain(ruleset([]), "guests")[-1] == f'iifname "{TAP}*" drop'
    assert chain(ruleset([PORT]), "guests")[-1] == f'iifname "{TAP}*" drop'


def test_frames_of_a_port_are_compared_with_its_own_addresses():
    assert f'"{link(TAP, "p")}" : goto from-{short("p")}' in chain(ruleset([PORT]), "guests")[1]


@pytest.mark.parametrize("is_secured", [True, False])
def test_only_internet_protocols_reach_a_port_with_security(is_secured):
    port = msgspec.structs.replace(PORT, port_security=is_secured)
    line = f'oifname "{link(TAP, "p")}" ether type != {{ ip, arp, ip6 }} drop'
    assert (line in chain(ruleset([port]), "marks")) is is_secured


def test_guests_do_not_reach_the_machine_itself():
    """Neither by frames (it would answer ARP for the addresses of its other links) nor by packets."""
    dropped = [f'iifname "{kind}*" drop' for kind in LINKS]
    assert chain(ruleset([PORT]), "machine")[1:] == dropped
    assert chain(ruleset([PORT], outside=Outside("out", ["leg"])), "machine")[2:] == dropped, "after the external leg"


def test_only_replies_pass_without_a_rule():
    for direction in ("egress", "ingress"):
        lines = chain(ruleset([PORT]), f"{direction}-{short('p')}")
        known = [line for line in lines if "established" in line]
        assert known == ["ct direction reply ct state established return"]


def test_each_network_has_its_own_connections():
    other = msgspec.structs.replace(PORT, port_id="q", network_id="m")
    (zones,) = chain(ruleset([PORT, other], {"routed"}), "zones")[1:]
    named = dict(re.findall(r'"(\w+)" : (\d+)', zones))
    assert set(named) == {link(BRIDGE, network) for network in ("n", "m", "routed")}
    assert len(set(named.values())) == 3


def test_what_no_rule_allows_is_dropped():
    text = ruleset([PORT])
    for direction in ("egress", "ingress"):
        lines = chain(text, f"{direction}-{short('p')}")
        assert lines[-1] == "drop"
        assert not [line for line in lines if line in ("return", "accept")]


def test_a_group_is_one_set_for_all_ports():
    rule = PortRule(direction="ingress", ethertype="IPv4", remote_group="g", remote_members=["10.7.0.1/32"])
    ports = [msgspec.structs.replace(PORT, port_id=name, rules=[rule]) for name in ("p", "q")]
    text = ruleset(ports)
    assert text.count("elements = { 10.7.0.1/32 }") == 1
    assert text.count(f"@four-{short('g')}") == 2


def test_allowed_pairs_are_addresses_of_that_mac_alone():
    pair = AddressPair(address="10.9.0.1/16", mac="fa:16:3e:99:99:99")
    lines = chain(ruleset([msgspec.structs.replace(PORT, address_pairs=[pair])]), f"from-{short('p')}")
    owned = "{ fa:16:3e:00:00:05 . 10.7.0.5, fa:16:3e:99:99:99 . 10.9.0.0/16 }"
    assert f"ether type ip ether saddr . ip saddr != {owned} drop" in lines


@pytest.mark.parametrize(
    ("pairs", "four", "six"),
    [
        (["::/0", "fe80::/10"], ["10.7.0.5"], ["::/0"]),
        (["10.7.0.0/24", "10.7.0.7"], ["10.7.0.0/24"], ["fe80::f816:3eff:fe00:5"]),
        (["10.7.0.4/32", "10.7.0.5"], ["10.7.0.4/31"], ["fe80::f816:3eff:fe00:5"]),
        (["0.0.0.0/0", "fe80::f816:3eff:fe00:5"], ["0.0.0.0/0"], ["fe80::f816:3eff:fe00:5"]),
    ],
)
def test_pairs_that_overlap_are_one_element(pairs, four, six):
    """nft refuses a set with elements that overlap, and with it the rules of all ports."""
    given = [AddressPair(address=one, mac=PORT.mac) for one in pairs]
    lines = chain(ruleset([msgspec.structs.replace(PORT, address_pairs=given)]), f"from-{short('p')}")
    for match, wanted in (
        ("ether type ip ether saddr . ip saddr", four),
        ("ether type arp arp saddr ether . arp saddr ip", four),
        ("ether type ip6 ether saddr . ip6 saddr", six),
    ):
        elements = ", ".join(f"{PORT.mac} . {one}" for one in wanted)
        assert f"{match} != {{ {elements} }} drop" in lines


def test_pairs_of_two_macs_are_not_merged():
    pairs = [AddressPair(address="10.7.0.0/24", mac=mac) for mac in ("fa:16:3e:99:99:99", "fa:16:3e:88:88:88")]
    lines = chain(ruleset([msgspec.structs.replace(PORT, address_pairs=pairs)]), f"from-{short('p')}")
    elements = f"{PORT.mac} . 10.7.0.5, " + ", ".join(f"{pair.mac} . 10.7.0.0/24" for pair in pairs)
    assert f"ether type ip ether saddr . ip saddr != {{ {elements} }} drop" in lines


ASKING = "ether type ip ip daddr 169.254.169.254 ether saddr . ip saddr != { fa:16:3e:00:00:05 . 10.7.0.5 } drop"


def test_without_port_security_nothing_is_filtered_but_questions_for_others_metadata():
    text = ruleset([msgspec.structs.replace(PORT, port_security=False)])
    assert chain(text, f"from-{short('p')}") == [ASKING]
    assert f"egress-{short('p')}" not in text


def test_metadata_is_asked_for_from_fixed_addresses_alone():
    """An address pair may be the address of another guest."""
    pair = AddressPair(address="10.7.0.0/24", mac=PORT.mac)
    six = PortAddress(address="fd00::5", prefix=64, version=6, subnet_id="t")
    for port in (PORT, msgspec.structs.replace(PORT, address_pairs=[pair], addresses=[*PORT.addresses, six])):
        assert chain(ruleset([port]), f"from-{short('p')}")[-1] == ASKING
    for is_secure in (True, False):
        without = msgspec.structs.replace(PORT, addresses=[six], address_pairs=[pair], port_security=is_secure)
        assert chain(ruleset([without]), f"from-{short('p')}")[-1] == "ether type ip ip daddr 169.254.169.254 drop"


def test_link_local_address_of_a_mac():
    assert link_local("fa:16:3e:00:00:05") == "fe80::f816:3eff:fe00:5"


def test_no_rules_is_nothing_but_the_end_of_the_tables():
    assert [line.split()[0] for line in no_rules().splitlines()] == ["add", "delete"] * 2


def chains_of(text: str) -> list[str]:
    return re.findall(r"  chain (\S+) {", text)


def secured(name: str, number: int, **more) -> GuestPort:
    return msgspec.structs.replace(PORT, port_id=name, mac=f"fa:16:3e:00:00:{number:02x}", **more)


def test_a_machine_without_ports_filters_its_links_alone():
    text = ruleset([])
    assert chains_of(text) == ["guests", "marks", "machine", "zones", "ports", "machine"]
    assert chain(text, "guests")[1:] == [f'iifname "{TAP}*" drop']
    assert chain(text, "zones")[1:] == []
    assert chain(text, "ports")[1:] == ['iifname != "knb*" accept', "meta mark set 0"]


def test_each_port_is_marked_by_its_number_as_source_and_destination():
    ports = [secured("p", 5), secured("q", 6)]
    text = ruleset(ports)
    marking = chain(text, "marks")[1:]
    unmarked = [f'iifname "{kind}*" meta mark set 0' for kind in LINKS]
    assert marking[:6] == [*unmarked, 'iifname "kns*" meta mark set 0xffff0000']
    numbers = {}
    for one, line in zip("pq", marking[6:8], strict=True):
        (mark,) = re.findall(rf'^iifname "{link(TAP, one)}" meta mark set (\S+)$', line)
        numbers[one] = int(mark, 16) >> 16
    assert len({*numbers.values()}) == 2 and all(1 <= number < 0xFFFF for number in numbers.values())
    assert marking[8:10] == [
        f'oifname "{link(TAP, one)}" meta mark set meta mark | {number:#x}' for one, number in numbers.items()
    ]
    sent = ", ".join(f"{number << 16:#x} : jump egress-{short(one)}" for one, number in numbers.items())
    got = ", ".join(f"{number:#x} : jump ingress-{short(one)}" for one, number in numbers.items())
    assert chain(text, "ports")[1:] == [
        'iifname != "knb*" accept',
        f"meta mark & 0xffff0000 vmap {{ {sent} }}",
        f"meta mark & 0xffff vmap {{ {got} }}",
        "meta mark set 0",
    ]


def test_only_ports_with_security_have_rules_of_groups():
    rule = PortRule(direction="ingress", ethertype="IPv4", remote_group="g", remote_members=["10.7.0.1/32"])
    open_port = secured("q", 6, port_security=False, rules=[rule])
    text = ruleset([secured("p", 5), open_port])
    assert [name for name in chains_of(text) if "gress" in name] == [f"egress-{short('p')}", f"ingress-{short('p')}"]
    assert short("q") not in "".join(chain(text, "ports")) and "elements" not in text
    assert {f"from-{short('p')}", f"from-{short('q')}"} <= set(chains_of(text))


def test_the_table_is_replaced_whole():
    text = ruleset([PORT])
    for family in ("bridge", "inet"):
        begin = f"add table {family} kilonova\ndelete table {family} kilonova\ntable {family} kilonova {{"
        assert text.count(begin) == 1


def test_what_a_port_may_send_from():
    """Its own addresses, those of its pairs, and the link-local address of each of its MACs."""
    six = PortAddress(address="2001:db8::5", prefix=64, version=6, subnet_id="t")
    pairs = [AddressPair(address="2001:db8:9::/64", mac="fa:16:3e:99:99:99"),
             AddressPair(address="2001:db8::7/128", mac=PORT.mac)]  # fmt: skip
    port = msgspec.structs.replace(PORT, addresses=[*PORT.addresses, six], address_pairs=pairs)
    macs = "fa:16:3e:00:00:05, fa:16:3e:99:99:99"
    own, other = link_local(PORT.mac), link_local("fa:16:3e:99:99:99")
    sent = [f"{PORT.mac} . 2001:db8::5", f"{PORT.mac} . 2001:db8::7", f"{PORT.mac} . {own}",
            "fa:16:3e:99:99:99 . 2001:db8:9::/64", f"fa:16:3e:99:99:99 . {other}"]  # fmt: skip
    lines = chain(ruleset([port]), f"from-{short('p')}")
    assert lines[0] == "ether type != { ip, arp, ip6 } drop"
    assert lines[1:4] == [
        f"ether saddr != {{ {macs} }} drop",
        f"arp operation request arp saddr ether {{ {macs} }} arp saddr ip 0.0.0.0 return",
        f"ether type arp arp saddr ether . arp saddr ip != {{ {PORT.mac} . 10.7.0.5 }} drop",
    ]
    (found,) = [line for line in lines if line.startswith("ether type ip6")]
    elements = found.removeprefix("ether type ip6 ether saddr . ip6 saddr != { ").removesuffix(" } drop").split(", ")
    assert sorted(elements) == sorted(sent)
    targets = {int(one, 16) for one in re.findall(r"nd-neighbor-advert @th,64,128 (\S+) return", "\n".join(lines))}
    assert targets == {int(ip_address(one)) for one in ("2001:db8::5", "2001:db8::7", own, other)}
    assert lines.index("icmpv6 type nd-neighbor-advert drop") == len(lines) - 2, "after those, before the metadata"


def test_a_port_without_addresses_of_ipv4_sends_none():
    lines = chain(ruleset([msgspec.structs.replace(PORT, addresses=[])]), f"from-{short('p')}")
    assert "ether type arp drop" in lines and "ether type ip drop" in lines
    assert "ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67 return" in lines


@pytest.mark.parametrize("outside", [None, Outside("out", [])])
def test_without_a_router_outside_nobody_reaches_the_machine(outside):
    text = ruleset([PORT], outside=outside)
    bridge, inet = re.findall(r"  chain machine {\n(.*?)  }\n", text, re.DOTALL)
    assert "accept" not in bridge.split("\n", 1)[1] and "meta mark" not in inet


def test_a_router_outside_reaches_the_addresses_there_and_no_others():
    legs = ["b", "a"]
    bridge, inet = re.findall(
        r"  chain machine {\n(.*?)  }\n", ruleset([PORT], outside=Outside("out", legs)), re.DOTALL
    )
    names = ", ".join(f'"{link("knr", one)}"' for one in sorted(legs))
    assert f"iifname {{ {names} }} meta mark set 0x1 accept" in bridge
    assert [line.strip() for line in inet.splitlines()[1:]] == [
        'iifname "knb*" drop',
        'iifname "out" meta mark 0x1 fib daddr . iif type != { local, multicast } drop',
        'iifname "out" meta mark 0x1 meta mark set 0',
    ]


def test_rules_of_each_direction_once():
    def rule(direction, protocol, **more):
        return PortRule(direction=direction, ethertype="IPv4", protocol=protocol, **more)

    rules = [
        rule("ingress", "tcp"),
        rule("egress", "udp"),
        rule("ingress", "tcp"),
        rule("ingress", "gre", remote_group="empty"),
    ]
    text = ruleset([msgspec.structs.replace(PORT, rules=rules)])
    tcp, udp = "meta nfproto ipv4 meta l4proto 6 return", "meta nfproto ipv4 meta l4proto 17 return"
    ingress, egress = (chain(text, f"{way}-{short('p')}") for way in ("ingress", "egress"))
    assert (ingress.count(tcp), ingress.count(udp), egress.count(tcp), egress.count(udp)) == (1, 0, 0, 1)
    assert not [line for line in ingress if "47" in line or not line]


def test_sets_of_both_versions_are_of_their_kind():
    four = PortRule(
        direction="ingress", ethertype="IPv4", remote_group="g", remote_members=["10.7.0.1/32", "10.8.0.0/16"]
    )
    six = PortRule(direction="ingress", ethertype="IPv6", remote_group="g", remote_members=["2001:db8::1/128"])
    text = ruleset([msgspec.structs.replace(PORT, rules=[six, four])])
    found = re.findall(r"  set (\S+) {\n    type (\S+); flags interval;\n    elements = { (.*?) }\n  }\n", text)
    assert found == [
        (f"four-{short('g')}", "ipv4_addr", "10.7.0.1/32, 10.8.0.0/16"),
        (f"six-{short('g')}", "ipv6_addr", "2001:db8::1/128"),
    ]
