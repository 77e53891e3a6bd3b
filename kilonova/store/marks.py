"""Marks, by which a cloud notices that an older copy of a database was restored (law 15).

Each database has a mark that only grows. Each process that has written there raises it, a few seconds later and in a
separate transaction, so an operation pays nothing for it. Its peers keep the highest committed mark that they saw: the
other databases, the directories of the api, the memories of hosts. A database that is behind what a peer saw is
*restored*; then nothing is written anywhere until `kilonova db restored` begins a new era.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from sqlalchemy import and_, bindparam, func, or_, select, update

from kilonova.domain.errors import Halted, KilonovaError, StoreError, Unreachable
from kilonova.schema.tables.cell import hosts
from kilonova.schema.tables.stores import known_stores, this_store
from kilonova.store import rows
from kilonova.store.badges import (
    Badge,
    PeerStore,
    Sighting,
    read_badge,
    read_directory_badge,
    read_known,
    write_directory_badge,
)
from kilonova.store.halting import about_the_halt
from kilonova.store.open_stores import OpenStores
from kilonova.store.orphan_files import keep_longer
from kilonova.store.roll import NEVER
from kilonova.store.statements import Sql
from kilonova.world import Body, Clock, Store, Tx

T = TypeVar("T")
logger = logging.getLogger(__name__)
SECONDS = 5.0  # between two looks
_HOSTS = Sql(select(func.count().label("count")).select_from(hosts))
COMMAND = "look at `kilonova db check`, then run `kilonova db restored`"
_RAISE = Sql(update(this_store).where(this_store.c.restored == "").values(mark=this_store.c.mark + 1))
_ERA: Any = bindparam("era")
_MARK: Any = bindparam("mark")
_LATER = or_(known_stores.c.era < _ERA, and_(known_stores.c.era == _ERA, known_stores.c.mark < _MARK))
_NOTE = Sql(
    update(known_stores)
    .where(known_stores.c.name == bindparam("key"), _LATER)
    .values(store_id=bindparam("store"), era=_ERA, mark=_MARK)  # a lost cell's place is taken by another store
)


def note_upkeep(store: Store) -> None:
    """Note that the transaction just committed changed nothing that a backup would miss."""
    stats = getattr(store, "stats", None)
    if stats is not None:
        stats.upkeep += 1


@dataclass
class Marks:
    stores: OpenStores
    clock: Clock
    badges: dict[str, Badge] = field(default_factory=dict)  # by database, as read last
    directories: list[Path] = field(default_factory=list)
    grace: float = 0.0  # seconds before the first mark is raised: hosts report first
    began: float = 0.0
    on_resume: list[Callable[[], Awaitable[None]]] = field(default_factory=list)  # tasks left out by a halted start
    _written: dict[str, int] = field(default_factory=dict)  # by database: transactions when its mark was raised last
    _behind: dict[str, set[str]] = field(default_factory=dict)  # by database: hosts that saw a later mark
    _flagged: dict[str, Sighting] = field(default_factory=dict)  # by database: how far it was seen, as recorded there

    @property
    def halted(self) -> str:
        return self.stores.halted

    # -- looking ------------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Check the marks for ever, and raise those of databases that were written to."""
        while True:
            await self.clock.sleep(SECONDS)
            try:
                await self.look()
            except StoreError as why:
                logger.debug("marks: %s", why)
            except Exception:  # of any kind: if this stopped, a restored database would not be noticed
                logger.exception("marks cannot be kept; they are looked at again in %d s", SECONDS)

    async def look(self) -> None:
        if not self.stores.cloud:
            return
        seen = await self._sightings()
        self.badges = await self._read(read_badge)  # after the sightings: those are then committed marks of the past
        behind = {name: later for name in self.badges if (later := self._behind_of(name, seen))}
        restored = {name: badge.restored for name, badge in self.badges.items() if badge.restored}
        restored |= {name: _sentence(name, self.badges[name], *later) for name, later in behind.items()}
        for name, (_, sighting) in behind.items():
            await self._flag(name, restored[name], sighting)
        self._halt(restored)
        if not restored:
            if asyncio.get_running_loop().time() - self.began >= self.grace:
                await self._raise_marks()
                self._note_in_directories()
            await self._resume()

    async def _sightings(self) -> dict[str, dict[str, PeerStore]]:
        """Return what each peer saw, by database."""
        seen: dict[str, dict[str, PeerStore]] = dict(await self._read(read_known))
        for folder in self.directories:
            badge = read_directory_badge(folder)
            if badge is not None:
                seen[f"{badge.name} directory"] = {
                    name: PeerStore("", sighting) for name, sighting in badge.seen.items()
                }
        return seen

    async def _read(self, body: Body[T | None]) -> dict[str, T]:
        values: dict[str, T] = {}
        for name, store in self._stores():
            try:
                value = await store.read(body)
            except Unreachable:
                continue
            if value is not None:
                values[name] = value
        return values

    def _stores(self) -> list[tuple[str, Store]]:
        cells = [(name, self.stores.cell(name)) for name in self.stores.cells()]
        return [("control", self.stores.control), ("placement", self.stores.placement), *cells]

    def _behind_of(self, name: str, seen: Mapping[str, Mapping[str, PeerStore]]) -> tuple[str, Sighting] | None:
        """Return the peer that saw the latest mark beyond this one, with that mark; None if none did."""
        badge, latest = self.badges[name], None
        for who, known in seen.items():
            other = known.get(name)
            if other is not None and other.store in ("", badge.store) and other.seen > badge.reached:
                latest = (who, other.seen) if latest is None or other.seen > latest[1] else latest
        return latest

    # -- halting ------------------------------------------------------------------------------------------------

    async def _flag(self, name: str, why: str, seen: Sighting) -> None:
        """Flag the database itself as restored, for every process.

        Also record the highest mark seen, even by witnesses that come later during the halt: the new era must be above
        that.
        """
        if seen <= self._flagged.get(name, NEVER):
            return
        badge = msgspec.structs.replace(self.badges[name], era=seen.era, mark=seen.mark)

        async def body(tx: Tx) -> None:
            await rows.change(tx, this_store, {"restored": why}, id=1, restored="")
            await _note(tx, name, badge)

        with about_the_halt():
            await dict(self._stores())[name].write(body)
        self._flagged[name] = seen

    def _halt(self, restored: Mapping[str, str]) -> None:
        why = "; ".join(restored.values())
        if why and not self.halted:
            logger.error("%s; nothing is changed until an operator decides: %s", why, COMMAND)
        elif self.halted and not why:
            logger.warning("databases: a new era has begun; work continues")
            self._behind.clear()
            self._flagged.clear()
        self.stores.halt(f"{why}; {COMMAND}" if why else "")

    async def _resume(self) -> None:
        while self.on_resume:
            await self.on_resume.pop(0)()

    # -- raising ------------------------------------------------------------------------------------------------

    async def _raise_marks(self) -> None:
        for name, store in self._stores():
            if name in self.badges:
                try:
                    await self._raise_mark(name, store)
                except Unreachable as why:
                    logger.debug("mark of %s: %s", name, why)

    async def _raise_mark(self, name: str, store: Store) -> None:
        written = _transactions(store)
        is_changed = self._written.get(name) != written
        peers = self._peers_of(name)

        async def body(tx: Tx) -> Badge | None:
            known = await read_known(tx)
            later = {peer: badge for peer, badge in peers.items() if _is_news(known.get(peer), badge)}
            for peer, badge in later.items():
                await _note(tx, peer, badge)
            if is_changed:
                await tx.run(_RAISE)
            return await read_badge(tx)

        if is_changed or await self._has_news(store, peers):
            badge = await store.write(body)
            note_upkeep(store)
            if badge is not None:
                self.badges[name] = badge
        self._written[name] = written

    def _peers_of(self, name: str) -> dict[str, Badge]:
        """Return the peers that a database remembers: control and placement all databases, a cell only these two."""
        keeps_all = name in ("control", "placement")
        return {
            peer: badge
            for peer, badge in self.badges.items()
            if peer != name and (keeps_all or peer in ("control", "placement"))
        }

    async def _has_news(self, store: Store, peers: Mapping[str, Badge]) -> bool:
        known = await store.read(read_known)
        return any(_is_news(known.get(peer), badge) for peer, badge in peers.items())

    def _note_in_directories(self) -> None:
        seen = {name: badge.reached for name, badge in self.badges.items()}
        for folder in self.directories:
            badge = read_directory_badge(folder)
            if badge is None:
                continue
            era = self.badges["control"].era if "control" in self.badges else badge.era  # it may be away
            if badge.era < era:
                keep_longer(folder, self.clock.now())
            merged = {name: max(sighting, badge.seen.get(name, sighting)) for name, sighting in seen.items()}
            if (era, merged) != (badge.era, badge.seen):
                write_directory_badge(folder, msgspec.structs.replace(badge, era=era, seen={**badge.seen, **merged}))

    # -- hosts --------------------------------------------------------------------------------------------------

    def sightings_for(self, cell: str) -> dict[str, Sighting]:
        """Return the marks that a host of this cell shall remember."""
        return {name: self.badges[name].reached for name in ("control", "placement", cell) if name in self.badges}

    async def hear(self, host: str, cell: str, seen: Mapping[str, Sighting]) -> None:
        """Raise `Halted` when the host saw a later mark.

        Two hosts, or the only one, prove that a database was restored. The report of one host concerns its own servers,
        so only that host has to wait.
        """
        refused = [await self._hear_of(name, sighting, host, cell) for name, sighting in seen.items()]
        for why in refused:
            if why:
                raise Halted(f"{why}; {COMMAND}")

    async def _hear_of(self, name: str, sighting: Sighting, host: str, cell: str) -> str:
        """Return why the host has to wait; "" if it has seen no later mark of this database."""
        badge = self.badges.get(name)
        if badge is None or sighting <= badge.reached:
            return ""
        if sighting <= self._flagged.get(name, NEVER):  # recorded, and all hosts that saw it say so at every heartbeat
            return _sentence(name, badge, host, sighting)
        badge = self.badges[name] = await self._badge_now(name) or badge
        if sighting <= badge.reached:
            return ""
        witnesses = self._behind.setdefault(name, set())
        witnesses.add(host)
        why = _sentence(name, badge, " and ".join(sorted(witnesses)[:2]), sighting)
        if len(witnesses) >= min(2, await self._count_hosts(cell)):
            await self._flag(name, why, sighting)
            if not self.halted:
                self._halt({name: why})
        return why

    async def _badge_now(self, name: str) -> Badge | None:
        return await dict(self._stores())[name].read(read_badge)

    async def _count_hosts(self, cell: str) -> int:
        """Count the hosts of the cell; of all cells for a host that has not said which one is its own."""

        async def body(tx: Tx) -> int:
            row = await tx.one(_HOSTS)
            assert row is not None
            return int(row["count"])

        names = [cell] if cell else self.stores.cells()
        return max(1, sum([await self.stores.cell(name).read(body) for name in names]))


def _sentence(name: str, badge: Badge, who: str, seen: Sighting) -> str:
    return (
        f"{name} database: it was restored from an older copy: it is at mark {badge.era}.{badge.mark}, "
        f"and {who} saw {seen.era}.{seen.mark}"
    )


def _transactions(store: Store) -> int:
    stats: Any = getattr(store, "stats", None)
    return stats.transactions - stats.upkeep if stats is not None else 0


def _is_news(known: PeerStore | None, badge: Badge) -> bool:
    return known is None or known.store != badge.store or known.seen < badge.reached


async def _note(tx: Tx, name: str, badge: Badge) -> None:
    if not await tx.run(_NOTE, key=name, store=badge.store, era=badge.era, mark=badge.mark):
        values = {"name": name, "store_id": badge.store, "era": badge.era, "mark": badge.mark}
        await rows.put(tx, known_stores, unless_there=True, **values)


async def keep_marks(marks: Marks) -> asyncio.Task[None]:
    """Look once now, before anything is written, and from then on in a task."""
    marks.began = asyncio.get_running_loop().time()
    try:
        await marks.look()
    except KilonovaError as why:
        logger.warning("marks: %s", why)
    return asyncio.create_task(marks.keep())
