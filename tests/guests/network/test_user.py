"""User-mode networks with a real QEMU, without a guest: it listens at the forwarded port."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from kilonova.compute.network.user import UserNetwork, qemu_arguments
from kilonova.domain.guest_ports import GuestPort
from tests.support.servers import NotAvailable, need

PORT = GuestPort(port_id="a", network_id="n", network_name="net", mac="fa:16:3e:00:00:01", mtu=1500)
MACHINE = ["-S", "-machine", "pc,accel=tcg", "-m", "32", "-nodefaults", "-display", "none"]


def test_qemu_forwards_the_port(tmp_path: Path) -> None:
    try:
        need("libvirt")
    except NotAvailable as missing:
        if os.geteuid() == 0 or os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))

    async def plug():
        network = UserNetwork(tmp_path)
        await network.start()
        return await network.ensure_plugged("server", 1, PORT)

    plugged = asyncio.run(plug())
    (forward,) = plugged.forwards
    qemu = subprocess.Popen(["qemu-system-x86_64", *MACHINE, *qemu_arguments(PORT, plugged, index=0)])
    try:
        deadline = time.monotonic() + 30
        while not answers(forward.address, forward.port):
            assert qemu.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        qemu.kill()
        qemu.wait()


def answers(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0
