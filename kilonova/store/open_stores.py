"""Open the stores by their addresses: `control`, `placement` and one per cell."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Required, TypedDict, Unpack, cast

from sqlalchemy import select

from kilonova.domain.errors import StoreError, Unreachable, WrongStore
from kilonova.schema.revisions import role_of
from kilonova.schema.tables.control import cells
from kilonova.store.badges import PeerStore, read_known
from kilonova.store.cell_store import CellStore, DroppableStore, Outage
from kilonova.store.instruments import ReadsClock
from kilonova.store.roll import NewId, Roll, call_roll
from kilonova.store.sqlite import Checkpoint, SqliteStore
from kilonova.store.statements import Sql
from kilonova.store.upgrade import status, upgrade
from kilonova.store.url import SqliteUrl, parse_url
from kilonova.world import Row, Store, Tx

logger = logging.getLogger(__name__)

CELL0 = "cell0"
_CELLS = Sql(select(cells).order_by(cells.c.name))

OpenCell = Callable[[str, str], Awaitable[CellStore]]
Unseal = Callable[[str], str]


class StoreOptions(TypedDict, total=False):
    """Options of `open_store`."""

    clock: Required[ReadsClock]
    upgrading: bool
    threaded: bool
    checkpoint: Checkpoint | None
    synchronous: str
    timeout: float


class StoresOptions(StoreOptions, total=False):
    cell_timeout: float


class CellOptions(StoresOptions, total=False):
    """Options of `open_cell`."""

    roll: Required[Roll]
    goes_on: Required[bool]


class OpenStores:
    """See world.Stores."""

    def __init__(
        self,
        control: DroppableStore,
        placement: DroppableStore,
        open_cell: OpenCell | None = None,
        addresses: Mapping[str, str] | None = None,
        roll: Roll | None = None,
    ) -> None:
        """`open_cell` takes a name and a sealed address; without it, cells added later are not found."""
        self.control: Store = control
        self.placement: Store = placement
        self.roll = roll or Roll()
        self.halted = ""  # why nothing may be written
        self.backend = ""  # the id of the volumes in this process' data directory
        self.marks: Any = None  # see store/marks.py; simulated clouds have none
        self.directory: Path | None = None  # where an embedded cloud has its files
        self._cells: dict[str, CellStore] = {}
        self._first: list[DroppableStore] = [control, placement]
        self._open_cell = open_cell
        self._learning = asyncio.Lock()
        self._learnt: set[str] = set()  # not by configuration
        self.complaints: dict[str, StoreError] = {}  # by cell: why it could not be opened, the last time
        self._rows: dict[str, Row] = {}
        self._addresses = dict(addresses or {})
        self._names: tuple[str, ...] = ()
        self._on_return: list[Callable[[str], None]] = []
        self._journals: tuple[Store, ...] = (control,)

    @property
    def cloud(self) -> str:
        """Return the cloud's id; "" if the databases have no badges, as in a simulated cloud."""
        return self.roll.cloud

    def halt(self, why: str) -> None:
        """Make writes raise `Halted` with this reason from now on; "": allow them."""
        self.halted = why
        for store in (*self._first, *self._cells.values()):
            store.halted = why

    def add_cell(self, name: str, store: CellStore) -> None:
        store.halted = self.halted
        self._cells[name] = store
        store.on_return(self._returned)
        self._count_cells()

    async def replace_cell(self, name: str, store: CellStore) -> None:
        """Use another database for this cell. The caller has opened it and ensures that it replaces the lost one."""
        before = self._cells.get(name)
        self.add_cell(name, store)
        if before is not None:
            await before.close()

    def _count_cells(self) -> None:
        self._names = tuple(sorted(self._cells, key=lambda cell: (cell != CELL0, cell)))
        self._journals = (self.control, *(self._cells[cell] for cell in self._names))

    async def learn(self) -> None:
        async with self._learning:
            self._rows, known = await self.control.read(_read_cells)
            if self.roll.cloud:
                self.roll.known = known
            for name in sorted(self._rows.keys() - self._cells.keys()):
                await self._learn_one(name)
            for name in self._learnt - self._rows.keys():
                self._learnt.discard(name)
                await self._cells.pop(name).close()
                self._count_cells()

    async def _learn_one(self, name: str) -> None:
        if self._open_cell is None:
            return
        try:
            self.add_cell(name, await self._open_cell(name, self._rows[name]["sealed_url"]))
            self._learnt.add(name)
            self.complaints.pop(name, None)
        except StoreError as why:  # the others are none the worse for it
            if str(self.complaints.get(name)) != str(why):
                logger.error("cell %s: cannot be opened: %s", name, why)
            self.complaints[name] = why

    def destinations(self) -> Sequence[str]:
        """Return the enabled cells, also those that could not be opened: whether they have capacity is unknown."""
        names = sorted({*self._names, *self._rows} - {CELL0})
        return [name for name in names if name not in self._rows or not self._rows[name]["disabled"]]

    def unopened(self) -> Sequence[str]:
        return sorted(self._rows.keys() - self._cells.keys())

    def bus_prefix(self, name: str) -> str:
        row = self._rows.get(name)
        return "" if row is None else str(row["bus_prefix"])

    def cell(self, name: str) -> Store:
        try:
            return self._cells[name]
        except KeyError:
            raise StoreError(f"cell {name!r}: not found; known are {', '.join(self._names) or 'none'}") from None

    def cells(self) -> Sequence[str]:
        return self._names

    def databases(self) -> Sequence[str]:
        return ("control", "placement", *self._names)

    def address(self, name: str) -> str:
        """Return the address, with its password if it has one."""
        return self._cells[name].address if name in self._cells else self._addresses[name]

    def is_configured(self, name: str) -> bool:
        return name in self._addresses

    def may_go(self, name: str) -> bool:
        return name in self._learnt

    def outage(self, name: str) -> Outage | None:
        """Return the outage of a cell; None while its database answers."""
        return self._cells[name].outage

    async def claim_cell(self, name: str, url: str, clock: ReadsClock) -> str:
        """Give a new cell's database its badge, and return its store id; "" where there are no badges."""
        store = await open_store(name, url, clock=clock, upgrading=False)
        try:
            await self.roll.claim(name, store)
        finally:
            await store.close()
        return self.roll.unlisted.get(name, "")

    async def list_stores(self) -> None:
        """List in control the stores that got their badges lately: from then on they are expected to exist."""
        await self.roll.list_all(self.control)

    def on_return(self, call: Callable[[str], None]) -> None:
        self._on_return.append(call)

    def _returned(self, name: str) -> None:
        for call in self._on_return:
            call(name)

    def journals(self) -> Sequence[Store]:
        return self._journals

    async def close(self) -> None:
        for store in (*self._first, *self._cells.values()):
            await store.close()

    def drop(self) -> None:
        """Drop all stores as kill -9 would: see their own `drop`."""
        for store in (*self._first, *self._cells.values()):
            store.drop()


