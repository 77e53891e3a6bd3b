"""Addresses as arithmetic: what a CIDR, a gateway, a pool and a MAC may be, and what follows from them."""

from __future__ import annotations

import ipaddress

import pytest

from kilonova.domain.errors import Refused
from kilonova.services.network.addresses import (
    address_of,
    check_gateway,
    check_net,
    covering,
    default_gateway,
    default_pools,
    from_mac,
    is_in_pools,
    key_of,
    mac_of,
    macs_for,
    net_of,
    pools_of,
    ranges_of,
    shown,
)


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/255.255.255.0", "fe80::%eth0/64", "::/129",
     "10.0.0.0/٨", "10.0.0.0/0024", "010.0.0.0/8", "10.0.0.0/8 ", "a/b", "1/8", "10.0.0.0/8/8", "x" * 300],
)  # fmt: skip
def test_what_is_no_cidr_is_refused(text: str) -> None:
    with pytest.raises(Refused) as why:
        net_of(text)
    assert why.value.code == "invalid_input" and len(why.value.message) < 200


def test_host_bits_of_a_cidr_are_dropped() -> None:
    assert str(net_of("10.0.0.77/24")) == "10.0.0.0/24"
    assert str(net_of("2001:db8::1/128")) == "2001:db8::1/128"


def test_a_wrong_value_is_repeated_up_to_60_characters() -> None:
    assert shown("x" * 60) == "x" * 60
    assert shown("x" * 61) == "x" * 60 + "…"


