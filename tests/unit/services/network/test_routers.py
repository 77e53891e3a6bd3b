"""Routers: their way out, its addresses, and their routes."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.schema.tables.network import fixed_ips, ports
from kilonova.services.network.addresses import from_mac, net_of
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind, refusal

EXTERNAL = {"router:external": True}
INFO = "external_gateway_info"


async def gateways(bench: Bench) -> list[tuple[str, list[str]]]:
    """The network and the addresses of each router's way out."""
    taken = await bench.rows(fixed_ips)
    return [
        (row["network_id"], [each["address"] for each in taken if each["port_id"] == row["id"]])
        for row in await bench.rows(ports)
        if row["device_owner"] == "network:router_gateway"
    ]


def test_a_router_is_usual_unless_the_request_says_otherwise(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        router = await bench.one("router", name="plain")
        usual = {"name": "plain", "admin_state_up": True, "status": "ACTIVE", "routes": [], INFO: None}
        usual |= {"availability_zones": ["nova"], "availability_zone_hints": [], "revision_number": 1}
        assert {name: router[name] for name in usual} == usual
        other = await bench.one("router", admin_state_up=False, availability_zone_hints=["nova"])
        assert (other["admin_state_up"], other["availability_zone_hints"]) == (False, ["nova"])

    bench.run(story)


def test_the_way_out_of_a_router(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        one, first = await bench.network("172.24.4.0/24", **EXTERNAL)
        two, second = await bench.network("172.24.5.0/24", **EXTERNAL)
        router = await bench.one("router", **{INFO: {"network_id": one["id"]}})
        beside = await bench.one("router", **{INFO: {"network_id": one["id"], "enable_snat": False}})
        fixed = [{"subnet_id": first["id"], "ip_address": "172.24.4.2"}]
        assert router[INFO] == {"network_id": one["id"], "enable_snat": True, "external_fixed_ips": fixed}
        assert beside[INFO]["enable_snat"] is False
        (row,) = [row for row in await bench.rows(ports) if row["device_id"] == router["id"]]
        told = {name: row[name] for name in ("project_id", "status", "host", "vif_type")}
        assert told == {"project_id": "", "status": "ACTIVE", "host": "", "vif_type": "unbound"}

        async def change(**info: Any) -> Any:
            return (await bench.net.routers.update(None, router["id"], {INFO: info}))[INFO]

        assert (await change(network_id=one["id"], enable_snat=False))["enable_snat"] is False
        assert (await change(network_id=one["id"]))["enable_snat"] is True
        moved = await change(network_id=one["id"], external_fixed_ips=[{"ip_address": "172.24.4.77"}])
        assert moved["external_fixed_ips"] == [{"subnet_id": first["id"], "ip_address": "172.24.4.77"}]
        assert (await change(network_id=one["id"], enable_snat=False))["external_fixed_ips"][0]["ip_address"] == (
            "172.24.4.77"
        )
        switched = await change(network_id=two["id"])
        fixed = [{"subnet_id": second["id"], "ip_address": "172.24.5.2"}]
        assert switched == {"network_id": two["id"], "enable_snat": True, "external_fixed_ips": fixed}
        assert sorted(await gateways(bench)) == sorted([(one["id"], ["172.24.4.3"]), (two["id"], ["172.24.5.2"])])
        assert await change() is None
        assert await gateways(bench) == [(one["id"], ["172.24.4.3"])]
        assert (await change(network_id=one["id"]))["external_fixed_ips"][0]["ip_address"] == "172.24.4.2"
        named = await bench.net.routers.update(None, router["id"], {"name": "renamed"})
        assert named[INFO] is not None
        shown = {each["id"]: each[INFO]["external_fixed_ips"][0]["ip_address"]
                 for each in await bench.net.routers.all(None)}  # fmt: skip
        assert shown == {router["id"]: "172.24.4.2", beside["id"]: "172.24.4.3"}
        await bench.net.routers.delete(None, router["id"])
        assert await gateways(bench) == [(one["id"], ["172.24.4.3"])]

    bench.run(story)


def test_the_way_out_by_an_automatic_subnet(bench: Kind) -> None:
    """A router may choose its address there; otherwise it makes one from its MAC, as any other device."""

    async def story(bench: Bench) -> None:
        modes = {"ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
        outside = await bench.one("network", **EXTERNAL)
        auto = await bench.one("subnet", network_id=outside["id"], cidr="2001:db8:1::/64", **modes)
        for wish in (None, [{"subnet_id": auto["id"]}], [{"ip_address": "2001:db8:1::9"}]):
            info = {"network_id": outside["id"], **({} if wish is None else {"external_fixed_ips": wish})}
            router = await bench.one("router", **{INFO: info})
            (row,) = [row for row in await bench.rows(ports) if row["device_id"] == router["id"]]
            own = str(from_mac(net_of("2001:db8:1::/64"), row["mac"]))
            (fixed,) = router[INFO]["external_fixed_ips"]
            assert fixed["ip_address"] == ("2001:db8:1::9" if wish and "ip_address" in wish[0] else own)

    bench.run(story)


def test_what_is_no_way_out(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        inside, _ = await bench.network()
        theirs, _ = await bench.network(project=OTHER)
        outside, _ = await bench.network("172.24.4.0/30", **EXTERNAL)
        elsewhere = {"external_fixed_ips": [{"ip_address": "10.0.0.9"}]}
        for info, code in (
            ({"network_id": inside["id"]}, "bad_request"),
            ({"network_id": "none"}, "network_not_found"),
            ({"network_id": theirs["id"]}, "network_not_found"),
            (
                {"network_id": outside["id"], **elsewhere},
                "invalid_ip_for_network",
            ),
        ):
            assert await refusal(bench.one("router", viewer=PROJECT, **{INFO: info})) == code
        router = await bench.one("router", **{INFO: {"network_id": outside["id"]}})
        assert await refusal(bench.one("router", **{INFO: {"network_id": outside["id"]}})) == "no_more_addresses"
        for info in ({"network_id": inside["id"]}, {"network_id": "none"}):
            assert await refusal(bench.net.routers.update(None, router["id"], {INFO: info}))
        assert await gateways(bench) == [(outside["id"], ["172.24.4.2"])], "a refusal closes nothing"

    bench.run(story)


@pytest.mark.parametrize("act", ["close", "switch", "delete"])
def test_a_way_out_stays_while_a_floating_ip_goes_through_it(bench: Kind, act: str) -> None:
    async def story(bench: Bench) -> None:
        outside, _ = await bench.network("172.24.4.0/24", **EXTERNAL)
        other, _ = await bench.network("172.24.5.0/24", **EXTERNAL)
        router = await bench.one("router", **{INFO: {"network_id": outside["id"]}})
        beside = await bench.one("router", **{INFO: {"network_id": outside["id"]}})
        network, subnet = await bench.network()
        await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])
        port = await bench.port(network)
        floating = await bench.one("floatingip", floating_network_id=outside["id"], port_id=port["id"])

        async def go(router: Any) -> None:
            if act == "delete":
                await bench.net.routers.delete(None, router["id"])
            else:
                info = {} if act == "close" else {"network_id": other["id"]}
                await bench.net.routers.update(None, router["id"], {INFO: info})

        expected = "router_in_use" if act == "delete" else "gateway_in_use_by_floating_ip"
        assert await refusal(go(router)) == expected
        await go(beside)
        await bench.net.floating_ips.update(None, floating["id"], {"port_id": None})
        if act == "delete":
            await bench.net.interfaces.remove(None, router["id"], subnet_id=subnet["id"])
        await go(router)

    bench.run(story)


def test_a_router_goes_when_it_has_no_interfaces(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, subnet = await bench.network()
        router, beside = await bench.one("router"), await bench.one("router")
        await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])
        disguised = await bench.port(network, device_id=beside["id"])
        assert await refusal(bench.net.routers.delete(None, router["id"])) == "router_in_use"
        await bench.net.routers.delete(None, beside["id"])
        assert await refusal(bench.net.routers.delete(None, beside["id"])) == "router_not_found"
        assert disguised["id"] in {row["id"] for row in await bench.rows(ports)}
        assert [each["id"] for each in await bench.net.routers.all(None)] == [router["id"]]

    bench.run(story)


def test_routes_of_a_router(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        router, beside = await bench.one("router"), await bench.one("router")
        (_, near), (_, far) = await bench.network("10.0.0.0/24"), await bench.network("10.1.0.0/24")
        lookalike, _ = await bench.network("10.2.0.0/24")
        await bench.port(lookalike, device_id=router["id"])  # only says so
        await bench.net.interfaces.add(None, router["id"], subnet_id=near["id"])
        await bench.net.interfaces.add(None, beside["id"], subnet_id=far["id"])

        async def change(*routes: tuple[str, str]) -> Any:
            wanted = [{"destination": destination, "nexthop": nexthop} for destination, nexthop in routes]
            return (await bench.net.routers.update(None, router["id"], {"routes": wanted}))["routes"]

        checked = [{"destination": "192.0.2.0/24", "nexthop": "10.0.0.9"}]
        assert await change(("192.0.2.7/24", "10.0.0.9")) == checked
        for route, code in (
            (("192.0.2.0/24", "10.0.0.1"), "invalid_route"),
            (("192.0.2.0/24", "10.1.0.9"), "invalid_route"),
            (("192.0.2.0/24", "10.2.0.9"), "invalid_route"),
            (("192.0.2.0/33", "10.0.0.9"), "invalid_input"),
            (("192.0.2.0/24", "nonsense"), "invalid_input"),
        ):
            assert await refusal(change(("198.51.100.0/24", "10.0.0.9"), route)) == code, route
        assert (await bench.net.routers.update(None, router["id"], {"name": "x"}))["routes"] == checked
        assert (await bench.net.routers.update(None, router["id"], {"routes": None}))["routes"] == []
        assert await change() == []

    bench.run(story)
