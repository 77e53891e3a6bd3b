"""A server's own record of its ports is out of date once they are changed here: then it is marked, and only then."""

from __future__ import annotations

from typing import Any

from kilonova.domain.network import Vif, WantedPort
from kilonova.schema.tables.network import changed_ports
from kilonova.services.network.outdated_servers import marked_among, unmark
from kilonova.world import Tx
from tests.unit.services.network.bench import Bench, Kind

SERVER = "5e000000-0000-4000-8000-000000000001"
OTHER_SERVER = "5e000000-0000-4000-8000-000000000002"


async def marked(bench: Bench) -> set[str]:
    return {row["server_id"] for row in await bench.rows(changed_ports)}


async def seen(bench: Bench) -> list[Vif]:
    """Of the first server; the second was never touched."""
    found = await bench.net.changed_vifs([SERVER, OTHER_SERVER, "nobody"])
    assert set(found) == {SERVER}
    assert found[SERVER] == (await bench.net.vifs([SERVER])).get(SERVER, [])
    return found[SERVER]


async def unmark_all(bench: Bench) -> None:
    async def body(tx: Tx) -> None:
        for server_id in await marked_among(tx, [SERVER, OTHER_SERVER]):
            await unmark(tx, server_id)

    await bench.store.write(body)


async def two_servers(bench: Bench, network: Any) -> Vif:
    """The port of the first."""
    (vif,) = await bench.allocate((SERVER, 1, 1), WantedPort(network_id=network["id"]))
    await bench.allocate((OTHER_SERVER, 1, 1), WantedPort(network_id=network["id"]))
    assert not await marked(bench) and await bench.net.changed_vifs([SERVER, OTHER_SERVER]) == {}
    return vif


def test_addresses_and_groups_of_its_port(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        vif = await two_servers(bench, network)
        await bench.net.ports.update(None, vif.port_id, {"fixed_ips": [{"ip_address": "10.0.0.77"}]})
        assert [each.address for each in (await seen(bench))[0].addresses] == ["10.0.0.77"]
        group = await bench.one("security_group", name="web")
        await bench.net.ports.update(None, vif.port_id, {"security_groups": [group["id"]]})
        assert (await seen(bench))[0].security_groups == ["web"]

    both.run(story)


def test_names_of_its_group_and_network(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network(name="blue")
        lonely, _ = await bench.network("10.1.0.0/24", name="green")
        group, unused = [await bench.one("security_group", name=name) for name in ("web", "unused")]
        wanted = WantedPort(network_id=network["id"])
        await bench.allocate((SERVER, 1, 1), wanted, wanted, security_groups=[group["id"]])
        await bench.allocate((OTHER_SERVER, 1, 1), WantedPort(network_id=lonely["id"]))
        await bench.net.groups.update(None, unused["id"], {"name": "still unused"})
        await bench.net.groups.update(None, group["id"], {"description": "its name stays"})
        await bench.net.networks.update(None, network["id"], {"mtu": 1400, "name": "blue"})
        stranger = await bench.port(network, security_groups=[group["id"]], device_id="stranger")  # only says so
        assert not await marked(bench)
        await bench.net.groups.update(None, group["id"], {"name": "front"})
        assert [vif.security_groups for vif in await seen(bench)] == [["front"], ["front"]]
        await bench.net.release((SERVER, 1, 2), server_id=SERVER)
        await bench.allocate((SERVER, 1, 3), wanted)
        await bench.net.networks.update(None, network["id"], {"name": "red"})
        assert [vif.network_name for vif in await seen(bench)] == ["red"]
        await bench.net.ports.delete(None, stranger["id"])
        assert await marked(bench) == {SERVER}
        await bench.net.networks.update(None, lonely["id"], {"name": "yellow"})
        assert await marked(bench) == {SERVER, OTHER_SERVER}
        assert set(await bench.net.changed_vifs([OTHER_SERVER])) == {OTHER_SERVER}, "as asked"
        assert await bench.net.changed_ports([SERVER]) == {SERVER} and await bench.net.changed_ports([]) == set()
        await bench.net.release((SERVER, 1, 4), server_id=SERVER)
        assert await marked(bench) == {OTHER_SERVER}

    both.run(story)


def test_floating_ips_come_and_go(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        outside, _ = await bench.network("172.24.4.0/24", **{"router:external": True})
        network, subnet = await bench.network()
        router = await bench.one("router", external_gateway_info={"network_id": outside["id"]})
        await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])
        vif = await two_servers(bench, network)
        idle = await bench.one("floatingip", floating_network_id=outside["id"])
        assert not await marked(bench)

        async def kinds() -> list[str]:
            """And the mark is taken away, so that the next change must set it again."""
            found = [each.kind for each in (await seen(bench))[0].addresses]
            await unmark_all(bench)
            return found

        floating = await bench.one("floatingip", floating_network_id=outside["id"], port_id=vif.port_id)
        assert await kinds() == ["fixed", "floating"]
        await bench.net.floating_ips.update(None, floating["id"], {"description": "the same address"})
        assert not await marked(bench)
        await bench.net.floating_ips.update(None, floating["id"], {"port_id": None})
        assert await kinds() == ["fixed"]
        await bench.net.floating_ips.update(None, idle["id"], {"port_id": vif.port_id})
        assert await kinds() == ["fixed", "floating"]
        await bench.net.floating_ips.delete(None, idle["id"])
        assert await kinds() == ["fixed"]

    both.run(story)


def test_a_port_that_leaves_its_server(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        vif = await two_servers(bench, network)
        free = await bench.port(network)
        await bench.net.ports.update(None, free["id"], {"fixed_ips": [{"ip_address": "10.0.0.88"}]})
        await bench.net.ports.delete(None, free["id"])
        assert not await marked(bench), "it was no server's"
        await bench.net.ports.delete(None, vif.port_id)
        assert await seen(bench) == []
        await bench.net.release((SERVER, 1, 2), server_id=SERVER)
        assert not await marked(bench), "nothing was left to release, but the mark"
        (other,) = (await bench.net.vifs([OTHER_SERVER]))[OTHER_SERVER]
        await bench.net.ports.update(None, other.port_id, {"device_id": ""})
        assert await bench.net.changed_vifs([OTHER_SERVER]) == {OTHER_SERVER: []}

    both.run(story)


def test_an_automatic_address_ends_with_its_subnet(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        mode = {"ipv6_address_mode": "slaac", "ipv6_ra_mode": "slaac", "ip_version": 6}
        subnet = await bench.one("subnet", network_id=network["id"], cidr="fd00:1::/64", **mode)
        (vif,) = await bench.allocate((SERVER, 1, 1), WantedPort(network_id=network["id"]))
        assert [each.version for each in vif.addresses] == [4, 6]
        await bench.net.subnets.delete(None, subnet["id"])
        assert [each.version for each in (await seen(bench))[0].addresses] == [4]

    both.run(story)


def test_without_changes_many_servers_take_one_statement(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        await two_servers(bench, (await bench.network())[0])
        before = bench.store.stats.statements
        assert await bench.net.changed_vifs([SERVER, OTHER_SERVER, *map(str, range(1000))]) == {}
        assert bench.store.stats.statements - before == 1

    bench.run(story)
