"""The initial content of a cloud: users, cells, flavors, images, networks, volume types; seeded once.

Safe to kill at any moment: the password of a first user is in its file before the transaction that seeds identity, so
the next start finds it there and uses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kilonova.domain.errors import StoreError
from kilonova.roles.services import stores_of
from kilonova.runtime import new_password
from kilonova.store.clouds import CLOUDS, CLOUDS_NAME, read_account
from kilonova.store.data_directory import DataDirectory, read_secret

if TYPE_CHECKING:
    from kilonova.api.service import Service
    from kilonova.services.identity.service import Identity
    from kilonova.settings import Settings

ADMIN, DEMO = "admin", "demo"
PASSWORD_NAMES = {user: f"{user}.password" for user in (ADMIN, DEMO)}


async def prepare(service: Service, data: DataDirectory, settings: Settings) -> None:
    """Seed the missing records. While the stores are halted, wait."""
    stores = stores_of(service)
    if stores.halted:
        stores.marks.on_resume.append(partial(prepare, service, data, settings))
        return
    from kilonova.services.identity.seed import admin_project

    given = settings.identity.admin_password_file
    await seed_identity(service.identity, data, admin_password_file=given)
    await service.cells.prepare()
    await service.flavors.prepare()
    owner = await admin_project(service.engine.world.db.control)
    await service.images.prepare(owner=owner, guest_image=settings.libvirt.default_image)
    await service.networks.prepare(owner=owner)
    await service.volumes.prepare()


async def seed_identity(identity: Identity, data: DataDirectory, *, admin_password_file: str) -> None:
    """Seed identity unless that is done, by this process or another."""
    from kilonova.services.identity.seed import FirstCloud

    if await identity.is_prepared():
        await identity.prepare()
        return
    if admin_password_file:
        admin = read_secret(Path(admin_password_file))
    else:
        admin = data.secret(PASSWORD_NAMES[ADMIN], new_password)
    demo = data.secret(PASSWORD_NAMES[DEMO], new_password)
    await identity.prepare(FirstCloud(admin_password=admin, demo_password=demo))


async def known_passwords(identity: Identity, directory: Path, *, admin_password_file: str) -> dict[str, str]:
    """Return the valid passwords known here, by user: another api process may have seeded, or one was changed."""
    from kilonova.services.identity.login import Which
    from kilonova.services.identity.projects import DEFAULT_DOMAIN

    async def right_one(cloud: str, user: str) -> str | None:
        for password in _candidates(directory, cloud, user, admin_password_file):
            if await identity.is_password(Which(name=user, domain_id=DEFAULT_DOMAIN), password):
                return password
        return None

    passwords = await asyncio.gather(*(right_one(cloud, user) for cloud, user in CLOUDS.items()))
    return {user: password for user, password in zip(CLOUDS.values(), passwords, strict=True) if password is not None}


def _candidates(directory: Path, cloud: str, user: str, admin_password_file: str) -> Iterator[str]:
    """Yield the possible passwords. One that was changed since the first start is in clouds.yaml, perhaps."""
    is_given = bool(admin_password_file) and user == ADMIN
    tried = ""
    try:
        tried = read_secret(Path(admin_password_file) if is_given else directory / PASSWORD_NAMES[user])
        yield tried
    except StoreError:
        pass
    try:
        account = read_account(directory / CLOUDS_NAME, cloud)
    except StoreError:
        return
    if account.username == user and account.password != tried:
        yield account.password
