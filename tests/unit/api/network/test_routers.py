"""Routers, their interfaces and floating ips."""

from __future__ import annotations

from typing import Any

from tests.unit.api.network.asked import Asked, run
from tests.unit.services.network.bench import PROJECT, addresses

EXTERNAL = {"router:external": True}


async def outside(net: Asked, cidr: str = "172.24.4.0/24") -> tuple[Any, Any]:
    network = await net.network("admin", name="public", **EXTERNAL)
    return network, await net.subnet(network, cidr, "admin", enable_dhcp=False)


async def router(net: Asked, by: str = "me", **wish: Any) -> Any:
    return await net.post("/routers", {"router": wish}, by)


async def join(net: Asked, made: Any, **what: str) -> Any:
    return await net.put(f"/routers/{made['id']}/add_router_interface", what)


async def part(net: Asked, made: Any, **what: str) -> Any:
    return await net.put(f"/routers/{made['id']}/remove_router_interface", what)


def test_a_router_and_its_way_out() -> None:
    async def story(net: Asked) -> None:
        public, subnet = await outside(net)
        made = await router(net, name="r", external_gateway_info={"network_id": public["id"]})
        info = made["external_gateway_info"]
        assert info == {
            "network_id": public["id"],
            "enable_snat": True,
            "external_fixed_ips": [{"subnet_id": subnet["id"], "ip_address": "172.24.4.2"}],
        }
        assert (made["status"], made["admin_state_up"], made["routes"]) == ("ACTIVE", True, [])
        (port,) = (await net.get(f"/ports?device_id={made['id']}", "admin"))["ports"]
        assert (port["device_owner"], port["project_id"]) == ("network:router_gateway", "")
        assert (await net.get(f"/ports?device_id={made['id']}"))["ports"] == [], "not the project's"
        assert await net.refused("DELETE", f"/ports/{port['id']}", by="admin") == (409, "ServicePortInUse")
        path = f"/routers/{made['id']}"
        snat = {"router": {"external_gateway_info": {"network_id": public["id"], "enable_snat": False}}}
        assert (await net.refused("PUT", path, snat))[0] == 403
        assert (await net.put(path, snat, "admin"))["router"]["external_gateway_info"]["enable_snat"] is False
        closed = await net.put(path, {"router": {"external_gateway_info": {}, "name": "s"}})
        assert (closed["router"]["external_gateway_info"], closed["router"]["name"]) == (None, "s")
        assert (await net.get("/ports", "admin"))["ports"] == []
        opened = await net.put(path, {"router": {"external_gateway_info": {"network_id": public["id"]}}})
        assert opened["router"]["external_gateway_info"]["external_fixed_ips"][0]["ip_address"] == "172.24.4.2"
        assert (await net.refused("GET", path, by="other"))[0] == 404
        assert (await net.refused("DELETE", path, by="reader"))[0] == 403
        await net.delete(path)
        assert (await net.get("/ports", "admin"))["ports"] == []

    run(story)


def test_a_way_out_leads_to_an_external_network() -> None:
    async def story(net: Asked) -> None:
        mine, public = await net.network(), (await outside(net))[0]
        made = await router(net)
        for info, status in (
            ({"network_id": mine["id"]}, 400),
            ({"network_id": "nothing"}, 404),
            ({"enable_snat": True}, 400),
            ({"network_id": public["id"], "external_fixed_ips": [{"ip_address": "172.24.4.9"}]}, 403),
            ("public", 400),
        ):
            wish = {"router": {"external_gateway_info": info}}
            assert (await net.refused("PUT", f"/routers/{made['id']}", wish))[0] == status, info
            assert (await net.refused("POST", "/routers", wish))[0] == status, info
        chosen = {"network_id": public["id"], "external_fixed_ips": [{"ip_address": "172.24.4.9"}]}
        theirs = await router(net, "admin", external_gateway_info=chosen, project_id=PROJECT)
        assert theirs["external_gateway_info"]["external_fixed_ips"][0]["ip_address"] == "172.24.4.9"
        assert len((await net.get("/routers"))["routers"]) == 2

    run(story)


