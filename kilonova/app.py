"""The program: its commands, and the only place where parts are wired together.

Only what a command needs is imported, and only when it runs: `kilonova --help` must not wait for a database driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from cyclopts import App, CycloptsError, Parameter

from kilonova.cli import database, operations, simulation
from kilonova.cli.options import DEFAULT_DATA, DEFAULT_LISTEN, TOKEN_NAME, Config, Data, Overrides
from kilonova.domain.errors import Failed, KilonovaError, Refused

if TYPE_CHECKING:
    from kilonova.compute.drivers.hardware import Hardware
    from kilonova.compute.room import Room
    from kilonova.engine.core import Engine
    from kilonova.engine.limits import Limits
    from kilonova.engine.secrets import Seal
    from kilonova.settings import Settings
    from kilonova.store.directory import DataDirectory
    from kilonova.world import Bus, Stores, World

DONE, CRASHED, USAGE, REFUSED, FAILED = 0, 1, 2, 3, 4  # exit codes; DESIGN section 11
SEAL_KEY_NAME = "seal.key"
MACHINES_NAME = "simulated.db"

app = App(name="kilonova", help="A compute control plane that speaks OpenStack's Compute and Placement APIs.")
for commands in (operations.app, database.app, simulation.app):
    app.command(commands)

Listen = Annotated[str, Parameter(help="Address and port of the HTTP API.")]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point. What goes wrong on purpose is one sentence on stderr and an exit code."""
    sys.exit(_run_command(arguments))


def _run_command(arguments: Sequence[str] | None) -> int:
    try:
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        return code if isinstance(code, int) else DONE
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
        _run(_serve(data, settings, listener))


@app.command
def api(
    *, data: Data = DEFAULT_DATA, listen: Listen = DEFAULT_LISTEN, config: Config = None, overrides: Overrides = None
) -> None:
    """Run the HTTP API of a fleet, on PostgreSQL and NATS as configured."""
    settings = _fleet_settings(data, config, overrides)
    with listening(listen) as listener:
        _run(_api(data, settings, listener))


@app.command
def conductor(*, data: Data = DEFAULT_DATA, config: Config = None, overrides: Overrides = None) -> None:
    """Run a conductor of a fleet. Any number may run; each takes over from one that dies."""
    _run(_conductor(_fleet_settings(data, config, overrides)))


@app.command
def agent(
    *, host: str, data: Data | None = None, driver: Literal["simulated"] = "simulated", config: Config = None,
    overrides: Overrides = None,
) -> None:
    """Run the agent of one host of a fleet. It speaks to the bus alone and never opens a database.

    Parameters
    ----------
    host: Its name in the cloud.
    driver: What makes guests.
    """
    from kilonova.settings import load

    place = data or DEFAULT_DATA / "hosts" / host
    settings = load(place, config, overrides or [])
    _need(settings.bus.url, "[bus] url", "the address of NATS")
    if settings.simulated.shared_storage:
        text = "[simulated] shared_storage needs all its hosts in one process: use kilonova serve"
        raise Refused("bad_configuration", text)
    _run(_agent(host, place, settings))


@simulation.app.command(name="run")
def run_stories(*paths: Path, update: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Run stories (files, or directories of them) in virtual time.

    Parameters
    ----------
    update: Write the logs into the files as they are now.
    """
    from kilonova.sim.story import main as run

    return run(paths, update=update)


# -- wiring -----------------------------------------------------------------------------------------------------------


async def _serve(path: Path, settings: Settings, listener: socket.socket) -> None:
    from kilonova.api.app import Service, make_app
    from kilonova.api.web import serve_web
    from kilonova.bus.memory import MemoryBus, MemoryHub
    from kilonova.compute.drivers.hardware import Hardware
    from kilonova.compute.drivers.simulated import SimulatedFence
    from kilonova.conductor.service import Conductor
    from kilonova.store.directory import DataDirectory

    stopping = _stopping()
    with DataDirectory(path) as data:
        async with contextlib.AsyncExitStack() as closing:
            token, seal = _token(data), _seal(data.secret(SEAL_KEY_NAME, _new_key))
            stores = await closing.enter_async_context(_stores(database.addresses(settings, path), upgrading=True))
            hub, hardware = MemoryHub(), Hardware(persist=path / MACHINES_NAME)
            closing.callback(hardware.close)
            for number in range(1, settings.simulated.hosts + 1):
                _add_host(hardware, f"host{number}", settings)
            fence = SimulatedFence(hardware)
            works = Conductor(
                _engine(_world(MemoryBus(hub, "conductor"), stores, fence=fence), settings, seal, worker=Uuids().uuid()),
                alone=True,
            )
            closing.push_async_callback(works.stop)
            await works.start()
            room = _room(hardware, settings, lambda host: MemoryBus(hub, host))
            closing.push_async_callback(room.stop)
            await room.start(MemoryBus(hub, "machines"))

            async def unready() -> str:
                return f"waiting for {', '.join(awaited)} to register" if (awaited := room.awaited()) else ""

            answers = _engine(_world(MemoryBus(hub, "api"), stores), settings, seal)
            data.keep_all()
            _announce(unready, listener, path / TOKEN_NAME)
            await serve_web(make_app(Service(answers, token, unready)), listener, stopping)


async def _api(path: Path, settings: Settings, listener: socket.socket) -> None:
    from kilonova.api.app import Service, make_app
    from kilonova.api.web import serve_web
    from kilonova.store.directory import DataDirectory, read_secret

    stopping, token_file = _stopping(), settings.api.token_file
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

            answers = _engine(_world(bus, stores), settings, _seal_of(settings))
            data.keep_all()
            _announce(unready, listener, Path(token_file) if token_file else path / TOKEN_NAME)
            await serve_web(make_app(Service(answers, token, unready)), listener, stopping)


async def _conductor(settings: Settings) -> None:
    from kilonova.conductor.service import Conductor

    stopping, worker = _stopping(), Uuids().uuid()
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

    stopping = _stopping()
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
            await asyncio.wait(
                [asyncio.ensure_future(stopping.wait()), room.refused], return_when=asyncio.FIRST_COMPLETED
            )
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
