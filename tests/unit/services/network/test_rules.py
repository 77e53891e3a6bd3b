"""Rules of security groups: which go together, which are the same, and which are refused."""

from __future__ import annotations

from typing import Any

from kilonova.services.network.rules import ONLY_IPV6
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind, refusal

MISSING = {
    "ethertype": "IPv4",
    "protocol": None,
    "port_range_min": None,
    "port_range_max": None,
    "remote_ip_prefix": None,
    "remote_group_id": None,
    "description": "",
}


def numbers(first: int | None, last: int | None) -> dict[str, Any]:
    return {"port_range_min": first, "port_range_max": last}


async def make(bench: Bench, wishes: list[tuple[dict[str, Any], Any]]) -> None:
    """Each of these in a group of its own; what differs from the request, or the code of the refusal."""
    await bench.net.quotas.set(PROJECT, {"security_group": -1, "security_group_rule": -1})
    for wish, expected in wishes:
        group = await bench.one("security_group", name="g")
        asked = bench.one("security_group_rule", security_group_id=group["id"], direction="ingress", **wish)
        if isinstance(expected, str):
            assert await refusal(asked) == expected, wish
        else:
            rule = await asked
            whole = {**MISSING, "security_group_id": group["id"], "direction": "ingress", **wish, **expected}
            assert {name: rule[name] for name in whole} == whole


