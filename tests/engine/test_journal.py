"""What holds for every writer: of two that saw the same state of an operation only one moves on (law 8), and a step
changes its server only while the turn is its own (law 1)."""

import pytest

from kilonova.domain.errors import Superseded
from kilonova.engine import journal as log
from kilonova.engine.core import context_for
from kilonova.engine.model import Target
from kilonova.operations import REGISTRY
from kilonova.schema.tables.cell import servers
from kilonova.schema.tables.journal import operations
from kilonova.store import rows


@pytest.fixture
def busy(cloud):
    """A cloud, and a migration that will be under way for a while."""
    cloud = cloud(copy_seconds=100.0)
    server, _ = cloud.make()
    return cloud, cloud.submit("migrate", server).operation_id


def in_transaction(cloud, body):
    return cloud.do(lambda engine: engine.world.db.cell("cell1").write(body))


def test_whoever_saw_an_older_ordinal_writes_nothing(busy):
    cloud, operation = busy

    async def body(tx):
        first, second = await log.load(tx, operation), await log.load(tx, operation)
        seen = first.ordinal
        first.ordinal += 1
        await log.save(tx, first, first.state, seen)
        second.facts(REGISTRY["migrate"]).tried = ["mine"]
        with pytest.raises(Superseded):
            await log.save(tx, second, second.state, seen)
        return await rows.fetch(tx, operations, id=operation)

    row = in_transaction(cloud, body)
    assert "mine" not in row["facts"]


def test_what_has_ended_stays_as_it_ended(busy):
    cloud, operation = busy

    async def body(tx):
        first, second = await log.load(tx, operation), await log.load(tx, operation)
        was, first.state = first.state, "superseded"
        await log.save(tx, first, was, first.ordinal)
        second.state = "undoing"
        with pytest.raises(Superseded):
            await log.save(tx, second, was, second.ordinal)
        return (await rows.fetch(tx, operations, id=operation))["state"]

    assert in_transaction(cloud, body) == "superseded"


def test_a_state_that_may_not_follow_is_no_commit(busy):
    cloud, operation = busy

    async def body(tx):
        op = await log.load(tx, operation)
        op.state = "accepted"
        await log.save(tx, op, "undoing", op.ordinal)

    with pytest.raises(RuntimeError, match="may not become"):
        in_transaction(cloud, body)


@pytest.mark.parametrize("behind", [0, 1], ids=["of this turn", "of an earlier turn"])
def test_a_server_is_changed_only_by_a_step_of_its_turn(busy, behind):
    cloud, operation = busy

    async def work(engine):
        journal = engine.world.db.cell("cell1")

        async def body(tx):
            op = await log.load(tx, operation)
            ctx = context_for(engine, journal, op, Target(""), None)
            ctx.turn -= behind
            ctx.set_server(name="changed")
            await ctx.apply(tx, 1.0)

        try:
            await journal.write(body)
        finally:
            names.append(await journal.read(name))

    async def name(tx):
        return (await rows.fetch(tx, servers, deleted=0))["name"]

    names = []
    if behind:
        with pytest.raises(Superseded):
            cloud.do(work)
        assert names == ["a"]
    else:
        cloud.do(work)
        assert names == ["changed"]
