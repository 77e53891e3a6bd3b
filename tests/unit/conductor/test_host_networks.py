"""What a conductor answers the questions of hosts about networks and guests, by the records of one cell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kilonova.conductor.host_networks import HostNetworks
from kilonova.domain.errors import Halted
from kilonova.domain.host_network import ContentsAnswer, ContentsQuestion, NetworkAnswer, NetworkQuestion
from kilonova.schema.tables.cell import hosts, servers
from kilonova.schema.tables.control import host_mappings
from tests.engine.test_restored import server
from tests.support.small_cloud import SmallCloud, put

ASKING = {"host": "host1", "session": "now", "epoch": 3}
HOST = {"name": "host1", "id": "h", "provider_id": "p", "identity": "i", "session": "now", "epoch": 3}
QUESTION = ContentsQuestion(server="s", **ASKING)  # type: ignore[arg-type]


@pytest.fixture
def networks(small_cloud: SmallCloud) -> HostNetworks:
    """A conductor of a cloud without a network service; host1 has registered."""
    made = HostNetworks(small_cloud.engine())

    async def meet() -> None:
        await put(made.engine, "control", host_mappings, host="host1", cell="cell1")
        await put(made.engine, "cell1", hosts, **HOST)

    small_cloud.run(meet)
    return made


@pytest.mark.parametrize(
    ("record", "is_told"),
    [({}, True), ({"deleted": 1}, False), ({"runner_host": "host2"}, False), ({"runner_host": None}, False)],
)
def test_a_host_reads_the_contents_of_servers_that_it_may_run(
    small_cloud: SmallCloud, networks: HostNetworks, record: dict[str, Any], is_told: bool
) -> None:
    async def story() -> None:
        await put(networks.engine, "cell1", servers, **server(**record))
        answer = await networks.on_contents(QUESTION)
        assert (answer != ContentsAnswer()) is is_told
        if is_told:
            assert answer.guest is not None and (answer.guest.server, answer.guest.copy) == ("s", 1)
            assert answer.secrets is not None

    small_cloud.run(story)


@pytest.mark.parametrize("wrong", [{"session": "before"}, {"epoch": 2}, {"host": "host2"}, {"server": "t"}])
def test_a_question_of_somebody_else_is_not_answered(
    small_cloud: SmallCloud, networks: HostNetworks, wrong: dict[str, Any]
) -> None:
    async def story() -> None:
        await put(networks.engine, "control", host_mappings, host="host2", cell="cell1")  # and no record there
        await put(networks.engine, "cell1", servers, **server())
        assert await networks.on_contents(msgspec.structs.replace(QUESTION, **wrong)) == ContentsAnswer()

    small_cloud.run(story)


def test_the_metadata_of_a_guest_has_no_members_of_security_groups(
    small_cloud: SmallCloud, networks: HostNetworks
) -> None:
    """There may be thousands, and only a host that filters traffic needs them."""
    requested = list[bool]()

    async def guest_ports(server_ids: Any, *, members: bool = True) -> dict[str, Any]:
        requested.append(members)
        return {}

    networks.engine.world.network = SimpleNamespace(guest_ports=guest_ports)  # type: ignore[assignment]

    async def story() -> None:
        await put(networks.engine, "cell1", servers, **server())
        assert (await networks.on_contents(QUESTION)).guest is not None

    small_cloud.run(story)
    assert requested == [False]


def test_a_cloud_without_a_network_service_has_no_document(small_cloud: SmallCloud, networks: HostNetworks) -> None:
    question = NetworkQuestion(**ASKING)  # type: ignore[arg-type]
    assert small_cloud.run(lambda: networks.on_network(question)) == NetworkAnswer()


def test_no_host_is_answered_while_the_databases_are_judged(small_cloud: SmallCloud, networks: HostNetworks) -> None:
    """Law 15: what was restored from a backup is not handed out."""
    networks.engine.world.db.halt("cell1: it was restored")  # type: ignore[attr-defined]

    async def story() -> None:
        with pytest.raises(Halted, match="it was restored"):
            await networks.on_contents(QUESTION)

    small_cloud.run(story)