async def open_store(
    name: str,
    url: str,
    *,
    clock: ReadsClock,
    upgrading: bool = True,
    threaded: bool = True,
    checkpoint: Checkpoint | None = None,
    synchronous: str = "FULL",
    **postgres_options: Any,
) -> DroppableStore:
    """Open a store. An older schema is upgraded with `upgrading`, else refused; a newer one is always refused."""
    role = role_of(name)
    connecting = {"seconds": postgres_options["timeout"]} if postgres_options.get("timeout") else {}
    if upgrading:
        await upgrade(url, role, **connecting)
    else:
        (await status(url, role, **connecting)).refuse_other()
    location = parse_url(url)
    if isinstance(location, SqliteUrl):
        return SqliteStore(
            name, location.path, threaded=threaded, clock=clock, checkpoint=checkpoint, synchronous=synchronous
        )
    from kilonova.store.postgres import PostgresStore  # an embedded cloud never loads asyncpg

    return PostgresStore(name, url, **postgres_options)


def _cannot_unseal(sealed: str) -> str:
    raise StoreError("its address is sealed, and this process has no key; set [secrets] key_file")


async def open_stores(
    urls: Mapping[str, str],
    directory: Path | None = None,
    unseal: Unseal = _cannot_unseal,
    *,
    new_id: NewId | None = None,
    witnesses: Mapping[str, str] | None = None,
    goes_on: bool = False,
    **options: Unpack[StoresOptions],
) -> OpenStores:
    """Open all stores. `urls` has `control`, `placement` and the cells by name, `options` as for `open_cell`.

    The other cells that control knows are opened too: `unseal` decrypts their addresses; one without an address is a
    file of the directory. With `new_id` new databases get badges. `witnesses` are directories and hosts with the clouds
    they belong to. `goes_on`: a wrong database other than control counts as unreachable; otherwise opening fails and
    nothing is changed.
    """
    missing = [role for role in ("control", "placement", CELL0) if role not in urls]
    if missing:
        raise StoreError(f"no address is configured for the database {', '.join(missing)}")
    upgrading = options.get("upgrading", True)
    roll = await call_roll(urls, witnesses or {}, new_id=new_id, may_begin=upgrading)
    if not goes_on:
        await _check_all(roll, urls)
    for_cells: CellOptions = {**options, "roll": roll, "goes_on": goes_on}
    opened: list[DroppableStore] = []
    try:
        opened.append(await open_store("control", urls["control"], **_for_all(for_cells)))
        opened.append(await _open_placement(urls["placement"], for_cells))
        stores = OpenStores(opened[0], opened[1], partial(_open_learnt, directory, unseal, for_cells), urls, roll)
        stores.directory = directory
        for name, url in urls.items():
            if name not in ("control", "placement"):
                opened.append(cell := await open_cell(name, url, **for_cells))
                stores.add_cell(name, cell)
        await stores.learn()
        await _claim_all(stores)
        wrong = [why for why in stores.complaints.values() if isinstance(why, WrongStore)]
        if wrong and not goes_on:
            raise wrong[0]
    except BaseException:
        for store in opened:
            await store.close()
        raise
    return stores


