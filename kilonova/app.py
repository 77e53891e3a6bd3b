"""The program: its commands, and the only place where parts are wired together.

Only what a command needs is imported, and only when it runs: `kilonova --help` must not wait for a database driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from cyclopts import App, CycloptsError, Parameter

from kilonova.cli import database, operations, simulation
from kilonova.cli.options import DEFAULT_DATA, DEFAULT_LISTEN, TOKEN_NAME, Config, Data, Overrides
from kilonova.domain.errors import Failed, KilonovaError, Refused
from kilonova.production import SystemClock, Uuids, listening, new_key, new_token, run, say_once, stop_signal

if TYPE_CHECKING:
    from kilonova.api.service import Service
    from kilonova.compute.drivers.hardware import Hardware
    from kilonova.compute.room import Room
    from kilonova.engine.core import Engine
    from kilonova.engine.limits import Limits
    from kilonova.engine.secrets import Seal
    from kilonova.settings import Settings
    from kilonova.store.directory import DataDirectory
    from kilonova.store.open import OpenStores
    from kilonova.world import Bus, Stores, Tx, World

DONE, USAGE, REFUSED, FAILED = 0, 2, 3, 4  # exit codes; 1 is a crash
SEAL_KEY_NAME = "seal.key"
MACHINES_NAME = "simulated.db"
IMAGES_NAME = "images"
POLICY_NAME = "policy.yaml"

app = App(
    name="kilonova",
    help="A compute control plane that speaks OpenStack's Compute and Placement APIs.",
    help_format="plaintext",  # markdown would cost a fifth of the time that --help takes
)
for commands in (operations.app, database.app, simulation.app):
    app.command(commands)
for name, sentence in simulation.LOADED_WHEN_USED.items():
    simulation.app.command(f"kilonova.sim.cli:{name}", name=name, help=sentence)

Listen = Annotated[str, Parameter(help="Address and port of the HTTP API.")]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point. What goes wrong on purpose is one sentence on stderr and an exit code."""
    sys.exit(_run_command(arguments))


def _run_command(arguments: Sequence[str] | None) -> int:
    try:
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return code if isinstance(code, int) else DONE
    except BrokenPipeError:  # `| head` has read enough; nothing more can be said there, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except CycloptsError as error:
        return _say(str(error), USAGE)
    except Refused as why:
        return _say(why.message, USAGE if why.code == "bad_configuration" else REFUSED)
    except Failed as why:
        return _say(why.message, FAILED)
    except KilonovaError as error:  # a database or a broker that cannot be used: nothing was begun
        return _say(str(error), REFUSED)


def _say(sentence: str, code: int) -> int:
    print(f"kilonova: {sentence}", file=sys.stderr)
    return code


# -- roles ------------------------------------------------------------------------------------------------------------


@app.command
def serve(
    *,
    data: Data = DEFAULT_DATA,
    listen: Listen = DEFAULT_LISTEN,
    hosts: int | None = None,
    driver: Literal["simulated"] = "simulated",
    config: Config = None,
    overrides: Overrides = None,
) -> None:
    """Run a whole cloud in one process: SQLite files in DATA, simulated hosts, no other service needed.

    Parameters
    ----------
    hosts: How many simulated hosts; else [simulated] hosts.
    driver: What makes guests.
    """
    from kilonova.settings import load

    count = [] if hosts is None else [f"simulated.hosts={hosts}"]
    settings = load(data, config, [*(overrides or []), *count])
    if settings.database.is_set or settings.bus.url:
        raise Refused("bad_configuration", "[database] and [bus] are for api, conductor and agent; serve keeps its own")
    with listening(listen) as listener:
        database.refuse_newer(database.addresses(settings, data))
        run(_serve(data, settings, listener))


@app.command
def api(
    *, data: Data = DEFAULT_DATA, listen: Listen = DEFAULT_LISTEN, config: Config = None, overrides: Overrides = None
) -> None:
    """Run the HTTP API of a fleet, on PostgreSQL and NATS as configured."""
    from kilonova.settings import load_for_fleet

    settings = load_for_fleet(data, config, overrides or [])
    with listening(listen) as listener:
        run(_api(data, settings, listener))


@app.command
def conductor(*, data: Data = DEFAULT_DATA, config: Config = None, overrides: Overrides = None) -> None:
    """Run a conductor of a fleet. Any number may run; each takes over from one that dies."""
    from kilonova.settings import load_for_fleet

    run(_conductor(load_for_fleet(data, config, overrides or [])))


@app.command
def agent(
    *,
    host: str,
    data: Data | None = None,
    driver: Literal["simulated"] = "simulated",
    config: Config = None,
    overrides: Overrides = None,
) -> None:
    """Run the agent of one host of a fleet. It speaks to the bus alone and never opens a database.

    Parameters
    ----------
    host: Its name in the cloud.
    driver: What makes guests.
    """
    from kilonova.settings import load, need_bus

    place = data or DEFAULT_DATA / "hosts" / host
    settings = load(place, config, overrides or [])
    need_bus(settings)
    if settings.simulated.shared_storage:
        text = "[simulated] shared_storage needs all its hosts in one process: use kilonova serve"
        raise Refused("bad_configuration", text)
    run(_agent(host, place, settings))


