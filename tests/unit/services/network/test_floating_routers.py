"""Through whose router a floating ip goes: its project's, or the one of whom the subnet is; never a stranger's."""

from __future__ import annotations

from typing import Any

from tests.unit.services.network.bench import ADMINS, OTHER, PROJECT, Bench, Kind, refusal

STRANGER = "project-c"


async def _world(bench: Bench) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """An external network, and one of the administrators that everybody may use, with its subnet."""
    external, _ = await bench.network("203.0.113.0/24", ADMINS, **{"router:external": True})
    shared, subnet = await bench.network("10.0.0.0/24", ADMINS, shared=True)
    return external, shared, subnet


async def _router(bench: Bench, project: str, external: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    gateway = {"network_id": external["id"]}
    router = await bench.one("router", project, external_gateway_info=gateway)
    port = await bench.port(shared, project)
    await bench.net.interfaces.add(project, router["id"], port_id=port["id"])
    return dict(router)


def test_a_strangers_router_is_not_used(both: Kind) -> None:
    """Else the stranger could neither take its interface away nor delete it."""

    async def story(bench: Bench) -> None:
        external, shared, _ = await _world(bench)
        strange = await _router(bench, STRANGER, external, shared)
        port = await bench.port(shared, PROJECT)
        wish = {"floating_network_id": external["id"], "port_id": port["id"]}
        assert await refusal(bench.one("floatingip", PROJECT, **wish)) == "external_network_unreachable"
        idle = await bench.one("floatingip", PROJECT, floating_network_id=external["id"])
        change = bench.net.nouns["floatingip"].update(PROJECT, idle["id"], {"port_id": port["id"]})
        assert await refusal(change) == "external_network_unreachable"
        owners = await _router(bench, ADMINS, external, shared)
        assert (await bench.one("floatingip", PROJECT, **wish))["router_id"] == owners["id"]
        own = await _router(bench, OTHER, external, shared)
        theirs = await bench.port(shared, OTHER)
        made = await bench.one("floatingip", OTHER, floating_network_id=external["id"], port_id=theirs["id"])
        assert made["router_id"] == own["id"], "its own before the owner's"
        assert strange["id"] not in (owners["id"], own["id"])

    both.run(story)


def test_the_next_subnet_when_the_first_is_full(both: Kind) -> None:
    """Of an external network with several; when all are full, that is the answer."""

    async def story(bench: Bench) -> None:
        external, first = await bench.network("203.0.113.0/29", ADMINS, **{"router:external": True})
        second = await bench.one("subnet", ADMINS, network_id=external["id"], cidr="198.51.100.0/29")
        wish = {"floating_network_id": external["id"]}
        made = [(await bench.one("floatingip", PROJECT, **wish))["floating_ip_address"] for _ in range(10)]
        assert [address.rpartition(".")[0] for address in made] == ["203.0.113"] * 5 + ["198.51.100"] * 5
        assert len({*made}) == 10 and first["id"] != second["id"]
        assert await refusal(bench.one("floatingip", PROJECT, **wish)) == "no_more_addresses"

    both.run(story)
