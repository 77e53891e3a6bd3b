"""Ports: what one is unless the request says otherwise, what a null empties, and what may not change."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.schema.tables.network import fixed_ips, floating_ips, port_groups, ports, projects, tags
from kilonova.store import rows
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind, addresses, refusal

MAC, OTHER_MAC = "fa:16:3e:00:00:01", "fa:16:3e:00:00:02"
USUAL = {
    "name": "",
    "description": "",
    "admin_state_up": True,
    "status": "DOWN",
    "port_security_enabled": True,
    "device_id": "",
    "device_owner": "",
    "dns_name": "",
    "allowed_address_pairs": [],
    "binding:host_id": "",
    "binding:vnic_type": "normal",
    "binding:profile": {},
    "binding:vif_type": "unbound",
    "binding:vif_details": {},
}
BOUND = {"binding:vif_type": "ovs", "binding:vif_details": {"port_filter": True}, "status": "ACTIVE"}
ROUTERS_OWN = ["network:router_interface", "network:router_gateway", "network:floatingip"]


@pytest.mark.parametrize(
    ("wish", "differs"),
    [
        ({}, {}),
        ({"name": "a", "description": "b", "admin_state_up": False, "device_id": "d", "device_owner": "o"}, {}),
        ({"mac_address": "FA-16-3E-00-00-01"}, {"mac_address": MAC}),
        ({"mac_address": None, "dns_name": None, "device_id": None, "binding:profile": None}, USUAL),
        ({"dns_name": "web", "binding:vnic_type": "direct", "binding:profile": {"a": 1}}, {}),
        ({"binding:host_id": "host1"}, BOUND),
        ({"binding:host_id": ""}, {}),
        ({"port_security_enabled": False}, {"security_groups": []}),
        ({"security_groups": []}, {}),
        ({"device_owner": "network:dhcp"}, {"security_groups": []}),
        (
            {"mac_address": MAC, "allowed_address_pairs": [{"ip_address": "10.0.9.7/24"}, {"ip_address": "10.0.8.1"}]},
            {"allowed_address_pairs": [{"ip_address": "10.0.9.0/24", "mac_address": MAC},
                                       {"ip_address": "10.0.8.1", "mac_address": MAC}]},
        ),
        (
            {"allowed_address_pairs": [{"ip_address": "2001:DB8::1", "mac_address": "FA:16:3E:00:00:02"}]},
            {"allowed_address_pairs": [{"ip_address": "2001:db8::1", "mac_address": OTHER_MAC}]},
        ),
    ],
)  # fmt: skip
def test_a_port_is_usual_unless_the_request_says_otherwise(
    bench: Kind, wish: dict[str, Any], differs: dict[str, Any]
) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        port = await bench.port(network, **wish)
        default = await bench.net.groups.ensure_default(PROJECT)
        expected = {**USUAL, "security_groups": [default], **wish, **differs}
        assert {name: port[name] for name in expected if name != "mac_address" or differs.get(name)} == {
            name: value for name, value in expected.items() if name != "mac_address" or differs.get(name)
        }
        (row,) = await bench.rows(ports)
        assert (row["slot"], row["created_here"], row["tag"]) == (-1, 0, "")

    bench.run(story)


@pytest.mark.parametrize(
    ("name", "value", "empty"),
    [
        ("name", "a", ""),
        ("description", "a", ""),
        ("dns_name", "a", ""),
        ("device_id", "a", ""),
        ("device_owner", "a", ""),
        ("binding:profile", {"a": 1}, {}),
        ("allowed_address_pairs", [{"ip_address": "10.0.9.9", "mac_address": MAC}], []),
        ("security_groups", ["a group"], []),
        ("binding:host_id", "host1", ""),
        ("fixed_ips", [{"ip_address": "10.0.0.9"}], None),
        ("mac_address", MAC, None),
    ],
)
def test_a_null_empties_what_can_be_empty(bench: Kind, name: str, value: Any, empty: Any) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        group = await bench.one("security_group", name="web")
        port = await bench.port(network)
        wish = [group["id"]] if name == "security_groups" else value
        given = await bench.net.ports.update(None, port["id"], {name: wish})
        shown = addresses(given) if name == "fixed_ips" else given[name]
        assert shown == (["10.0.0.9"] if name == "fixed_ips" else wish)
        kept = await bench.net.ports.update(None, port["id"], {"admin_state_up": True})
        assert {**kept, "revision_number": 0, "updated_at": ""} == {**given, "revision_number": 0, "updated_at": ""}
        emptied = await bench.net.ports.update(None, port["id"], {name: None})
        assert emptied[name] == (given[name] if empty is None else empty)

    bench.run(story)


def test_ports_of_a_network_without_port_security_have_no_groups(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network(port_security_enabled=False)
        secured, _ = await bench.network()
        group = await bench.one("security_group", name="web")
        plain = await bench.port(network)
        assert (plain["port_security_enabled"], plain["security_groups"]) == (False, [])
        on = await bench.port(network, port_security_enabled=True)
        assert (on["port_security_enabled"], len(on["security_groups"])) == (True, 1)
        named = {"security_groups": [group["id"]]}
        off = {"port_security_enabled": False}
        update = bench.net.ports.update
        for asked in (
            bench.port(network, **named),
            bench.port(secured, **named, **off),
            update(None, plain["id"], named),
            update(None, on["id"], off),
            update(None, on["id"], {**off, **named}),
        ):
            assert await refusal(asked) == "port_security_conflict"
        assert (await update(None, on["id"], named))["security_groups"] == [group["id"]]
        assert (await update(None, plain["id"], {**off, "security_groups": []}))["security_groups"] == []
        both = {**named, "port_security_enabled": True}
        assert (await update(None, plain["id"], both))["security_groups"] == [group["id"]]
        emptied = await update(None, on["id"], {**off, "security_groups": []})
        assert (emptied["port_security_enabled"], emptied["security_groups"]) == (False, [])
        assert (await update(None, on["id"], {"name": "still off"}))["port_security_enabled"] is False

    bench.run(story)


def test_groups_of_a_port_are_its_own(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        one, two = [await bench.one("security_group", name=name) for name in ("one", "two")]
        theirs = await bench.one("security_group", OTHER)
        first, second = [await bench.port(network, security_groups=[one["id"]]) for _ in range(2)]
        update = bench.net.ports.update
        changed = await update(PROJECT, first["id"], {"security_groups": [two["id"], one["id"], two["id"]]})
        assert changed["security_groups"] == sorted([one["id"], two["id"]])
        await update(PROJECT, first["id"], {"security_groups": [two["id"]]})
        shown = {port["id"]: port["security_groups"] for port in await bench.net.ports.all(None)}
        assert shown == {first["id"]: [two["id"]], second["id"]: [one["id"]]}
        for wish in ([theirs["id"]], ["none"]):
            asked = update(PROJECT, first["id"], {"security_groups": wish})
            assert await refusal(asked) == "security_group_not_found"
            assert (
                await refusal(bench.port(network, viewer=PROJECT, security_groups=wish)) == "security_group_not_found"
            )
        await bench.net.ports.delete(None, first["id"])
        assert [row["port_id"] for row in await bench.rows(port_groups)] == [second["id"]]

    bench.run(story)


def test_a_port_is_made_in_a_network_that_its_project_sees(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        theirs, _ = await bench.network(project=OTHER)
        for network in (theirs, {"id": "none"}):
            assert await refusal(bench.port(network, viewer=PROJECT)) == "network_not_found"
        await bench.net.networks.update(None, theirs["id"], {"shared": True})
        assert (await bench.port(theirs, viewer=PROJECT))["network_id"] == theirs["id"]

    bench.run(story)


def test_several_ports_of_projects_without_a_default_group(bench: Kind) -> None:
    """Each project gets its own; a port of nobody has none."""

    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        wishes = [{"project_id": project, "network_id": network["id"]} for project in (PROJECT, "", OTHER)]
        mine, nobodys, theirs = await bench.net.ports.create(None, wishes)
        groups = {group["id"]: group["project_id"] for group in await bench.net.groups.all(None)}
        assert [groups[port["security_groups"][0]] for port in (mine, theirs)] == [PROJECT, OTHER]
        assert nobodys["security_groups"] == []
        assert len(await bench.rows(ports)) == 3

    bench.run(story)


@pytest.mark.parametrize("owner", ROUTERS_OWN)
def test_nobody_makes_a_port_that_looks_like_a_routers(bench: Kind, owner: str) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        assert await refusal(bench.port(network, device_owner=owner)) == "invalid_input"
        port = await bench.port(network, device_owner="mine")
        asked = bench.net.ports.update(None, port["id"], {"device_owner": owner})
        assert await refusal(asked) == "invalid_input"
        assert (await bench.net.ports.update(None, port["id"], {"device_owner": "yours"}))["device_owner"] == "yours"

    bench.run(story)


@pytest.mark.parametrize("owner", ROUTERS_OWN)
def test_a_port_of_a_router_or_floating_ip_stays_theirs(bench: Kind, owner: str) -> None:
    async def story(bench: Bench) -> None:
        outside, _ = await bench.network("172.24.4.0/24", **{"router:external": True})
        _, subnet = await bench.network()
        router = await bench.one("router", external_gateway_info={"network_id": outside["id"]})
        await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])
        await bench.one("floatingip", floating_network_id=outside["id"])
        (row,) = [row for row in await bench.rows(ports) if row["device_owner"] == owner]
        update = bench.net.ports.update
        for wish in ({"device_id": "x"}, {"device_id": None}, {"device_owner": "x"}, {"device_owner": ""}):
            assert await refusal(update(None, row["id"], wish)) == "service_port_in_use", wish
        assert await refusal(bench.net.ports.delete(None, row["id"])) == "service_port_in_use"
        same = {"device_id": row["device_id"], "device_owner": owner, "name": "renamed"}
        assert (await update(None, row["id"], same))["name"] == "renamed"
        assert len(await bench.rows(ports)) == 3

    bench.run(story)


def test_the_mac_of_a_port(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        beside, _ = await bench.network()
        port, other = [await bench.port(network, mac_address=mac) for mac in (MAC, OTHER_MAC)]
        assert (await bench.port(beside, mac_address=MAC))["mac_address"] == MAC, "another network"
        assert await refusal(bench.port(network, mac_address=MAC)) == "mac_in_use"
        assert await refusal(bench.port(network, mac_address="01:00:5e:00:00:01")) == "invalid_input"
        update = bench.net.ports.update
        assert await refusal(update(None, port["id"], {"mac_address": OTHER_MAC})) == "mac_in_use"
        assert await refusal(update(None, port["id"], {"mac_address": "nonsense"})) == "invalid_input"
        free = "fa:16:3e:00:00:03"
        assert (await update(None, port["id"], {"mac_address": free.upper()}))["mac_address"] == free
        await update(None, other["id"], {"binding:host_id": "host1"})
        assert await refusal(update(None, other["id"], {"mac_address": MAC})) == "port_bound"
        same = await update(None, other["id"], {"mac_address": OTHER_MAC, "name": "x"})
        assert (same["name"], same["mac_address"]) == ("x", OTHER_MAC)

    bench.run(story)


@pytest.mark.parametrize(
    ("dns_name", "host", "fqdn"),
    [
        ("", "host-10-0-0-2", "host-10-0-0-2.openstacklocal."),
        ("web", "web", "web.openstacklocal."),
        ("web.example.org.", "web.example.org.", "web.example.org."),
    ],
)
def test_the_names_of_a_ports_addresses(bench: Kind, dns_name: str, host: str, fqdn: str) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        port = await bench.port(network, dns_name=dns_name)
        assert port["dns_assignment"] == [{"ip_address": "10.0.0.2", "hostname": host, "fqdn": fqdn}]

    bench.run(story)


def test_a_port_goes_with_what_belongs_to_it_and_nothing_else(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        outside, _ = await bench.network("172.24.4.0/24", **{"router:external": True})
        network, subnet = await bench.network()
        router = await bench.one("router", external_gateway_info={"network_id": outside["id"]})
        await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])
        going, kept = [await bench.port(network, tags=["t"]) for _ in range(2)]
        wish = {"floating_network_id": outside["id"]}
        for port in (going, kept):
            await bench.one("floatingip", **wish, port_id=port["id"])
        await bench.net.ports.delete(None, going["id"])
        states = {row["port_id"]: (row["fixed_address"], row["router_id"], row["status"])
                  for row in await bench.rows(floating_ips)}  # fmt: skip
        assert states == {"": ("", "", "DOWN"), kept["id"]: ("10.0.0.3", router["id"], "ACTIVE")}
        for table, column in ((ports, "id"), (fixed_ips, "port_id"), (port_groups, "port_id"), (tags, "record_id")):
            there = {row[column] for row in await bench.rows(table)}
            assert going["id"] not in there and kept["id"] in there, table.name
        assert await refusal(bench.net.ports.delete(None, going["id"])) == "port_not_found"
        assert await refusal(bench.net.ports.update(None, going["id"], {})) == "port_not_found"

    bench.run(story)


def test_a_port_of_nobody_locks_no_project(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        kind = {"provider:network_type": "local"}
        outside, _ = await bench.network(**kind, **{"router:external": True})
        await bench.one("router", external_gateway_info={"network_id": outside["id"]})
        (gateway,) = await bench.rows(ports)
        await bench.net.ports.update(None, gateway["id"], {"name": "way out"})
        assert {row["project_id"] for row in await bench.rows(projects)} == {PROJECT}

    bench.run(story)


def test_a_port_that_goes_while_it_waits_for_its_network_is_not_found(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        port = await bench.port(network)
        bench.meanwhile(lambda tx: rows.remove(tx, ports, id=port["id"]), network)
        assert await refusal(bench.net.ports.update(None, port["id"], {"name": "x"})) == "port_not_found"
        other = await bench.port(network, fixed_ips=[])
        bench.meanwhile(lambda tx: rows.change(tx, ports, {"host": "host1"}, id=other["id"]), network)
        changed = bench.net.ports.update(None, other["id"], {"mac_address": MAC})
        assert await refusal(changed) == "port_bound", "as it is now, not as it was"

    bench.run(story)


def test_addresses_that_fit_the_request_stay(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, four = await bench.network()
        other = await bench.one("subnet", network_id=network["id"], cidr="10.1.0.0/24")
        six = await bench.one("subnet", network_id=network["id"], cidr="2001:db8::/64")
        port = await bench.port(network, fixed_ips=[{"ip_address": f"10.0.0.{last}"} for last in (7, 8)])

        async def change(*wanted: dict[str, str]) -> list[str]:
            return addresses(await bench.net.ports.update(None, port["id"], {"fixed_ips": list(wanted)}))

        of_four = {"subnet_id": four["id"]}
        assert await change(of_four, of_four) == ["10.0.0.7", "10.0.0.8"]
        assert await change(of_four, of_four, of_four) == ["10.0.0.7", "10.0.0.8", "10.0.0.2"]
        assert await change({"ip_address": "10.0.0.8"}, of_four) == ["10.0.0.8", "10.0.0.7"]
        assert await change({"subnet_id": other["id"]}, of_four) == ["10.1.0.2", "10.0.0.8"]
        assert await change({**of_four, "ip_address": "10.0.0.8"}) == ["10.0.0.8"]
        assert await change({"subnet_id": six["id"]}) == ["2001:db8::2"]
        assert await change({"ip_address": "2001:DB8::2"}) == ["2001:db8::2"]

    bench.run(story)


def test_an_address_with_a_floating_ip_stays(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        outside, _ = await bench.network("172.24.4.0/24", **{"router:external": True})
        network, subnet = await bench.network()
        router = await bench.one("router", external_gateway_info={"network_id": outside["id"]})
        await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])
        port, beside = await bench.port(network), await bench.port(network)
        floating = await bench.one("floatingip", floating_network_id=outside["id"], port_id=port["id"])
        update = bench.net.ports.update
        for wish in ([], [{"ip_address": "10.0.0.9"}]):
            assert await refusal(update(None, port["id"], {"fixed_ips": wish})) == "address_has_floating_ip"
        both = [{"ip_address": "10.0.0.9"}, {"ip_address": "10.0.0.2"}]
        assert addresses(await update(None, port["id"], {"fixed_ips": both})) == ["10.0.0.9", "10.0.0.2"]
        assert addresses(await update(None, beside["id"], {"fixed_ips": []})) == []
        await bench.net.floating_ips.update(None, floating["id"], {"port_id": None})
        assert addresses(await update(None, port["id"], {"fixed_ips": []})) == []

    bench.run(story)
