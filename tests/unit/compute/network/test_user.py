"""User-mode networks: which port of the host leads to which guest."""

import asyncio
import socket

import msgspec
import pytest

from kilonova.compute.network import user
from kilonova.compute.network.user import UserNetwork, qemu_arguments
from kilonova.domain.errors import Failed
from kilonova.domain.guest_ports import GuestPort
from kilonova.domain.host_network import Forward, Plug

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


def test_one_port_of_a_copy_is_unplugged_or_all(tmp_path):
    async def body():
        network = await started(tmp_path)
        first, second = await number(network, ONE), await number(network, TWO)
        for server, copy, port_id in (("server", 2, ""), ("other", 1, ""), ("server", 1, "c")):
            await network.ensure_unplugged(server, copy, port_id)
        assert (await number(network, ONE), await number(network, TWO)) == (first, second)
        await network.ensure_unplugged("server", 1, TWO.port_id)
        assert set(msgspec.json.decode((tmp_path / "forwards.json").read_bytes())) == {ONE.port_id}
        await network.ensure_unplugged("server", 1)
        assert msgspec.json.decode((tmp_path / "forwards.json").read_bytes()) == {}

    asyncio.run(body())


def test_what_is_the_same_is_neither_written_nor_said_again(tmp_path, caplog):
    caplog.set_level("INFO")

    async def body():
        network = await started(tmp_path / "host1" / "new")
        assert (tmp_path / "host1/new").stat().st_mode & 0o777 == 0o700
        first = await number(network, ONE)
        (tmp_path / "host1/new/forwards.json").unlink()
        assert await number(network, ONE) == first
        await network.ensure_unplugged("nobody", 1)
        assert not (tmp_path / "host1/new/forwards.json").exists()
        assert caplog.text.count(f"ssh -p {first} root@127.0.0.1") == 1
        assert await number(network, ONE, copy=2) == first
        assert (tmp_path / "host1/new/forwards.json").exists()

    asyncio.run(body())


def test_every_number_of_the_range_is_given_once(tmp_path, monkeypatch):
    monkeypatch.setattr(user, "LAST", user.FIRST + 1)
    monkeypatch.setattr(user, "_can_bind", lambda number: True)

    async def body():
        network = await started(tmp_path)
        assert [await number(network, port) for port in (ONE, TWO)] == [user.FIRST, user.LAST]
        three = msgspec.structs.replace(ONE, port_id="c")
        with pytest.raises(Failed, match=f"no TCP port from {user.FIRST} to {user.LAST} is free") as why:
            await number(network, three)
        assert why.value.code == "no_free_port"
        await network.ensure_unplugged("server", 1, ONE.port_id)
        assert await number(network, three) == user.FIRST

    asyncio.run(body())


def test_the_arguments_of_the_guests_device():
    plug = Plug(kind="user", mtu=1400, forwards=[Forward("127.0.0.1", 22022, 22), Forward("127.0.0.1", 8080, 80)])
    forwards = "hostfwd=tcp:127.0.0.1:22022-:22,hostfwd=tcp:127.0.0.1:8080-:80"
    device = f"virtio-net-pci,netdev=port3,mac={ONE.mac},host_mtu=1400"
    assert qemu_arguments(ONE, plug, index=3) == ["-netdev", f"user,id=port3,{forwards}", "-device", device]
    assert qemu_arguments(ONE, plug, index=3, slot=17)[-1] == f"{device},addr=0x11"
    assert qemu_arguments(ONE, Plug(kind="user", mtu=1400), index=3)[1] == "user,id=port3"


def test_a_number_whose_connections_have_ended_is_free_at_once():
    """The kernel remembers them for a minute."""
    with socket.create_server((user.LOOPBACK, 0)) as server:
        number = server.getsockname()[1]
        with socket.create_connection((user.LOOPBACK, number)) as client:
            accepted, _ = server.accept()
            accepted.close()
            assert client.recv(1) == b""
        assert not user._can_bind(number), "somebody listens"
    assert user._can_bind(number)
