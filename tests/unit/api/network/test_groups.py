"""Security groups and their rules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.network.asked import Asked, run
from tests.unit.services.network.bench import PROJECT

ORDER = "port_range_min must be <= port_range_max"
GROUPS, RULES = "/security-groups", "/security-group-rules"


async def group(net: Asked, by: str = "me", **wish: Any) -> Any:
    return await net.post(GROUPS, {"security_group": {"name": "g", **wish}}, by)


async def rule(net: Asked, group: Any, by: str = "me", **wish: Any) -> Any:
    told = {"security_group_id": group["id"], "direction": "ingress", **wish}
    return await net.post(RULES, {"security_group_rule": told}, by)


def test_each_project_has_a_default_group_that_its_owner_cannot_remove() -> None:
    async def story(net: Asked) -> None:
        for by in ("me", "reader", "me", "other"):
            (found,) = (await net.get(GROUPS, by))["security_groups"]
            assert found["name"] == "default"
        (default,) = (await net.get(GROUPS))["security_groups"]
        rules = {
            (one["direction"], one["ethertype"], one["remote_group_id"]) for one in default["security_group_rules"]
        }
        own = default["id"]
        assert rules == {
            ("egress", "IPv4", None),
            ("egress", "IPv6", None),
            ("ingress", "IPv4", own),
            ("ingress", "IPv6", own),
        }
        assert await net.refused("DELETE", f"{GROUPS}/{own}") == (409, "SecurityGroupCannotRemoveDefault")
        assert await net.refused("POST", GROUPS, {"security_group": {"name": "default"}}) == (
            409,
            "SecurityGroupDefaultAlreadyExists",
        )
        renamed = {"security_group": {"name": "other"}}
        assert (await net.refused("PUT", f"{GROUPS}/{own}", renamed))[0] == 409
        await net.put(f"{GROUPS}/{own}", {"security_group": {"description": "mine"}})
        found = await net.get(f"{GROUPS}?project_id={PROJECT}&name=default", "admin")
        assert [one["id"] for one in found["security_groups"]] == [own]
        await net.delete(f"{GROUPS}/{own}", "admin")
        (again,) = (await net.get(GROUPS))["security_groups"]
        assert again["name"] == "default" and again["id"] != own

    run(story)


def test_a_group_from_its_making_to_its_end() -> None:
    async def story(net: Asked) -> None:
        made = await group(net, description="d", tags=["t"])
        assert (made["name"], made["stateful"], made["tags"]) == ("g", True, ["t"])
        assert {one["direction"] for one in made["security_group_rules"]} == {"egress"}
        changed = await net.put(f"{GROUPS}/{made['id']}", {"security_group": {"name": "h"}})
        assert (changed["security_group"]["name"], changed["security_group"]["description"]) == ("h", "d")
        taken = {"security_group": {"name": "default"}}
        assert (await net.refused("PUT", f"{GROUPS}/{made['id']}", taken))[0] == 409
        assert (await net.refused("GET", f"{GROUPS}/{made['id']}", by="other"))[0] == 404
        network = await net.network()
        port = await net.port(network, security_groups=[made["id"]])
        assert await net.refused("DELETE", f"{GROUPS}/{made['id']}") == (409, "SecurityGroupInUse")
        stateless = {"security_group": {"stateful": False}}
        assert (await net.refused("PUT", f"{GROUPS}/{made['id']}", stateless))[0] == 409
        await net.delete(f"/ports/{port['id']}")
        other = await group(net, name="other")
        pointing = await rule(net, other, remote_group_id=made["id"])
        await net.delete(f"{GROUPS}/{made['id']}")
        assert await net.refused("GET", f"{RULES}/{pointing['id']}") == (404, "SecurityGroupRuleNotFound")
        assert (await net.get(f"{RULES}?security_group_id={made['id']}", "admin"))["security_group_rules"] == []

    run(story)


def test_rules_are_told_as_they_were_asked_for() -> None:
    async def story(net: Asked) -> None:
        mine = await group(net)
        for wish in (
            {"protocol": "tcp", "port_range_min": 22, "port_range_max": 22, "remote_ip_prefix": "10.0.0.0/8"},
            {"protocol": "icmp", "port_range_min": 8, "port_range_max": 0},
            {"protocol": "icmp", "port_range_min": 8, "port_range_max": None},
            {"protocol": "udp", "ethertype": "IPv6", "remote_ip_prefix": "2001:db8::/32"},
            {"protocol": "icmpv6", "ethertype": "IPv6"},
            {"protocol": "vrrp", "direction": "egress"},
            {"remote_group_id": mine["id"], "description": "among us"},
            {},
        ):
            made = await rule(net, mine, **wish)
            expected = {"ethertype": "IPv4", "protocol": None, "port_range_min": None, "remote_ip_prefix": None, **wish}
            assert expected.items() <= made.items()
            (found,) = (await net.get(f"{RULES}?id={made['id']}"))["security_group_rules"]
            assert found == made
        assert (await rule(net, mine, protocol=6))["protocol"] == "6"
        assert (await rule(net, mine, remote_ip_prefix="10.1.2.3"))["remote_ip_prefix"] == "10.1.2.3/32"
        assert (await rule(net, mine, remote_ip_prefix="10.1.2.3/8"))["remote_ip_prefix"] == "10.0.0.0/8"
        shown = (await net.get(f"{GROUPS}/{mine['id']}"))["security_group"]
        assert len(shown["security_group_rules"]) == 13
        path = f"{RULES}/{made['id']}"
        described = await net.put(path, {"security_group_rule": {"description": "new"}})
        assert described["security_group_rule"]["description"] == "new"
        assert (await net.refused("PUT", path, {"security_group_rule": {"direction": "egress"}}))[0] == 400
        assert (await net.refused("DELETE", path, by="other"))[0] == 404
        await net.delete(path)

    run(story)


@pytest.mark.parametrize(
    ("wish", "status", "told"),
    [
        ({"protocol": "tcp", "port_range_min": -16, "port_range_max": 80}, 400, "Invalid value for port -16"),
        ({"protocol": "tcp", "port_range_min": 80, "port_range_max": 79}, 400, ORDER),
        ({"protocol": "tcp", "port_range_min": 80, "port_range_max": 65536}, 400, "Invalid value for port 65536"),
        ({"protocol": "tcp", "port_range_min": None, "port_range_max": 6}, 400, ORDER),
        ({"protocol": "tcp", "port_range_min": 0, "port_range_max": 6}, 400, "Invalid value for port 0"),
        ({"protocol": "icmp", "port_range_min": 1, "port_range_max": 256}, 400, "Invalid value for ICMP code"),
        ({"protocol": "icmp", "port_range_min": -1, "port_range_max": 25}, 400, "Invalid value"),
        ({"protocol": "icmp", "port_range_max": 6}, 400, "ICMP type (port-range-min) is missing"),
        ({"protocol": "icmp", "port_range_min": 300, "port_range_max": 1}, 400, "Invalid value for ICMP type"),
        ({"port_range_min": 80, "port_range_max": 80}, 400, "protocol"),
        ({"protocol": "gre", "port_range_min": 80, "port_range_max": 80}, 400, "no ports"),
        ({"protocol": "magic"}, 400, "not supported"),
        ({"protocol": 256}, 400, ""),
        ({"protocol": "256"}, 400, "not supported"),
        ({"protocol": True}, 400, ""),
        ({"protocol": "icmpv6", "ethertype": "IPv4"}, 400, "ethertype"),
        ({"remote_ip_prefix": "2001:db8::/32"}, 400, "Conflicting value ethertype"),
        ({"remote_ip_prefix": "10.0.0.0/8", "ethertype": "IPv6"}, 400, "Conflicting value ethertype"),
        ({"remote_ip_prefix": "fe80::%eth0/64", "ethertype": "IPv6"}, 400, "CIDR"),
        ({"remote_ip_prefix": "nonsense"}, 400, "CIDR"),
        ({"remote_group_id": "nothing"}, 404, "could not be found"),
        ({"direction": "sideways"}, 400, ""),
        ({"ethertype": "IPX"}, 400, ""),
        ({"security_group_id": "nothing"}, 404, "could not be found"),
        ({"port_range_min": 10**30}, 400, ""),
        ({"protocol": "tcp", "port_range_min": 1.5}, 400, ""),
    ],
)  # fmt: skip
def test_wrong_rules_are_refused(wish: dict[str, Any], status: int, told: str) -> None:
    async def story(net: Asked) -> None:
        mine = await group(net)
        body = {"security_group_rule": {"security_group_id": mine["id"], "direction": "ingress", **wish}}
        assert (await net.refused("POST", RULES, body))[0] == status
        assert told in await net.said("POST", RULES, body)
        shown = (await net.get(f"{GROUPS}/{mine['id']}"))["security_group"]
        assert len(shown["security_group_rules"]) == 2

    run(story)


def test_a_rule_is_there_once_and_in_the_groups_project() -> None:
    async def story(net: Asked) -> None:
        mine, theirs = await group(net), await group(net, "other")
        made = await rule(net, mine, "admin", protocol="tcp")
        assert made["project_id"] == PROJECT, "whoever has the group has its rules"
        again = {"security_group_rule": {"security_group_id": mine["id"], "direction": "ingress", "protocol": "tcp"}}
        assert await net.refused("POST", RULES, again) == (409, "SecurityGroupRuleExists")
        both = {"remote_group_id": mine["id"], "remote_ip_prefix": "10.0.0.0/8"}
        again["security_group_rule"] |= both
        assert (await net.refused("POST", RULES, again))[0] == 400
        again["security_group_rule"] = {"security_group_id": theirs["id"], "direction": "ingress"}
        assert (await net.refused("POST", RULES, again))[0] == 404
        again["security_group_rule"] = {"security_group_id": mine["id"], "direction": "ingress"}
        assert (await net.refused("POST", RULES, again, "reader"))[0] == 403

    run(story)
