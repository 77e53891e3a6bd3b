"""The ports of servers: all or nothing, fenced, the same again when asked again, given back at the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kilonova.domain.errors import Failed, Superseded
from kilonova.domain.network import WantedPort
from kilonova.schema.tables.journal import fences
from kilonova.schema.tables.network import fixed_ips, free_ranges, networks, port_groups, ports, security_groups
from kilonova.store import rows
from tests.support.mappings import map_servers
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind

SERVER = "5e000000-0000-4000-8000-000000000001"
OTHER_SERVER = "5e000000-0000-4000-8000-000000000002"


async def failure(asked: Any) -> str:
    with pytest.raises(Failed) as why:
        await asked
    assert why.value.final and why.value.message
    return why.value.code


def test_a_server_gets_its_ports_with_addresses_and_groups(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, subnet = await bench.network(name="blue")
        given = await bench.port(network, name="mine")
        wanted = [WantedPort(network_id=network["id"], tag="eth"), WantedPort(port_id=given["id"])]
        first, second = await bench.allocate((SERVER, 1, 4), *wanted, hostname="web", availability_zone="az1")
        assert (first.network_name, first.created_here, first.tag, first.host) == ("blue", True, "eth", "host1")
        assert [(each.address, each.version, each.subnet_id, each.kind) for each in first.addresses] == [
            ("10.0.0.3", 4, subnet["id"], "fixed")
        ]
        assert first.security_groups == ["default"] and first.mac.startswith("fa:16:3e:")
        assert (second.port_id, second.created_here, second.addresses[0].address) == (given["id"], False, "10.0.0.2")
        shown = await bench.net.ports.show(None, first.port_id)
        told = {name: shown[name] for name in ("device_id", "device_owner", "status", "name", "dns_name", "project_id")}
        assert told == {
            "device_id": SERVER,
            "device_owner": "compute:az1",
            "status": "ACTIVE",
            "name": "",
            "dns_name": "web",
            "project_id": PROJECT,
        }
        assert (shown["binding:host_id"], shown["binding:vif_type"]) == ("host1", "ovs")
        assert await bench.net.vifs([SERVER, "nobody"]) == {SERVER: [first, second]}
        assert await bench.net.vifs([]) == {}

    both.run(story)


def test_the_same_again_finds_what_was_done(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        wanted = [WantedPort(network_id=network["id"])] * 2
        first = await bench.allocate((SERVER, 1, 4), *wanted)
        assert await bench.allocate((SERVER, 1, 4), *wanted) == first
        later = await bench.allocate((SERVER, 1, 5), *wanted, host="host2")  # a retry, after another host was chosen
        assert [vif.port_id for vif in later] == [vif.port_id for vif in first]
        assert {vif.host for vif in later} == {"host2"}
        assert len(await bench.rows(ports)) == 2

    both.run(story)


def test_what_comes_too_late_changes_nothing(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        want = WantedPort(network_id=network["id"])
        await map_servers(bench.store, SERVER, project=PROJECT)
        await bench.net.release((SERVER, 2, 1), server_id=SERVER)  # nothing there is fine
        with pytest.raises(Superseded):
            await bench.allocate((SERVER, 1, 9), want)
        assert not await bench.rows(ports)
        made = await bench.allocate((SERVER, 2, 2), want)
        for late in ((SERVER, 2, 1), (SERVER, 1, 7)):
            with pytest.raises(Superseded):
                await bench.net.release(late, server_id=SERVER)
            with pytest.raises(Superseded):
                await bench.net.bind(late, server_id=SERVER, host="host9")
        assert await bench.net.vifs([SERVER]) == {SERVER: made}

    both.run(story)


def test_a_release_takes_what_was_made_and_gives_back_the_rest(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network("10.0.0.0/29")
        given = await bench.port(network)
        await bench.allocate((SERVER, 1, 1), WantedPort(network_id=network["id"]), WantedPort(port_id=given["id"]))
        for _ in range(2):
            await bench.net.release((SERVER, 1, 2), server_id=SERVER)
        assert await bench.net.vifs([SERVER]) == {}
        (left,) = await bench.net.ports.all(None)
        assert (left["id"], left["device_id"], left["device_owner"]) == (given["id"], "", "")
        assert (left["binding:host_id"], left["status"], left["binding:vif_type"]) == ("", "DOWN", "unbound")
        assert [(row["first"], row["last"]) for row in await bench.rows(free_ranges)] == [("0a000003", "0a000006")]
        assert {row["port_id"] for row in await bench.rows(port_groups)} == {given["id"]}

    both.run(story)


def test_only_what_is_made_counts_against_the_quota(both: Kind) -> None:
    """A port that the server is given counts already."""

    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        given = [WantedPort(port_id=(await bench.port(network))["id"]) for _ in range(2)]
        await bench.net.quotas.set(PROJECT, {"port": 3})
        await bench.allocate((SERVER, 1, 1), *given, WantedPort(network_id=network["id"]))
        await bench.net.release((SERVER, 1, 2), server_id=SERVER)
        await bench.net.quotas.set(PROJECT, {"port": 1})  # fewer than there are
        assert len(await bench.allocate((SERVER, 1, 3), *given)) == 2
        more = bench.allocate((SERVER, 1, 4), *given, WantedPort(network_id=network["id"]))
        assert await failure(more) == "over_quota"

    both.run(story)


def test_ports_follow_the_server_to_another_host(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        (before,) = await bench.allocate((SERVER, 1, 1), WantedPort(network_id=network["id"]))
        for _ in range(2):
            (after,) = await bench.net.bind((SERVER, 2, 3), server_id=SERVER, host="host2")
            assert (after.port_id, after.addresses, after.host) == (before.port_id, before.addresses, "host2")
        shown = await bench.net.ports.show(None, before.port_id)
        assert shown["revision_number"] == 2, "the second time nothing had to change"
        await map_servers(bench.store, "another", project=PROJECT)
        assert await bench.net.bind(("another", 1, 1), server_id="another", host="host2") == []

    both.run(story)


def test_what_cannot_be_had_leaves_nothing_behind(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        roomy, _ = await bench.network()
        tiny, _ = await bench.network("10.9.0.0/30")
        foreign, _ = await bench.network(project=OTHER)
        theirs = await bench.port(foreign, OTHER)
        used = await bench.port(tiny, device_id="somebody")  # and so the tiny one is full
        (group,) = [await bench.one("security_group", OTHER, name="g")]
        before = [len(await bench.rows(table)) for table in (ports, fixed_ips, free_ranges, port_groups, fences)]
        for second, code in (
            (WantedPort(network_id=tiny["id"]), "no_more_addresses"),
            (WantedPort(port_id=used["id"]), "port_in_use"),
            (WantedPort(port_id=theirs["id"]), "port_not_usable"),
            (WantedPort(port_id="none"), "port_not_found"),
            (WantedPort(network_id="none"), "network_not_found"),
            (WantedPort(network_id=roomy["id"], fixed_ip="10.0.1.1"), "invalid_ip_for_network"),
        ):
            asked = bench.allocate((SERVER, 1, 1), WantedPort(network_id=roomy["id"]), second)
            assert await failure(asked) == code
        asked = bench.allocate((SERVER, 1, 1), WantedPort(network_id=roomy["id"]), security_groups=[group["id"]])
        assert await failure(asked) == "security_group_not_found"
        await bench.net.quotas.set(PROJECT, {"port": 2})
        assert await failure(bench.allocate((SERVER, 1, 1), *[WantedPort(network_id=roomy["id"])] * 2)) == "over_quota"
        after = [len(await bench.rows(table)) for table in (ports, fixed_ips, free_ranges, port_groups, fences)]
        assert after == before

    both.run(story)


def test_many_servers_at_once_share_nothing(both: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network("10.0.0.0/24", shared=True)
        want = WantedPort(network_id=network["id"])
        nets = [bench.again() for _ in range(3)]
        await map_servers(bench.store, *(f"server{number}" for number in range(40)), project=PROJECT)

        async def one(number: int) -> Any:
            told = {"user_id": "u", "security_groups": [], "host": "host1", "wanted": [want] * 2}
            project = f"project-{number % 5}"  # only the network's own lock keeps them apart
            return await nets[number % 3].allocate((f"server{number}", 1, 1), project_id=project, **told)

        made = await asyncio.gather(*(one(number) for number in range(40)))
        taken = [vif.addresses[0].address for vifs in made for vif in vifs]
        assert sorted(taken) == sorted({f"10.0.0.{last}" for last in range(2, 82)})
        asked = (nets[n % 3].release((f"server{n}", 1, 2), server_id=f"server{n}") for n in range(40))
        await asyncio.gather(*asked)
        assert not await bench.rows(ports) and not await bench.rows(fixed_ips)
        assert len(await bench.rows(free_ranges)) == 1

    both.run(story)


def test_a_port_given_to_something_else_is_no_longer_the_servers(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        (vif,) = await bench.allocate((SERVER, 1, 1), WantedPort(network_id=network["id"]))
        stranger = await bench.port(network, device_id=SERVER)  # only says so: it was never attached
        assert [each.port_id for each in (await bench.net.vifs([SERVER]))[SERVER]] == [vif.port_id]
        await bench.net.ports.update(None, vif.port_id, {"device_id": "elsewhere"})
        assert await bench.net.vifs([SERVER]) == {}
        await bench.net.release((SERVER, 1, 2), server_id=SERVER)
        assert {port["id"] for port in await bench.net.ports.all(None)} == {vif.port_id, stranger["id"]}

    bench.run(story)


def test_a_network_without_port_security_has_no_groups(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network(port_security_enabled=False)
        (vif,) = await bench.allocate((SERVER, 1, 1), WantedPort(network_id=network["id"]))
        assert vif.security_groups == []
        assert (await bench.net.ports.show(None, vif.port_id))["port_security_enabled"] is False
        assert not await bench.rows(security_groups), "no default group is needed"

    bench.run(story)


def test_a_floating_ip_is_among_the_addresses(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        outside, _ = await bench.network("172.24.4.0/24", **{"router:external": True})
        network, subnet = await bench.network()
        router = await bench.one("router", external_gateway_info={"network_id": outside["id"]})
        await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])
        (vif,) = await bench.allocate((SERVER, 1, 1), WantedPort(network_id=network["id"]))
        floating = await bench.one("floatingip", floating_network_id=outside["id"], port_id=vif.port_id)
        (seen,) = (await bench.net.vifs([SERVER]))[SERVER]
        assert [(each.address, each.kind) for each in seen.addresses] == [
            ("10.0.0.2", "fixed"),
            (floating["floating_ip_address"], "floating"),
        ]
        await bench.net.release((SERVER, 1, 2), server_id=SERVER)
        left = await bench.net.floating_ips.show(None, floating["id"])
        assert (left["port_id"], left["fixed_ip_address"], left["router_id"], left["status"]) == (None,) * 3 + ("DOWN",)

    bench.run(story)


def test_looking_at_many_servers_takes_two_statements(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        for number in range(5):
            await bench.allocate((f"s{number}", 1, 1), WantedPort(network_id=network["id"]))
        before = bench.store.stats.statements
        assert len(await bench.net.vifs([f"s{number}" for number in range(5)])) == 5
        assert bench.store.stats.statements - before == 2

    bench.run(story)


def test_what_is_done_for_one_server_leaves_the_ports_of_others(bench: Kind) -> None:
    """Also of one that only says that it is this server's."""

    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        given = [await bench.port(network) for _ in range(2)]
        for server, own in zip((OTHER_SERVER, SERVER), given, strict=True):
            wanted = [WantedPort(network_id=network["id"]), WantedPort(port_id=own["id"])]
            await bench.allocate((server, 1, 1), *wanted)
        await bench.port(network, device_id=SERVER)
        idle = await bench.port(network)

        async def others() -> list[Any]:
            mine = {vif.port_id for vif in (await bench.net.vifs([SERVER])).get(SERVER, ())} | {given[1]["id"]}
            return [tuple(row) for row in await bench.rows(ports) if row["id"] not in mine]

        before = await others()
        assert len(before) == 4
        await bench.net.bind((SERVER, 1, 2), server_id=SERVER, host="host2")
        assert await others() == before
        found = await bench.net.vifs([SERVER])
        assert set(found) == {SERVER} and {vif.host for vif in found[SERVER]} == {"host2"}
        states = {port_id: "ACTIVE" for vif in (await bench.net.vifs([SERVER]))[SERVER] for port_id in [vif.port_id]}
        told = await bench.net.port_states(SERVER)
        assert states.items() < told.items() and sorted(told.values()) == ["ACTIVE", "ACTIVE", "DOWN"]
        await bench.net.release((SERVER, 1, 3), server_id=SERVER)
        assert await others() == before and idle["id"] in {row[0] for row in before}

    bench.run(story)