def test_interfaces_by_subnet_and_by_port() -> None:
    async def story(net: Asked) -> None:
        network, second = await net.network(), await net.network()
        subnet, other = await net.subnet(network), await net.subnet(second, "10.1.0.0/24")
        made = await router(net)
        told = await join(net, made, subnet_id=subnet["id"])
        assert {"id": made["id"], "subnet_id": subnet["id"], "subnet_ids": [subnet["id"]]}.items() <= told.items()
        port = (await net.get(f"/ports/{told['port_id']}"))["port"]
        assert (addresses(port), port["device_id"]) == (["10.0.0.1"], made["id"])
        assert port["device_owner"] == "network:router_interface"
        own = await net.port(second)
        assert (await join(net, made, port_id=own["id"]))["subnet_id"] == other["id"]
        assert await net.refused("DELETE", f"/routers/{made['id']}") == (409, "RouterInUse")
        assert await net.refused("DELETE", f"/subnets/{subnet['id']}") == (409, "SubnetInUse")
        moved = {"subnet": {"gateway_ip": "10.0.0.9", "allocation_pools": []}}
        assert await net.refused("PUT", f"/subnets/{subnet['id']}", moved) == (409, "GatewayIpInUse")
        assert (await part(net, made, subnet_id=subnet["id"]))["port_id"] == told["port_id"]
        await part(net, made, port_id=own["id"])
        for path in (told["port_id"], own["id"]):
            assert (await net.refused("GET", f"/ports/{path}"))[0] == 404
        gone = f"/routers/{made['id']}/remove_router_interface"
        assert await net.refused("PUT", gone, {"subnet_id": subnet["id"]}) == (404, "RouterInterfaceNotFound")
        await net.delete(f"/routers/{made['id']}")

    run(story)


def test_interfaces_that_cannot_be() -> None:
    async def story(net: Asked) -> None:
        network, twin, shared = await net.network(), await net.network(), await net.network("admin", shared=True)
        subnet, overlapping = await net.subnet(network), await net.subnet(twin, "10.0.0.128/25")
        bare = await net.subnet(network, "10.7.0.0/24", gateway_ip=None)
        common = await net.subnet(shared, "10.8.0.0/24", "admin")
        made = await router(net)
        await join(net, made, subnet_id=subnet["id"])
        used = await net.port(twin, device_id="x")
        empty = await net.port(network, fixed_ips=[])
        path = f"/routers/{made['id']}/add_router_interface"
        for body, status in (
            ({"subnet_id": subnet["id"]}, 400),
            ({"subnet_id": overlapping["id"]}, 400),
            ({"subnet_id": bare["id"]}, 400),
            ({"subnet_id": common["id"]}, 400),
            ({"subnet_id": "nothing"}, 404),
            ({"port_id": "nothing"}, 404),
            ({"port_id": used["id"]}, 409),
            ({"port_id": empty["id"]}, 400),
            ({"port_id": used["id"], "subnet_id": overlapping["id"]}, 400),
            ({}, 400),
            ({"network_id": network["id"]}, 400),
        ):
            assert (await net.refused("PUT", path, body))[0] == status, body
        assert (await net.refused("PUT", path, {"subnet_id": overlapping["id"]}, "reader"))[0] == 403
        assert (await net.refused("PUT", path, {"subnet_id": overlapping["id"]}, "other"))[0] == 404
        assert len((await net.get(f"/ports?device_id={made['id']}"))["ports"]) == 1

    run(story)


