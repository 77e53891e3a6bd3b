"""Factories for the roles, by the settings: world, engine, fence, sender, bus, seal.

Only what a role needs is imported, and only when it is created. Further factories are beside this file by subject:
stores.py, services.py, simulated_hosts.py, real_host.py.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kilonova.domain.errors import Refused
from kilonova.runtime import SystemClock, Uuids

if TYPE_CHECKING:
    from kilonova.compute.drivers.simulated.hardware import Hardware
    from kilonova.domain.failure_watch import WatchRules
    from kilonova.engine.core import Engine
    from kilonova.engine.limits import Limits
    from kilonova.engine.secrets import Seal
    from kilonova.notifications.sender import Sender
    from kilonova.notifications.target import NotificationTarget
    from kilonova.services.volume.service import Volumes
    from kilonova.settings import Settings
    from kilonova.world import Bus, HostFence, Stores, Tx, World


def make_world(bus: Bus, stores: Stores | None = None, **parts: Any) -> World:
    from kilonova.services.image.servers import ServerImages
    from kilonova.services.network.service import Networks
    from kilonova.services.network.wakeups import Wakeups
    from kilonova.world import World

    clock, ids = SystemClock(), Uuids()
    world = World(clock=clock, ids=ids, random=random.Random(), bus=bus, stores=stores, **parts)
    if stores is not None:
        wakeups = Wakeups(stores.control, bus, clock, stores.bus_prefix)
        world.network = Networks(stores.control, clock, ids, wakeups=wakeups)
        world.image = ServerImages(stores.control, clock)
    return world


def make_engine(world: World, settings: Settings, seal: Seal, worker: str = "") -> Engine:
    """Without a worker's name it only accepts and reads: that is the API's, which drives nothing."""
    from kilonova.engine.core import Engine
    from kilonova.operations import REGISTRY
    from kilonova.scheduler.service import Scheduler

    if world.stores is not None:
        world.volume = make_volumes(world, settings, seal).servers
    limits = limits_of(settings)
    parts = (world.db, world.clock, world.random, limits.service_down_time, settings)
    scheduler = Scheduler(*parts) if worker else None
    return Engine(world, REGISTRY, worker, seal, limits, scheduler)


def make_volumes(world: World, settings: Settings, seal: Seal, backend: str = "") -> Volumes:
    from kilonova.services.volume.export_requests import ask_to_close
    from kilonova.services.volume.service import Volumes

    options = settings.volume
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


def limits_of(settings: Settings) -> Limits:
    from kilonova.engine.limits import Limits

    default, conducting = settings.default, settings.conductor
    return Limits(
        service_down_time=default.service_down_time,
        report_interval=default.report_interval,
        # Heartbeats must be recorded well within the time after which silence counts.
        flush_seconds=min(Limits.flush_seconds, default.service_down_time / 8),
        max_attempts=settings.scheduler.max_attempts,
        unknown_wait=settings.scheduler.unknown_wait,
        lease_seconds=conducting.lease_seconds,
        poll_seconds=conducting.poll_seconds,
        evacuations_per_destination=conducting.evacuations_per_destination,
        move_seconds=conducting.move_seconds,
        move_mb_per_second=conducting.move_mb_per_second,
        audit_interval=settings.audit.interval,
        ledger_days=settings.audit.ledger_days,
        watch=_watch_of(settings),
        notifier=(default.host or socket.gethostname()) if settings.notifications.transport else "",
        retention_days=settings.retention.days,
        allow_resize_to_same_host=default.allow_resize_to_same_host,
        resume_guests_state_on_host_boot=default.resume_guests_state_on_host_boot,
        reclaim_instance_interval=default.reclaim_instance_interval,
        resize_confirm_window=default.resize_confirm_window,
        counts_failed_builds=settings.compute.consecutive_build_service_disable_threshold > 0,
        list_records_by_skipping_down_cells=settings.api.list_records_by_skipping_down_cells,
        quota=_quota_of(settings),
        count_usage_from_placement=settings.quota.count_usage_from_placement,
    )


def _watch_of(settings: Settings) -> WatchRules:
    from kilonova.domain.failure_watch import WatchRules

    options = settings.ha
    return WatchRules(
        automatic=options.automatic,
        storm_percent=options.storm_percent,
        storm_hosts=options.storm_hosts,
        storm_window=options.storm_window,
        fence_timeout=options.fence_timeout,
    )


def _quota_of(settings: Settings) -> dict[str, int]:
    """Return the default quotas by resource; one has another name in the configuration than in the API."""
    import msgspec

    limits: dict[str, int] = msgspec.structs.asdict(settings.quota)
    del limits["count_usage_from_placement"]
    limits["injected_file_path_bytes"] = limits.pop("injected_file_path_length")
    return limits


def make_sender(engine: Engine, settings: Settings) -> Sender | None:
    """None: no notifications are written or sent. Those that lie there are sent when it is on again."""
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
    from kilonova.store.directory import read_secret
    from kilonova.store.modes import keep_private

    file = Path(settings.secrets.key_file)
    keep_private(file)
    return make_seal(read_secret(file))


async def look(tx: Tx) -> float:
    return await tx.now()
