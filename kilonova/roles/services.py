"""The services behind the HTTP handlers, by the settings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kilonova.roles.stores import VOLUMES_NAME, images_folder, make_reserve
from kilonova.roles.wiring import make_volumes
from kilonova.runtime import new_key

if TYPE_CHECKING:
    from kilonova.api.service import Service
    from kilonova.engine.core import Engine
    from kilonova.engine.secrets import Seal
    from kilonova.policy.enforcer import Policy
    from kilonova.services.identity.service import Identity
    from kilonova.services.image.uploads import Caps
    from kilonova.settings import Settings
    from kilonova.store.open_stores import OpenStores
    from kilonova.world import Clock, Ids, Store

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
    """Return the services of the HTTP handlers; the embedded ones store their records in control. `backend`: the id of
    this data directory's volumes."""
    from kilonova.api.consoles.meeting import ConsoleMeeting
    from kilonova.api.service import Service
    from kilonova.quota.resources import default_limits
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
    from kilonova.store.open_stores import OpenStores

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
        volumes=make_volumes(world, engine.seal, backend),
        flavors=Flavors(*parts),
        aggregates=Aggregates(*parts),
        zones=AggregateBook(world.db.control, settings.default.default_availability_zone),
        keypairs=Keypairs(world.db.control, world.clock),
        server_groups=ServerGroups(*parts),
        cells=Cells(stores, world.clock, world.ids, world.bus, engine.seal, settings.database.spare),
        quotas=Quotas(world.db.control, default_limits(settings.quota)),
        policy=policy,
        public_url=url,
        unready=unready,
        consoles=ConsoleMeeting(world, settings.console, url),
        pci_aliases=settings.pci.alias,
        reserve=reserve,
    )


def make_policy(path: Path) -> Policy:
    """Load the policy before anything is started, so that an invalid policy.yaml is the only error shown."""
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


def _caps_of(settings: Settings) -> Caps:
    from kilonova.services.image.uploads import Caps

    options = settings.image
    return Caps(options.image_size_cap, options.virtual_size_cap, options.quota_bytes)


def stores_of(service: Service) -> OpenStores:
    from kilonova.store.open_stores import OpenStores

    stores = service.engine.world.db
    assert isinstance(stores, OpenStores)
    return stores


@contextlib.asynccontextmanager
async def keeping_volumes(service: Service, path: Path, local: Sequence[str] = ()) -> AsyncIterator[None]:
    """Run the volume worker and the exports of this data directory within the context. `local`: hosts that are this
    machine."""
    from kilonova.services.volume.export_files import Listening
    from kilonova.services.volume.exports import Exports
    from kilonova.services.volume.files import VolumeFiles
    from kilonova.store.modes import EXPORTS_NAME

    bus, options, context = service.world.bus, service.world.settings.volume, service.volumes.context
    files, listening = path / VOLUMES_NAME, Listening(options.target_ip_address, options.port_range, local)
    exports = Exports(context.control, context.seal, context.backends.own, files, path / EXPORTS_NAME, listening)
    worker = service.volumes.worker(VolumeFiles(files, service.reserve), service.images, exports, options)
    watching = [asyncio.create_task(one) for one in (service.reserve.watch(), exports.mind(service.reserve))]
    try:
        await worker.start(bus)
        await service.volumes.contents.serve(bus)
        yield
    finally:
        for task in watching:
            task.cancel()
        await worker.stop()