def _for_all(options: CellOptions) -> StoreOptions:
    of_cells = ("cell_timeout", "roll", "goes_on")
    return cast(StoreOptions, {name: value for name, value in options.items() if name not in of_cells})


async def _check_all(roll: Roll, urls: Mapping[str, str]) -> None:
    """Check all databases before the first one is touched."""
    for name, url in urls.items():
        try:
            await roll.check(name, url)
        except Unreachable:
            continue  # a cell may be unreachable, and is checked when it is back; opening the others reports this


async def _open_placement(url: str, options: CellOptions) -> DroppableStore:
    """Open placement. With `goes_on` a wrong database counts as unreachable, as for a cell."""
    try:
        await options["roll"].check("placement", url)
    except WrongStore:
        if not options["goes_on"]:
            raise
        return await open_cell("placement", url, **options)
    return await open_store("placement", url, **_for_all(options))


async def claim_all(roll: Roll, urls: Mapping[str, str], clock: ReadsClock) -> None:
    """Give badges to databases that are not open; all have their tables."""
    for name in sorted(urls, key=lambda one: one == "control"):  # control last: then it lists them
        store = await open_store(name, urls[name], clock=clock, upgrading=False)
        try:
            await roll.claim(name, store)
            if name == "control":
                await roll.list_all(store)
        finally:
            await store.close()


async def _claim_all(stores: OpenStores) -> None:
    """Give badges first, then list the stores: a listed one has a badge, also after a crash in between."""
    await stores.roll.claim("control", stores.control)
    for name, store in (("placement", stores.placement), *((name, stores.cell(name)) for name in stores.cells())):
        with contextlib.suppress(Unreachable):  # it gets its badge when it is there
            await stores.roll.claim(name, store)
    await stores.list_stores()


async def _open_learnt(
    directory: Path | None, unseal: Unseal, options: CellOptions, name: str, sealed: str
) -> CellStore:
    if not sealed and directory is None:
        raise StoreError(f"no address is configured for it; add it to [database.cells] as {name} = ADDRESS")
    return await open_cell(name, unseal(sealed) if sealed else file_url(directory or Path(), name), **options)


async def _read_cells(tx: Tx) -> tuple[dict[str, Row], dict[str, PeerStore]]:
    return {row["name"]: row for row in await tx.all(_CELLS)}, await read_known(tx)


async def added_cells(control_url: str, directory: Path, unseal: Unseal, clock: ReadsClock) -> dict[str, str]:
    """Return the addresses of cells that were added to the running cloud, if control's schema is current."""
    if not (await status(control_url, "control")).is_current:
        return {}
    control = await open_store("control", control_url, clock=clock, upgrading=False)
    try:
        cells, _ = await control.read(_read_cells)
    finally:
        await control.close()
    return {
        name: unseal(row["sealed_url"]) if row["sealed_url"] else file_url(directory, name)
        for name, row in cells.items()
    }


def file_url(directory: Path, name: str) -> str:
    return f"sqlite:///{(directory / name).absolute()}.db"


async def open_cell(
    name: str,
    url: str,
    *,
    cell_timeout: float = 5.0,
    roll: Roll | None = None,
    goes_on: bool = False,
    **options: Unpack[StoreOptions],
) -> CellStore:
    """Open a cell. A database that does not answer is opened later; one that may not be used is refused immediately.

    With `goes_on`, a database of another cloud counts as unreachable until it is replaced by the right one.
    """
    if not isinstance(parse_url(url), SqliteUrl):
        options["timeout"] = cell_timeout
    roll = roll or Roll()
    opener = partial(_open_checked, roll, name, url, options)
    check = partial(roll.check_open, name)
    clock = options["clock"]
    try:
        return CellStore(name, clock, await opener(), address=url, check=check)
    except (Unreachable, WrongStore) as why:
        if isinstance(why, WrongStore) and not goes_on:
            raise
        cell = CellStore(name, clock, None, opener, address=url, check=check)
        cell.lose(why)
        return cell


async def _open_checked(roll: Roll, name: str, url: str, options: StoreOptions) -> DroppableStore:
    await roll.check(name, url)
    return await open_store(name, url, **options)