def test_a_given_port_keeps_its_name_and_counts_its_changes(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        named, plain = [await bench.port(network, dns_name=name) for name in ("mine", "")]
        given = [WantedPort(port_id=port["id"]) for port in (named, plain)]
        await bench.allocate((SERVER, 1, 1), *given, hostname="web")
        shown = [await bench.net.ports.show(None, port["id"]) for port in (named, plain)]
        assert [(port["dns_name"], port["revision_number"]) for port in shown] == [("mine", 2), ("web", 2)]
        await bench.net.release((SERVER, 1, 2), server_id=SERVER)
        shown = [await bench.net.ports.show(None, port["id"]) for port in (named, plain)]
        assert [port["revision_number"] for port in shown] == [3, 3]

    bench.run(story)


def test_what_is_there_already_is_not_judged_again(bench: Kind) -> None:
    """A retry finds its ports, whatever became of the groups that it names."""

    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        group = await bench.one("security_group", name="web")
        wanted = {"security_groups": [group["id"]]}
        (vif,) = await bench.allocate((SERVER, 1, 1), WantedPort(network_id=network["id"]), **wanted)
        assert vif.security_groups == ["web"]
        await bench.net.ports.update(None, vif.port_id, {"security_groups": []})
        await bench.net.groups.delete(None, group["id"])
        (again,) = await bench.allocate((SERVER, 1, 2), WantedPort(network_id=network["id"]), **wanted)
        assert (again.port_id, again.security_groups) == (vif.port_id, [])
        assert await failure(bench.allocate((SERVER, 1, 3), *[WantedPort(network_id=network["id"])] * 2, **wanted)) == (
            "security_group_not_found"
        )

    bench.run(story)


def test_a_retry_makes_only_what_is_missing(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        want = WantedPort(network_id=network["id"])
        first = await bench.allocate((SERVER, 1, 1), want)
        await bench.net.quotas.set(PROJECT, {"port": 2})
        both = await bench.allocate((SERVER, 1, 2), want, want)
        assert both[:1] == first and len(both) == 2

    bench.run(story)


def test_ports_without_addresses_and_with_several(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        bare = await bench.port(network, fixed_ips=[], security_groups=[])
        two = [{"ip_address": f"10.0.0.{last}"} for last in (9, 7)]
        groups = [await bench.one("security_group", name=name) for name in ("web", "db")]
        full = await bench.port(network, fixed_ips=two, security_groups=[group["id"] for group in groups])
        await bench.allocate((SERVER, 1, 1), WantedPort(port_id=bare["id"]), WantedPort(port_id=full["id"]))
        first, second = (await bench.net.vifs([SERVER]))[SERVER]
        assert (first.addresses, first.security_groups) == ([], [])
        assert [each.address for each in second.addresses] == ["10.0.0.9", "10.0.0.7"]
        assert second.security_groups == ["db", "web"]

    bench.run(story)


def test_the_floating_ip_of_one_address_is_not_anothers(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        outside, _ = await bench.network("172.24.4.0/24", **{"router:external": True})
        nets = []
        for _ in range(2):
            network, subnet = await bench.network()
            router = await bench.one("router", external_gateway_info={"network_id": outside["id"]})
            await bench.net.interfaces.add(None, router["id"], subnet_id=subnet["id"])
            nets.append(network)
        two = [{"ip_address": "10.0.0.7"}, {"ip_address": "10.0.0.8"}]
        mine, theirs = [await bench.port(network, fixed_ips=two) for network in nets]
        await bench.allocate((SERVER, 1, 1), WantedPort(port_id=mine["id"]))
        stands = {"floating_network_id": outside["id"], "fixed_ip_address": "10.0.0.8"}
        floating = await bench.one("floatingip", **stands, port_id=mine["id"])
        await bench.one("floatingip", **stands, port_id=theirs["id"])
        (vif,) = (await bench.net.vifs([SERVER]))[SERVER]
        expected = ["10.0.0.7", "10.0.0.8", floating["floating_ip_address"]]
        assert [each.address for each in vif.addresses] == expected

    bench.run(story)


def test_what_happens_while_a_server_waits_for_the_network_counts(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        given = await bench.port(network)
        want = WantedPort(port_id=given["id"])
        bench.meanwhile(lambda tx: rows.change(tx, ports, {"device_id": "another"}, id=given["id"]), network)
        assert await failure(bench.allocate((SERVER, 1, 1), want)) == "port_in_use"
        bench.meanwhile(lambda tx: rows.change(tx, ports, {"project_id": OTHER}, id=given["id"]), network)
        assert await failure(bench.allocate((SERVER, 1, 1), want)) == "port_not_usable"
        bench.meanwhile(lambda tx: rows.remove(tx, ports, id=given["id"]), network)
        assert await failure(bench.allocate((SERVER, 1, 1), want)) == "port_not_found"
        bench.meanwhile(lambda tx: rows.remove(tx, networks, id=network["id"]), network)
        assert await failure(bench.allocate((SERVER, 1, 1), WantedPort(network_id=network["id"]))) == (
            "network_not_found"
        )
        own = await bench.allocate((SERVER, 1, 1), want, WantedPort(network_id=network["id"]))
        taken = {"device_id": "another", "slot": -1}
        bench.meanwhile(lambda tx: rows.change(tx, ports, taken, id=given["id"]), network)
        await bench.net.release((SERVER, 1, 2), server_id=SERVER)
        (left,) = await bench.rows(ports)
        assert (left["id"], left["device_id"], len(own)) == (given["id"], "another", 2)

    bench.run(story)