@pytest.mark.parametrize("text", ["fe80::1%eth0", "10.0.0", "10.0.0.256", "1", "::1/64", "", "localhost"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        address_of(text)


@pytest.mark.parametrize("text", ["", "fa:16:3e:00:00", "01:00:5e:00:00:01", "00:00:00:00:00:00", "fa:16:3e:00:00:0g"])
def test_what_is_no_mac_of_one_device_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        mac_of(text)


def test_a_mac_is_told_in_one_way() -> None:
    assert mac_of("FA-16-3E-0A-0B-0C") == "fa:16:3e:0a:0b:0c"
    made = macs_for("c0ffee")
    assert len(set(made)) == 10 and all(mac_of(mac) == mac and mac.startswith("fa:16:3e:") for mac in made)


@pytest.mark.parametrize(
    ("cidr", "gateway", "expected"),
    [
        ("10.0.0.0/29", "10.0.0.1", [("10.0.0.2", "10.0.0.6")]),
        ("10.0.0.0/29", "10.0.0.3", [("10.0.0.1", "10.0.0.2"), ("10.0.0.4", "10.0.0.6")]),
        ("10.0.0.0/29", None, [("10.0.0.1", "10.0.0.6")]),
        ("10.0.0.0/30", "10.0.0.1", [("10.0.0.2", "10.0.0.2")]),
        ("10.0.0.0/31", "10.0.0.1", [("10.0.0.0", "10.0.0.0")]),
        ("10.0.0.0/32", "10.0.0.0", []),
        ("2001:db8::/64", "2001:db8::1", [("2001:db8::2", "2001:db8::ffff:ffff:ffff:ffff")]),
        ("2001:db8::/64", "fe80::1", [("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff")]),
        ("ffff:ffff:ffff:ffff::/64", None, [("ffff:ffff:ffff:ffff::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")]),
    ],
)
def test_pools_leave_out_what_no_port_may_have(cidr: str, gateway: str | None, expected: list[tuple[str, str]]) -> None:
    pools = default_pools(net_of(cidr), ipaddress.ip_address(gateway) if gateway else None)
    assert [(pool["start"], pool["end"]) for pool in pools] == expected


@pytest.mark.parametrize(
    ("pools", "code"),
    [
        ([("10.0.0.9", "10.0.0.2")], "invalid_pool"),
        ([("10.0.0.2", "10.0.1.2")], "pool_out_of_subnet"),
        ([("10.0.0.0", "10.0.0.9")], "pool_out_of_subnet"),
        ([("10.0.0.9", "10.0.0.255")], "pool_out_of_subnet"),
        ([("10.0.0.2", "10.0.0.9"), ("10.0.0.9", "10.0.0.12")], "pools_overlap"),
        ([("::1", "::2")], "invalid_input"),
        ([("::1", "10.0.0.9")], "invalid_input"),
        ([("10.0.0.2", "::a00:9")], "invalid_input"),
        ([("10.0.0.2", "nonsense")], "invalid_input"),
    ],
)
def test_wrong_pools_are_refused(pools: list[tuple[str, str]], code: str) -> None:
    with pytest.raises(Refused) as why:
        pools_of(net_of("10.0.0.0/24"), [{"start": start, "end": end} for start, end in pools])
    assert why.value.code == code


def test_what_is_taken_is_not_free() -> None:
    pools = [{"start": "10.0.0.2", "end": "10.0.0.6"}]
    taken = [ipaddress.ip_address(text) for text in ("10.0.0.2", "10.0.0.4", "10.0.0.6", "10.0.0.77")]
    expected = [(key_of(address_of(one)),) * 2 for one in ("10.0.0.3", "10.0.0.5")]
    assert ranges_of(pools, taken) == expected
    rest = [address_of(f"10.0.0.{last}") for last in range(2, 6)]
    assert ranges_of(pools, rest) == [(key_of(address_of("10.0.0.6")),) * 2]
    last = [{"start": "255.255.255.254", "end": "255.255.255.255"}]
    assert ranges_of(last, [address_of("255.255.255.255")]) == [("fffffffe", "fffffffe")]


def test_a_device_makes_its_own_address_from_its_mac() -> None:
    assert str(from_mac(net_of("2001:db8::/64"), "fa:16:3e:01:02:03")) == "2001:db8::f816:3eff:fe01:203"


def test_pools_are_ordered_and_may_be_as_large_as_the_subnet_and_as_small_as_an_address() -> None:
    whole = [{"start": "10.0.0.1", "end": "10.0.0.254"}]
    assert pools_of(net_of("10.0.0.0/24"), whole) == whole
    first, middle, last = ({"start": f"10.0.0.{each}", "end": f"10.0.0.{each}"} for each in (3, 4, 200))
    assert pools_of(net_of("10.0.0.0/24"), [last, first, middle]) == [first, middle, last]
    out_of_order = [{"start": "10.0.0.50", "end": "10.0.0.60"}, last, {"start": "10.0.0.55", "end": "10.0.0.70"}]
    with pytest.raises(Refused):
        pools_of(net_of("10.0.0.0/24"), out_of_order)


@pytest.mark.parametrize(("address", "is_in"), [(3, False), (4, True), (6, True), (7, False), (9, True), (10, False)])
def test_an_address_is_in_one_of_the_pools(address: int, is_in: bool) -> None:
    pools = [{"start": "10.0.0.4", "end": "10.0.0.6"}, {"start": "10.0.0.9", "end": "10.0.0.9"}]
    assert is_in_pools(address_of(f"10.0.0.{address}"), pools) is is_in


@pytest.mark.parametrize(
    ("cidr", "is_subnet", "has_dhcp"),
    [
        ("10.0.0.0/24", True, True),
        ("10.0.0.0/30", True, True),
        ("10.0.0.0/31", True, False),
        ("10.0.0.0/32", True, False),
        ("0.0.0.0/0", False, False),
        ("0.0.0.0/8", True, False),
        ("127.0.0.0/24", True, False),
        ("224.0.0.0/24", True, False),
        ("2001:db8::/64", True, True),
        ("2001:db8::/126", True, True),
        ("2001:db8::/127", True, False),
        ("::/0", False, False),
        ("::/64", False, False),
        ("ff02::/64", True, False),
    ],
)
def test_what_may_be_a_subnet_and_what_dhcp_can_serve(cidr: str, is_subnet: bool, has_dhcp: bool) -> None:
    for dhcp, may_be in ((False, is_subnet), (True, has_dhcp)):
        if may_be:
            check_net(net_of(cidr), dhcp=dhcp)
        else:
            with pytest.raises(Refused):
                check_net(net_of(cidr), dhcp=dhcp)


@pytest.mark.parametrize(
    ("cidr", "gateway"),
    [
        ("10.0.0.0/24", "10.0.0.1"),
        ("10.0.0.0/31", "10.0.0.1"),
        ("10.0.0.7/32", "10.0.0.7"),
        ("2001:db8::/127", "2001:db8::1"),
        ("2001:db8::7/128", "2001:db8::7"),
    ],
)
def test_the_gateway_that_nobody_chose_is_the_first_address(cidr: str, gateway: str) -> None:
    assert str(default_gateway(net_of(cidr))) == gateway
    check_gateway(net_of(cidr), default_gateway(net_of(cidr)))


@pytest.mark.parametrize(
    ("cidr", "gateway", "may_be"),
    [
        ("10.0.0.0/24", "10.0.0.254", True),
        ("10.0.0.0/24", "10.0.0.0", False),
        ("10.0.0.0/24", "10.0.0.255", False),
        ("10.0.0.0/24", "10.0.1.1", False),
        ("10.0.0.0/31", "10.0.0.0", True),
        ("10.0.0.0/24", "169.254.0.1", False),
        ("169.254.0.0/24", "169.254.0.1", True),
        ("2001:db8::/64", "2001:db8::ffff:ffff:ffff:ffff", True),
        ("2001:db8::/64", "2001:db8::", False),
        ("2001:db8::/64", "2001:db9::1", False),
        ("2001:db8::/64", "fe80::1", True),
        ("fe80::/64", "fe80::1", True),
        ("fe80::/64", "fe80::", False),
    ],
)
def test_a_gateway_is_a_host_of_the_subnet_or_link_local(cidr: str, gateway: str, may_be: bool) -> None:
    if may_be:
        check_gateway(net_of(cidr), address_of(gateway))
    else:
        with pytest.raises(Refused):
            check_gateway(net_of(cidr), address_of(gateway))


@pytest.mark.parametrize(
    ("texts", "prefixes"),
    [
        ([], []),
        (["10.0.0.1"], ["10.0.0.1/32"]),
        (["10.0.0.3", "10.0.0.2", "10.0.0.3"], ["10.0.0.2/31"]),
        (["10.0.0.1", "10.0.0.2"], ["10.0.0.1/32", "10.0.0.2/32"]),
        (["10.0.0.1", "10.0.0.3"], ["10.0.0.1/32", "10.0.0.3/32"]),
        (["10.0.0.0/25", "10.0.0.128/25", "10.0.0.7"], ["10.0.0.0/24"]),
        (["2001:db8::1", "10.0.0.1", "2001:db8::"], ["10.0.0.1/32", "2001:db8::/127"]),
        (["10.0.0.5/24"], ["10.0.0.0/24"]),
    ],
)
def test_prefixes_cover_addresses_and_no_others(texts: list[str], prefixes: list[str]) -> None:
    assert covering(texts) == prefixes
