"""User-mode networks: which port of the host leads to which guest."""

import asyncio
import socket

from kilonova.compute.network.user import UserNetwork
from kilonova.domain.guest_ports import GuestPort

ONE, TWO = (
    GuestPort(port_id=name, network_id="net", network_name="net", mac="fa:16:3e:00:00:01", mtu=1500) for name in "ab"
)


async def started(folder):
    network = UserNetwork(folder)
    await network.start()
    return network


async def number(network, port, copy=1):
    plug = await network.ensure_plugged("server", copy, port)
    assert plug.kind == "user" and plug.forwards[0].guest_port == 22
    return plug.forwards[0].port


def test_each_port_keeps_its_number_over_restarts(tmp_path):
    async def body():
        network = await started(tmp_path)
        first = await number(network, ONE)
        assert await number(network, TWO) != first
        assert await number(await started(tmp_path), ONE, copy=2) == first

    asyncio.run(body())


def test_a_number_is_free_again_when_its_copy_goes(tmp_path):
    async def body():
        network = await started(tmp_path)
        first = await number(network, ONE)
        await network.ensure_plugged("server", 2, ONE)
        await network.ensure_unplugged("server", 1)
        assert await number(network, TWO) != first, "a newer copy has it"
        await network.ensure_unplugged("server", 2)
        assert await number(network, ONE) == first

    asyncio.run(body())


def test_a_number_stays_with_the_old_copy_when_the_new_one_goes(tmp_path):
    """Undoing a rebuild: the definition of the old copy has the number in it."""

    async def body():
        network = await started(tmp_path)
        first = await number(network, ONE)
        await number(network, ONE, copy=2)
        network = await started(tmp_path)
        await network.ensure_unplugged("server", 2)
        assert await number(await started(tmp_path), TWO) != first
        await network.ensure_unplugged("server", 1)
        assert await number(network, TWO) == first

    asyncio.run(body())


def test_a_file_of_an_older_agent_is_understood(tmp_path):
    """It names the copy that was plugged last, and no others."""

    async def body():
        (tmp_path / "forwards.json").write_text('{"a":["server",2,22500]}')
        network = await started(tmp_path)
        assert await number(network, ONE, copy=1) == 22500
        await network.ensure_unplugged("server", 1)
        assert await number(network, ONE, copy=2) == 22500

    asyncio.run(body())


def test_a_number_that_somebody_uses_is_left_alone(tmp_path):
    async def body():
        network = await started(tmp_path)
        first = await number(network, ONE)
        with socket.socket() as other:
            other.bind(("127.0.0.1", first + 1))
            other.listen()
            assert await number(network, TWO) > first + 1

    asyncio.run(body())
