"""The query of every list, on both engines: what is asked of each kind is understood by the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.records.kinds import Kind, Order
from kilonova.records.query import (
    ALL,
    COMPARISONS,
    EQUAL,
    LIKE,
    ONE_OF,
    OUTSIDE,
    Condition,
    ListQuery,
    count,
    find,
    find_by_ids,
    look_up,
)
from kilonova.schema.tables.identity import policies
from kilonova.schema.tables.volume import snapshots
from kilonova.services.compute.aggregates import AGGREGATE
from kilonova.services.compute.flavors import FLAVOR
from kilonova.services.compute.keypairs import KEYPAIR
from kilonova.services.compute.server_groups import GROUP
from kilonova.services.identity.documents import Credentials, Policies
from kilonova.services.identity.groups import GROUP as USER_GROUP
from kilonova.services.identity.projects import DOMAIN, PROJECT
from kilonova.services.identity.registry import CatalogServices, Endpoints, Regions
from kilonova.services.identity.roles import ROLE
from kilonova.services.identity.users import USER
from kilonova.services.image.listing import IMAGE
from kilonova.services.network.kinds import KINDS
from kilonova.services.volume.listing import ATTACHMENT, SNAPSHOT, VOLUME
from kilonova.services.volume.types import TYPE
from kilonova.store import rows
from kilonova.world import Tx

Run = Callable[[Any], None]
OF_COMPUTE = (AGGREGATE, FLAVOR, GROUP, KEYPAIR)
OF_IDENTITY = (USER, USER_GROUP, PROJECT, DOMAIN, ROLE, Credentials.kind, Policies.kind)
OF_CATALOG = (CatalogServices.kind, Endpoints.kind, Regions.kind)
OF_VOLUME = (VOLUME, SNAPSHOT, ATTACHMENT, TYPE)
EVERY = {
    f"{kind.table.name}_{kind.name}": kind
    for kind in (*KINDS.values(), IMAGE, *OF_VOLUME, *OF_COMPUTE, *OF_IDENTITY, *OF_CATALOG)
}
NOT_OF_PROJECTS = (AGGREGATE, *OF_IDENTITY, *OF_CATALOG)
PARAMS = {"project": "p", "project_id": "p"}  # of the sources of images, and of access lists


def _policy(number: int, blob: str = "x") -> dict[str, str]:
    return {"id": f"p{number}", "type": f"t{number % 2}", "blob": blob, "extra": "{}"}


@pytest.mark.parametrize("name", EVERY)
def test_every_column_of_every_kind_sorts_and_filters(control: Run, name: str) -> None:
    kind = EVERY[name]
    columns = [(column.name, "x" if column.type.python_type is str else 1) for column in kind.table.columns]
    conditions = [Condition(column, operator, value) for column, value in columns for operator in COMPARISONS]
    conditions += [Condition(column, ONE_OF, [value]) for column, value in columns]
    conditions += [Condition(column, OUTSIDE, (value, value)) for column, value in columns]
    conditions += [Condition(column, LIKE, "%x") for column, value in columns if value == "x"]

    async def story(store: Any) -> None:
        async def body(tx: Tx) -> None:
            for viewer in (None,) if kind in NOT_OF_PROJECTS else (None, "p"):
                for one in conditions:
                    assert await find(tx, kind, viewer, ListQuery((one,), limit=1, offset=1), **PARAMS) == []
                for column, _ in columns:
                    query = ListQuery(order=(Order(column, True),), limit=5)
                    assert await find(tx, kind, viewer, query, **PARAMS) == []
                    assert await find(tx, kind, viewer, query._replace(reverse=True), **PARAMS) == []
                assert await look_up(tx, kind, viewer, "none" if kind is not AGGREGATE else 7, **PARAMS) is None  # type: ignore[arg-type]

        await store.read(body)

    control(story)


def test_pages_follow_each_other_forward_and_back(control: Run) -> None:
    async def story(store: Any) -> None:
        async def fill(tx: Tx) -> None:
            for number in range(5):
                await rows.put(tx, policies, **_policy(number))

        async def body(tx: Tx) -> None:
            kind = Policies.kind

            async def ids(query: ListQuery) -> list[str]:
                return [row["id"] for row in await find(tx, kind, None, query)]

            assert await ids(ALL) == ["p0", "p1", "p2", "p3", "p4"]
            assert await ids(ListQuery(order=(Order("type", True),))) == ["p1", "p3", "p0", "p2", "p4"]
            page = ListQuery(order=(Order("type", True), Order("type"), Order("id")), limit=2)
            assert await ids(page) == ["p1", "p3"] and await ids(page._replace(offset=1)) == ["p3", "p0"]
            assert await ids(page._replace(marker="p3")) == ["p0", "p2"]
            assert await ids(page._replace(marker="p2", reverse=True)) == ["p3", "p0"]
            assert await ids(page._replace(limit=0)) == []
            odd = ListQuery((Condition("type", EQUAL, "t1"),), limit=1)
            assert await count(tx, kind, None, odd) == 2 and await count(tx, kind, None) == 5
            with pytest.raises(Refused, match="Policy p9 could not be found"):
                await ids(ListQuery(marker="p9"))
            assert [row["id"] for row in await find_by_ids(tx, kind, ["p4", "no", "p0"])] == ["p4", "p0"]

        await store.write(fill)
        await store.read(body)

    control(story)


def test_the_last_keys_go_the_way_of_the_first_one_where_the_kind_says_so(control: Run) -> None:
    table = policies
    followed = Kind("policy", "policy", table, order=(Order("id", True),), follows=True)

    async def story(store: Any) -> None:
        async def body(tx: Tx) -> None:
            for number in range(4):
                await rows.put(tx, table, **_policy(number))
            for wanted, order in (
                ((), "p3 p2 p1 p0"),
                ((Order("type"),), "p0 p2 p1 p3"),
                ((Order("type", True),), "p3 p1 p2 p0"),
            ):
                found = await find(tx, followed, None, ListQuery(order=wanted))
                assert " ".join(row["id"] for row in found) == order

        await store.write(body)

    control(story)


def test_a_value_that_is_not_set_is_the_smallest(control: Run) -> None:
    names = {"a": None, "b": "x", "c": None, "d": "w"}

    async def story(store: Any) -> None:
        async def body(tx: Tx) -> None:
            for snapshot_id, name in names.items():
                given = {column.name: "" for column in snapshots.columns if column.type.python_type is str}
                numbers = {column.name: 0 for column in snapshots.columns if column.name not in given}
                await rows.put(tx, snapshots, **given | numbers | {"id": snapshot_id, "name": name})
            for descending, order in ((False, ["a", "c", "d", "b"]), (True, ["b", "d", "c", "a"])):
                query, found = ListQuery(order=(Order("name", descending),), limit=1), []
                while page := await find(tx, SNAPSHOT, "", query):
                    found.append(page[0]["id"])
                    query = query._replace(marker=page[0]["id"])
                assert found == order

        await store.write(body)

    control(story)
