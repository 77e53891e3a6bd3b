"""Networks: what one is unless the request says otherwise, its segment, and what keeps it as it is."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.schema.tables import network as tables
from kilonova.services.network import networks
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind, refusal

VLAN = {"provider:network_type": "vlan", "provider:physical_network": "one"}
USUAL = {
    "name": "",
    "description": "",
    "admin_state_up": True,
    "status": "ACTIVE",
    "shared": False,
    "router:external": False,
    "port_security_enabled": True,
    "dns_domain": "",
    "availability_zone_hints": [],
    "availability_zones": [],
    "subnets": [],
    "mtu": 1450,
    "provider:network_type": "vxlan",
    "provider:physical_network": None,
    "provider:segmentation_id": 1,
}


@pytest.mark.parametrize(
    ("wish", "differs"),
    [
        ({}, {}),
        ({"name": "blue", "description": "sea", "admin_state_up": False, "dns_domain": "a.org."}, None),
        ({"shared": True, "port_security_enabled": False, "mtu": 1300, "availability_zone_hints": ["nova"]}, None),
        (
            {"router:external": True},
            {"mtu": 1500, "provider:network_type": "local", "provider:segmentation_id": None},
        ),
        ({**VLAN}, {"mtu": 1500}),
        ({"provider:network_type": "local"}, {"mtu": 1500, "provider:segmentation_id": None}),
        ({"router:external": True, "provider:network_type": "vxlan"}, {}),
        ({"provider:network_type": "gre", "provider:segmentation_id": 77}, {"mtu": 1500}),
        (
            {"provider:network_type": "flat", "provider:physical_network": "one"},
            {"mtu": 1500, "provider:segmentation_id": None},
        ),
    ],
)
def test_a_network_is_usual_unless_the_request_says_otherwise(
    bench: Kind, wish: dict[str, Any], differs: dict[str, Any] | None
) -> None:
    async def story(bench: Bench) -> None:
        network = await bench.one("network", **wish)
        expected = {**USUAL, **wish, **(differs or {})}
        assert {name: network[name] for name in expected} == expected

    bench.run(story)


@pytest.mark.parametrize(
    "wish",
    [
        {"provider:network_type": "vlan"},
        {"provider:network_type": "flat"},
        {"provider:physical_network": "one"},
        {"provider:network_type": "local", "provider:physical_network": "one"},
        {"provider:network_type": "local", "provider:segmentation_id": 1},
        {"provider:network_type": "flat", "provider:physical_network": "one", "provider:segmentation_id": 1},
        {**VLAN, "provider:segmentation_id": 0},
        {**VLAN, "provider:segmentation_id": 4095},
        {"provider:network_type": "vxlan", "provider:segmentation_id": 16777216},
    ],
)
def test_attributes_of_the_provider_that_do_not_go_together(bench: Kind, wish: dict[str, Any]) -> None:
    async def story(bench: Bench) -> None:
        assert await refusal(bench.one("network", **wish)) == "invalid_input"
        assert not await bench.rows(tables.networks)

    bench.run(story)


@pytest.mark.parametrize(("kind", "need"), [("vlan", "needs"), ("flat", "needs"), ("vxlan", "takes no")])
def test_whether_a_physical_network_is_needed_is_said(bench: Kind, kind: str, need: str) -> None:
    async def story(bench: Bench) -> None:
        physical = {} if need == "needs" else {"provider:physical_network": "one"}
        with pytest.raises(Refused, match=f"'{kind}' {need} provider:physical_network"):
            await bench.one("network", **{"provider:network_type": kind}, **physical)

    bench.run(story)


def test_segments_are_given_once_the_lowest_free_one_first(bench: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "SEGMENTS", {"vlan": (2, 5), "vxlan": (2, 4), "gre": (2, 9)})

    async def story(bench: Bench) -> None:
        async def segment(**wish: Any) -> Any:
            return (await bench.one("network", **wish))["provider:segmentation_id"]

        other = {**VLAN, "provider:physical_network": "two"}
        assert await segment(**VLAN, **{"provider:segmentation_id": 5}) == 5, "the largest"
        assert [await segment(**VLAN) for _ in range(2)] == [2, 3]
        assert await segment(**other, **{"provider:segmentation_id": 3}) == 3, "each physical network has its own"
        assert [await segment(**other) for _ in range(2)] == [2, 4]
        assert await segment(**{"provider:network_type": "gre"}) == 2, "and so has each type"
        assert await segment(**{"provider:network_type": "gre", "provider:segmentation_id": 4}) == 4
        assert [await segment() for _ in range(3)] == [2, 3, 4]
        assert await refusal(segment()) == "no_network_available"
        assert await refusal(segment(**VLAN, **{"provider:segmentation_id": 3})) == "segment_in_use"
        assert await segment(**{"provider:network_type": "gre", "provider:segmentation_id": 3}) == 3
        assert await segment(**VLAN) == 4
        assert await refusal(segment(**VLAN)) == "no_network_available"
        free = next(row["id"] for row in await bench.rows(tables.networks) if row["network_type"] == "vxlan")
        await bench.net.networks.delete(None, free)
        assert await segment() == 2

    bench.run(story)


def test_a_network_shows_its_own_subnets(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, first = await bench.network()
        second = await bench.one("subnet", network_id=network["id"], cidr="10.1.0.0/24")
        await bench.network("10.2.0.0/24")
        bare = await bench.one("network")
        shown = await bench.net.networks.show(None, network["id"])
        assert (shown["subnets"], shown["availability_zones"]) == ([first["id"], second["id"]], ["nova"])
        assert (await bench.net.networks.show(None, bare["id"]))["availability_zones"] == []

    bench.run(story)


def test_a_network_stays_shared_while_others_have_ports_there(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network(shared=True)
        beside, _ = await bench.network(shared=True)
        update, off = bench.net.networks.update, {"shared": False}
        await bench.port(network)
        theirs = await bench.port(network, OTHER)
        for name in ("blue", ""):
            await update(None, network["id"], {"name": name})
            with pytest.raises(Refused, match=f"Network {name or network['id']} is used by other projects") as why:
                await update(None, network["id"], off)
            assert why.value.code == "shared_in_use"
        assert (await update(None, network["id"], {"shared": True, "name": "x"}))["shared"] is True
        assert (await update(None, network["id"], {"name": "y"}))["shared"] is True
        assert (await update(None, beside["id"], off))["shared"] is False
        await bench.net.ports.delete(None, theirs["id"])
        assert (await update(None, network["id"], off))["shared"] is False
        await bench.port(beside, "")  # nobody's
        await update(None, beside["id"], {"shared": True})
        assert (await update(None, beside["id"], off))["shared"] is False
        await bench.port(network, OTHER)  # an administrator's act
        assert (await update(None, network["id"], off))["shared"] is False, "it was not shared before"

    bench.run(story)


def test_a_network_stays_external_while_something_goes_through_it(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        ways = [await bench.network(f"172.24.{n}.0/24", **{"router:external": True}) for n in (4, 5, 6)]
        plain = [network for network, _ in ways]
        router = await bench.one("router", external_gateway_info={"network_id": plain[0]["id"]})
        floating = await bench.one("floatingip", floating_network_id=plain[1]["id"])
        update, off = bench.net.networks.update, {"router:external": False}
        assert await refusal(update(None, plain[0]["id"], off)) == "external_in_use"
        assert await refusal(update(None, plain[1]["id"], off)) == "external_in_use"
        assert (await update(None, plain[1]["id"], {"router:external": True}))["router:external"] is True
        assert (await update(None, plain[1]["id"], {"name": "x"}))["router:external"] is True
        assert (await update(None, plain[2]["id"], off))["router:external"] is False
        await bench.net.routers.delete(None, router["id"])
        await bench.net.floating_ips.delete(None, floating["id"])
        for network in plain[:2]:
            assert (await update(None, network["id"], off))["router:external"] is False

    bench.run(story)


def test_the_mtu_fits_the_subnets(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        update = bench.net.networks.update
        network, _ = await bench.network()
        await bench.network("2001:db8::/64")
        assert (await update(None, network["id"], {"mtu": 68}))["mtu"] == 68
        assert await refusal(update(None, network["id"], {"mtu": 67})) == "mtu_conflict"
        asked = bench.one("subnet", network_id=network["id"], cidr="2001:db8::/64")
        assert await refusal(asked) == "mtu_conflict"
        assert (await update(None, network["id"], {"mtu": 1280}))["mtu"] == 1280
        await bench.one("subnet", network_id=network["id"], cidr="2001:db8::/64")
        assert await refusal(update(None, network["id"], {"mtu": 1279})) == "mtu_conflict"

    bench.run(story)


async def whole_network(bench: Bench) -> dict[str, Any]:
    """One with a subnet, DHCP's port and a floating ip that stands for no port, all of them tagged."""
    made = {"network": await bench.one("network", tags=["t"], **{"router:external": True})}
    wish = {"network_id": made["network"]["id"], "cidr": "10.0.0.0/24", "tags": ["t"]}
    made["subnet"] = await bench.one("subnet", **wish)
    made["dhcp"] = await bench.port(made["network"], device_owner="network:dhcp", tags=["t"])
    made["floating"] = await bench.one("floatingip", floating_network_id=made["network"]["id"], tags=["t"])
    return made


