"""The parts of a role, made from the settings; app.py puts them together.

Only what a role needs is imported, and only when it is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kilonova.cli.opening import SEAL_KEY_NAME as SEAL_KEY_NAME
from kilonova.domain.errors import Refused, StoreError, WrongStore
from kilonova.production import SystemClock, Uuids, new_key

if TYPE_CHECKING:
    from kilonova.api.service import Service
    from kilonova.compute.drivers.hardware import Hardware
    from kilonova.compute.image_bytes import HttpImageBytes
    from kilonova.compute.room import Room
    from kilonova.domain.failure_watch import WatchRules
    from kilonova.engine.core import Engine
    from kilonova.engine.limits import Limits
    from kilonova.engine.secrets import Seal
    from kilonova.notifications.sender import Sender
    from kilonova.notifications.target import Target
    from kilonova.policy.enforcer import Policy
    from kilonova.services.identity.service import Identity
    from kilonova.services.image.uploads import Caps
    from kilonova.services.volume.service import Volumes
    from kilonova.settings import Settings
    from kilonova.store.directory import DataDirectory
    from kilonova.store.open import OpenStores
    from kilonova.store.reserve import DiskReserve
    from kilonova.world import Bus, Clock, ConsoleDoor, Fence, Ids, Store, Stores, Tx, Uploads, World

IMAGES_NAME = "images"
VOLUMES_NAME = "volumes"
CONDUCTOR_NAME = "conductor"  # its memory of marks
logger = logging.getLogger(__name__)
OF_THE_CLOUD = "of the cloud"  # whose a directory is that every API has
BACKEND_NAME = "volumes.id"
MACHINES_NAME = "simulated.db"
POLICY_NAME = "policy.yaml"


def make_service(
    engine: Engine,
    settings: Settings,
    path: Path,
    url: str,
    unready: Callable[[], Awaitable[str]],
    policy: Policy,
    backend: str = "",
) -> Service:
    """What the HTTP handlers work with; the embedded services keep their records in the control database. `backend`:
    whose volumes lie in this data directory."""
    from kilonova.api.consoles.meeting import ConsoleMeeting
    from kilonova.api.service import Service
    from kilonova.quota.service import Quotas
    from kilonova.services.compute.aggregate_book import AggregateBook
    from kilonova.services.compute.aggregates import Aggregates
    from kilonova.services.compute.cells import Cells
    from kilonova.services.compute.flavors import Flavors
    from kilonova.services.compute.keypairs import Keypairs
    from kilonova.services.compute.server_groups import ServerGroups
    from kilonova.services.image.service import Images
    from kilonova.services.network.service import Networks
    from kilonova.services.network.wakeups import Wakeups
    from kilonova.store.open import OpenStores

    world = engine.world
    assert isinstance(world.db, OpenStores)
    stores = world.db
    parts = (world.db.control, world.clock, world.ids)
    reserve = make_reserve(world, settings, path)
    return Service(
        engine=engine,
        identity=make_identity(parts, settings, engine.seal),
        images=Images(*parts, images_folder(settings, path), _caps_of(settings), reserve),
        networks=Networks(*parts, wakeups=Wakeups(world.db.control, world.bus, world.clock, stores.bus_prefix)),
        volumes=make_volumes(world, settings, engine.seal, backend),
        flavors=Flavors(*parts),
        aggregates=Aggregates(*parts),
        zones=AggregateBook(world.db.control, settings.default.default_availability_zone),
        keypairs=Keypairs(world.db.control, world.clock),
        server_groups=ServerGroups(*parts),
        cells=Cells(stores, world.clock, world.ids, world.bus, engine.seal, settings.database.spare),
        quotas=Quotas(world.db.control, engine.limits.quota),
        policy=policy,
        public_url=url,
        unready=unready,
        consoles=ConsoleMeeting(world, settings.console, url),
        pci_aliases=settings.pci.alias,
        reserve=reserve,
    )


def make_policy(path: Path) -> Policy:
    """Before anything is started: a policy.yaml that cannot be used is the only thing that is said then."""
    from kilonova.policy.enforcer import Policy

    file = path / POLICY_NAME
    return Policy(file=file if file.is_file() else None)


def make_identity(parts: tuple[Store, Clock, Ids], settings: Settings, seal: Seal) -> Identity:
    from kilonova.services.identity.service import Identity

    return Identity(
        *parts,
        seal=seal,
        new_secret=new_key,
        expiration=settings.token.expiration,
        failed_logins=settings.identity.failed_logins_per_minute,
    )


def stores_of(service: Service) -> OpenStores:
    from kilonova.store.open import OpenStores

    stores = service.engine.world.db
    assert isinstance(stores, OpenStores)
    return stores


def make_room(
    hardware: Hardware,
    settings: Settings,
    make_bus: Callable[[str], Bus],
    make_uploads: Callable[[Bus], Uploads],
    consoles: ConsoleDoor,
    peers: Callable[[Bus], Any] | None = None,
) -> Room:
    from kilonova.compute.agent import Agent
    from kilonova.compute.drivers.simulated import SimulatedDriver, SimulatedMemory
    from kilonova.compute.drivers.volumes import BusVolumes
    from kilonova.compute.offer import Offer
    from kilonova.compute.room import Room
    from kilonova.operations import REGISTRY

    offer = Offer.of(settings)
    for host in hardware.hosts():
        offer.check(host, range(settings.simulated.vcpus))

    def make_agent(host: str, bus: Bus) -> Agent:
        elsewhere = peers(bus) if peers is not None else None
        driver = SimulatedDriver(hardware, host, elsewhere, offer, BusVolumes(bus))
        doors: dict[str, Any] = {"uploads": make_uploads(bus), "consoles": consoles}
        world = make_world(bus, driver=driver, memory=SimulatedMemory(hardware, host), **doors)
        interval, storage = settings.default.report_interval, settings.simulated.shared_storage
        cell = settings.compute.cell or simulated_cell(settings, host)
        return Agent(world, host, REGISTRY, report_interval=interval, storage=storage, cell=cell)

    return Room(hardware, make_bus=make_bus, make_agent=make_agent)


def http_image_bytes(settings: Settings) -> Callable[[Bus], HttpImageBytes]:
    """Of a host of a fleet."""
    from kilonova.compute.image_bytes import HttpImageBytes

    options = settings.glance
    return lambda bus: HttpImageBytes(bus, SystemClock(), url=options.endpoint_override, ca_file=options.cafile)


def web_socket_door(settings: Settings) -> ConsoleDoor:
    """Of a host of a fleet."""
    from kilonova.compute.console_door import WebSocketDoor

    return WebSocketDoor(settings.glance.cafile)


def simulated_cell(settings: Settings, host: str) -> str:
    """host1, host2, … are dealt out to the cells of `kilonova serve` one after the other."""
    number = host.removeprefix("host")
    count = settings.simulated.cells
    return f"cell{(int(number) - 1) % count + 1}" if count > 1 and number.isdigit() else ""


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


def images_folder(settings: Settings, path: Path) -> Path:
    """One for the whole cloud: every API has the same."""
    named = settings.image.filesystem_store_datadir
    return Path(named) if named else path / IMAGES_NAME


def clouds_of(path: Path, settings: Settings, *, hosts: str = "") -> dict[str, str]:
    """Which cloud the directories of this data directory belong to, and the simulated hosts in the file `hosts`; what
    is new is left out. Changes nothing."""
    from kilonova.compute.memory import FILE_NAME, cloud_in
    from kilonova.store.badges import read_directory_badge

    places = {IMAGES_NAME: images_folder(settings, path), VOLUMES_NAME: path / VOLUMES_NAME}
    folders = {f"{name} directory {place}": place for name, place in places.items()}
    badges = {what: read_directory_badge(folder) for what, folder in folders.items()}
    clouds = {what: badge.cloud for what, badge in badges.items() if badge is not None}
    if hosts and (cloud := cloud_in(path / FILE_NAME)):
        clouds[f"memory of the host in {path / FILE_NAME}"] = cloud
    if hosts and (path / hosts).exists():
        from kilonova.compute.drivers.shelf import clouds_of_hosts

        clouds |= {
            f"memory of {host} in {path / hosts}": cloud for host, cloud in clouds_of_hosts(path / hosts).items()
        }
    return clouds


def claim_directories(stores: OpenStores, data: DataDirectory, settings: Settings) -> str:
    """The directories of this data directory get their badges, or are refused; returns the id of its volumes."""
    from kilonova.store.badges import read_directory_badge

    badge = read_directory_badge(data.path / VOLUMES_NAME)
    # the records name it: a lost file must not make the volumes somebody else's
    backend = data.secret(BACKEND_NAME, (lambda: badge.store) if badge is not None else Uuids().uuid)
    stores.roll.claim_directory(data.path / VOLUMES_NAME, VOLUMES_NAME, backend, store=backend)
    # One for all APIs: one that does not see the cloud's images is refused, instead of failing half of all downloads.
    stores.roll.claim_directory(images_folder(settings, data.path), IMAGES_NAME, OF_THE_CLOUD)
    return backend


def claim_memory(stores: OpenStores, folder: Path) -> bool:
    """A directory that remembers marks: a conductor that starts notices restored databases before it has heard of any
    host. False: it cannot be written, and then the conductor works without one."""
    from kilonova.store.badges import DirectoryBadge, read_directory_badge, write_directory_badge

    try:
        badge = read_directory_badge(folder)
        if badge is None:
            badge = DirectoryBadge(cloud=stores.cloud, store=Uuids().uuid(), name=folder.name)
            write_directory_badge(folder, badge)
    except StoreError as why:
        logger.warning("the conductor cannot store marks: %s; give it a directory with --data", why)
        return False
    if badge.cloud != stores.cloud:
        text = f"conductor directory {folder}: it belongs to cloud {badge.cloud}, not to cloud {stores.cloud}"
        raise WrongStore(f"{text}; correct [database], or use another --data; nothing was changed")
    return True


@contextlib.asynccontextmanager
async def keeping_volumes(service: Service, path: Path, local: Sequence[str] = ()) -> AsyncIterator[None]:
    """While this lasts, the files of this data directory's volumes are made, copied and removed as records say, and
    served to hosts. `local`: hosts that are this machine."""
    from kilonova.services.volume.exports import Exports, Listening
    from kilonova.services.volume.files import Files
    from kilonova.store.modes import EXPORTS_NAME

    bus, options, parts = service.world.bus, service.world.settings.volume, service.volumes.parts
    limits = {"tasks": options.file_tasks, "seconds": options.file_task_timeout}
    files, listening = path / VOLUMES_NAME, Listening(options.target_ip_address, options.port_range, local)
    exports = Exports(parts.control, parts.seal, parts.backends.own, files, path / EXPORTS_NAME, listening)
    keeper = service.volumes.keeper(Files(files, service.reserve), service.images, exports, **limits)
    watching = [asyncio.create_task(one) for one in (service.reserve.watch(), exports.mind(service.reserve))]
    try:
        await keeper.start(bus)
        await service.volumes.contents.serve(bus)
        yield
    finally:
        for task in watching:
            task.cancel()
        await keeper.stop()


def make_world(bus: Bus, stores: Stores | None = None, **parts: Any) -> World:
    from kilonova.services.image.servers import ServerImages
    from kilonova.services.network.service import Networks
    from kilonova.services.network.wakeups import Wakeups
    from kilonova.world import World

    clock, ids = SystemClock(), Uuids()
    services: dict[str, Any] = {}
    if stores is not None:
        services = {
            "network": Networks(
                stores.control, clock, ids, wakeups=Wakeups(stores.control, bus, clock, stores.bus_prefix)
            ),
            "image": ServerImages(stores.control, clock),
        }
    return World(clock=clock, ids=ids, random=random.Random(), bus=bus, stores=stores, **services, **parts)


def limits_of(settings: Settings) -> Limits:
    from kilonova.engine.limits import Limits

    default, conducting = settings.default, settings.conductor
    return Limits(
        service_down_time=default.service_down_time,
        report_interval=default.report_interval,
        # What was heard must be known well within the time after which silence counts.
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
        target: Target = BusTarget(engine.world.bus, topics, answered_within=seconds if options.bus_answer else None)
    else:
        secret = read_secret(options.webhook_secret_file) if options.webhook_secret_file else b""
        target = Webhook(options.webhook_url, secret, ca_file=options.webhook_ca_file, seconds=options.webhook_timeout)
    rules = {"try_seconds": options.webhook_timeout, "retry_seconds": options.retry_seconds}
    return Sender(engine.world, engine.worker, target, **rules, most=options.max_queued)


def make_fence(settings: Settings, hardware: Hardware | None = None) -> Fence | None:
    """The operator's command; else the power switches of simulated hosts in this process."""
    if settings.ha.fence_command:
        from kilonova.ha.command import CommandFence

        return CommandFence(settings.ha.fence_command)
    if hardware is not None:
        from kilonova.compute.drivers.simulated import SimulatedFence

        return SimulatedFence(hardware)
    if settings.ha.automatic:
        text = "[ha] automatic = true needs fence_command: a host that may still run its servers is not evacuated"
        raise Refused("bad_configuration", text)
    return None