# -- wiring -----------------------------------------------------------------------------------------------------------


async def _serve(path: Path, settings: Settings, listener: socket.socket) -> None:
    from kilonova.store.directory import DataDirectory

    stopping = stop_signal()
    with DataDirectory(path) as data:
        async with embedded(data, settings) as service:
            await _answer(data, service, listener, path / TOKEN_NAME, stopping)


@contextlib.asynccontextmanager
async def embedded(data: DataDirectory, settings: Settings) -> AsyncIterator[Service]:
    """A whole cloud in this process: stores, conductor, hosts; all but the HTTP server."""
    from kilonova.bus.memory import MemoryBus, MemoryHub
    from kilonova.compute.drivers.hardware import Hardware
    from kilonova.compute.drivers.simulated import SimulatedFence
    from kilonova.conductor.service import Conductor

    async with contextlib.AsyncExitStack() as closing:
        token, seal = _token(data), _seal(data.secret(SEAL_KEY_NAME, new_key))
        stores = await closing.enter_async_context(_stores(database.addresses(settings, data.path), upgrading=True))
        hub, hardware = MemoryHub(), Hardware(persist=data.path / MACHINES_NAME)
        closing.callback(hardware.close)
        for number in range(1, settings.simulated.hosts + 1):
            _add_host(hardware, f"host{number}", settings)
        conducting = _world(MemoryBus(hub, "conductor"), stores, fence=SimulatedFence(hardware))
        works = Conductor(_engine(conducting, settings, seal, worker=Uuids().uuid()), alone=True)
        closing.push_async_callback(works.stop)
        await works.start()
        room = _room(hardware, settings, lambda host: MemoryBus(hub, host))
        closing.push_async_callback(room.stop)
        await room.start(MemoryBus(hub, "machines"))

        async def unready() -> str:
            return f"waiting for {', '.join(awaited)} to register" if (awaited := room.awaited()) else ""

        yield _service(
            _engine(_world(MemoryBus(hub, "api"), stores), settings, seal), settings, data.path, token, unready
        )


async def _api(path: Path, settings: Settings, listener: socket.socket) -> None:
    from kilonova.store.directory import DataDirectory, read_secret

    stopping, token_file = stop_signal(), settings.api.token_file
    with DataDirectory(path) as data:
        async with contextlib.AsyncExitStack() as closing:
            token = read_secret(Path(token_file)) if token_file else _token(data)
            stores = await closing.enter_async_context(_stores(database.addresses(settings, path), upgrading=False))
            bus = await closing.enter_async_context(_nats(settings, "api"))

            async def unready() -> str:
                if not bus.is_connected():
                    return "not connected to the bus"
                try:
                    await stores.control.read(_look)
                except KilonovaError:
                    return "the control database does not answer"
                return ""

            engine = _engine(_world(bus, stores), settings, _seal_of(settings))
            service = _service(engine, settings, path, token, unready)
            await _answer(data, service, listener, Path(token_file) if token_file else path / TOKEN_NAME, stopping)


async def _answer(
    data: DataDirectory, service: Service, listener: socket.socket, token_file: Path, stopping: asyncio.Event
) -> None:
    """HTTP until told to stop; the start has succeeded."""
    from kilonova.api.app import make_app
    from kilonova.api.web import serve_web

    data.keep_all()
    host, port = listener.getsockname()[:2]
    service.public_url = service.public_url or f"http://{host}:{port}"
    say_once(f"kilonova: ready on http://{host}:{port}, administrator's token in {token_file}", service.unready)
    await serve_web(make_app(service), listener, stopping)


def _service(
    engine: Engine, settings: Settings, path: Path, token: str, unready: Callable[[], Awaitable[str]]
) -> Service:
    """What the HTTP handlers work with; the embedded services keep their records in the control database."""
    from kilonova.api.service import Service
    from kilonova.policy.enforcer import Policy
    from kilonova.services.identity.service import Identity
    from kilonova.services.image.service import Images
    from kilonova.services.network.service import Networks

    world = engine.world
    parts = (world.db.control, world.clock, world.ids)
    policy_file = path / POLICY_NAME
    return Service(
        engine=engine,
        identity=Identity(*parts, token),
        images=Images(*parts, path / IMAGES_NAME),
        networks=Networks(*parts),
        policy=Policy(file=policy_file if policy_file.is_file() else None),
        public_url="",
        unready=unready,
    )


