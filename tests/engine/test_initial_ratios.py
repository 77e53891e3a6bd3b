"""Allocation ratios that a host reports: `initial` ones count when the host is new, then placement decides."""

import msgspec
import pytest
from sqlalchemy import select, update

from kilonova.domain.traits import BY_KVM, BY_TCG
from kilonova.placement.traits import has_trait
from kilonova.schema.tables.placement import inventories
from kilonova.store.statements import Sql
from tests.engine.speaking import INVENTORY, Speaker

RATIOS = Sql(select(inventories.c.allocation_ratio).distinct().where(inventories.c.total == 7))
RAISE = Sql(update(inventories).where(inventories.c.total == 7).values(allocation_ratio=9.0))


@pytest.mark.parametrize(("initial", "after"), [(["VCPU"], 9.0), ([], 4.0)])
def test_an_initial_ratio_is_only_a_beginning(cloud, initial, after):
    cloud = cloud(hosts=1)
    speaker = Speaker(cloud, "host1")
    classes = {**INVENTORY.classes, "VCPU": (7, 0, 4.0)}
    inventory = msgspec.structs.replace(INVENTORY, classes=classes, initial=[])
    speaker.register(inventory=inventory)
    assert ratios(cloud) == [4.0]

    async def raise_it(tx):
        await tx.run(RAISE)

    cloud.do(lambda engine: engine.world.db.placement.write(raise_it))
    speaker.register(inventory=msgspec.structs.replace(inventory, initial=initial))
    assert ratios(cloud) == [after]


def ratios(cloud):
    async def body(tx):
        return [row["allocation_ratio"] for row in await tx.all(RATIOS)]

    return cloud.do(lambda engine: engine.world.db.placement.read(body))


def test_traits_of_our_own_need_not_be_made_first(cloud):
    """And the host that reports one speaks for all of them."""
    cloud = cloud(hosts=1)
    speaker = Speaker(cloud, "host1")
    for traits in ([BY_TCG], [BY_KVM, "HW_CPU_X86_AVX"], [BY_KVM, "HW_CPU_X86_SSE"]):
        answer = speaker.register(inventory=msgspec.structs.replace(INVENTORY, traits=traits))
        assert not answer.refused
    for name, expected in ((BY_KVM, True), (BY_TCG, False), ("HW_CPU_X86_AVX", False), ("HW_CPU_X86_SSE", True)):

        def ask(engine, name=name):
            return has_trait(engine.world.db.placement, "host1", name)

        assert cloud.do(ask) == expected, name
