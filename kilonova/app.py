"""The processes of a cloud as commands, and the only place where parts are wired together.

Only what a command needs is imported, and only when it runs: `kilonova serve --help` must not wait for a database.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from kilonova.cli import opening
from kilonova.cli.options import DEFAULT_DATA, DEFAULT_LISTEN, Config, Data, Overrides
from kilonova.domain.errors import Halted, KilonovaError, Refused
from kilonova.parts import (
    CONDUCTOR_NAME,
    MACHINES_NAME,
    SEAL_KEY_NAME,
    add_host,
    clouds_of,
    http_image_bytes,
    keeping_volumes,
    look,
    make_engine,
    make_fence,
    make_policy,
    make_room,
    make_seal,
    make_sender,
    make_service,
    make_world,
    open_all,
    open_nats,
    seal_of,
    stores_of,
    web_socket_door,
)
from kilonova.production import (
    Uuids,
    new_key,
    new_password,
    run,
    say,
    say_once,
    stop_signal,
)

if TYPE_CHECKING:
    from kilonova.api.listening import Listener
    from kilonova.api.service import Service
    from kilonova.compute.drivers.hardware import Hardware
    from kilonova.compute.room import Room
    from kilonova.conductor.service import Conductor
    from kilonova.real_host import RealHost
    from kilonova.settings import Settings
    from kilonova.store.directory import DataDirectory

Driver = Literal["simulated", "libvirt"]
SIMULATED: Driver = "simulated"
LIBVIRT: Driver = "libvirt"
logger = logging.getLogger(__name__)

Listen = Annotated[str, Parameter(help="Address and port of the HTTP API.")]
PublicUrl = Annotated[
    str, Parameter(help="URL of the API for clients, used in the catalog. Without it: made from --listen.")
]


# -- roles ------------------------------------------------------------------------------------------------------------


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


def api(
    *,
    data: Data = DEFAULT_DATA,
    listen: Listen = DEFAULT_LISTEN,
    public_url: PublicUrl = "",
    config: Config = None,
    overrides: Overrides = None,
) -> None:
    """Run the HTTP API of a fleet, on PostgreSQL and NATS as configured."""
    from kilonova.api.listening import listening
    from kilonova.settings import load_for_fleet

    settings = load_for_fleet(data, config, overrides or [])
    with listening(listen, public_url, settings.wsgi) as listener:
        run(_api(data, settings, listener), settings)


def placement(
    *,
    data: Data = DEFAULT_DATA,
    listen: Listen = DEFAULT_LISTEN,
    public_url: PublicUrl = "",
    auth: Literal["identity", "noauth2"] = "identity",
    profile: Literal["secure-rbac", "default", "legacy-rbac", "open-policy", "cors"] = "secure-rbac",
    config: Config = None,
    overrides: Overrides = None,
) -> None:
    """Run placement alone, at the root of its own port: on a SQLite file in DATA, or on the fleet's database.

    Parameters
    ----------
    auth
        Tokens of the embedded identity; or, for tests and on loopback only, headers that are believed.
    profile
        Who may do what; the others are those that Placement's own tests are run with.
    """
    from kilonova.alone import refuse_noauth, serve_placement
    from kilonova.api.listening import listening
    from kilonova.settings import load

    settings = load(data, config, overrides or [])
    with listening(listen, public_url, settings.wsgi) as listener:
        refuse_noauth(auth, listener.socket)
        run(serve_placement(data, settings, listener, auth=auth, profile=profile), settings)


def conductor(*, data: Data = DEFAULT_DATA, config: Config = None, overrides: Overrides = None) -> None:
    """Run a conductor of a fleet. Any number may run; each takes over from one that dies."""
    from kilonova.settings import load_for_fleet

    settings = load_for_fleet(data, config, overrides or [])
    with contextlib.ExitStack() as closing:
        run(_conductor(data, settings, _metrics_listener(settings, closing)), settings)


def _metrics_listener(settings: Settings, closing: contextlib.ExitStack) -> Listener | None:
    """A conductor checks no tokens, so it answers on loopback only."""
    import ipaddress

    import msgspec

    from kilonova.api.listening import listening

    address = settings.conductor.metrics_listen
    if not address:
        return None
    plain = msgspec.structs.replace(settings.wsgi, ssl_cert_file="", ssl_key_file="")
    listener = closing.enter_context(listening(address, "", plain, "[conductor] metrics_listen"))
    if not ipaddress.ip_address(listener.socket.getsockname()[0]).is_loopback:
        text = (
            f"[conductor] metrics_listen {address}: it may be 127.0.0.1 or [::1] only, metrics ask for no token there"
        )
        raise Refused("bad_configuration", text)
    return listener


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
    place = data or DEFAULT_DATA / "hosts" / host
    settings = load(place, config, [*(overrides or []), *([] if cell is None else [f"compute.cell={cell}"])])
    need_bus(settings)
    if settings.simulated.shared_storage:
        text = "[simulated] shared_storage needs all its hosts in one process: use kilonova serve"
        raise Refused("bad_configuration", text)
    run(_real_agent(host, place, settings) if driver == LIBVIRT else _agent(host, place, settings), settings)


# -- wiring -----------------------------------------------------------------------------------------------------------


async def _serve(path: Path, settings: Settings, listener: Listener, driver: Driver) -> None:
    from kilonova.store.directory import DataDirectory

    stopping = stop_signal()
    with DataDirectory(path) as data:
        async with embedded(data, settings, listener.url, driver) as service:
            await _answer(data, service, settings, listener, stopping, _login_advice(settings, driver))


def _login_advice(settings: Settings, driver: Driver) -> str:
    from kilonova.real_host import login_advice

    return login_advice(settings) if driver == LIBVIRT else ""


@contextlib.asynccontextmanager
async def embedded(
    data: DataDirectory, settings: Settings, url: str = "", driver: Driver = SIMULATED
) -> AsyncIterator[Service]:
    """A whole cloud in this process: stores, conductor, hosts; all but the HTTP server."""
    from kilonova.bus.memory import MemoryBus, MemoryHub
    from kilonova.compute.drivers.libvirt.images import ServiceImages
    from kilonova.conductor.service import Conductor
    from kilonova.operations.hosts import fence_absent
    from kilonova.operations.image_bytes import DirectImageBytes
    from kilonova.real_host import checked, make_real_host, own_name

    policy = make_policy(data.path)
    async with contextlib.AsyncExitStack() as closing:
        clouds = clouds_of(data.path, settings, hosts=MACHINES_NAME)
        opening = open_all(settings, data.path, embedded=True, witnesses=clouds, data=data)
        stores = await closing.enter_async_context(opening)
        seal = make_seal(data.secret(SEAL_KEY_NAME, new_key))
        hub, hardware = MemoryHub(), _hardware(data.path, settings, closing) if driver == SIMULATED else None
        fence = make_fence(settings, hardware)
        conducting = make_world(MemoryBus(hub, "conductor"), stores, fence=fence)
        works = Conductor(make_engine(conducting, settings, seal, worker=Uuids().uuid()), alone=True)
        closing.push_async_callback(works.stop)
        await works.start()
        await _watch_hosts(works, closing)
        await _send_notifications(works, settings, closing)

        async def unready() -> str:
            if stores.halted:
                return stores.halted
            awaited = room.awaited()
            some = ", ".join(awaited[:5]) + (f" and {len(awaited) - 5} more" if len(awaited) > 5 else "")
            return f"waiting for {some} to register" if awaited else ""

        accepting = make_world(MemoryBus(hub, "api"), stores, settings=settings, fence=fence)
        engine = make_engine(accepting, settings, seal)
        service = make_service(engine, settings, data.path, url, unready, policy, stores.backend)
        uploads = DirectImageBytes(engine, service.images)
        name = "" if hardware is not None else own_name(settings)
        await closing.enter_async_context(keeping_volumes(service, data.path, [name] if name else []))
        room: Room | RealHost
        if hardware is not None:
            buses = partial(MemoryBus, hub)
            room = make_room(hardware, settings, buses, lambda bus: uploads, service.consoles)
            closing.push_async_callback(room.stop)
            await room.start(MemoryBus(hub, "machines"))
            absent = [] if stores.halted else await fence_absent(works.engine, hardware.hosts())
            for gone in absent:
                text = "%s is in the database but only %d hosts were started (--hosts); marking it down"
                logger.warning(text, gone, settings.simulated.hosts)
        else:
            doors = (uploads, ServiceImages(service.images.file), service.consoles)
            room = await checked(make_real_host(settings, name, data.path, MemoryBus(hub, name), *doors))
            closing.push_async_callback(room.stop)
            await room.start()
        await _prepare(service, data, settings)
        yield service


def _hardware(path: Path, settings: Settings, closing: contextlib.AsyncExitStack) -> Hardware:
    from kilonova.compute.drivers.hardware import Hardware

    hardware = Hardware(persist=path / MACHINES_NAME)
    closing.callback(hardware.close)
    for number in range(1, settings.simulated.hosts + 1):
        add_host(hardware, f"host{number}", settings)
    return hardware


async def _api(path: Path, settings: Settings, listener: Listener) -> None:
    from kilonova.operations.image_bytes import serve_address
    from kilonova.store.directory import DataDirectory

    stopping = stop_signal()
    with DataDirectory(path) as data:
        policy, fence = make_policy(path), make_fence(settings)
        async with contextlib.AsyncExitStack() as closing:
            opening = open_all(settings, path, embedded=False, witnesses=clouds_of(path, settings), data=data)
            stores = await closing.enter_async_context(opening)
            bus = await closing.enter_async_context(open_nats(settings, "api"))

            async def unready() -> str:
                if stores.halted:
                    return stores.halted
                if not bus.is_connected():
                    return "not connected to the bus"
                try:
                    await stores.control.read(look)
                except KilonovaError:
                    return "the control database does not answer"
                return ""

            world = make_world(bus, stores, settings=settings, fence=fence)
            engine = make_engine(world, settings, seal_of(settings))
            service = make_service(engine, settings, path, listener.url, unready, policy, stores.backend)
            await _prepare(service, data, settings)
            await serve_address(engine, listener.url)
            learning = asyncio.create_task(service.cells.keep_learning(settings.conductor.poll_seconds))
            closing.callback(learning.cancel)
            async with keeping_volumes(service, path):
                await _answer(data, service, settings, listener, stopping)


async def _answer(
    data: DataDirectory,
    service: Service,
    settings: Settings,
    listener: Listener,
    stopping: asyncio.Event,
    advice: str = "",
) -> None:
    """HTTP until told to stop; the start has succeeded. `advice` is printed with the news that it is ready."""
    from kilonova.api.app import make_app
    from kilonova.api.connections import Connections
    from kilonova.api.cors import with_cors
    from kilonova.api.first import known_passwords
    from kilonova.api.seen import Seen
    from kilonova.api.web import serve_web
    from kilonova.store.clouds import welcome, write_clouds

    given = settings.identity.admin_password_file
    passwords = await known_passwords(service.identity, data.path, admin_password_file=given)
    write_clouds(data.path, service.public_url, passwords, listener.ca_file)
    data.keep_all()
    with contextlib.suppress(Halted):  # the next start lists them
        await stores_of(service).list_stores()
    listener.listen()
    ready = f"kilonova: ready on {listener.address}"
    if stores_of(service).halted:
        say(f"{ready} for reads only: {stores_of(service).halted}")
    say_once("\n".join(filter(None, (ready, welcome(data.path, passwords), advice))), service.unready)
    app = with_cors(make_app(service), settings.cors.allowed_origin, settings.cors.allow_headers)
    seen = Seen(app, access_log=listener.options.access_log)
    connections = Connections(listener.options)
    await serve_web(seen, listener.socket, stopping, connections, listener.certificate, websockets=True)


async def _prepare(service: Service, data: DataDirectory, settings: Settings) -> None:
    """What a new cloud begins with; each part does so once and finds it done afterwards. While nothing may be written
    it waits until that is over."""
    stores = stores_of(service)
    if stores.halted:
        stores.marks.on_resume.append(partial(_prepare, service, data, settings))
        return
    from kilonova.api.first import first_identity
    from kilonova.services.identity.first import admin_project

    given = settings.identity.admin_password_file
    await first_identity(service.identity, data, admin_password_file=given, new_password=new_password)
    await service.cells.prepare()
    await service.flavors.prepare()
    owner = await admin_project(service.engine.world.db.control)
    await service.images.prepare(owner=owner, guest_image=settings.libvirt.default_image)
    await service.networks.prepare(owner=owner)
    await service.volumes.prepare()


async def _send_notifications(works: Conductor, settings: Settings, closing: contextlib.AsyncExitStack) -> None:
    sender = make_sender(works.engine, settings)
    if sender is not None:
        closing.push_async_callback(sender.stop)
        await sender.start()


async def _watch_hosts(works: Conductor, closing: contextlib.AsyncExitStack) -> None:
    from kilonova.conductor.host_log import HostLog
    from kilonova.ha.watch import Watch

    engine = works.engine
    watch = Watch(engine)
    closing.push_async_callback(watch.stop)
    await watch.start()
    looking = asyncio.create_task(HostLog(engine).keep_looking(engine.limits.poll_seconds))
    closing.callback(looking.cancel)


async def _conductor(path: Path, settings: Settings, metrics: Listener | None) -> None:
    """Its directory holds nothing but a memory of marks (law 15)."""
    from kilonova.conductor.service import Conductor

    stopping, worker = stop_signal(), Uuids().uuid()
    async with contextlib.AsyncExitStack() as closing:
        seal, fence = seal_of(settings), make_fence(settings)
        opening = open_all(settings, path, embedded=False, memory=path / CONDUCTOR_NAME)
        stores = await closing.enter_async_context(opening)
        bus = await closing.enter_async_context(open_nats(settings, f"conductor-{worker}"))
        works = Conductor(make_engine(make_world(bus, stores, fence=fence), settings, seal, worker=worker))
        if metrics is not None:
            closing.push_async_callback(_serve_metrics(works, metrics))  # before the next one: it ends last
        closing.push_async_callback(works.stop)
        await works.start()
        await _watch_hosts(works, closing)
        await _send_notifications(works, settings, closing)
        say(f"kilonova: conductor {worker} works")
        await stopping.wait()


def _serve_metrics(works: Conductor, listener: Listener) -> Callable[[], Awaitable[None]]:
    """Begin to answer; what is returned ends it."""
    from starlette.applications import Starlette

    from kilonova.api.connections import Connections
    from kilonova.api.metrics import metrics_pages
    from kilonova.api.web import serve_web

    app = Starlette(routes=metrics_pages(works.engine.world.db, None, works.engine.limits.service_down_time))
    ending = asyncio.Event()
    listener.listen()
    answering = asyncio.create_task(
        serve_web(app, listener.socket, ending, Connections(listener.options), listener.certificate)
    )

    async def end() -> None:
        ending.set()
        await answering

    return end


async def _agent(host: str, path: Path, settings: Settings) -> None:
    from kilonova.bus.nats import NatsBus
    from kilonova.compute.drivers.hardware import Hardware
    from kilonova.compute.drivers.machine import Peers
    from kilonova.store.directory import DataDirectory

    stopping = stop_signal()
    with DataDirectory(path) as data:
        async with contextlib.AsyncExitStack() as closing:
            hardware = Hardware(persist=path / MACHINES_NAME)
            closing.callback(hardware.close)
            add_host(hardware, host, settings)
            controllers = await closing.enter_async_context(open_nats(settings, f"machine-{host}"))
            url, prefix = settings.bus.url, settings.bus.prefix
            doors = (http_image_bytes(settings), web_socket_door(settings), Peers)
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
    from kilonova.disk_port import disk_port
    from kilonova.real_host import agent_images, make_real_host
    from kilonova.store.directory import DataDirectory

    stopping = stop_signal()
    with DataDirectory(path) as data:
        async with disk_port(settings) as port:
            bus = NatsBus(settings.bus.url, host, prefix=settings.bus.prefix)
            image_bytes = http_image_bytes(settings)(bus)
            images = agent_images(settings, host, path, image_bytes)
            doors = (image_bytes, images, web_socket_door(settings))
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
