"""`kilonova serve`: a whole cloud in one process.

Starts: the stores, a conductor, the services behind the handlers, the files of volumes, simulated hosts or this machine
as one real host, and the HTTP server. The bus is in memory.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kilonova.cli import opening
from kilonova.cli.options import (
    DEFAULT_DATA,
    DEFAULT_LISTEN,
    LIBVIRT,
    SIMULATED,
    Config,
    Data,
    Driver,
    Listen,
    Overrides,
    PublicUrl,
)
from kilonova.domain.errors import Refused
from kilonova.roles.api import answer
from kilonova.roles.conductor import send_notifications, watch_hosts
from kilonova.roles.seed import prepare
from kilonova.roles.services import keeping_volumes, make_policy, make_service, stores_of
from kilonova.roles.simulated_hosts import add_host, make_room
from kilonova.roles.stores import MACHINES_NAME, clouds_of, open_all
from kilonova.roles.wiring import make_engine, make_fence, make_seal, make_world
from kilonova.runtime import Uuids, new_key, run, stop_signal

if TYPE_CHECKING:
    from kilonova.api.listening import Listener
    from kilonova.api.service import Service
    from kilonova.bus.memory import MemoryHub
    from kilonova.compute.drivers.simulated.hardware import Hardware
    from kilonova.compute.simulated_fleet import SimulatedFleet
    from kilonova.conductor.service import Conductor
    from kilonova.engine.secrets import Seal
    from kilonova.roles.real_host import RealHost
    from kilonova.settings import Settings
    from kilonova.store.data_directory import DataDirectory
    from kilonova.world import World

logger = logging.getLogger(__name__)


def serve(
    *,
    data: Data = DEFAULT_DATA,
    listen: Listen = DEFAULT_LISTEN,
    public_url: PublicUrl = "",
    hosts: int | None = None,
    driver: Driver = SIMULATED,
    config: Config = None,
    overrides: Overrides = None,
) -> None:
    """Run a whole cloud in one process: SQLite files in DATA, simulated hosts or this machine, no other service needed.

    Parameters
    ----------
    hosts
        Number of simulated hosts. Without it: [simulated] hosts.
    driver
        Driver that runs guests. libvirt: this machine is the only host.
    """
    from kilonova.api.listening import listening
    from kilonova.settings import load

    if driver == LIBVIRT and hosts is not None:
        raise Refused("usage", "--hosts: with --driver libvirt this machine is the only host; leave it out")
    count = [] if hosts is None else [f"simulated.hosts={hosts}"]
    settings = load(data, config, [*(overrides or []), *count])
    if settings.database.is_set or settings.bus.url:
        advice = "remove these sections, or run api, conductor and agent"
        raise Refused("bad_configuration", f"[database] and [bus]: serve uses its own; {advice}")
    if not settings.simulated.hosts:
        raise Refused("bad_configuration", "--hosts 0: a cloud needs at least 1 host")
    with listening(listen, public_url, settings.wsgi) as listener:
        opening.refuse_newer(opening.addresses(settings, data))
        run(_serve(data, settings, listener, driver), settings)


async def _serve(path: Path, settings: Settings, listener: Listener, driver: Driver) -> None:
    from kilonova.store.data_directory import DataDirectory

    stopping = stop_signal()
    with DataDirectory(path) as data:
        async with embedded(data, settings, listener.url, driver) as service:
            await answer(data, service, settings, listener, stopping, _login_advice(settings, driver))


def _login_advice(settings: Settings, driver: Driver) -> str:
    from kilonova.roles.real_host import login_advice

    return login_advice(settings) if driver == LIBVIRT else ""


@contextlib.asynccontextmanager
async def embedded(
    data: DataDirectory, settings: Settings, url: str = "", driver: Driver = SIMULATED
) -> AsyncIterator[Service]:
    """A whole cloud in this process: stores, conductor, hosts; all but the HTTP server."""
    from kilonova.bus.memory import MemoryBus, MemoryHub
    from kilonova.roles.real_host import own_name

    policy = make_policy(data.path)
    async with contextlib.AsyncExitStack() as closing:
        clouds = clouds_of(data.path, settings, hosts=MACHINES_NAME)
        opened = open_all(settings, data.path, embedded=True, witnesses=clouds, data=data)
        stores = await closing.enter_async_context(opened)
        seal = make_seal(data.secret(opening.SEAL_KEY_NAME, new_key))
        hub, hardware = MemoryHub(), _hardware(data.path, settings, closing) if driver == SIMULATED else None
        fence = make_fence(settings, hardware)
        conducting = make_world(MemoryBus(hub, "conductor"), settings, stores, fence=fence)
        conductor = await _start_conductor(conducting, settings, seal, closing)

        async def unready() -> str:
            if stores.halted:
                return stores.halted
            awaited = hosts.awaited()
            some = ", ".join(awaited[:5]) + (f" and {len(awaited) - 5} more" if len(awaited) > 5 else "")
            return f"waiting for {some} to register" if awaited else ""

        accepting = make_world(MemoryBus(hub, "api"), settings, stores, fence=fence)
        engine = make_engine(accepting, seal)
        service = make_service(engine, settings, data.path, url, unready, policy, stores.backend)
        name = "" if hardware is not None else own_name(settings)
        await closing.enter_async_context(keeping_volumes(service, data.path, [name] if name else []))
        hosts: SimulatedFleet | RealHost
        if hardware is not None:
            hosts = await _start_simulated(hardware, settings, hub, service, conductor, closing)
        else:
            hosts = await _start_real(name, settings, data.path, hub, service, closing)
        await prepare(service, data, settings)
        yield service


def _hardware(path: Path, settings: Settings, closing: contextlib.AsyncExitStack) -> Hardware:
    from kilonova.compute.drivers.simulated.hardware import Hardware

    hardware = Hardware(persist=path / MACHINES_NAME)
    closing.callback(hardware.close)
    for number in range(1, settings.simulated.hosts + 1):
        add_host(hardware, f"host{number}", settings)
    return hardware


async def _start_conductor(
    world: World, settings: Settings, seal: Seal, closing: contextlib.AsyncExitStack
) -> Conductor:
    from kilonova.conductor.service import Conductor

    conductor = Conductor(make_engine(world, seal, worker=Uuids().uuid()), alone=True)
    closing.push_async_callback(conductor.stop)
    await conductor.start()
    await watch_hosts(conductor, closing)
    await send_notifications(conductor, settings, closing)
    return conductor


async def _start_simulated(
    hardware: Hardware,
    settings: Settings,
    hub: MemoryHub,
    service: Service,
    conductor: Conductor,
    closing: contextlib.AsyncExitStack,
) -> SimulatedFleet:
    from kilonova.bus.memory import MemoryBus
    from kilonova.hosts.states import fence_absent
    from kilonova.operations.image_bytes import DirectImageBytes

    uploads = DirectImageBytes(service.engine, service.images)
    room = make_room(hardware, settings, partial(MemoryBus, hub), lambda bus: uploads, service.consoles)
    closing.push_async_callback(room.stop)
    await room.start(MemoryBus(hub, "machines"))
    absent = [] if stores_of(service).halted else await fence_absent(conductor.engine, hardware.hosts())
    for gone in absent:
        text = "%s is in the database but only %d hosts were started (--hosts); marking it down"
        logger.warning(text, gone, settings.simulated.hosts)
    return room


async def _start_real(
    name: str,
    settings: Settings,
    path: Path,
    hub: MemoryHub,
    service: Service,
    closing: contextlib.AsyncExitStack,
) -> RealHost:
    from kilonova.bus.memory import MemoryBus
    from kilonova.compute.drivers.libvirt.images import ServiceImages
    from kilonova.operations.image_bytes import DirectImageBytes
    from kilonova.roles.real_host import checked, make_real_host

    uploads = DirectImageBytes(service.engine, service.images)
    doors = (uploads, ServiceImages(service.images.file), service.consoles)
    host = await checked(make_real_host(settings, name, path, MemoryBus(hub, name), *doors))
    closing.push_async_callback(host.stop)
    await host.start()
    return host
