"""Networks and subnets: made, seen, changed and deleted by whom it concerns."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.network.asked import Asked, run
from tests.unit.services.network.bench import ADMINS, OTHER, PROJECT


def test_versions_need_no_token() -> None:
    async def story(net: Asked) -> None:
        for path in ("", "/"):
            answer = await net.ask("GET", path, by="")
            (version,) = answer.json()["versions"]
            assert (version["id"], version["status"]) == ("v2.0", "CURRENT")
            assert version["links"] == [{"rel": "self", "href": "http://cloud/network/v2.0/"}]
        answer = await net.ask("GET", "/v2.0", by="")
        assert {"networks", "security-groups"} <= {one["collection"] for one in answer.json()["resources"]}
        assert (await net.ask("GET", "/v2.0/networks", by="")).status_code == 401
        assert (await net.ask("GET", "/v2.0/networks", by="forged")).status_code == 401
        assert await net.refused("GET", "/nothing") == (404, "HTTPNotFound")
        assert (await net.refused("PATCH", "/networks"))[0] == 405

    run(story)


def test_a_network_from_its_making_to_its_end() -> None:
    async def story(net: Asked) -> None:
        made = await net.network(name="blue", description="d", mtu=1400, tags=["b", "a"])
        told = {
            "name": "blue",
            "description": "d",
            "mtu": 1400,
            "tags": ["a", "b"],
            "project_id": PROJECT,
            "tenant_id": PROJECT,
            "admin_state_up": True,
            "status": "ACTIVE",
            "shared": False,
            "router:external": False,
            "port_security_enabled": True,
            "subnets": [],
            "revision_number": 1,
            "availability_zone_hints": [],
        }
        assert told.items() <= made.items()
        assert not any(name.startswith("provider:") for name in made), "only administrators see what carries it"
        subnet = await net.subnet(made)
        assert (await net.get(f"/networks/{made['id']}"))["network"]["subnets"] == [subnet["id"]]
        changed = await net.put(f"/networks/{made['id']}", {"network": {"name": "green", "admin_state_up": False}})
        assert (changed["network"]["name"], changed["network"]["admin_state_up"]) == ("green", False)
        assert changed["network"]["revision_number"] == 2 and changed["network"]["mtu"] == 1400
        assert (await net.get(f"/networks/{made['id']}?fields=id&fields=name&fields=nonsense"))["network"] == {
            "id": made["id"],
            "name": "green",
        }
        await net.delete(f"/networks/{made['id']}")
        assert await net.refused("GET", f"/networks/{made['id']}") == (404, "NetworkNotFound")
        assert await net.refused("GET", f"/subnets/{subnet['id']}") == (404, "SubnetNotFound")

    run(story)


def test_another_projects_things_are_invisible_and_shared_ones_only_to_look_at() -> None:
    async def story(net: Asked) -> None:
        mine, shared = await net.network(name="mine"), await net.network("admin", name="shared", shared=True)
        outside = await net.network("admin", name="outside", **{"router:external": True})
        subnet = await net.subnet(mine)
        await net.subnet(shared, by="admin")
        await net.subnet(outside, by="admin")
        port = await net.port(mine)
        assert sorted(await net.names("/networks", "other")) == ["outside", "shared"]
        assert sorted(await net.names("/networks")) == ["mine", "outside", "shared"]
        assert sorted(await net.names("/networks", "admin")) == ["mine", "outside", "shared"]
        assert [one["network_id"] for one in (await net.get("/subnets", "other"))["subnets"]] == [shared["id"]]
        assert (await net.get("/ports", "other"))["ports"] == []
        for path, body in (
            (f"/networks/{mine['id']}", {"network": {"name": "x"}}),
            (f"/subnets/{subnet['id']}", {"subnet": {"name": "x"}}),
            (f"/ports/{port['id']}", {"port": {"name": "x"}}),
        ):
            for method, told in (("GET", None), ("PUT", body), ("DELETE", None)):
                assert (await net.refused(method, path, told, "other"))[0] == 404
                if method != "GET":
                    assert await net.refused(method, path, told, "reader") == (403, "PolicyNotAuthorized")
        for method, told in (("PUT", {"network": {"name": "x"}}), ("DELETE", None)):
            assert (await net.refused(method, f"/networks/{shared['id']}", told, "other"))[0] == 403
        new: dict[str, Any] = {"subnet": {"network_id": shared["id"], "cidr": "10.9.0.0/24"}}
        assert (await net.refused("POST", "/subnets", new, "other"))[0] == 403
        new["subnet"]["network_id"] = mine["id"]
        assert (await net.refused("POST", "/subnets", new, "other"))[0] == 404
        assert await net.names(f"/networks?id={mine['id']}", "reader") == ["mine"]
        assert (await net.refused("GET", "/networks", by="nobody"))[0] == 403
        assert (await net.refused("GET", "/networks", by="unscoped"))[0] == 403

    run(story)


@pytest.mark.parametrize(
    "wish",
    [
        {"shared": True},
        {"router:external": True},
        {"provider:network_type": "local"},
        {"provider:physical_network": "p", "provider:network_type": "flat"},
        {"provider:segmentation_id": 5},
        {"project_id": OTHER},
        {"tenant_id": OTHER},
    ],
)
def test_only_administrators_may_say(wish: dict[str, Any]) -> None:
    async def story(net: Asked) -> None:
        assert await net.refused("POST", "/networks", {"network": wish}) == (403, "PolicyNotAuthorized")
        several = {"networks": [{"name": "harmless"}, wish]}
        assert (await net.refused("POST", "/networks", several))[0] == 403
        assert (await net.get("/networks", "admin"))["networks"] == []

    run(story)


def test_to_say_what_is_so_anyway_needs_no_permission_but_a_change_does() -> None:
    async def story(net: Asked) -> None:
        harmless = {"shared": False, "router:external": False, "provider:segmentation_id": None, "project_id": PROJECT}
        made = await net.network(**harmless)
        for wish in ({"shared": False}, {"router:external": True}):
            assert (await net.refused("PUT", f"/networks/{made['id']}", {"network": wish}))[0] == 403
        vlan = {"network_type": "vlan", "physical_network": "p1", "segmentation_id": 7}
        theirs = await net.network("admin", project_id=OTHER, **{f"provider:{key}": vlan[key] for key in vlan})
        assert theirs["project_id"] == OTHER and theirs["provider:segmentation_id"] == 7
        again = {"network": {f"provider:{key}": vlan[key] for key in vlan}}
        assert await net.refused("POST", "/networks", again, "admin") == (409, "VlanIdInUse")
        assert "provider:network_type" not in (await net.get(f"/networks/{theirs['id']}", "other"))["network"]
        hidden = "/networks?provider:segmentation_id=7"
        assert (await net.refused("GET", hidden, by="other"))[0] == 400
        assert len((await net.get(hidden, "admin"))["networks"]) == 1
        both = {"network": {"project_id": PROJECT, "tenant_id": OTHER}}
        assert (await net.refused("POST", "/networks", both, "admin"))[0] == 400
        assert (await net.network("admin"))["project_id"] == ADMINS

    run(story)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"network"',
        b"",
        {},
        {"network": None},
        {"network": []},
        {"network": {}, "networks": [{}]},
        {"networks": []},
        {"networks": [{}, {"name": 1}]},
        {"network": {"name": 5}},
        {"network": {"name": "x" * 256}},
        {"network": {"admin_state_up": "yes"}},
        {"network": {"shared": 2}},
        {"network": {"mtu": 5}},
        {"network": {"mtu": 1e300}},
        {"network": {"mtu": 10**400}},
        {"network": {"mtu": 1500.5}},
        {"network": {"id": "mine"}},
        {"network": {"status": "DOWN"}},
        {"network": {"unknown": 1}},
        {"network": {"tags": ["a,b"]}},
        {"network": {"tags": ["x" * 256]}},
        {"network": {"name": "a\0b"}},
        {"network": {"availability_zone_hints": ["mars"]}},
    ],
)
def test_wrong_networks_are_refused_and_nothing_is_made(body: Any) -> None:
    async def story(net: Asked) -> None:
        assert (await net.refused("POST", "/networks", body))[0] == 400
        assert (await net.get("/networks"))["networks"] == []

    run(story)


def test_several_are_made_together_or_not_at_all() -> None:
    async def story(net: Asked) -> None:
        made = await net.post("/networks", {"networks": [{"name": "a"}, {"name": "b"}]})
        assert [one["name"] for one in made] == ["a", "b"]
        cidrs = [{"network_id": one["id"], "cidr": "10.0.0.0/24", "ip_version": 4} for one in made]
        assert len(await net.post("/subnets", {"subnets": cidrs})) == 2
        wrong = [{"network_id": made[0]["id"], "cidr": f"10.0.{third}.0/24"} for third in (7, 0)]
        assert (await net.refused("POST", "/subnets", {"subnets": wrong}))[0] == 400
        assert len((await net.get("/subnets"))["subnets"]) == 2

    run(story)


def test_a_number_may_be_told_with_a_point() -> None:
    async def story(net: Asked) -> None:
        assert (await net.network(mtu=1400.0))["mtu"] == 1400

    run(story)


# -- subnets ----------------------------------------------------------------------------------------------------------


def test_a_subnet_has_a_gateway_and_pools_around_it() -> None:
    async def story(net: Asked) -> None:
        network = await net.network()
        plain = await net.subnet(network, "10.0.0.9/24", ip_version=4.0)
        told = {
            "cidr": "10.0.0.0/24",
            "ip_version": 4,
            "gateway_ip": "10.0.0.1",
            "enable_dhcp": True,
            "allocation_pools": [{"start": "10.0.0.2", "end": "10.0.0.254"}],
            "dns_nameservers": [],
            "host_routes": [],
            "ipv6_ra_mode": None,
            "ipv6_address_mode": None,
        }
        assert told.items() <= plain.items()
        bare = await net.subnet(network, "10.0.1.0/24", gateway_ip=None, enable_dhcp=False)
        assert bare["gateway_ip"] is None and bare["allocation_pools"][0]["start"] == "10.0.1.1"
        rich = await net.subnet(
            network,
            "2001:DB8::/64",
            dns_nameservers=["2001:db8::9"],
            host_routes=[{"destination": "2001:db8:9::/64", "nexthop": "2001:db8::7"}],
        )
        assert (rich["ip_version"], rich["gateway_ip"], rich["cidr"]) == (6, "2001:db8::1", "2001:db8::/64")
        assert rich["dns_nameservers"] == ["2001:db8::9"] and rich["host_routes"][0]["nexthop"] == "2001:db8::7"
        changed = await net.put(
            f"/subnets/{plain['id']}",
            {"subnet": {"name": "n", "allocation_pools": [{"start": "10.0.0.50", "end": "10.0.0.60"}]}},
        )
        assert changed["subnet"]["allocation_pools"] == [{"start": "10.0.0.50", "end": "10.0.0.60"}]
        moved = await net.put(f"/subnets/{plain['id']}", {"subnet": {"gateway_ip": "10.0.0.9", "dns_nameservers": []}})
        assert moved["subnet"]["gateway_ip"] == "10.0.0.9"
        inside = {"subnet": {"gateway_ip": "10.0.0.55"}}
        assert await net.refused("PUT", f"/subnets/{plain['id']}", inside) == (
            409,
            "GatewayConflictWithAllocationPools",
        )

    run(story)


@pytest.mark.parametrize(
    ("wish", "status"),
    [
        ({"cidr": "nonsense"}, 400),
        ({"cidr": "10.0.0.0"}, 400),
        ({"cidr": "0.0.0.0/0"}, 400),
        ({"cidr": "::/0"}, 400),
        ({"cidr": "::/64"}, 400),
        ({"cidr": "fe80::1%eth0/64"}, 400),
        ({"cidr": "10.0.0.0/999999999999999999999"}, 400),
        ({"cidr": "10.0.0.0/31"}, 400),
        ({"cidr": "224.0.0.0/24"}, 400),
        ({"cidr": "127.0.0.0/24"}, 400),
        ({"cidr": "0.0.0.0/24"}, 400),
        ({"cidr": 10}, 400),
        ({"cidr": None}, 400),
        ({"cidr": "10.1.0.0/24", "ip_version": 6}, 400),
        ({"cidr": "10.1.0.0/24", "ip_version": 5}, 400),
        ({"cidr": "10.1.0.0/24", "ip_version": "5"}, 400),
        ({"cidr": "10.1.0.0/24", "gateway_ip": "10.2.0.1"}, 400),
        ({"cidr": "10.1.0.0/24", "gateway_ip": "10.1.0.255"}, 400),
        ({"cidr": "10.1.0.0/24", "gateway_ip": "::1"}, 400),
        ({"cidr": "10.1.0.0/24", "dns_nameservers": ["x"]}, 400),
        ({"cidr": "10.1.0.0/24", "dns_nameservers": ["::1"]}, 400),
        ({"cidr": "10.1.0.0/24", "dns_nameservers": ["1.1.1.1"] * 6}, 400),
        ({"cidr": "10.1.0.0/24", "host_routes": [{"destination": "10.0.0.0/8"}]}, 400),
        ({"cidr": "10.1.0.0/24", "host_routes": [{"destination": "x", "nexthop": "10.1.0.1"}]}, 400),
        ({"cidr": "10.1.0.0/24", "ipv6_ra_mode": "slaac"}, 400),
        ({"cidr": "2001:db8::/60", "ipv6_address_mode": "slaac"}, 400),
        ({"cidr": "2001:db8::/64", "ipv6_address_mode": "slaac", "ipv6_ra_mode": "dhcpv6-stateful"}, 400),
        ({"cidr": "2001:db8::/64", "ipv6_address_mode": "slaac", "enable_dhcp": False}, 400),
        ({"cidr": "2001:db8::/64", "ipv6_address_mode": "magic"}, 400),
        ({"cidr": "10.1.0.0/24", "allocation_pools": [{"start": "10.1.0.9", "end": "10.1.0.2"}]}, 400),
        ({"cidr": "10.1.0.0/24", "allocation_pools": [{"start": "10.1.0.9", "end": "10.3.0.2"}]}, 400),
        ({"cidr": "10.1.0.0/24", "allocation_pools": [{"start": "10.1.0.9"}]}, 400),
        ({"cidr": "10.1.0.0/24", "allocation_pools": [{"start": "10.1.0.1", "end": "10.1.0.9"}]}, 409),
        ({"cidr": "10.1.0.0/24", "allocation_pools": [{"start": "10.1.0.8", "end": "10.1.0.9"}] * 2}, 409),
        ({"cidr": "10.1.0.0/24", "subnetpool_id": "x"}, 400),
        ({"cidr": "10.1.0.0/24", "network_id": "nothing"}, 404),
        ({"cidr": "10.1.0.0/24", "network_id": 7}, 400),
        ({}, 400),
    ],
)
def test_wrong_subnets_are_refused_and_nothing_is_made(wish: dict[str, Any], status: int) -> None:
    async def story(net: Asked) -> None:
        network = await net.network()
        body = {"subnet": {"network_id": network["id"], **wish}}
        assert (await net.refused("POST", "/subnets", body))[0] == status
        assert (await net.get("/subnets"))["subnets"] == []

    run(story)


def test_subnets_of_one_network_may_not_overlap() -> None:
    async def story(net: Asked) -> None:
        network, another = await net.network(), await net.network()
        await net.subnet(network, "10.0.0.0/24")
        await net.subnet(another, "10.0.0.0/24")
        for cidr in ("10.0.0.0/24", "10.0.0.128/25", "10.0.0.0/16"):
            body = {"subnet": {"network_id": network["id"], "cidr": cidr}}
            assert await net.refused("POST", "/subnets", body) == (400, "InvalidInput")
            assert "overlaps with another subnet" in await net.said("POST", "/subnets", body)

    run(story)


def test_what_is_in_use_stays() -> None:
    async def story(net: Asked) -> None:
        network = await net.network()
        subnet = await net.subnet(network)
        port = await net.port(network)
        assert await net.refused("DELETE", f"/networks/{network['id']}") == (409, "NetworkInUse")
        told = await net.said("DELETE", f"/networks/{network['id']}")
        assert "There are one or more ports still in use on the network" in told
        assert await net.refused("DELETE", f"/subnets/{subnet['id']}") == (409, "SubnetInUse")
        await net.delete(f"/ports/{port['id']}")
        await net.port(network, device_owner="network:dhcp", device_id="d")  # nobody asked for it: it goes along
        await net.delete(f"/subnets/{subnet['id']}")
        await net.port(network, device_owner="network:dhcp", device_id="d")
        await net.delete(f"/networks/{network['id']}")
        assert (await net.get("/ports", "admin"))["ports"] == []

    run(story)


def test_what_others_use_stays_shared_and_what_routers_use_external() -> None:
    async def story(net: Asked) -> None:
        network = await net.network("admin", shared=True, **{"router:external": True})
        await net.subnet(network, by="admin")
        port = await net.port(network)
        path = f"/networks/{network['id']}"
        assert await net.refused("PUT", path, {"network": {"shared": False}}, "admin") == (409, "InvalidSharedSetting")
        await net.delete(f"/ports/{port['id']}")
        await net.put(path, {"network": {"shared": False}}, "admin")
        body = {"floatingip": {"floating_network_id": network["id"]}}
        floating = await net.post("/floatingips", body)
        unset = {"network": {"router:external": False}}
        assert await net.refused("PUT", path, unset, "admin") == (409, "ExternalNetworkInUse")
        await net.delete(f"/floatingips/{floating['id']}")
        assert (await net.put(path, unset, "admin"))["network"]["router:external"] is False

    run(story)
