"""What renewing a lease and taking over steps leave besides the rows."""

from __future__ import annotations

import asyncio

from kilonova.conductor.leases import renew, take_over
from kilonova.measures import LEASES
from kilonova.schema.tables.journal import steps
from tests.engine.rows_of_one import STEP
from tests.support.small_cloud import SmallCloud, put


def test_a_lease_is_nothing_that_a_backup_would_miss(small_cloud: SmallCloud) -> None:
    """Else each conductor would raise the mark of control every few seconds."""

    async def story() -> None:
        engine = small_cloud.engine()
        stats = engine.world.db.control.stats  # type: ignore[attr-defined]
        before = stats.transactions - stats.upkeep
        for _ in range(2):
            await renew(engine, 6.0)
            assert stats.transactions - stats.upkeep == before
            await asyncio.sleep(2.0)

    small_cloud.run(story)


def test_an_operator_sees_how_many_steps_were_taken_over(small_cloud: SmallCloud) -> None:
    def counted() -> float:
        return sum(sample.value for metric in LEASES.collect() for sample in metric.samples if "total" in sample.name)

    async def story() -> None:
        engine, before = small_cloud.engine(), counted()
        for number in range(2):
            await put(engine, "cell1", steps, **{**STEP, "operation_id": f"o{number}", "state": "taken", "worker": "w"})
        journal = engine.world.db.cell("cell1")
        assert await take_over(journal, {"w"}) == 0 and counted() == before
        assert await take_over(journal, {"me"}) == 2 and counted() == before + 2

    small_cloud.run(story)
