"""The cells of a cloud: rows of control, including those of the configuration.

A new cell gets an empty database. Every running process uses it without a restart.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Protocol

import msgspec
from sqlalchemy import func, select

from kilonova.bus import CELLS_CHANGED
from kilonova.domain.errors import KilonovaError, Refused, StoreError, Unreachable
from kilonova.schema.tables.control import cells, host_mappings, server_mappings
from kilonova.schema.tables.stores import known_stores
from kilonova.store import rows
from kilonova.store.badges import list_store
from kilonova.store.open_stores import CELL0, OpenStores, file_url
from kilonova.store.roll import NEVER
from kilonova.store.statements import Sql
from kilonova.store.upgrade import upgrade
from kilonova.store.url import parse_url
from kilonova.store.vacancy import refuse_unless_vacant
from kilonova.world import Bus, Clock, Ids, Row, Stores, Tx

logger = logging.getLogger(__name__)
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,61}")
PREFIX = re.compile(r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)?")
TAKEN = ("control", "placement", CELL0)  # names of other databases
_ALL = Sql(select(cells).order_by(cells.c.name))
_HOSTS = Sql(select(host_mappings.c.cell, func.count().label("n")).group_by(host_mappings.c.cell))
_SERVERS = Sql(
    select(server_mappings.c.cell, func.count().label("n"))
    .where(server_mappings.c.queued_for_delete == 0)
    .group_by(server_mappings.c.cell)
)


async def keep_cell(tx: Tx, stores: Stores, name: str) -> None:
    """Keep the cell from being deleted before this transaction of control ends. Raise `Refused` if it is deleted
    already."""
    if await rows.fetch(tx, cells, lock=True, name=name) is None and stores.may_go(name):
        raise Refused(
            "no_such_cell", f"cell {name}: it was deleted concurrently; `kilonova cell list` shows the others"
        )


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    id: str
    database: str  # without its password
    bus_prefix: str
    disabled: bool
    configured: bool  # its address is in the configuration, or it belongs to the simulated cloud
    hosts: int
    servers: int
    reachable: bool
    away_since: float | None
    away_because: str | None
    created_at: float


class TextSealer(Protocol):
    def close_text(self, text: str) -> str: ...


@dataclass
class Cells:
    stores: OpenStores
    clock: Clock
    ids: Ids
    bus: Bus
    seal: TextSealer
    spare: Mapping[str, str] = field(default_factory=dict)  # addresses that new cells may be given, by name

    async def prepare(self) -> None:
        """Add rows for the cells of the configuration; they may be new."""
        for name in self.stores.cells():
            await self._put(name, "", "")
        await self.stores.learn()

    async def _put(self, name: str, url: str, prefix: str, store: str = "") -> None:
        sealed = self.seal.close_text(url) if url else ""
        values = {"name": name, "id": self.ids.uuid(), "sealed_url": sealed, "bus_prefix": prefix}
        now = self.clock.now()

        async def body(tx: Tx) -> None:
            await rows.put(tx, cells, unless_there=True, **values, disabled=0, created_at=now)
            if store:
                await list_store(tx, name, store, NEVER)

        await self.stores.control.write(body)

    async def keep_learning(self, seconds: float) -> None:
        """Read the cells for ever: on each wake-up, and periodically, because a wake-up may get lost."""

        async def on_change(message: bytes) -> bytes:
            await self.stores.learn()
            return b""

        await self.bus.serve(CELLS_CHANGED, on_change)
        while True:
            await self.clock.sleep(seconds)
            try:
                await self.stores.learn()
            except KilonovaError as error:
                logger.warning("the cells could not be read: %s", error)

    # -- reading ------------------------------------------------------------------------------------------------

    async def all(self) -> list[Cell]:
        """Return the cells by name, cell0 first. The counts come from control, so cells that do not answer have them
        too."""

        async def body(tx: Tx) -> tuple[list[Row], dict[str, int], dict[str, int]]:
            hosts = {row["cell"]: row["n"] for row in await tx.all(_HOSTS)}
            servers = {row["cell"]: row["n"] for row in await tx.all(_SERVERS)}
            return list(await tx.all(_ALL)), hosts, servers

        cell_rows, hosts, servers = await self.stores.control.read(body)
        records = [self._record(row, hosts.get(row["name"], 0), servers.get(row["name"], 0)) for row in cell_rows]
        return sorted(records, key=lambda cell: (cell.name != CELL0, cell.name))

    async def find(self, name: str) -> Cell:
        for cell in await self.all():
            if cell.name == name:
                return cell
        raise Refused("not_found", f"cell {name[:80]}: not found; `kilonova cell list` shows them")

    def _record(self, row: Row, hosts: int, servers: int) -> Cell:
        name = row["name"]
        is_open = name in self.stores.cells()
        outage = self.stores.outage(name) if is_open else None
        return Cell(
            name=name,
            id=row["id"],
            database=str(parse_url(self.stores.address(name))) if is_open else "",
            bus_prefix=row["bus_prefix"],
            disabled=bool(row["disabled"]),
            configured=self.stores.is_configured(name),
            hosts=hosts,
            servers=servers,
            reachable=is_open and outage is None,
            away_since=None if outage is None else outage.since,
            away_because=None if outage is None else outage.why,
            created_at=row["created_at"],
        )

    # -- changing -----------------------------------------------------------------------------------------------

    async def create(self, name: str, database: str = "", prefix: str = "") -> Cell:
        """Create a cell. `database` is a name in the configuration: callers must not make this process open any file or
        connect anywhere. An empty database gets its tables first; if this is interrupted it is still empty, so the call
        can be repeated."""
        await self.stores.learn()
        self._check_names(name, prefix)
        url = self._spare(database)
        address = url or file_url(self.stores.directory or Path(), name)
        self._check_is_nobodys(address)
        try:
            await refuse_unless_vacant(name, address, self.clock)
            await self.stores.roll.check(name, address)  # before anything is written there
            await upgrade(address, "cell")
            store = await self.stores.claim_cell(name, address, self.clock)
        except Unreachable as why:
            raise Refused("cell_unreachable", f"{why}; start its server or correct the address, then retry") from None
        except StoreError as why:
            raise Refused("cell_database", str(why)) from None
        await self._put(name, url, prefix, store)
        await self._publish()
        return await self.find(name)

    def _spare(self, database: str) -> str:
        """Return the address of an unused database; if `database` is empty, of a file in the data directory with the
        cell's name."""
        if database in self.spare:
            return self.spare[database]
        known = f"it has {', '.join(sorted(self.spare))}" if self.spare else "it is empty"
        if database:
            close = get_close_matches(database[:80], list(self.spare), n=1)
            meant = f" (did you mean {close[0]}?)" if close else ""
            text = f"database {database.partition('://')[0][:80]!r}{meant}: no such name in [database.spare]; {known}"
            raise Refused("bad_request", text)
        if self.stores.directory is None:
            text = f"a cell of a fleet needs --database NAME, a name of [database.spare]; {known}"
            raise Refused("bad_request", text)
        return ""

    def _check_names(self, name: str, prefix: str) -> None:
        if not NAME.fullmatch(name):
            text = f"{name[:80]!r} is not a valid cell name; use lower-case letters, digits, - and _, at most 62"
            raise Refused("bad_request", text)
        if not PREFIX.fullmatch(prefix):
            raise Refused(
                "bad_request",
                f"{prefix[:80]!r} is not a valid bus prefix; use words of letters, digits, - and _, separated by dots",
            )
        if name in TAKEN or name in self.stores.cells():
            raise Refused("exists", f"cell {name}: a cell or database of this name exists; choose another name")

    def _check_is_nobodys(self, address: str) -> None:
        try:
            database = parse_url(address)
        except StoreError as why:
            raise Refused("bad_request", str(why)) from None
        for other in self.stores.databases():
            if parse_url(self.stores.address(other)) == database:
                raise Refused("cell_database", f"{database} is the database of {other}; a cell needs its own database")

    async def set_disabled(self, name: str, disabled: bool) -> Cell:
        """Disable or enable a cell. A disabled cell takes no new servers; its existing servers go on."""
        await self.find(name)
        if name == CELL0:
            raise Refused("bad_request", f"{CELL0}: it has no hosts and cannot be disabled")

        async def body(tx: Tx) -> None:
            await rows.change(tx, cells, {"disabled": int(disabled)}, name=name)

        await self.stores.control.write(body)
        await self._publish()
        return await self.find(name)

    async def delete(self, name: str) -> Cell:
        """Delete an empty cell. Its database is left as it is, for its owner."""
        cell = await self.find(name)
        if cell.configured:
            advice = "remove it from the configuration of every process first, then retry"
            raise Refused(
                "cell_configured", f"cell {name}: it is in the configuration and would be created again; {advice}"
            )

        async def body(tx: Tx) -> None:
            await rows.fetch(tx, cells, lock=True, name=name)
            hosts = {row["cell"]: row["n"] for row in await tx.all(_HOSTS)}.get(name, 0)
            servers = {row["cell"]: row["n"] for row in await tx.all(_SERVERS)}.get(name, 0)
            if hosts or servers:
                raise Refused(
                    "cell_in_use",
                    f"cell {name}: it has {hosts} hosts and {servers} servers; delete the servers and move the hosts "
                    "away (kilonova cell move-host) first",
                )
            await rows.remove(tx, cells, name=name)
            await rows.remove(tx, known_stores, name=name)

        await self.stores.control.write(body)
        await self._publish()
        return cell

    async def _publish(self) -> None:
        await self.stores.learn()
        await self.bus.cast(CELLS_CHANGED, b"")
