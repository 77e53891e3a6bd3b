"""`kilonova api`: the HTTP API of a fleet. It accepts and reads; a conductor does the work.

Starts: the stores, the bus, the services behind the handlers, the files of volumes, the HTTP server.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from kilonova.cli.options import DEFAULT_DATA, DEFAULT_LISTEN, Config, Data, Listen, Overrides, PublicUrl
from kilonova.domain.errors import Halted, KilonovaError
from kilonova.roles.seed import known_passwords, prepare
from kilonova.roles.services import keeping_volumes, make_policy, make_service, stores_of
from kilonova.roles.stores import clouds_of, open_all
from kilonova.roles.wiring import look, make_engine, make_fence, make_world, open_nats, seal_of
from kilonova.runtime import run, say, say_once, stop_signal

if TYPE_CHECKING:
    from kilonova.api.listening import Listener
    from kilonova.api.service import Service
    from kilonova.settings import Settings
    from kilonova.store.data_directory import DataDirectory


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


async def _api(path: Path, settings: Settings, listener: Listener) -> None:
    from kilonova.operations.image_bytes import serve_address
    from kilonova.store.data_directory import DataDirectory

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

            world = make_world(bus, settings, stores, fence=fence)
            engine = make_engine(world, seal_of(settings))
            service = make_service(engine, settings, path, listener.url, unready, policy, stores.backend)
            await prepare(service, data, settings)
            await serve_address(engine, listener.url)
            learning = asyncio.create_task(service.cells.keep_learning(settings.conductor.poll_seconds))
            closing.callback(learning.cancel)
            async with keeping_volumes(service, path):
                await answer(data, service, settings, listener, stopping)


async def answer(
    data: DataDirectory,
    service: Service,
    settings: Settings,
    listener: Listener,
    stopping: asyncio.Event,
    advice: str = "",
) -> None:
    """Serve HTTP until `stopping` is set. `advice` is printed with the message that it is ready."""
    from kilonova.api.app import make_app
    from kilonova.api.connections import Connections
    from kilonova.api.cors import with_cors
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