async def contents(bench: Bench) -> dict[str, list[Any]]:
    left = ("networks", "subnets", "ports", "fixed_ips", "free_ranges", "port_groups", "floating_ips", "tags")
    return {name: sorted(tuple(row) for row in await bench.rows(getattr(tables, name))) for name in left}


def test_a_network_goes_with_what_nobody_made_in_it_and_nothing_else(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        await whole_network(bench)
        before = await contents(bench)
        going = await whole_network(bench)
        await bench.net.networks.delete(None, going["network"]["id"])
        assert await contents(bench) == before

    bench.run(story)


@pytest.mark.parametrize("keeper", ["port", "router", "associated floating ip"])
def test_a_network_stays_while_somebody_uses_it(bench: Kind, keeper: str) -> None:
    async def story(bench: Bench) -> None:
        made = await whole_network(bench)
        network = made["network"]
        if keeper == "port":
            await bench.port(network)
        else:
            router = await bench.one("router", external_gateway_info={"network_id": network["id"]})
            if keeper != "router":
                inside, subnet = await bench.network("10.5.0.0/24")
                await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])
                port = await bench.port(inside)
                await bench.net.floating_ips.update(None, made["floating"]["id"], {"port_id": port["id"]})
        before = await contents(bench)
        assert await refusal(bench.net.networks.delete(None, network["id"])) == "network_in_use"
        assert await contents(bench) == before

    bench.run(story)


def test_the_segment_of_one_project_waits_for_that_of_another(bench: Kind) -> None:
    """Their lock is the row of no project."""

    async def story(bench: Bench) -> None:
        await bench.one("network", PROJECT, **{"provider:network_type": "local"})
        assert "" not in {row["project_id"] for row in await bench.rows(tables.projects)}
        await bench.one("network", PROJECT)
        assert "" in {row["project_id"] for row in await bench.rows(tables.projects)}

    bench.run(story)
