"""The databases and directories of a process, opened and checked: they must belong to one cloud."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kilonova.domain.errors import StoreError, WrongStore
from kilonova.runtime import SystemClock, Uuids

if TYPE_CHECKING:
    from kilonova.settings import Settings
    from kilonova.store.data_directory import DataDirectory
    from kilonova.store.open_stores import OpenStores
    from kilonova.store.reserve import DiskReserve
    from kilonova.world import World

IMAGES_NAME = "images"
VOLUMES_NAME = "volumes"
CONDUCTOR_NAME = "conductor"  # its memory of marks
OF_THE_CLOUD = "of the cloud"  # the owner of a directory that every API has
BACKEND_NAME = "volumes.id"
MACHINES_NAME = "simulated.db"
logger = logging.getLogger(__name__)


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
    """Open all stores. An embedded cloud upgrades them itself, and may create new ones in its directory.

    `witnesses`: directories and hosts with the clouds they belong to. `data`: the data directory of an API, which
    remembers marks too. `memory`: the directory of a conductor, which only remembers marks.
    """
    from kilonova.cli.opening import address_opener, addresses
    from kilonova.store.marks import Marks, keep_marks
    from kilonova.store.open_stores import open_stores

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


def clouds_of(path: Path, settings: Settings, *, hosts: str = "") -> dict[str, str]:
    """Return the clouds that the directories of this data directory belong to, and the simulated hosts in the file
    `hosts`.

    New ones are left out. Nothing is changed.
    """
    from kilonova.compute.memory import FILE_NAME, cloud_in
    from kilonova.store.badges import read_directory_badge

    directories = {IMAGES_NAME: images_folder(settings, path), VOLUMES_NAME: path / VOLUMES_NAME}
    folders = {f"{name} directory {directory}": directory for name, directory in directories.items()}
    badges = {what: read_directory_badge(folder) for what, folder in folders.items()}
    clouds = {what: badge.cloud for what, badge in badges.items() if badge is not None}
    if hosts and (cloud := cloud_in(path / FILE_NAME)):
        clouds[f"memory of the host in {path / FILE_NAME}"] = cloud
    if hosts and (path / hosts).exists():
        from kilonova.compute.drivers.simulated.state_file import clouds_of_hosts

        clouds |= {
            f"memory of {host} in {path / hosts}": cloud for host, cloud in clouds_of_hosts(path / hosts).items()
        }
    return clouds


def claim_directories(stores: OpenStores, data: DataDirectory, settings: Settings) -> str:
    """Give the directories of this data directory their badges, or refuse them. Return the id of its volumes."""
    from kilonova.store.badges import read_directory_badge

    badge = read_directory_badge(data.path / VOLUMES_NAME)
    # the records name it: after a lost file the volumes must have the same backend
    backend = data.secret(BACKEND_NAME, (lambda: badge.store) if badge is not None else Uuids().uuid)
    stores.roll.claim_directory(data.path / VOLUMES_NAME, VOLUMES_NAME, backend, store=backend)
    # One for all APIs: one that does not see the cloud's images is refused, instead of failing half of all downloads.
    stores.roll.claim_directory(images_folder(settings, data.path), IMAGES_NAME, OF_THE_CLOUD)
    return backend


def claim_memory(stores: OpenStores, folder: Path) -> bool:
    """Claim a directory that remembers marks, so that a conductor that starts notices restored databases before any
    host reports. Return False if it cannot be written; the conductor then works without one."""
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


def images_folder(settings: Settings, path: Path) -> Path:
    """Return the folder of images: one for the whole cloud, the same for every API."""
    named = settings.image.filesystem_store_datadir
    return Path(named) if named else path / IMAGES_NAME


def make_reserve(world: World, settings: Settings, path: Path) -> DiskReserve:
    """Return the reserve of the disks that this process writes to; databases of a fleet are on other disks."""
    from kilonova.store.reserve import DATABASES, IMAGES, MEBIBYTE, VOLUMES, DiskReserve

    folders = {IMAGES: images_folder(settings, path), VOLUMES: path / VOLUMES_NAME}
    if not settings.database.is_set:
        folders = {DATABASES: path, **folders}
    return DiskReserve(settings.default.disk_reserve_mb * MEBIBYTE, folders, world.free_bytes)
