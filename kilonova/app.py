"""The program: its commands, and the only place where parts are wired together.

Only what a command needs is imported, and only when it runs: `kilonova --help` must not wait for a database driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from cyclopts import App, CycloptsError, Parameter, UnknownCommandError

from kilonova.cli import (
    audit,
    cell,
    database,
    explain,
    findings,
    host,
    identity,
    image,
    keygen,
    operations,
    plan,
    simulation,
    unplaced,
)
from kilonova.cli.options import DEFAULT_DATA, DEFAULT_LISTEN, Config, Data, Overrides
from kilonova.domain.errors import Failed, Halted, KilonovaError, Refused
from kilonova.parts import (
    CONDUCTOR_NAME,
    MACHINES_NAME,
    SEAL_KEY_NAME,
    add_host,
    clouds_of,
    keeping_volumes,
    look,
    make_engine,
    make_policy,
    make_room,
    make_seal,
    make_service,
    make_world,
    open_all,
    open_nats,
    seal_of,
    stores_of,
)
from kilonova.production import (
    Uuids,
    new_key,
    new_password,
    run,
    say_once,
    stop_signal,
)
from kilonova.store.modes import PRIVATE

if TYPE_CHECKING:
    from kilonova.api.listening import Listener
    from kilonova.api.service import Service
    from kilonova.conductor.service import Conductor
    from kilonova.settings import Settings
    from kilonova.store.directory import DataDirectory

DONE, USAGE, REFUSED, FAILED = 0, 2, 3, 4  # exit codes; 1 is a crash
WRONGLY_ASKED = ("bad_configuration", "usage")  # found out here, before anybody was asked
logger = logging.getLogger(__name__)

app = App(
    name="kilonova",
    help="A compute control plane that speaks OpenStack's Compute and Placement APIs.",
    help_format="plaintext",  # markdown would cost a fifth of the time that --help takes
)
for commands in (operations, findings, plan, unplaced, host, cell, image, identity, database, simulation):
    app.command(commands.app)
app.command(host.quarantine)
app.command(explain.explain)
app.command(audit.audit)
app.command(keygen.keygen)
for name, sentence in simulation.LOADED_WHEN_USED.items():
    simulation.app.command(f"kilonova.sim.cli:{name}", name=name, help=sentence)

Listen = Annotated[str, Parameter(help="Address and port of the HTTP API.")]
PublicUrl = Annotated[
    str, Parameter(help="URL of the API for clients, used in the catalog. Without it: made from --listen.")
]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point. What goes wrong on purpose is one sentence on stderr and an exit code."""
    os.umask(PRIVATE)
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
        return _say(f"{error}{_hint(error)}", USAGE)
    except Refused as why:
        return _say(why.message, USAGE if why.code in WRONGLY_ASKED else REFUSED)
    except Failed as why:
        return _say(why.message, FAILED)
    except KilonovaError as error:  # a database or a broker that cannot be used: nothing was begun
        return _say(str(error), REFUSED)


def _hint(error: CycloptsError) -> str:
    """An option where a command belongs."""
    word = (error.unused_tokens or [""])[0] if isinstance(error, UnknownCommandError) else ""
    return f" Options go after the command: kilonova op list {word} …" if word.startswith("-") else ""


def _say(sentence: str, code: int) -> int:
    print(f"kilonova: {sentence}", file=sys.stderr)
    return code


# -- roles ------------------------------------------------------------------------------------------------------------


@app.command
def serve(
    *,
    data: Data = DEFAULT_DATA,
    listen: Listen = DEFAULT_LISTEN,
    public_url: PublicUrl = "",
    hosts: int | None = None,
    driver: Literal["simulated"] = "simulated",
    config: Config = None,
    overrides: Overrides = None,
) -> None:
    """Run a whole cloud in one process: SQLite files in DATA, simulated hosts, no other service needed.

    Parameters
    ----------
    hosts
        Number of simulated hosts. Without it: [simulated] hosts.
    driver
        Driver that runs guests.
    """
    from kilonova.api.listening import listening
    from kilonova.settings import load

    count = [] if hosts is None else [f"simulated.hosts={hosts}"]
    settings = load(data, config, [*(overrides or []), *count])
    if settings.database.is_set or settings.bus.url:
        advice = "remove these sections, or run api, conductor and agent"
        raise Refused("bad_configuration", f"[database] and [bus]: serve uses its own; {advice}")
    if not settings.simulated.hosts:
        raise Refused("bad_configuration", "--hosts 0: a cloud needs at least 1 host")
    with listening(listen, public_url, settings.wsgi) as listener:
        database.refuse_newer(database.addresses(settings, data))
        run(_serve(data, settings, listener), settings)


@app.command
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


@app.command
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


@app.command
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


