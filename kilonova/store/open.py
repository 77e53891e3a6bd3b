"""From addresses to open stores: `control`, `placement` and one per cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kilonova.domain.errors import StoreError
from kilonova.store.instruments import ReadsClock
from kilonova.store.revisions import role_of
from kilonova.store.sqlite import Checkpoint, SqliteStore
from kilonova.store.upgrade import status, upgrade
from kilonova.store.url import SqliteUrl, parse_url
from kilonova.world import Store

CELL0 = "cell0"


class DroppableStore(Store, Protocol):
    def drop(self) -> None: ...


class OpenStores:
    """See world.Stores."""

    def __init__(self, control: DroppableStore, placement: DroppableStore) -> None:
        self.control: Store = control
        self.placement: Store = placement
        self._cells: dict[str, Store] = {}
        self._all: list[DroppableStore] = [control, placement]
        self._names: tuple[str, ...] = ()
        self._journals: tuple[Store, ...] = (control,)

    def add_cell(self, name: str, store: DroppableStore) -> None:
        self._cells[name] = store
        self._all.append(store)
        self._names = tuple(sorted(self._cells, key=lambda cell: (cell != CELL0, cell)))
        self._journals = (self.control, *(self._cells[cell] for cell in self._names))

    def cell(self, name: str) -> Store:
        try:
            return self._cells[name]
        except KeyError:
            raise StoreError(f"there is no cell {name!r}; known are {', '.join(self._names) or 'none'}") from None

    def cells(self) -> Sequence[str]:
        return self._names

    def journals(self) -> Sequence[Store]:
        return self._journals

    async def close(self) -> None:
        for store in self._all:
            await store.close()

    def drop(self) -> None:
        """As kill -9 would: see the stores' own `drop`."""
        for store in self._all:
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
    """With `upgrading` an older schema is brought up to date, without it is refused; a newer one always is."""
    role = role_of(name)
    if upgrading:
        await upgrade(url, role)
    else:
        (await status(url, role)).refuse_other()
    place = parse_url(url)
    if isinstance(place, SqliteUrl):
        return SqliteStore(
            name, place.path, threaded=threaded, clock=clock, checkpoint=checkpoint, synchronous=synchronous
        )
    from kilonova.store.postgres import PostgresStore  # an embedded cloud never loads asyncpg

    return PostgresStore(name, url, **postgres_options)


async def open_stores(urls: Mapping[str, str], **options: Any) -> OpenStores:
    """`urls` has `control`, `placement` and the cells by name; `options` as for `open_store`."""
    missing = [role for role in ("control", "placement", CELL0) if role not in urls]
    if missing:
        raise StoreError(f"no address is configured for the database {', '.join(missing)}")
    opened: dict[str, DroppableStore] = {}
    try:
        for name, url in urls.items():
            opened[name] = await open_store(name, url, **options)
    except BaseException:
        for store in opened.values():
            await store.close()
        raise
    stores = OpenStores(opened.pop("control"), opened.pop("placement"))
    for name, store in opened.items():
        stores.add_cell(name, store)
    return stores
