"""Requests with one Idempotency-Key, sent at the same time, are one operation; on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from kilonova.domain.cause import Cause
from kilonova.domain.errors import Refused
from kilonova.domain.server import Flavor, to_json
from kilonova.engine.accept import Accepted, Ask, IdempotencyKey
from kilonova.engine.submit import submit
from kilonova.operations.create.accept import NewServer, create
from kilonova.schema.tables.journal import operations
from kilonova.store.statements import Sql
from tests.unit.hosts.test_forget_host import engine_of
from tests.unit.operations.cloud_rows import add_host, add_mapping, add_server

Run = Callable[[Any], None]
CAUSE = Cause(user_id="bob", project_id="lab", request_id="req-1", through="api")
SMALL = Flavor("small", 1, 512, 1)
AT_ONCE = 10
RUNS = {"flavor": to_json(SMALL), "copy": 1, "runner_host": "a", "runner_copy": 1}


async def journaled(store: Any) -> list[str]:
    return [row["id"] for row in await store.read(lambda tx: tx.all(Sql(select(operations))))]


def test_one_create(databases: Run) -> None:
    async def story(stores: Any) -> None:
        key = IdempotencyKey("once", "POST /servers", "hash")
        new = NewServer(name="a", flavor=SMALL, image="img")
        asked = [create(engine_of(stores), new, CAUSE, key) for _ in range(AT_ONCE)]
        told = await asyncio.gather(*asked)
        assert len({server for server, _ in told}) == 1
        assert {accepted.operation_id for _, accepted in told} == set(await journaled(stores.control))
        with pytest.raises(Refused, match="another body"):
            await create(engine_of(stores), new, CAUSE, IdempotencyKey("once", "POST /servers", "other"))

    databases(story)


@pytest.mark.parametrize("kind", ["stop", "delete"])
def test_one_operation_on_a_server(databases: Run, kind: str) -> None:
    async def story(stores: Any) -> None:
        await add_host(stores, "a")
        server = await add_server(stores, "s", "a", **RUNS)
        await add_mapping(stores, server)
        ask = Ask(
            kind=kind, server_id=server, cause=CAUSE, key=IdempotencyKey("once", "POST /servers/x/action", "hash")
        )
        told: list[Accepted] = await asyncio.gather(*(submit(engine_of(stores), ask) for _ in range(AT_ONCE)))
        assert {accepted.operation_id for accepted in told} == set(await journaled(stores.cell("cell1")))
        assert sum(not accepted.joined for accepted in told) == 1

    databases(story)


def test_one_delete_of_a_server_without_a_host(databases: Run) -> None:
    async def story(stores: Any) -> None:
        server, placing = await create(engine_of(stores), NewServer(name="a", flavor=SMALL, image="img"), CAUSE)
        ask = Ask(kind="delete", server_id=server, cause=CAUSE, key=IdempotencyKey("once", "DELETE /servers/x", "hash"))
        told: list[Accepted] = await asyncio.gather(*(submit(engine_of(stores), ask) for _ in range(AT_ONCE)))
        (deleted,) = set(await journaled(stores.control)) - {placing.operation_id}
        assert {accepted.operation_id for accepted in told} == {deleted}

    databases(story)


def test_a_refused_request_leaves_its_key_free(databases: Run) -> None:
    async def story(stores: Any) -> None:
        await add_host(stores, "a")
        server = await add_server(stores, "s", "a", **RUNS)
        await add_mapping(stores, server)
        key = IdempotencyKey("once", "POST /servers/x/action", "hash")
        for _ in range(2):
            with pytest.raises(Refused, match="vm_state active"):
                await submit(engine_of(stores), Ask(kind="confirm_resize", server_id=server, cause=CAUSE, key=key))
        accepted = await submit(engine_of(stores), Ask(kind="stop", server_id=server, cause=CAUSE, key=key))
        assert not accepted.joined

    databases(story)


@pytest.mark.parametrize(
    "other",
    [{"user_id": "carol"}, {"project_id": "workshop"}],
    ids=["another user", "another project of the same user"],
)
def test_a_key_belongs_to_who_used_it(databases: Run, other: dict[str, str]) -> None:
    """Two who chose the same key, each asked twice: nobody hears of an operation of the other."""

    async def story(stores: Any) -> None:
        await add_host(stores, "a")
        servers = [await add_server(stores, name, "a", **RUNS) for name in ("s1", "s2")]
        for server in servers:
            await add_mapping(stores, server)
        key = IdempotencyKey("once", "POST /servers/x/action", "hash")
        causes = [CAUSE, msgspec.structs.replace(CAUSE, **other)]
        pairs = zip(servers, causes, strict=True)
        asks = [Ask(kind="stop", server_id=server, cause=cause, key=key) for server, cause in pairs]
        told = [await submit(engine_of(stores), ask) for ask in [*asks, *asks]]
        assert [accepted.joined for accepted in told] == [False, False, True, True]
        first, second, first_again, second_again = (accepted.operation_id for accepted in told)
        assert (first, second) == (first_again, second_again) and first != second

    databases(story)
