"""Factories for the roles, by the settings: world, engine, fence, sender, bus, seal.

Only the modules that a role needs are imported, and only when they are used. Further factories are beside this file by
subject: stores.py, services.py, simulated_hosts.py, real_host.py.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kilonova.domain.errors import Refused
from kilonova.runtime import SystemClock, Uuids, machine_name

if TYPE_CHECKING:
    from kilonova.compute.drivers.simulated.hardware import Hardware
    from kilonova.engine.core import Engine
    from kilonova.engine.secrets import Seal
    from kilonova.notifications.sender import Sender
    from kilonova.notifications.target import NotificationTarget
    from kilonova.services.volume.service import Volumes
    from kilonova.settings import Settings
    from kilonova.world import Bus, HostFence, Stores, Tx, World


def make_world(bus: Bus, settings: Settings, stores: Stores | None = None, **parts: Any) -> World:
    from kilonova.services.image.servers import ServerImages
    from kilonova.services.network.service import Networks
    from kilonova.services.network.wakeups import Wakeups
    from kilonova.world import World

    clock, ids = SystemClock(), Uuids()
    world = World(
        clock=clock,
        ids=ids,
        random=random.Random(),
        bus=bus,
        stores=stores,
        settings=settings,
        machine=machine_name(settings),
        **parts,
    )
    if stores is not None:
        wakeups = Wakeups(stores.control, bus, clock, stores.bus_prefix)
        world.network = Networks(stores.control, clock, ids, wakeups=wakeups)
        world.image = ServerImages(stores.control, clock)
    return world


def make_engine(world: World, seal: Seal, worker: str = "") -> Engine:
    """Make an engine. Without a worker's name it only accepts and reads, as the API's does."""
    from kilonova.engine.core import Engine
    from kilonova.operations import REGISTRY
    from kilonova.scheduler.service import Scheduler

    if world.stores is not None:
        world.volume = make_volumes(world, seal).servers
    scheduler = Scheduler(world.db, world.clock, world.random, world.settings) if worker else None
    return Engine(world, REGISTRY, worker, seal, scheduler)


def make_volumes(world: World, seal: Seal, backend: str = "") -> Volumes:
    from kilonova.services.volume.export_requests import ask_to_close
    from kilonova.services.volume.service import Volumes

    options = world.settings.volume
    limits = {"volumes": options.quota_volumes, "snapshots": options.quota_snapshots}
    limits |= {"gigabytes": options.quota_gigabytes, "per_volume_gigabytes": options.per_volume_size_limit}
    return Volumes(
        world.db.control,
        world.clock,
        world.ids,
        seal,
        bus=world.bus,
        backend=backend,
        default_type=options.default_volume_type,
        quota_defaults=limits,
        close=partial(ask_to_close, world.bus),
    )


def make_sender(engine: Engine, settings: Settings) -> Sender | None:
    """Make the sender; None if notifications are off. Those already written are sent when they are on again."""
    from kilonova.notifications.bus import BusTarget
    from kilonova.notifications.sender import Sender
    from kilonova.notifications.webhook import Webhook, read_secret

    options = settings.notifications
    if not options.transport:
        return None
    if options.transport == "bus":
        topics, seconds = options.versioned_notifications_topics, options.webhook_timeout
        target: NotificationTarget = BusTarget(
            engine.world.bus, topics, answered_within=seconds if options.bus_answer else None
        )
    else:
        secret = read_secret(options.webhook_secret_file) if options.webhook_secret_file else b""
        target = Webhook(options.webhook_url, secret, ca_file=options.webhook_ca_file, seconds=options.webhook_timeout)
    rules = {"try_seconds": options.webhook_timeout, "retry_seconds": options.retry_seconds}
    return Sender(engine.world, engine.worker, target, **rules, most=options.max_queued)


def make_fence(settings: Settings, hardware: Hardware | None = None) -> HostFence | None:
    """The operator's command; else the power switches of simulated hosts in this process."""
    if settings.ha.fence_command:
        from kilonova.ha.command import CommandFence

        return CommandFence(settings.ha.fence_command)
    if hardware is not None:
        from kilonova.compute.drivers.simulated.driver import SimulatedFence

        return SimulatedFence(hardware)
    if settings.ha.automatic:
        text = "[ha] automatic = true needs fence_command: a host that may still run its servers is not evacuated"
        raise Refused("bad_configuration", text)
    return None


@contextlib.asynccontextmanager
async def open_nats(settings: Settings, name: str) -> AsyncIterator[Bus]:
    from kilonova.bus.nats import NatsBus

    bus = NatsBus(settings.bus.url, name, prefix=settings.bus.prefix)
    try:
        await bus.start()
        yield bus
    finally:
        await bus.close()


def make_seal(key: str) -> Seal:
    from kilonova.engine.secrets import Seal

    try:
        return Seal(key.encode())
    except ValueError as error:
        raise Refused("bad_key", "invalid [secrets] key: expected 32 bytes as URL-safe base64") from error


def seal_of(settings: Settings) -> Seal:
    from kilonova.store.data_directory import read_secret
    from kilonova.store.modes import keep_private

    file = Path(settings.secrets.key_file)
    keep_private(file)
    return make_seal(read_secret(file))


async def look(tx: Tx) -> float:
    return await tx.now()