@app.command
def agent(
    *,
    host: str,
    cell: str | None = None,
    data: Data | None = None,
    driver: Literal["simulated"] = "simulated",
    config: Config = None,
    overrides: Overrides = None,
) -> None:
    """Run the agent of one host of a fleet. It speaks to the bus alone and never opens a database.

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
    run(_agent(host, place, settings), settings)


# -- wiring -----------------------------------------------------------------------------------------------------------


async def _serve(path: Path, settings: Settings, listener: Listener) -> None:
    from kilonova.store.directory import DataDirectory

    stopping = stop_signal()
    with DataDirectory(path) as data:
        async with embedded(data, settings, listener.url) as service:
            await _answer(data, service, settings, listener, stopping)


@contextlib.asynccontextmanager
async def embedded(data: DataDirectory, settings: Settings, url: str = "") -> AsyncIterator[Service]:
    """A whole cloud in this process: stores, conductor, hosts; all but the HTTP server."""
    from kilonova.bus.memory import MemoryBus, MemoryHub
    from kilonova.compute.drivers.hardware import Hardware
    from kilonova.compute.drivers.simulated import SimulatedFence
    from kilonova.conductor.service import Conductor
    from kilonova.operations.hosts import fence_absent

    policy = make_policy(data.path)
    async with contextlib.AsyncExitStack() as closing:
        clouds = clouds_of(data.path, settings, hosts=MACHINES_NAME)
        opening = open_all(settings, data.path, embedded=True, witnesses=clouds, data=data)
        stores = await closing.enter_async_context(opening)
        seal = make_seal(data.secret(SEAL_KEY_NAME, new_key))
        hub, hardware = MemoryHub(), Hardware(persist=data.path / MACHINES_NAME)
        closing.callback(hardware.close)
        for number in range(1, settings.simulated.hosts + 1):
            add_host(hardware, f"host{number}", settings)
        conducting = make_world(MemoryBus(hub, "conductor"), stores, fence=SimulatedFence(hardware))
        works = Conductor(make_engine(conducting, settings, seal, worker=Uuids().uuid()), alone=True)
        closing.push_async_callback(works.stop)
        await works.start()
        _log_hosts(works, closing)
        room = make_room(hardware, settings, lambda host: MemoryBus(hub, host))
        closing.push_async_callback(room.stop)
        await room.start(MemoryBus(hub, "machines"))
        for gone in [] if stores.halted else await fence_absent(works.engine, hardware.hosts()):
            text = "%s is in the database but only %d hosts were started (--hosts); marking it down"
            logger.warning(text, gone, settings.simulated.hosts)

        async def unready() -> str:
            if stores.halted:
                return stores.halted
            awaited = room.awaited()
            some = ", ".join(awaited[:5]) + (f" and {len(awaited) - 5} more" if len(awaited) > 5 else "")
            return f"waiting for {some} to register" if awaited else ""

        engine = make_engine(make_world(MemoryBus(hub, "api"), stores, settings=settings), settings, seal)
        service = make_service(engine, settings, data.path, url, unready, policy, stores.backend)
        await _prepare(service, data, settings)
        async with keeping_volumes(service, data.path):
            yield service


async def _api(path: Path, settings: Settings, listener: Listener) -> None:
    from kilonova.store.directory import DataDirectory

    stopping = stop_signal()
    with DataDirectory(path) as data:
        policy = make_policy(path)
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

            engine = make_engine(make_world(bus, stores, settings=settings), settings, seal_of(settings))
            service = make_service(engine, settings, path, listener.url, unready, policy, stores.backend)
            await _prepare(service, data, settings)
            learning = asyncio.create_task(service.cells.keep_learning(settings.conductor.poll_seconds))
            closing.callback(learning.cancel)
            async with keeping_volumes(service, path):
                await _answer(data, service, settings, listener, stopping)


async def _answer(
    data: DataDirectory, service: Service, settings: Settings, listener: Listener, stopping: asyncio.Event
) -> None:
    """HTTP until told to stop; the start has succeeded."""
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
        print(f"{ready} for reads only: {stores_of(service).halted}", flush=True)
    say_once(f"{ready}\n{welcome(data.path, passwords)}", service.unready)
    app = with_cors(make_app(service), settings.cors.allowed_origin, settings.cors.allow_headers)
    seen = Seen(app, access_log=listener.options.access_log)
    await serve_web(seen, listener.socket, stopping, Connections(listener.options), listener.certificate)


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
    await service.images.prepare(owner=owner)
    await service.networks.prepare(owner=owner)
    await service.volumes.prepare()


def _log_hosts(works: Conductor, closing: contextlib.AsyncExitStack) -> None:
    from kilonova.conductor.host_log import HostLog

    engine = works.engine
    looking = asyncio.create_task(HostLog(engine).keep_looking(engine.limits.poll_seconds))
    closing.callback(looking.cancel)


async def _conductor(path: Path, settings: Settings, metrics: Listener | None) -> None:
    """Its directory holds nothing but a memory of marks (law 15)."""
    from kilonova.conductor.service import Conductor

    stopping, worker = stop_signal(), Uuids().uuid()
    async with contextlib.AsyncExitStack() as closing:
        seal = seal_of(settings)
        opening = open_all(settings, path, embedded=False, memory=path / CONDUCTOR_NAME)
        stores = await closing.enter_async_context(opening)
        bus = await closing.enter_async_context(open_nats(settings, f"conductor-{worker}"))
        works = Conductor(make_engine(make_world(bus, stores), settings, seal, worker=worker))
        if metrics is not None:
            closing.push_async_callback(_serve_metrics(works, metrics))  # before the next one: it ends last
        closing.push_async_callback(works.stop)
        await works.start()
        _log_hosts(works, closing)
        print(f"kilonova: conductor {worker} works", flush=True)
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
            room = make_room(hardware, settings, lambda name: NatsBus(url, name, prefix=prefix), Peers)
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
