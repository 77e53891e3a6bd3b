"""`kilonova agent`: one host of a fleet. It uses the bus and the API, and never opens a database.

Starts: the bus, the driver and the agent; for a simulated host also its machine, for a real one the port that takes
disks from other hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kilonova.cli.options import DEFAULT_DATA, LIBVIRT, SIMULATED, Config, Data, Driver, Overrides
from kilonova.domain.errors import Refused
from kilonova.roles.simulated_hosts import add_host, make_room
from kilonova.roles.stores import MACHINES_NAME
from kilonova.roles.wiring import open_nats
from kilonova.runtime import SystemClock, run, say, stop_signal

if TYPE_CHECKING:
    from kilonova.compute.image_bytes import HttpImageBytes
    from kilonova.settings import Settings
    from kilonova.world import Bus, ConsoleDoor


def agent(
    *,
    host: str,
    cell: str | None = None,
    data: Data | None = None,
    driver: Driver = SIMULATED,
    config: Config = None,
    overrides: Overrides = None,
) -> None:
    """Run the agent of one host of a fleet. It speaks to the bus, has images from an API, and never opens a database.

    Parameters
    ----------
    host
        Name of the host in the cloud.
    cell
        Cell of the host. Without it: [compute] cell, else its last cell, else the first one.
    driver
        Driver that runs guests.
    """
    from kilonova.domain.host import host_name_error
    from kilonova.settings import load, need_bus

    if wrong := host_name_error(host):
        raise Refused("usage", wrong)
    directory = data or DEFAULT_DATA / "hosts" / host
    settings = load(directory, config, [*(overrides or []), *([] if cell is None else [f"compute.cell={cell}"])])
    need_bus(settings)
    if settings.simulated.shared_storage:
        text = "[simulated] shared_storage needs all its hosts in one process: use kilonova serve"
        raise Refused("bad_configuration", text)
    run(_real_agent(host, directory, settings) if driver == LIBVIRT else _agent(host, directory, settings), settings)


async def _agent(host: str, path: Path, settings: Settings) -> None:
    from kilonova.bus.nats import NatsBus
    from kilonova.compute.drivers.simulated.hardware import Hardware
    from kilonova.compute.drivers.simulated.machine import Peers
    from kilonova.store.data_directory import DataDirectory

    stopping = stop_signal()
    with DataDirectory(path) as data:
        async with contextlib.AsyncExitStack() as closing:
            hardware = Hardware(persist=path / MACHINES_NAME)
            closing.callback(hardware.close)
            add_host(hardware, host, settings)
            controllers = await closing.enter_async_context(open_nats(settings, f"machine-{host}"))
            url, prefix = settings.bus.url, settings.bus.prefix
            doors = (_http_image_bytes(settings), _web_socket_door(settings), Peers)
            room = make_room(hardware, settings, lambda name: NatsBus(url, name, prefix=prefix), *doors)
            closing.push_async_callback(room.stop)
            await room.start(controllers)
            data.keep_all()
            say(f"kilonova: agent of {host} works")
            await _until_ended(stopping, room.refused)
        if room.refused.done():
            raise Refused("host_refused", room.refused.result())


async def _real_agent(host: str, path: Path, settings: Settings) -> None:
    from kilonova.bus.nats import NatsBus
    from kilonova.roles.disk_port import disk_port
    from kilonova.roles.real_host import agent_images, make_real_host
    from kilonova.store.data_directory import DataDirectory

    stopping = stop_signal()
    with DataDirectory(path) as data:
        async with disk_port(settings) as port:
            bus = NatsBus(settings.bus.url, host, prefix=settings.bus.prefix)
            image_bytes = _http_image_bytes(settings)(bus)
            images = agent_images(settings, host, path, image_bytes)
            doors = (image_bytes, images, _web_socket_door(settings))
            real = make_real_host(settings, host, path, bus, *doors, port.url)
            try:
                await bus.start()
                port.serve(real.receiver)
                await real.start()
                data.keep_all()
                say(f"kilonova: agent of {host} works")
                await _until_ended(stopping, real.refused)
            finally:
                await real.stop()
                await bus.close()
        if real.refused.done():
            raise Refused("host_refused", real.refused.result())


async def _until_ended(stopping: asyncio.Event, refused: asyncio.Future[str]) -> None:
    stopped = asyncio.ensure_future(stopping.wait())
    ends: list[asyncio.Future[Any]] = [stopped, refused]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()


def _http_image_bytes(settings: Settings) -> Callable[[Bus], HttpImageBytes]:
    """Make the image transfer for a host of a fleet."""
    from kilonova.compute.image_bytes import HttpImageBytes

    options = settings.glance
    return lambda bus: HttpImageBytes(bus, SystemClock(), url=options.endpoint_override, ca_file=options.cafile)


def _web_socket_door(settings: Settings) -> ConsoleDoor:
    """Make the console door for a host of a fleet."""
    from kilonova.compute.console_door import WebSocketDoor

    return WebSocketDoor(settings.glance.cafile)