def test_more_routes() -> None:
    async def story(net: Asked) -> None:
        subnet = await net.subnet(await net.network())
        made = await router(net)
        await join(net, made, subnet_id=subnet["id"])
        path, route = f"/routers/{made['id']}", {"destination": "10.9.0.0/16", "nexthop": "10.0.0.7"}
        assert (await net.put(path, {"router": {"routes": [route]}}))["router"]["routes"] == [route]
        for nexthop in ("10.5.0.1", "10.0.0.1", "x"):
            wrong = {"router": {"routes": [{**route, "nexthop": nexthop}]}}
            assert (await net.refused("PUT", path, wrong))[0] == 400
        used = await net.refused("PUT", f"{path}/remove_router_interface", {"subnet_id": subnet["id"]})
        assert used == (409, "RouterInterfaceInUseByRoute")
        assert (await net.put(path, {"router": {"routes": None}}))["router"]["routes"] == []
        await part(net, made, subnet_id=subnet["id"])

    run(story)


# -- floating ips -----------------------------------------------------------------------------------------------------


async def scene(net: Asked) -> tuple[Any, Any, Any, Any]:
    """An external network, a router to it, and two ports behind it."""
    public, _ = await outside(net)
    network = await net.network()
    subnet = await net.subnet(network)
    made = await router(net, external_gateway_info={"network_id": public["id"]})
    await join(net, made, subnet_id=subnet["id"])
    return public, made, await net.port(network), await net.port(network)


async def floating(net: Asked, public: Any, by: str = "me", **wish: Any) -> Any:
    return await net.post("/floatingips", {"floatingip": {"floating_network_id": public["id"], **wish}}, by)


def test_a_floating_ip_stands_for_a_port_then_for_another_then_for_none() -> None:
    async def story(net: Asked) -> None:
        public, made, one, two = await scene(net)
        floats = await floating(net, public, port_id=one["id"], description="d")
        told = {
            "floating_ip_address": "172.24.4.3",
            "fixed_ip_address": "10.0.0.2",
            "port_id": one["id"],
            "router_id": made["id"],
            "floating_network_id": public["id"],
            "status": "ACTIVE",
            "description": "d",
            "project_id": PROJECT,
        }
        assert told.items() <= floats.items()
        path = f"/floatingips/{floats['id']}"
        assert (await net.get("/floatingips"))["floatingips"] == [floats]
        assert (await net.get("/floatingips?port_id=" + one["id"]))["floatingips"] == [floats]
        moved = (await net.put(path, {"floatingip": {"port_id": two["id"]}}))["floatingip"]
        assert (moved["port_id"], moved["fixed_ip_address"]) == (two["id"], "10.0.0.3")
        kept = (await net.put(path, {"floatingip": {"description": "e"}}))["floatingip"]
        assert (kept["port_id"], kept["description"]) == (two["id"], "e")
        none = (await net.put(path, {"floatingip": {"port_id": None}}))["floatingip"]
        assert [none[name] for name in ("port_id", "fixed_ip_address", "router_id", "status")] == [None] * 3 + ["DOWN"]
        assert (await net.refused("GET", path, by="other"))[0] == 404
        assert await net.refused("GET", "/floatingips/172.24.4.3") == (404, "FloatingIPNotFound")
        await net.delete(path)
        assert (await net.get("/ports?device_owner=network:floatingip", "admin"))["ports"] == []
        assert (await floating(net, public))["floating_ip_address"] == "172.24.4.3", "the address is free again"

    run(story)


def test_floating_ips_that_cannot_be() -> None:
    async def story(net: Asked) -> None:
        public, _, one, two = await scene(net)
        lonely = await net.network()
        await net.subnet(lonely)
        away, bare = await net.port(lonely), await net.port(await net.network())
        await floating(net, public, port_id=one["id"])
        for wish, status in (
            ({"port_id": one["id"]}, 409),
            ({"port_id": away["id"]}, 404),
            ({"port_id": bare["id"]}, 400),
            ({"port_id": "nothing"}, 404),
            ({"port_id": two["id"], "fixed_ip_address": "10.0.0.77"}, 400),
            ({"port_id": two["id"], "fixed_ip_address": "nonsense"}, 400),
            ({"fixed_ip_address": "10.0.0.3"}, 400),
            ({"floating_network_id": lonely["id"]}, 400),
            ({"floating_network_id": "nothing"}, 404),
            ({"floating_ip_address": "172.24.4.77"}, 403),
            ({"port_id": 5}, 400),
        ):
            body = {"floatingip": {"floating_network_id": public["id"], **wish}}
            assert (await net.refused("POST", "/floatingips", body))[0] == status, wish
        assert len((await net.get("/floatingips"))["floatingips"]) == 1
        chosen = await floating(net, public, "admin", floating_ip_address="172.24.4.77")
        assert chosen["floating_ip_address"] == "172.24.4.77"
        again = {"floatingip": {"floating_network_id": public["id"], "floating_ip_address": "172.24.4.77"}}
        assert await net.refused("POST", "/floatingips", again, "admin") == (409, "IpAddressInUse")

    run(story)