def make_reserve(world: World, settings: Settings, path: Path) -> DiskReserve:
    """Of the disks that this process writes to; databases of a fleet are on disks of their own."""
    from kilonova.store.reserve import DATABASES, IMAGES, MEBIBYTE, VOLUMES, DiskReserve

    folders = {IMAGES: images_folder(settings, path), VOLUMES: path / VOLUMES_NAME}
    if not settings.database.is_set:
        folders = {DATABASES: path, **folders}
    return DiskReserve(settings.default.disk_reserve_mb * MEBIBYTE, folders, world.free_bytes)


def _caps_of(settings: Settings) -> Caps:
    from kilonova.services.image.uploads import Caps

    options = settings.image
    return Caps(options.image_size_cap, options.virtual_size_cap, options.quota_bytes)


def _quota_of(settings: Settings) -> dict[str, int]:
    """By resource; one has another name in the configuration than in the API."""
    import msgspec

    limits: dict[str, int] = msgspec.structs.asdict(settings.quota)
    del limits["count_usage_from_placement"]
    limits["injected_file_path_bytes"] = limits.pop("injected_file_path_length")
    return limits


@contextlib.asynccontextmanager
async def open_all(
    settings: Settings,
    path: Path,
    *,
    embedded: bool,
    witnesses: Mapping[str, str] | None = None,
    data: DataDirectory | None = None,
    memory: Path | None = None,
) -> AsyncIterator[OpenStores]:
    """An embedded cloud brings them up to date itself, and may make new ones in its directory. `witnesses` say which
    cloud they belong to: directories and hosts. `data` is an api's: its directories, too, remember marks. `memory` is a
    directory of a conductor for nothing else."""
    from kilonova.cli.opening import address_opener, addresses
    from kilonova.store.marks import Marks, keep_marks
    from kilonova.store.open import open_stores

    stores = await open_stores(
        addresses(settings, path),
        path if embedded else None,
        address_opener(settings, path),
        new_id=Uuids().uuid,
        witnesses=witnesses,
        goes_on=not embedded,
        clock=SystemClock(),
        upgrading=embedded,
        cell_timeout=settings.database.cell_timeout,
    )
    keeping = None
    try:
        folders = []
        if data is not None:
            stores.backend = claim_directories(stores, data, settings)
            folders = [images_folder(settings, path), path / VOLUMES_NAME]
        if memory is not None and claim_memory(stores, memory):
            folders = [memory]
        grace = 0.0 if embedded else settings.default.service_down_time
        stores.marks = Marks(stores, SystemClock(), directories=folders, grace=grace)
        keeping = await keep_marks(stores.marks)
        yield stores
    finally:
        if keeping is not None:
            keeping.cancel()
        await stores.close()


@contextlib.asynccontextmanager
async def open_nats(settings: Settings, name: str) -> AsyncIterator[Bus]:
    from kilonova.bus.nats import NatsBus

    bus = NatsBus(settings.bus.url, name, prefix=settings.bus.prefix)
    try:
        await bus.start()
        yield bus
    finally:
        await bus.close()


def add_host(hardware: Hardware, host: str, settings: Settings) -> None:
    from kilonova.compute.drivers.board import Board
    from kilonova.compute.drivers.simulated import SAME_HOST

    shape = settings.simulated
    hardware.add_host(
        host,
        vcpus=shape.vcpus,
        memory_mb=shape.memory_mb,
        disk_gb=shape.disk_gb,
        shared_storage=shape.shared_storage,
        boot_seconds=shape.boot_seconds,
        copy_seconds=shape.copy_seconds,
        board=Board(shape.numa_nodes, shape.cpu_threads, shape.huge_pages, shape.pci),
        traits=[SAME_HOST] if shape.same_host_cold_migrate else [],
    )


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
