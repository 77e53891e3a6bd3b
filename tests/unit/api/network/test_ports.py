"""Ports."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.network.asked import Asked, run
from tests.unit.services.network.bench import OTHER, PROJECT, addresses


def test_a_port_from_its_making_to_its_end() -> None:
    async def story(net: Asked) -> None:
        network = await net.network()
        subnet = await net.subnet(network)
        made = await net.port(network, name="p", dns_name="web", tags=["t"])
        (default,) = (await net.get("/security-groups"))["security_groups"]
        told = {
            "name": "p",
            "network_id": network["id"],
            "admin_state_up": True,
            "status": "DOWN",
            "device_id": "",
            "device_owner": "",
            "fixed_ips": [{"subnet_id": subnet["id"], "ip_address": "10.0.0.2"}],
            "security_groups": [default["id"]],
            "port_security_enabled": True,
            "binding:vnic_type": "normal",
            "dns_assignment": [{"ip_address": "10.0.0.2", "hostname": "web", "fqdn": "web.openstacklocal."}],
            "tags": ["t"],
            "allowed_address_pairs": [],
        }
        assert told.items() <= made.items() and made["mac_address"].startswith("fa:16:3e:")
        assert "binding:host_id" not in made, "where it is bound is for administrators"
        changed = await net.put(f"/ports/{made['id']}", {"port": {"name": "q", "admin_state_up": False}})
        assert (changed["port"]["name"], changed["port"]["fixed_ips"]) == ("q", made["fixed_ips"])
        emptied = await net.put(f"/ports/{made['id']}", {"port": {"security_groups": [], "dns_name": None}})
        assert emptied["port"]["security_groups"] == [] and emptied["port"]["dns_name"] == ""
        unsecured = await net.put(f"/ports/{made['id']}", {"port": {"port_security_enabled": False}})
        assert unsecured["port"]["port_security_enabled"] is False
        body = {"port": {"security_groups": [default["id"]]}}
        refused = await net.refused("PUT", f"/ports/{made['id']}", body)
        assert refused == (409, "PortSecurityPortHasSecurityGroup")
        await net.delete(f"/ports/{made['id']}")
        assert await net.refused("DELETE", f"/ports/{made['id']}") == (404, "PortNotFound")

    run(story)


def test_administrators_bind_ports() -> None:
    async def story(net: Asked) -> None:
        network = await net.network()
        port = await net.port(network, "admin", project_id=PROJECT)
        assert (port["binding:host_id"], port["binding:vif_type"], port["binding:vif_details"]) == ("", "unbound", {})
        path = f"/ports/{port['id']}"
        for wish in ({"binding:host_id": "host1"}, {"binding:profile": {"a": 1}}, {"mac_address": "fa:16:3e:00:00:01"}):
            assert await net.refused("PUT", path, {"port": wish}) == (403, "PolicyNotAuthorized")
        wish = {"binding:host_id": "host1", "binding:profile": {"a": 1}}
        bound = (await net.put(path, {"port": wish}, "admin"))["port"]
        assert (bound["binding:host_id"], bound["binding:vif_type"], bound["status"]) == ("host1", "ovs", "ACTIVE")
        assert bound["binding:profile"] == {"a": 1}
        mac = {"port": {"mac_address": "fa:16:3e:00:00:01"}}
        assert await net.refused("PUT", path, mac, "admin") == (409, "PortBound")
        free = (await net.put(path, {"port": {"binding:host_id": "", "binding:profile": None}}, "admin"))["port"]
        assert (free["binding:vif_type"], free["status"], free["binding:profile"]) == ("unbound", "DOWN", {})
        assert (await net.put(path, mac, "admin"))["port"]["mac_address"] == "fa:16:3e:00:00:01"
        assert await net.refused("POST", "/ports", {"port": {"network_id": network["id"], **mac["port"]}}) == (
            409,
            "MacAddressInUse",
        )
        for wish in ({"binding:host_id": "h"}, {"binding:profile": {"a": 1}}, {"project_id": OTHER}):
            assert (await net.refused("POST", "/ports", {"port": {"network_id": network["id"], **wish}}))[0] == 403

    run(story)


def test_on_a_shared_network_only_its_owner_chooses_addresses() -> None:
    async def story(net: Asked) -> None:
        network = await net.network("admin", shared=True)
        subnet = await net.subnet(network, by="admin")
        for wish in (
            {"fixed_ips": [{"ip_address": "10.0.0.9"}]},
            {"mac_address": "fa:16:3e:00:00:01"},
            {"port_security_enabled": False},
            {"allowed_address_pairs": [{"ip_address": "10.0.0.9"}]},
            {"device_owner": "network:router_interface"},
        ):
            body = {"port": {"network_id": network["id"], **wish}}
            assert (await net.refused("POST", "/ports", body))[0] == 403, wish
        mine = await net.port(network, fixed_ips=[{"subnet_id": subnet["id"]}])
        pair = {"port": {"fixed_ips": [{"ip_address": "10.0.0.9"}]}}
        assert (await net.refused("PUT", f"/ports/{mine['id']}", pair))[0] == 403
        assert addresses((await net.put(f"/ports/{mine['id']}", pair, "admin"))["port"]) == ["10.0.0.9"]

    run(story)


def test_a_networks_owner_sees_and_removes_ports_of_others_there_but_does_not_change_them() -> None:
    async def story(net: Asked) -> None:
        network = await net.network()
        theirs = await net.port(network, "admin", project_id=OTHER)
        assert (await net.get(f"/ports/{theirs['id']}"))["port"]["project_id"] == OTHER
        assert (await net.refused("PUT", f"/ports/{theirs['id']}", {"port": {"name": "x"}}))[0] == 403
        await net.delete(f"/ports/{theirs['id']}")

    run(story)


def test_a_member_makes_no_port_on_an_external_network() -> None:
    async def story(net: Asked) -> None:
        network = await net.network("admin", **{"router:external": True})
        await net.subnet(network, by="admin")
        assert (await net.refused("POST", "/ports", {"port": {"network_id": network["id"]}}))[0] == 403
        await net.port(network, "admin")

    run(story)


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"network_id": "nothing"}, (404, "NetworkNotFound")),
        ({"network_id": None}, (400, "HTTPBadRequest")),
        ({"fixed_ips": "10.0.0.2"}, (400, "HTTPBadRequest")),
        ({"fixed_ips": [{}]}, (400, "HTTPBadRequest")),
        ({"fixed_ips": [{"ip_address": None}]}, (400, "HTTPBadRequest")),
        ({"fixed_ips": [{"ip_address": "fe80::1%eth0"}]}, (400, "InvalidInput")),
        ({"fixed_ips": [{"ip_address": "10.0.0.0"}]}, (400, "InvalidIpForNetwork")),
        ({"fixed_ips": [{"ip_address": "10.0.0.3"}] * 2}, (409, "IpAddressInUse")),
        ({"fixed_ips": [{"ip_address": "10.0.0.2"}]}, (409, "IpAddressInUse")),
        ({"fixed_ips": [{"subnet_id": "nothing"}]}, (400, "InvalidInput")),
        ({"mac_address": "nonsense"}, (400, "InvalidInput")),
        ({"mac_address": "ff:ff:ff:ff:ff:ff"}, (400, "InvalidInput")),
        ({"security_groups": ["nothing"]}, (404, "SecurityGroupNotFound")),
        ({"security_groups": "default"}, (400, "HTTPBadRequest")),
        ({"allowed_address_pairs": [{"ip_address": "x"}]}, (400, "InvalidInput")),
        ({"allowed_address_pairs": [{"mac_address": "fa:16:3e:00:00:01"}]}, (400, "HTTPBadRequest")),
        ({"binding:vnic_type": "magic"}, (400, "HTTPBadRequest")),
        ({"dns_name": "no spaces"}, (400, "HTTPBadRequest")),
        ({"device_id": 5}, (400, "HTTPBadRequest")),
        ({"status": "ACTIVE"}, (400, "HTTPBadRequest")),
    ],
)
def test_wrong_ports_are_refused_and_nothing_is_made(wish: dict[str, Any], expected: tuple[int, str]) -> None:
    async def story(net: Asked) -> None:
        network = await net.network()
        await net.subnet(network)
        await net.port(network)
        assert await net.refused("POST", "/ports", {"port": {"network_id": network["id"], **wish}}) == expected
        assert len((await net.get("/ports"))["ports"]) == 1
        assert addresses(await net.port(network)) == ["10.0.0.3"], "what was refused holds no address"

    run(story)


def test_a_group_of_another_project_cannot_be_used() -> None:
    async def story(net: Asked) -> None:
        network = await net.network()
        theirs = await net.post("/security-groups", {"security_group": {"name": "g"}}, "other")
        body = {"port": {"network_id": network["id"], "security_groups": [theirs["id"]]}}
        assert await net.refused("POST", "/ports", body) == (404, "SecurityGroupNotFound")

    run(story)


def test_address_pairs_without_a_mac_have_the_ports_own() -> None:
    async def story(net: Asked) -> None:
        network = await net.network()
        pairs = [{"ip_address": "10.0.0.0/30"}, {"ip_address": "10.0.0.9", "mac_address": "FA:16:3E:00:00:09"}]
        port = await net.port(network, allowed_address_pairs=pairs)
        assert port["allowed_address_pairs"] == [
            {"ip_address": "10.0.0.0/30", "mac_address": port["mac_address"]},
            {"ip_address": "10.0.0.9", "mac_address": "fa:16:3e:00:00:09"},
        ]

    run(story)


def test_a_full_subnet_is_told_and_several_ports_are_made_together_or_not() -> None:
    async def story(net: Asked) -> None:
        network = await net.network()
        await net.subnet(network, "10.0.0.0/29")
        wish = {"network_id": network["id"]}
        assert await net.refused("POST", "/ports", {"ports": [wish] * 6}) == (409, "IpAddressGenerationFailure")
        assert (await net.get("/ports"))["ports"] == []
        made = await net.post("/ports", {"ports": [wish] * 5})
        assert [addresses(port) for port in made] == [[f"10.0.0.{last}"] for last in range(2, 7)]

    run(story)


def test_no_port_only_looks_like_a_routers() -> None:
    """Else it would keep another project's router from being deleted."""

    async def story(net: Asked) -> None:
        subnet = await net.subnet(await net.network())
        router = await net.post("/routers", {"router": {}})
        joined = await net.put(f"/routers/{router['id']}/add_router_interface", {"subnet_id": subnet["id"]})
        for by in ("other", "admin"):
            network = await net.network(by)
            for owner in ("network:router_interface", "network:router_gateway", "network:floatingip"):
                forged = {"device_owner": owner, "device_id": router["id"]}
                body = {"port": {"network_id": network["id"], **forged}}
                assert await net.refused("POST", "/ports", body, by) == (400, "InvalidInput")
                port = await net.port(network, by, device_id=router["id"])
                assert (await net.refused("PUT", f"/ports/{port['id']}", {"port": forged}, by))[0] == 400
        path = f"/ports/{joined['port_id']}"
        for wish in ({"device_id": ""}, {"device_owner": ""}, {"device_id": None}):
            assert await net.refused("PUT", path, {"port": wish}) == (409, "ServicePortInUse")
        await net.put(path, {"port": {"name": "n", "device_id": router["id"]}})
        await net.put(f"/routers/{router['id']}/remove_router_interface", {"subnet_id": subnet["id"]})
        await net.delete(f"/routers/{router['id']}")

    run(story)
