"""`kilonova conductor`: takes the control steps of operations and hands hosts theirs. Any number may run.

Starts: the stores, the bus, the conductor, the failure watch, the sender of notifications and, where configured, a port
for metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kilonova.cli.options import DEFAULT_DATA, Config, Data, Overrides
from kilonova.domain.errors import Refused
from kilonova.roles.stores import CONDUCTOR_NAME, open_all
from kilonova.roles.wiring import make_engine, make_fence, make_sender, make_world, open_nats, seal_of
from kilonova.runtime import Uuids, run, say, stop_signal

if TYPE_CHECKING:
    from kilonova.api.listening import Listener
    from kilonova.conductor.service import Conductor
    from kilonova.settings import Settings


def conductor(*, data: Data = DEFAULT_DATA, config: Config = None, overrides: Overrides = None) -> None:
    """Run a conductor of a fleet. Any number may run; each takes over from one that dies."""
    from kilonova.settings import load_for_fleet

    settings = load_for_fleet(data, config, overrides or [])
    with contextlib.ExitStack() as closing:
        run(_conductor(data, settings, _metrics_listener(settings, closing)), settings)


async def _conductor(path: Path, settings: Settings, metrics: Listener | None) -> None:
    """Run a conductor. Its directory holds nothing but a memory of marks (law 15)."""
    from kilonova.conductor.service import Conductor

    stopping, worker = stop_signal(), Uuids().uuid()
    async with contextlib.AsyncExitStack() as closing:
        seal, fence = seal_of(settings), make_fence(settings)
        opening = open_all(settings, path, embedded=False, memory=path / CONDUCTOR_NAME)
        stores = await closing.enter_async_context(opening)
        bus = await closing.enter_async_context(open_nats(settings, f"conductor-{worker}"))
        conductor = Conductor(make_engine(make_world(bus, settings, stores, fence=fence), seal, worker=worker))
        if metrics is not None:
            closing.push_async_callback(_serve_metrics(conductor, metrics))  # before the next one: it ends last
        closing.push_async_callback(conductor.stop)
        await conductor.start()
        await watch_hosts(conductor, closing)
        await send_notifications(conductor, settings, closing)
        say(f"kilonova: conductor {worker} works")
        await stopping.wait()


async def watch_hosts(conductor: Conductor, closing: contextlib.AsyncExitStack) -> None:
    from kilonova.conductor.host_log import HostLog
    from kilonova.ha.watch import Watch

    engine = conductor.engine
    watch = Watch(engine)
    closing.push_async_callback(watch.stop)
    await watch.start()
    looking = asyncio.create_task(HostLog(engine).keep_looking(engine.settings.conductor.poll_seconds))
    closing.callback(looking.cancel)


async def send_notifications(conductor: Conductor, settings: Settings, closing: contextlib.AsyncExitStack) -> None:
    sender = make_sender(conductor.engine, settings)
    if sender is not None:
        closing.push_async_callback(sender.stop)
        await sender.start()


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


def _serve_metrics(conductor: Conductor, listener: Listener) -> Callable[[], Awaitable[None]]:
    """Begin to serve metrics; return the function that stops it."""
    from starlette.applications import Starlette

    from kilonova.api.connections import Connections
    from kilonova.api.metrics import metrics_pages
    from kilonova.api.web import serve_web

    engine = conductor.engine
    app = Starlette(routes=metrics_pages(engine.world.db, None, engine.settings.default.service_down_time))
    ending = asyncio.Event()
    listener.listen()
    answering = asyncio.create_task(
        serve_web(app, listener.socket, ending, Connections(listener.options), listener.certificate)
    )

    async def end() -> None:
        ending.set()
        await answering

    return end
