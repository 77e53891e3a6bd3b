"""The stores of this cloud: control lists them, each has a badge, and a store that does not match is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kilonova.domain.errors import Unreachable, WrongStore
from kilonova.store.badges import (
    Badge,
    DirectoryBadge,
    PeerStore,
    Sighting,
    StoreIdentity,
    list_store,
    look_at,
    read_badge,
    read_directory_badge,
    read_known,
    stamp,
    write_directory_badge,
)
from kilonova.world import Store, Tx

CONTROL = "control"
NEVER = Sighting(0, 0)
NewId = Callable[[], str]
NOTHING_CHANGED = "nothing was changed"


@dataclass
class Roll:
    cloud: str = ""  # "": these databases have no badges, as in a simulated cloud
    known: dict[str, PeerStore] = field(default_factory=dict)  # by name, as control lists them
    new_id: NewId | None = None  # with it new stores get their badges
    unlisted: dict[str, str] = field(default_factory=dict)  # by name: stores that control does not list yet
    connecting: dict[str, float] = field(default_factory=dict)

    async def check(self, name: str, url: str) -> None:
        """Look at a database before it is opened. Raise WrongStore, with nothing changed, or Unreachable."""
        if self.cloud:
            self.judge(name, await look_at(url, name, **self.connecting))

    async def check_open(self, name: str, store: Store) -> None:
        """Check the badge of an open database: it may have been replaced since."""
        if self.cloud:
            self.judge(name, StoreIdentity(f"database {name}", await store.read(read_badge)))

    def judge(self, name: str, look: StoreIdentity) -> None:
        badge, expected = look.badge, self.known.get(name)
        what = f"{name} database {look.where}"
        if badge is None:
            if expected is not None:
                raise WrongStore(
                    f"{what}: it is empty (store none), but cloud {self.cloud} knows {name} as store {expected.store}; "
                    f"put it back from a backup or correct its address{_without_backup(name)}; {NOTHING_CHANGED}"
                )
            return
        if badge.cloud != self.cloud:
            raise WrongStore(
                f"{what}: it belongs to cloud {badge.cloud}, not to cloud {self.cloud}; "
                f"correct its address or put the right database there; {NOTHING_CHANGED}"
            )
        if expected is not None and badge.store != expected.store:
            raise WrongStore(
                f"{what}: it is store {badge.store} ({badge.name}), but cloud {self.cloud} knows {name} as store "
                f"{expected.store}; correct its address or put the right database there; {NOTHING_CHANGED}"
            )

    async def claim(self, name: str, store: Store) -> None:
        """Give a new database its badge. Control lists it afterwards (`list_all`), never before it has one."""
        if not self.cloud or self.new_id is None:
            return
        badge = await store.read(read_badge) or await stamp(
            store, Badge(cloud=self.cloud, store=self.new_id(), name=name)
        )
        self.judge(name, StoreIdentity(f"database {name}", badge))
        if name not in self.known:
            self.unlisted[name] = badge.store

    async def list_all(self, control: Store) -> None:
        if not self.unlisted:
            return

        async def body(tx: Tx) -> dict[str, PeerStore]:
            for name, store in self.unlisted.items():
                await list_store(tx, name, store, NEVER)
            return await read_known(tx)

        self.known = await control.write(body)
        self.unlisted = {}

    # -- directories --------------------------------------------------------------------------------------------

    def claim_directory(self, folder: Path, name: str, owner: str, store: str = "") -> None:
        """Give a new directory its badge. Refuse another cloud's, or a directory without the expected badge.

        `owner` is the data directory's id; `store` its id, else a new one.
        """
        if not self.cloud or self.new_id is None:
            return
        badge, expected = read_directory_badge(folder), self.known.get(f"{name} {owner}")
        what = f"{name} directory {folder}"
        if badge is None:
            if expected is not None:
                raise WrongStore(
                    f"{what}: it is empty (store none), but cloud {self.cloud} knows it as store {expected.store}; "
                    f"mount it or put it back from a backup; {NOTHING_CHANGED}"
                )
            badge = DirectoryBadge(cloud=self.cloud, store=store or self.new_id(), name=name)
            write_directory_badge(folder, badge)
        wanted = store or (expected.store if expected is not None else badge.store)
        if badge.cloud != self.cloud or badge.store != wanted:
            raise WrongStore(
                f"{what}: it is store {badge.store} of cloud {badge.cloud}, but cloud {self.cloud} has store {wanted} "
                f"there; put the right directory there; {NOTHING_CHANGED}"
            )
        if expected is None:
            self.unlisted[f"{name} {owner}"] = badge.store


def _without_backup(name: str) -> str:
    """Return the advice for a lost database without a backup. Only a cell can be created again, from control, placement
    and hosts."""
    return "" if name in (CONTROL, "placement") else f", or, without a backup: kilonova db lost {name} --reason TEXT"


async def call_roll(
    urls: Mapping[str, str],
    witnesses: Mapping[str, str],
    *,
    new_id: NewId | None,
    may_begin: bool,
    **connecting: Any,
) -> Roll:
    """Read what control says and compare it with what others say of it. `witnesses` are directories and hosts, with
    their clouds. Raise WrongStore, with nothing changed."""
    look = await look_at(urls[CONTROL], CONTROL, **connecting)
    if look.badge is not None:
        _refuse_other_cloud(look, look.badge, witnesses)
        return Roll(look.badge.cloud, dict(look.known), new_id, connecting=connecting)
    if new_id is None:
        return Roll()
    said = {**await _said_by_databases(urls, **connecting), **witnesses}
    cloud = new_id()
    if said:
        raise WrongStore(
            f"control database {look.where}: it is new and would begin cloud {cloud}, but {_clouds(said)}; "
            f"put the control database back from a backup, or use an empty data directory; {NOTHING_CHANGED}"
        )
    if not may_begin:
        raise WrongStore(f"control database {look.where}: it belongs to no cloud yet; run `kilonova db upgrade`")
    return Roll(cloud, {}, new_id, connecting=connecting)


def _refuse_other_cloud(look: StoreIdentity, badge: Badge, witnesses: Mapping[str, str]) -> None:
    others = {what: cloud for what, cloud in witnesses.items() if cloud != badge.cloud}
    if others:
        raise WrongStore(
            f"control database {look.where}: it belongs to cloud {badge.cloud}, but {_clouds(others)}; correct "
            f"the address of the databases or use the data directory of that cloud; {NOTHING_CHANGED}"
        )


async def _said_by_databases(urls: Mapping[str, str], **connecting: Any) -> dict[str, str]:
    said = {}
    for name, url in urls.items():
        try:
            badge = (await look_at(url, name, **connecting)).badge
        except Unreachable:
            continue
        if badge is not None:
            said[f"{name} database"] = badge.cloud
    return said


def _clouds(said: Mapping[str, str]) -> str:
    """`placement database, cell0 database and 3 more belong to cloud X`."""
    clouds: dict[str, list[str]] = {}
    for what, cloud in said.items():
        clouds.setdefault(cloud, []).append(what)
    return " and ".join(f"{_some(names)} belong to cloud {cloud}" for cloud, names in clouds.items())


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