def test_protocols(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        six = {"ethertype": "IPv6"}
        wishes: list[tuple[dict[str, Any], Any]] = [
            ({}, {}),
            ({"description": "why"}, {}),
            ({"ethertype": None}, {"ethertype": "IPv4"}),
            (six, {}),
            ({"protocol": ""}, {"protocol": None}),
            ({"protocol": "any"}, {"protocol": None}),
            ({"protocol": "TCP"}, {"protocol": "tcp"}),
            ({"protocol": 6}, {"protocol": "6"}),
            ({"protocol": 0}, {"protocol": "0"}),
            ({"protocol": "255"}, {}),
            ({"protocol": "007"}, {}),
            ({"protocol": "256"}, "invalid_rule"),
            ({"protocol": "0001"}, "invalid_rule"),
            ({"protocol": "-1"}, "invalid_rule"),
            ({"protocol": "٣"}, "invalid_rule"),
            ({"protocol": "²"}, "invalid_rule"),
            ({"protocol": "pigeon"}, "invalid_rule"),
            ({"protocol": "vrrp"}, {}),
            ({"protocol": "icmp"}, {}),
            ({"protocol": "icmp", **six}, {}),
        ]
        wishes += [({"protocol": name}, "invalid_rule") for name in sorted(ONLY_IPV6)]
        wishes += [({"protocol": name, **six}, {}) for name in sorted(ONLY_IPV6)]
        await make(bench, wishes)

    bench.run(story)


def test_numbers_of_ports(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        wishes: list[tuple[dict[str, Any], Any]] = [
            ({"protocol": "tcp", **numbers(1, 65535)}, {}),
            ({"protocol": "17", **numbers(53, 53)}, {}),
            ({"protocol": "udp", **numbers(None, None)}, {}),
            ({"protocol": "tcp", **numbers(0, 1)}, "invalid_rule"),
            ({"protocol": "tcp", **numbers(1, 65536)}, "invalid_rule"),
            ({"protocol": "tcp", **numbers(2, 1)}, "invalid_rule"),
            ({"protocol": "tcp", **numbers(1, None)}, "invalid_rule"),
            ({"protocol": "tcp", **numbers(None, 1)}, "invalid_rule"),
            ({"protocol": "tcp", **numbers(-1, None)}, "invalid_rule"),
            (numbers(1, 1), "invalid_rule"),
            (numbers(None, 1), "invalid_rule"),
            ({"protocol": "gre", **numbers(1, 1)}, "invalid_rule"),
            ({"protocol": "gre", **numbers(None, 1)}, "invalid_rule"),
        ]
        await make(bench, wishes)

    bench.run(story)


def test_types_and_codes_of_icmp(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        icmp, six = {"protocol": "icmp"}, {"protocol": "icmpv6", "ethertype": "IPv6"}
        wishes: list[tuple[dict[str, Any], Any]] = [
            ({**icmp, **numbers(0, 0)}, {}),
            ({**icmp, **numbers(255, 255)}, {}),
            ({**icmp, **numbers(8, None)}, {}),
            ({**six, **numbers(128, 0)}, {}),
            ({"protocol": "1", **numbers(8, 0)}, {}),
            ({**icmp, **numbers(None, 0)}, "invalid_rule"),
            ({**icmp, **numbers(256, None)}, "invalid_rule"),
            ({**icmp, **numbers(-1, None)}, "invalid_rule"),
            ({**icmp, **numbers(8, 256)}, "invalid_rule"),
            ({**icmp, **numbers(8, -1)}, "invalid_rule"),
        ]
        await make(bench, wishes)

    bench.run(story)


def test_who_is_meant(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        six, others = {"ethertype": "IPv6"}, await bench.one("security_group", name="others")
        group = {"remote_group_id": others["id"]}
        wishes: list[tuple[dict[str, Any], Any]] = [
            ({"remote_ip_prefix": "10.0.0.7/24"}, {"remote_ip_prefix": "10.0.0.0/24"}),
            ({"remote_ip_prefix": "10.0.0.7"}, {"remote_ip_prefix": "10.0.0.7/32"}),
            ({"remote_ip_prefix": "2001:DB8::7", **six}, {"remote_ip_prefix": "2001:db8::7/128"}),
            ({"remote_ip_prefix": "2001:db8::/32", **six}, {}),
            ({"remote_ip_prefix": ""}, {"remote_ip_prefix": None}),
            (group, {}),
            ({**group, **six}, {}),
            ({"remote_group_id": ""}, {"remote_group_id": None}),
            ({**group, "remote_ip_prefix": "10.0.0.0/24"}, "invalid_rule"),
            ({"remote_ip_prefix": "10.0.0.0/24", **six}, "invalid_rule"),
            ({"remote_ip_prefix": "2001:db8::/32"}, "invalid_rule"),
            ({"remote_ip_prefix": "nonsense"}, "invalid_input"),
            ({"remote_group_id": "none"}, "security_group_not_found"),
        ]
        await make(bench, wishes)

    bench.run(story)


def test_a_group_has_each_rule_once(bench: Kind) -> None:
    """Rules that differ in anything but their description are different ones."""

    async def story(bench: Bench) -> None:
        one, two = [await bench.one("security_group", name=name) for name in ("one", "two")]
        rule = {"security_group_id": one["id"], "direction": "ingress", "ethertype": "IPv4", "protocol": "udp"}
        rule |= {**numbers(5, 5), "remote_ip_prefix": "10.0.0.0/8"}
        plain = {name: rule[name] for name in ("security_group_id", "direction")}
        made = await bench.one("security_group_rule", **rule)
        for differs in (
            {"security_group_id": two["id"]},
            {"direction": "egress"},
            {"protocol": "tcp"},
            {"protocol": "17"},
            numbers(4, 5),
            numbers(5, 6),
            {"remote_ip_prefix": "10.0.0.0/9"},
            {"remote_ip_prefix": None},
            {"remote_ip_prefix": None, "remote_group_id": one["id"]},
            {"remote_ip_prefix": None, "remote_group_id": two["id"]},
            {"remote_ip_prefix": "2001:db8::/32", "ethertype": "IPv6"},
            {"remote_ip_prefix": None, "ethertype": "IPv6"},
        ):
            await bench.one("security_group_rule", **{**rule, **differs})
        assert await refusal(bench.one("security_group_rule", **rule, description="again")) == "rule_exists"
        await bench.one("security_group_rule", **plain)
        assert await refusal(bench.one("security_group_rule", **plain)) == "rule_exists"
        await bench.net.rules.delete(None, made["id"])
        await bench.one("security_group_rule", **rule)

    bench.run(story)


def test_a_rule_is_made_in_a_group_that_its_project_has(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        mine, theirs = await bench.one("security_group"), await bench.one("security_group", OTHER)
        rule = {"direction": "ingress"}
        into = {"security_group_id": theirs["id"]}
        asked = bench.one("security_group_rule", viewer=PROJECT, **rule, **into)
        assert await refusal(asked) == "security_group_not_found"
        naming = {"security_group_id": mine["id"], "remote_group_id": theirs["id"]}
        asked = bench.one("security_group_rule", viewer=PROJECT, **rule, **naming)
        assert await refusal(asked) == "security_group_not_found"
        assert (await bench.one("security_group_rule", **rule, **into))["security_group_id"] == theirs["id"]
        assert (await bench.one("security_group_rule", **rule, **naming))["remote_group_id"] == theirs["id"]

    bench.run(story)
