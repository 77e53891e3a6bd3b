"""What a new server's wish for networks means."""

from __future__ import annotations

from kilonova.domain.network import WantedPort
from tests.unit.services.network.bench import ADMIN, OTHER, PROJECT, Bench, Kind, caller, refusal

ME = caller()


def test_without_a_wish_the_only_network_is_meant(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        assert await bench.net.choose(ME, None) == []
        assert await refusal(bench.net.choose(ME, None, auto=True)) == "network_auto_unavailable"
        await bench.network("172.24.4.0/24", **{"router:external": True})
        await bench.network("10.1.0.0/24", OTHER)
        assert await bench.net.choose(ME, None) == [], "external ones and those of others do not count"
        shared, _ = await bench.network("10.2.0.0/24", OTHER, shared=True)
        assert await bench.net.choose(ME, None, auto=True) == [WantedPort(network_id=shared["id"])]
        await bench.network("10.3.0.0/24")
        assert await refusal(bench.net.choose(ME, None)) == "network_ambiguous"
        assert await bench.net.choose(ADMIN, None) == [WantedPort(network_id=shared["id"])], "not all that it sees"

    bench.run(story)


def test_the_only_network_needs_a_subnet(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        await bench.one("network")
        assert await refusal(bench.net.choose(ME, None)) == "network_needs_subnet"

    bench.run(story)


def test_networks_and_ports_must_be_there_visible_and_usable(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        mine, _ = await bench.network()
        foreign, _ = await bench.network(project=OTHER)
        outside, _ = await bench.network("172.24.4.0/24", OTHER, **{"router:external": True})
        bare = await bench.one("network")
        free, used = await bench.port(mine), await bench.port(mine, device_id="x")
        unaddressed, theirs = await bench.port(bare), await bench.port(foreign, OTHER)
        for want, code in (
            (WantedPort(network_id="none"), "network_not_found"),
            (WantedPort(network_id=foreign["id"]), "network_not_found"),
            (WantedPort(network_id=outside["id"]), "external_network_forbidden"),
            (WantedPort(network_id=bare["id"]), "network_needs_subnet"),
            (WantedPort(port_id="none"), "port_not_found"),
            (WantedPort(port_id=theirs["id"]), "port_not_found"),
            (WantedPort(port_id=used["id"]), "port_in_use"),
            (WantedPort(port_id=unaddressed["id"]), "port_needs_address"),
            (WantedPort(), "bad_request"),
            (WantedPort(port_id=free["id"], network_id=mine["id"]), "bad_request"),
            (WantedPort(network_id=mine["id"], fixed_ip="nonsense"), "invalid_fixed_ip"),
            (WantedPort(network_id=mine["id"], fixed_ip="10.0.0.1%lo"), "invalid_fixed_ip"),
            (WantedPort(network_id=mine["id"], fixed_ip="10.7.0.9"), "invalid_fixed_ip"),
            (WantedPort(network_id=mine["id"], fixed_ip="10.0.0.255"), "invalid_fixed_ip"),
            (WantedPort(network_id=mine["id"], fixed_ip="10.0.0.2"), "address_in_use"),
            (WantedPort(network_id=mine["id"], fixed_ip="10.0.0.1"), "invalid_fixed_ip"),
            (WantedPort(network_id=mine["id"], fixed_ip="::a00:9"), "invalid_fixed_ip"),
        ):
            assert await refusal(bench.net.choose(ME, [want])) == code, want
        assert await refusal(bench.net.choose(ADMIN, [WantedPort(port_id=free["id"])])) == "port_not_usable"
        good = [WantedPort(network_id=mine["id"], fixed_ip="10.0.0.9", tag="t"), WantedPort(port_id=free["id"])]
        assert await bench.net.choose(ME, good) == good
        await bench.port(foreign, OTHER, fixed_ips=[{"ip_address": "10.0.0.9"}])
        assert await bench.net.choose(ME, good) == good, "the same address is in use in another network"
        way_out = [WantedPort(network_id=outside["id"])]
        assert await refusal(bench.net.choose(ADMIN, way_out)) == "external_network_forbidden"
        assert await bench.net.choose(ADMIN, way_out, external=True) == way_out
        await bench.net.networks.update(None, outside["id"], {"shared": True})
        assert await bench.net.choose(ME, way_out) == way_out, "it is shared with all projects"

    bench.run(story)


def test_the_same_network_twice_is_fine_the_same_port_or_address_is_not(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        port = await bench.port(network)
        twice = [WantedPort(network_id=network["id"])] * 2
        assert await bench.net.choose(ME, twice) == twice
        assert await refusal(bench.net.choose(ME, [WantedPort(port_id=port["id"])] * 2)) == "duplicate_port"
        address = [WantedPort(network_id=network["id"], fixed_ip="10.0.0.9")] * 2
        assert await refusal(bench.net.choose(ME, address)) == "address_in_use"

    bench.run(story)


def test_the_ports_of_all_servers_must_fit_into_the_quota(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        mine, wanted = await bench.port(network), WantedPort(network_id=network["id"])
        await bench.net.quotas.set(PROJECT, {"port": 4})
        there, room = WantedPort(port_id=mine["id"]), bench.net.room
        assert await room(ME, [wanted], 3, 3) == 3
        assert await room(ME, [wanted, there, wanted, wanted], 1, 1) == 1
        assert await room(ME, [wanted], 2, 5) == 3, "fewer than asked for, but enough"
        assert await room(ME, [wanted] * 2, 1, 5) == 1
        for asked in (room(ME, [wanted], 4, 5), room(ME, [wanted] * 2, 2, 2), room(ME, [wanted] * 4, 1, 1)):
            assert await refusal(asked) == "too_many_ports"
        await bench.net.quotas.set(PROJECT, {"port": 0})
        assert await room(ME, [there], 1, 1) == 1, "it is there already"
        await bench.net.quotas.set(PROJECT, {"port": -1})
        assert await room(ME, [wanted], 1, 1000) == 1000

    both.run(story)


def test_security_groups_by_name_or_id(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        web, twin, other = [await bench.one("security_group", name=name) for name in ("web", "twin", "twin")]
        theirs = await bench.one("security_group", OTHER, name="theirs")
        check = bench.net.check_security_groups
        assert await check(ME, []) == [] and await check(ME, [web["id"], "web"]) == [web["id"]]
        assert await check(ME, ["default", "web"], may_make=False) == [web["id"]]
        assert await check(ME, ["default"], may_make=False) == []
        assert {group["name"] for group in await bench.net.groups.all(PROJECT)} == {"web", "twin"}
        (default,) = await check(ME, ["default"])  # made on first use
        assert (await bench.net.groups.show(PROJECT, default))["name"] == "default"
        assert await check(ME, ["web", default, web["id"], "default", other["id"]]) == [web["id"], default, other["id"]]
        assert await refusal(check(ME, ["twin"])) == "security_group_ambiguous"
        for unknown in ("nothing", "theirs", theirs["id"]):
            assert await refusal(check(ME, [unknown])) == "security_group_not_found"
        assert twin["id"] != other["id"]

    bench.run(story)