async def _conductor(settings: Settings) -> None:
    from kilonova.conductor.service import Conductor

    stopping, worker = stop_signal(), Uuids().uuid()
    async with contextlib.AsyncExitStack() as closing:
        seal = _seal_of(settings)
        stores = await closing.enter_async_context(_stores(database.addresses(settings, Path()), upgrading=False))
        bus = await closing.enter_async_context(_nats(settings, f"conductor-{worker}"))
        works = Conductor(_engine(_world(bus, stores), settings, seal, worker=worker))
        closing.push_async_callback(works.stop)
        await works.start()
        print(f"kilonova: conductor {worker} works", flush=True)
        await stopping.wait()


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
            _add_host(hardware, host, settings)
            controllers = await closing.enter_async_context(_nats(settings, f"machine-{host}"))
            url, prefix = settings.bus.url, settings.bus.prefix
            room = _room(hardware, settings, lambda name: NatsBus(url, name, prefix=prefix), Peers)
            closing.push_async_callback(room.stop)
            await room.start(controllers)
            data.keep_all()
            print(f"kilonova: agent of {host} works", flush=True)
            stopped = asyncio.ensure_future(stopping.wait())
            ends: list[asyncio.Future[Any]] = [stopped, room.refused]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
        if room.refused.done():
            raise Refused("host_refused", room.refused.result())


def _room(
    hardware: Hardware, settings: Settings, make_bus: Callable[[str], Bus], peers: Callable[[Bus], Any] | None = None
) -> Room:
    from kilonova.compute.agent import Agent
    from kilonova.compute.drivers.simulated import SimulatedDriver, SimulatedMemory
    from kilonova.compute.room import Room
    from kilonova.operations import REGISTRY

    def make_agent(host: str, bus: Bus) -> Agent:
        driver = SimulatedDriver(hardware, host, peers(bus) if peers is not None else None)
        world = _world(bus, driver=driver, memory=SimulatedMemory(hardware, host))
        interval, storage = settings.default.report_interval, settings.simulated.shared_storage
        return Agent(world, host, REGISTRY, report_interval=interval, storage=storage)

    return Room(hardware, make_bus=make_bus, make_agent=make_agent)


def _engine(world: World, settings: Settings, seal: Seal, worker: str = "") -> Engine:
    """Without a worker's name it only accepts and reads: that is the API's, which drives nothing."""
    from kilonova.engine.core import Engine
    from kilonova.operations import REGISTRY
    from kilonova.scheduler.service import Scheduler

    limits = limits_of(settings)
    scheduler = Scheduler(world.db, world.clock, world.random, limits.service_down_time) if worker else None
    return Engine(world, REGISTRY, worker, seal, limits, scheduler)


def _world(bus: Bus, stores: Stores | None = None, **parts: Any) -> World:
    from kilonova.world import World

    return World(clock=SystemClock(), ids=Uuids(), random=random.Random(), bus=bus, stores=stores, **parts)


def limits_of(settings: Settings) -> Limits:
    from kilonova.engine.limits import Limits

    default, conducting = settings.default, settings.conductor
    return Limits(
        service_down_time=default.service_down_time,
        report_interval=default.report_interval,
        max_attempts=settings.scheduler.max_attempts,
        lease_seconds=conducting.lease_seconds,
        poll_seconds=conducting.poll_seconds,
        evacuations_per_destination=conducting.evacuations_per_destination,
        allow_resize_to_same_host=default.allow_resize_to_same_host,
        resume_guests_state_on_host_boot=default.resume_guests_state_on_host_boot,
    )


# -- parts ------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _stores(urls: Mapping[str, str], *, upgrading: bool) -> AsyncIterator[OpenStores]:
    from kilonova.store.open import open_stores

    stores = await open_stores(urls, clock=SystemClock(), upgrading=upgrading)
    try:
        yield stores
    finally:
        await stores.close()


@contextlib.asynccontextmanager
async def _nats(settings: Settings, name: str) -> AsyncIterator[Bus]:
    from kilonova.bus.nats import NatsBus

    bus = NatsBus(settings.bus.url, name, prefix=settings.bus.prefix)
    try:
        await bus.start()
        yield bus
    finally:
        await bus.close()


def _add_host(hardware: Hardware, host: str, settings: Settings) -> None:
    shape = settings.simulated
    hardware.add_host(
        host,
        vcpus=shape.vcpus,
        memory_mb=shape.memory_mb,
        disk_gb=shape.disk_gb,
        shared_storage=shape.shared_storage,
        boot_seconds=shape.boot_seconds,
        copy_seconds=shape.copy_seconds,
    )


def _seal(key: str) -> Seal:
    from kilonova.engine.secrets import Seal

    try:
        return Seal(key.encode())
    except ValueError as error:
        raise Refused("bad_key", "the key of the secrets is no key: 32 bytes in URL-safe base64 are needed") from error


def _seal_of(settings: Settings) -> Seal:
    from kilonova.store.directory import read_secret

    return _seal(read_secret(Path(settings.secrets.key_file)))


def _token(data: DataDirectory) -> str:
    return data.secret(TOKEN_NAME, new_token)


async def _look(tx: Tx) -> float:
    return await tx.now()