def test_what_a_floating_ip_needs_stays() -> None:
    async def story(net: Asked) -> None:
        public, made, one, _ = await scene(net)
        floats = await floating(net, public, port_id=one["id"])
        subnet_id = one["fixed_ips"][0]["subnet_id"]
        path = f"/routers/{made['id']}"
        parted = await net.refused("PUT", f"{path}/remove_router_interface", {"subnet_id": subnet_id})
        assert parted == (409, "RouterInterfaceInUseByFloatingIP")
        closed = await net.refused("PUT", path, {"router": {"external_gateway_info": None}})
        assert closed == (409, "RouterExternalGatewayInUseByFloatingIp")
        emptied = await net.refused("PUT", f"/ports/{one['id']}", {"port": {"fixed_ips": []}})
        assert emptied == (409, "PortInUse")
        assert await net.refused("DELETE", f"/networks/{public['id']}", by="admin") == (409, "NetworkInUse")
        await net.delete(f"/ports/{one['id']}")
        left = (await net.get(f"/floatingips/{floats['id']}"))["floatingip"]
        assert [left[name] for name in ("port_id", "fixed_ip_address", "router_id")] == [None] * 3
        await part(net, made, subnet_id=subnet_id)
        await net.delete(path)

    run(story)


def test_an_external_network_takes_idle_floating_ips_along() -> None:
    async def story(net: Asked) -> None:
        public, _ = await outside(net)
        await floating(net, public, tags=["t"])
        await net.delete(f"/networks/{public['id']}", "admin")
        assert (await net.get("/floatingips"))["floatingips"] == []
        assert (await net.get("/subnets", "admin"))["subnets"] == []
        assert (await net.get("/ports", "admin"))["ports"] == []

    run(story)


def test_an_exhausted_external_network_is_told() -> None:
    async def story(net: Asked) -> None:
        public, _ = await outside(net, "172.24.4.0/30")
        await floating(net, public)
        body = {"floatingip": {"floating_network_id": public["id"]}}
        assert await net.refused("POST", "/floatingips", body) == (409, "IpAddressGenerationFailure")
        await net.subnet(public, "172.24.5.0/30", "admin")
        assert (await floating(net, public))["floating_ip_address"] == "172.24.5.2", "another subnet has room"

    run(story)


def test_one_of_several_addresses_is_chosen() -> None:
    async def story(net: Asked) -> None:
        public, _, one, _ = await scene(net)
        fixed = [{"ip_address": "10.0.0.50"}, {"ip_address": "10.0.0.51"}]
        await net.put(f"/ports/{one['id']}", {"port": {"fixed_ips": fixed}})
        body = {"floatingip": {"floating_network_id": public["id"], "port_id": one["id"]}}
        assert (await net.refused("POST", "/floatingips", body))[0] == 400
        floats = await floating(net, public, port_id=one["id"], fixed_ip_address="10.0.0.50")
        wish = {"floatingip": {"port_id": one["id"], "fixed_ip_address": "10.0.0.51"}}
        moved = await net.put(f"/floatingips/{floats['id']}", wish)
        assert moved["floatingip"]["fixed_ip_address"] == "10.0.0.51"

    run(story)
