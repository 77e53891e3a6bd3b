"""The ports of guests as their hosts are told of them."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.guest_ports import AddressPair, GuestPort, HostRoute, PortAddress, PortRule
from kilonova.domain.network import WantedPort
from kilonova.services.network import guest_ports
from kilonova.services.network.service import Networks
from tests.unit.services.network.bench import PROJECT, Bench, Kind, Uuids

SERVER = "5e000000-0000-4000-8000-000000000001"
OTHER_SERVER = "5e000000-0000-4000-8000-000000000002"


def test_a_port_is_told_with_all_that_a_host_needs(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        kind = {"provider:network_type": "vxlan", "provider:segmentation_id": 7}
        network = await bench.one("network", name="blue", mtu=1450, **kind)
        subnet = await bench.one(
            "subnet",
            network_id=network["id"],
            cidr="10.0.0.0/24",
            dns_nameservers=["10.0.0.53", "9.9.9.9"],
            host_routes=[{"destination": "10.1.0.0/16", "nexthop": "10.0.0.254"}],
        )
        await bench.allocate((SERVER, 1, 4), WantedPort(network_id=network["id"], tag="lan"), hostname="web")
        (port,) = (await bench.net.guest_ports([SERVER]))[SERVER]
        (vif,) = (await bench.net.vifs([SERVER]))[SERVER]
        assert (port.port_id, port.mac, port.tag, port.dns_name) == (vif.port_id, vif.mac, "lan", "web")
        assert (port.network_id, port.network_name, port.mtu) == (network["id"], "blue", 1450)
        assert (port.network_type, port.segment, port.is_up, port.port_security) == ("vxlan", 7, True, True)
        assert port.addresses == [
            PortAddress(
                address="10.0.0.2",
                prefix=24,
                version=4,
                subnet_id=subnet["id"],
                gateway="10.0.0.1",
                dns_servers=["10.0.0.53", "9.9.9.9"],
                routes=[HostRoute("10.1.0.0/16", "10.0.0.254")],
            )
        ]
        assert await bench.net.guest_ports([]) == {} and await bench.net.guest_ports(["nobody"]) == {}

    both.run(story)


def rules_of(port: GuestPort) -> set[tuple[str, str, str, tuple[str, ...] | None]]:
    return {
        (one.direction, one.ethertype, one.protocol, None if one.peers is None else tuple(one.peers))
        for one in port.rules
    }


def test_rules_name_who_may_speak(both: Kind) -> None:
    """The default group lets its members in: of both servers, by as few prefixes as cover them and nobody else."""

    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        for server in (SERVER, OTHER_SERVER):
            await bench.allocate((server, 1, 4), WantedPort(network_id=network["id"]))
        (port,) = (await bench.net.guest_ports([SERVER]))[SERVER]
        assert port.security_groups == ["default"]
        assert rules_of(port) == {
            ("egress", "IPv4", "", None),
            ("egress", "IPv6", "", None),
            ("ingress", "IPv4", "", ("10.0.0.2/31",)),
            ("ingress", "IPv6", "", ()),
        }
        (port,) = (await bench.net.guest_ports([SERVER], members=False))[SERVER]
        assert ("ingress", "IPv4", "", ()) in rules_of(port), "a host that does not filter is not told the members"

    both.run(story)


def test_rules_of_every_group_and_addresses_that_members_may_use(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        web = await bench.one("security_group", name="web")
        rule = {"security_group_id": web["id"], "direction": "ingress", "protocol": "tcp"}
        await bench.one("security_group_rule", port_range_min=80, port_range_max=81, **rule)
        await bench.one(
            "security_group_rule", port_range_min=22, port_range_max=22, remote_ip_prefix="192.0.2.0/24", **rule
        )
        await bench.one(
            "security_group_rule", direction="ingress", remote_group_id=web["id"], security_group_id=web["id"]
        )
        pairs = [{"ip_address": "10.0.9.0/24"}, {"ip_address": "10.0.8.1", "mac_address": "fa:16:3e:00:00:01"}]
        await bench.port(network, allowed_address_pairs=[{"ip_address": "10.0.7.1"}])  # of the default group
        given = await bench.port(network, security_groups=[web["id"]], allowed_address_pairs=pairs)
        await bench.allocate((SERVER, 1, 4), WantedPort(port_id=given["id"]))
        (port,) = (await bench.net.guest_ports([SERVER]))[SERVER]
        assert port.address_pairs == [
            AddressPair(address="10.0.9.0/24", mac=port.mac),
            AddressPair(address="10.0.8.1", mac="fa:16:3e:00:00:01"),
        ]
        ingress = [one for one in port.rules if one.direction == "ingress"]
        assert [(one.port_min, one.port_max, one.peers) for one in ingress] == [
            (80, 81, None),
            (22, 22, ["192.0.2.0/24"]),
            (None, None, ["10.0.0.3/32", "10.0.8.1/32", "10.0.9.0/24"]),
        ]
        assert len(port.rules) == 5, "what may leave is the group's too"

    both.run(story)


def test_a_port_without_security_is_not_filtered(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network(port_security_enabled=False)
        await bench.allocate((SERVER, 1, 4), WantedPort(network_id=network["id"]))
        (port,) = (await bench.net.guest_ports([SERVER]))[SERVER]
        assert (port.port_security, port.rules, port.security_groups) == (False, [], [])

    bench.run(story)


def test_ports_come_in_the_order_of_their_devices_with_all_addresses(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        green, _ = await bench.network("10.2.0.0/24", name="green")
        blue, _ = await bench.network("10.1.0.0/24", name="blue")
        modes = {"ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
        await bench.one("subnet", network_id=blue["id"], cidr="2001:db8::/64", ip_version=6, **modes)
        wanted = [WantedPort(network_id=green["id"]), WantedPort(network_id=blue["id"])]
        await bench.allocate((SERVER, 1, 4), *wanted)
        first, second = (await bench.net.guest_ports([SERVER]))[SERVER]
        assert (first.network_name, second.network_name) == ("green", "blue")
        assert [(one.version, one.prefix, one.address_mode) for one in second.addresses] == [
            (4, 24, ""),
            (6, 64, "slaac"),
        ]

    bench.run(story)


def test_changed_ports_are_known(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        for server in (SERVER, OTHER_SERVER):
            await bench.allocate((server, 1, 4), WantedPort(network_id=network["id"]))
        assert await bench.net.changed_ports([SERVER, OTHER_SERVER]) == set()
        (vif,) = (await bench.net.vifs([SERVER]))[SERVER]
        await bench.net.ports.update(None, vif.port_id, {"security_groups": []})
        assert await bench.net.changed_ports([SERVER, OTHER_SERVER]) == {SERVER}

    bench.run(story)


def test_peers_of_a_rule() -> None:
    def rule(**more: str | list[str]) -> PortRule:
        return PortRule(direction="ingress", ethertype="IPv4", **more)  # type: ignore[arg-type]

    assert rule().peers is None
    assert rule(remote_prefix="10.0.0.0/8").peers == ["10.0.0.0/8"]
    assert rule(remote_group="g").peers == [], "a group without members lets nobody in"


class Hands:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> float:
        return self.seconds

    monotonic = now


class Members:
    """Who is in a group, as the only port of a server is told; others come and go behind it."""

    def __init__(self, bench: Bench, clock: Hands) -> None:
        self.bench, self.clock = bench, clock
        self.net = Networks(bench.store, clock, Uuids())  # type: ignore[arg-type]

    async def begin(self) -> Members:
        self.network, _ = await self.bench.network()
        await self.bench.allocate((SERVER, 1, 4), WantedPort(network_id=self.network["id"]))
        return self

    async def told(self) -> list[str]:
        (port,) = (await self.net.guest_ports([SERVER]))[SERVER]
        (rule,) = [rule for rule in port.rules if rule.remote_group and rule.ethertype == "IPv4"]
        return rule.remote_members


def test_the_members_of_a_group_are_read_again_after_a_second(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        clock = Hands()
        members = await Members(bench, clock).begin()
        assert await members.told() == ["10.0.0.2/32"]
        await bench.port(members.network)
        clock.seconds += 0.99
        assert await members.told() == ["10.0.0.2/32"]
        clock.seconds += 0.01
        assert await members.told() == ["10.0.0.2/31"]

    bench.run(story)


def test_the_members_of_a_large_group_are_kept_longer(bench: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_ports, "SECONDS_PER_MEMBER", 3.0)

    async def story(bench: Bench) -> None:
        clock = Hands()
        members = await Members(bench, clock).begin()
        assert await members.told() == ["10.0.0.2/32"]
        await bench.port(members.network)
        clock.seconds += 2.9
        assert await members.told() == ["10.0.0.2/32"]
        clock.seconds += 0.1
        assert await members.told() == ["10.0.0.2/31"]

    bench.run(story)


def test_members_of_so_many_groups_are_kept_and_no_more(bench: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_ports, "MOST_GROUPS", 1)

    async def story(bench: Bench) -> None:
        members = await Members(bench, Hands()).begin()
        group, last = [await bench.one("security_group", name=name) for name in ("web", "last")]
        for each in (group, last):
            wish = {"security_group_id": each["id"], "direction": "ingress", "remote_group_id": each["id"]}
            await bench.one("security_group_rule", **wish)

        async def with_group(server: str, *groups: Any) -> set[tuple[str, ...]]:
            ids = [each["id"] for each in groups]
            await bench.allocate((server, 1, 4), WantedPort(network_id=members.network["id"]), security_groups=ids)
            (port,) = (await members.net.guest_ports([server]))[server]
            return {tuple(rule.remote_members) for rule in port.rules if rule.remote_group}

        assert await members.told() == ["10.0.0.2/32"]
        assert await with_group(OTHER_SERVER, group) == {("10.0.0.3/32",)}
        await bench.port(members.network)
        assert await members.told() == ["10.0.0.2/32"], "two are one more than one, but nobody came"
        third = "5e000000-0000-4000-8000-000000000003"
        assert await with_group(third, group, last) == {("10.0.0.3/32", "10.0.0.5/32"), ("10.0.0.5/32",)}
        assert await members.told() == ["10.0.0.2/32", "10.0.0.4/32"], "all of them were forgotten"

    bench.run(story)


def test_rules_have_the_numbers_of_the_group(bench: Kind) -> None:
    """0 is a type of ICMP; a missing number is none. Rules are told in the order in which they were made."""

    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        ping, empty = [await bench.one("security_group", name=name) for name in ("ping", "empty")]
        for rule in await bench.net.rules.all(None):
            await bench.net.rules.delete(None, str(rule["id"]))
        rule = {"security_group_id": ping["id"], "direction": "ingress"}
        await bench.one("security_group_rule", **rule, protocol="icmp", port_range_min=0, port_range_max=0)
        await bench.one("security_group_rule", **rule, protocol="icmp", port_range_min=8)
        await bench.one("security_group_rule", **rule, protocol="tcp", port_range_min=1, port_range_max=9)
        both = [ping["id"], empty["id"]]
        for server in (SERVER, OTHER_SERVER):
            await bench.allocate((server, 1, 4), WantedPort(network_id=network["id"]), security_groups=both)
        for (port,) in (await bench.net.guest_ports([SERVER, OTHER_SERVER])).values():
            assert sorted(port.security_groups) == ["empty", "ping"]
            assert [(one.protocol, one.port_min, one.port_max) for one in port.rules] == [
                ("icmp", 0, 0),
                ("icmp", 8, None),
                ("tcp", 1, 9),
            ]

    bench.run(story)


def test_rules_of_one_request_are_told_in_the_order_of_their_ids(bench: Kind) -> None:
    """Else a host would see a change where there is none."""

    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        group = await bench.one("security_group", name="web")
        rule = {"project_id": PROJECT, "security_group_id": group["id"], "direction": "ingress", "protocol": "tcp"}
        wishes = [{**rule, "port_range_min": number, "port_range_max": number} for number in range(1, 9)]
        made = await bench.net.rules.create(None, wishes)
        wanted = WantedPort(network_id=network["id"])
        await bench.allocate((SERVER, 1, 4), wanted, security_groups=[group["id"]])
        (port,) = (await bench.net.guest_ports([SERVER]))[SERVER]
        in_order = [each["port_range_min"] for each in sorted(made, key=lambda each: str(each["id"]))]
        assert [each.port_min for each in port.rules if each.protocol] == in_order

    bench.run(story)


def test_only_the_ports_that_the_server_was_given(bench: Kind) -> None:
    """Not one that says so; and each server its own."""

    async def story(bench: Bench) -> None:
        kind = {"provider:network_type": "local"}
        network, _ = await bench.network(**kind)
        for server in (SERVER, OTHER_SERVER):
            await bench.allocate((server, 1, 4), WantedPort(network_id=network["id"]))
        await bench.port(network, device_id=SERVER)
        bare = await bench.port(network, fixed_ips=[], admin_state_up=False)
        (first,) = (await bench.net.guest_ports([SERVER]))[SERVER]
        assert ([one.address for one in first.addresses], first.segment) == (["10.0.0.2"], 0)
        await bench.net.release((OTHER_SERVER, 2, 1), server_id=OTHER_SERVER)
        await bench.allocate((OTHER_SERVER, 2, 2), WantedPort(port_id=bare["id"]))
        told = await bench.net.guest_ports([SERVER, OTHER_SERVER])
        assert told[SERVER] == [first]
        assert [(port.addresses, port.is_up) for port in told[OTHER_SERVER]] == [([], False)]

    bench.run(story)
