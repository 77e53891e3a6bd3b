"""Lists of servers in any order, over several cells and build requests: page after page gives each server once, in the
order of one big list, on both engines. The database of PostgreSQL sorts as English does, which must not be seen."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Iterator, Sequence
from functools import cmp_to_key
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from kilonova.api.compute.schemas.servers import SORT_KEYS
from kilonova.api.compute.server_filters import ALL_ALIKE, SORT, key_of
from kilonova.domain.details import Details, details_document
from kilonova.domain.errors import Unreachable
from kilonova.domain.server import Flavor, flavor_document, to_json
from kilonova.schema.tables import cell, control
from kilonova.services.compute import server_lists
from kilonova.services.compute.server_lists import ServerQuery, page
from kilonova.services.compute.server_order import ServerOrder, ServerPage
from kilonova.store.cell_store import CellStore, Outage
from kilonova.store.open_stores import open_stores
from kilonova.store.server_records import SCHEDULING, ServerRecord, find, find_partial
from kilonova.store.statements import Sql, insert_row
from kilonova.world import Store, Tx
from tests.placement.books import WallClock

CELLS = ["cell0", "cell1", "cell2"]
NOWHERE = ""  # a build request
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}
MANY = 1000
FLAVOR = Flavor("tiny", 1, 512, 1)
FILLED = [cell.servers, control.server_mappings, control.build_requests]
CLEAR = {table.name: Sql(delete(table)) for table in FILLED}
INSERT = {table.name: Sql(insert_row(table)) for table in FILLED}
EMPTY = {table.name: {c.name: None if c.nullable else c.type.python_type() for c in table.columns} for table in FILLED}

Wish = list[tuple[str, bool]]  # sort keys, and whether they descend


class Drawn(NamedTuple):
    """A server, and what its list is sorted by."""

    id: str
    cell: str
    values: dict[str, Any]  # by column
    details: Details

    @property
    def facts(self) -> dict[str, Any]:
        """By sort key. A build request has no host, no guest, and the one state it can have."""
        known = dict(self.values)
        if self.cell == NOWHERE:
            known |= {"task_state": SCHEDULING, "power_state": 0, "updated_at": known["created_at"]}
            known |= dict.fromkeys(("host", "launched_at", "terminated_at"))
        known |= {"display_name": known["name"], "node": known["host"], "uuid": self.id}
        return known | {"hostname": self.details.hostname, "key_name": self.details.key_name}


times = st.sampled_from([1.5, 2.0, 2.25])
words = st.sampled_from(["a", "B", "b", "_", "ä", "Ω", "z z", "zz", "\U0001f600"])
values = st.fixed_dictionaries(
    {
        **dict.fromkeys(["name", "user_id", "image_ref", "vm_state"], words),
        **dict.fromkeys(["created_at", "updated_at"], times),
        **dict.fromkeys(["launched_at", "terminated_at"], st.none() | times),
        **dict.fromkeys(["host", "task_state"], st.none() | words),
        "power_state": st.sampled_from([0, 1, 4]),
        "project_id": st.sampled_from(["p", "q"]),
    }
)
details = st.builds(Details, hostname=words, key_name=st.none() | words)
ids = st.integers(0, (1 << 128) - 1).map(lambda number: str(uuid.UUID(int=number)))
drawn = st.builds(Drawn, ids, st.sampled_from([NOWHERE, *CELLS]), values, details)
fleets = st.lists(drawn, max_size=12, unique_by=lambda server: server.id)
COLUMNS = sorted(name for name, by in SORT.items() if isinstance(by, str))
wishes = st.lists(st.tuples(st.sampled_from([*COLUMNS, "hostname", "key_name"]), st.booleans()), max_size=3)


class Arena:
    """One set of stores and one event loop for many fleets."""

    def __init__(self, urls: dict[str, str]) -> None:
        self.runner = asyncio.Runner()
        self.stores = self.runner.run(open_stores(urls, clock=WallClock()))

    def lose(self, name: str) -> None:
        """Until it is found again: nobody looks for it meanwhile."""
        store = self.stores.cell(name)
        assert isinstance(store, CellStore)
        store.outage = Outage(0.0, "the test has it")

    def find_again(self, name: str) -> None:
        store = self.stores.cell(name)
        assert isinstance(store, CellStore)
        store.outage = None

    def fill(self, fleet: Sequence[Drawn]) -> None:
        self.runner.run(self._fill(fleet))

    async def _fill(self, fleet: Sequence[Drawn]) -> None:
        requests = [server for server in fleet if server.cell == NOWHERE]
        await _replace(self.stores.control, "build_requests", [_request(server) for server in requests])
        await _replace(self.stores.control, "server_mappings", [_mapping(server) for server in fleet])
        for name in CELLS:
            placed = [_row(server) for server in fleet if server.cell == name]
            await _replace(self.stores.cell(name), "servers", placed)

    def page(self, wish: Wish, project: str | None, limit: int, marker: str | None = None) -> list[str]:
        """As the API does it: the marker is looked up, wherever it is."""

        async def ask() -> list[str]:
            order = ServerOrder([key_of(name, descending) for name, descending in wish])
            wanted = ServerQuery(project_id=project, partial=True)
            found = await page(self.stores, wanted, order, ServerPage(limit, await self._marker(marker)))
            return [record.id for record in found]

        return self.runner.run(ask())

    async def _marker(self, marker: str | None) -> ServerRecord | None:
        try:
            return None if marker is None else await find(self.stores, marker, deleted=True)
        except Unreachable:
            return await find_partial(self.stores, marker or "")

    def pages(self, wish: Wish, project: str | None, limit: int) -> Iterator[list[str]]:
        marker = None
        while found := self.page(wish, project, limit, marker):
            yield found
            marker = found[-1]

    def close(self) -> None:
        self.runner.run(self.stores.close())
        self.runner.close()


async def _replace(store: Store, table: str, rows: list[dict[str, Any]]) -> None:
    async def body(tx: Tx) -> None:
        await tx.run(CLEAR[table])
        await tx.many(INSERT[table], [EMPTY[table] | row for row in rows])

    await store.write(body)


def _row(server: Drawn) -> dict[str, Any]:
    documents = {"flavor": flavor_document(FLAVOR), "details": details_document(server.details)}
    return {"id": server.id, **server.values, **documents}


def _mapping(server: Drawn) -> dict[str, Any]:
    known = {name: server.values[name] for name in ("project_id", "user_id", "created_at")}
    return {"server_id": server.id, "cell": server.cell or None, "counted": 1, **known}


def _request(server: Drawn) -> dict[str, Any]:
    wanted = {name: server.values[name] for name in ("project_id", "user_id", "name", "vm_state")}
    more = {"image": server.values["image_ref"], "flavor": FLAVOR, "details": server.details}
    created = {"operation_id": "o", "created_at": server.values["created_at"]}
    document = {**wanted, **more, "created_at": created["created_at"]}
    return {"server_id": server.id, "turn": 1, **created, "server": to_json(document)}


def in_order(fleet: Sequence[Drawn], wish: Wish) -> list[str]:
    """The oracle: one comparison after the other, nothing is less than anything else, and the newest come first."""

    def compare(one: Drawn, other: Drawn) -> int:
        for name, descending in [*wish, ("created_at", True), ("uuid", True)]:
            left, right = one.facts[name], other.facts[name]
            if left != right:
                is_less = left is None or (right is not None and left < right)
                return -1 if is_less is not descending else 1
        return 0

    return [server.id for server in sorted(fleet, key=cmp_to_key(compare))]


@pytest.fixture
def sqlite_arena(tmp_path: Path) -> Iterator[Arena]:
    arena = Arena({name: f"sqlite:///{tmp_path / name}.db" for name in ("control", "placement", *CELLS)})
    yield arena
    arena.close()


NUMBERS = itertools.count()


@pytest.fixture
def postgres_arena(fast_postgres: Any) -> Iterator[Arena]:
    name = f"pages_{next(NUMBERS)}"
    fast_postgres.sql(f"CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en' LOCALE 'C'")
    url = fast_postgres.url(name)
    arena = Arena({name: f"{url}?schema={name}" for name in ("control", "placement", *CELLS)})
    yield arena
    arena.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def arena(request: pytest.FixtureRequest) -> Arena:
    chosen: Arena = request.getfixturevalue(f"{request.param}_arena")
    return chosen


def test_pages_are_the_whole_list(arena: Arena) -> None:
    @settings(max_examples=150, phases=[Phase.generate], **QUIET)  # type: ignore[arg-type]
    @given(fleets, wishes, st.sampled_from([None, "p"]), st.integers(1, 5))
    def every(fleet: list[Drawn], wish: Wish, project: str | None, limit: int) -> None:
        arena.fill(fleet)
        seen = [server for server in fleet if project in (None, server.values["project_id"])]
        expected = in_order(seen, wish)
        assert arena.page(wish, project, MANY) == expected
        assert list(arena.pages(wish, project, limit)) == [list(part) for part in _parts(expected, limit)]

    every()


def test_pages_with_a_cell_away(arena: Arena) -> None:
    """Its servers stand where they belong as far as that is known; else they come last, the newest first."""

    @settings(max_examples=100, phases=[Phase.generate], **QUIET)  # type: ignore[arg-type]
    @given(fleets, wishes, st.sampled_from(CELLS), st.sampled_from([None, "p"]), st.integers(1, 5))
    def every(fleet: list[Drawn], wish: Wish, away: str, project: str | None, limit: int) -> None:
        arena.fill(fleet)
        seen = [server for server in fleet if project in (None, server.values["project_id"])]
        expected = in_order(seen, wish)
        if not set(KNOWN_ANYWHERE).issuperset(name for name, _ in _before_the_id(wish)):
            lost = in_order([server for server in seen if server.cell == away], [])
            expected = [id_ for id_ in expected if id_ not in lost] + lost
        arena.lose(away)
        try:
            assert arena.page(wish, project, MANY) == expected
            assert list(arena.pages(wish, project, limit)) == [list(part) for part in _parts(expected, limit)]
        finally:
            arena.find_again(away)

    every()


KNOWN_ANYWHERE = ("created_at", "uuid", "project_id", "user_id")


def _before_the_id(wish: Wish) -> Wish:
    """What comes after it in the order decides nothing."""
    names = [name for name, _ in wish]
    return wish[: names.index("uuid") + 1] if "uuid" in names else wish


def _parts(whole: list[str], size: int) -> Iterator[list[str]]:
    return (whole[first : first + size] for first in range(0, len(whole), size))


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("descending", [False, True])
def test_a_page_by_a_column_reads_a_page(
    sqlite_arena: Arena, name: str, descending: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = {"name": "n", "user_id": "u", "image_ref": "i", "vm_state": "active", "project_id": "p"}
    common |= {"updated_at": 1.0, "launched_at": None, "terminated_at": None, "host": None, "task_state": None}
    sqlite_arena.fill(
        [
            Drawn(str(uuid.UUID(int=n)), "cell1", {**common, "power_state": 1, "created_at": 1.0 + n}, Details())
            for n in range(50)
        ]
    )
    read: list[str] = []
    made = server_lists.from_cell
    monkeypatch.setattr(server_lists, "from_cell", lambda cell, row: read.append(row["id"]) or made(cell, row))
    second = list(itertools.islice(sqlite_arena.pages([(name, descending)], "p", 3), 2))[1]
    assert len(second) == 3
    assert len(read) == 3 + 3, "two pages"


def test_every_key_that_may_be_given_is_known() -> None:
    assert {*SORT_KEYS, "locked"} == {*SORT, *ALL_ALIKE}
