"""Aggregates of providers: what each write changes, to the row; neighbours stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.placement import aggregates
from kilonova.placement.aggregates import join_aggregate, leave_aggregate, set_aggregates
from kilonova.world import Store
from tests.placement.neighbourhood import Cases, assert_changes, uuid


async def of_provider(store: Store, name: str) -> tuple[str, list[str]]:
    provider, found = await aggregates.of_provider(store, uuid(name))
    return provider.uuid, found


WRITES: Cases = {
    "set": (
        lambda store: set_aggregates(store, uuid("a"), ["g3", "g2", "new"], 10, raises=True),
        {
            "+ aggregates new",
            "+ provider_aggregates a 3",
            "+ provider_aggregates a 4",
            "- provider_aggregates a 1",
            "resource_providers a generation=11 marked",
            (
                "returns "
                '{"id":1,"uuid":"uuid-a","name":"a","generation":11,"parent_id":null,"root_id":1,"parent_uuid":null,"root_uuid":"uuid-a","updated_at":10000.0}'
            ),
        },
    ),
    "set, by an older client": (
        lambda store: set_aggregates(store, uuid("a1"), ["g1"], None, raises=False),
        {
            "+ provider_aggregates a1 1",
            "- provider_aggregates a1 2",
            "resource_providers a1 marked",
            (
                "returns "
                '{"id":2,"uuid":"uuid-a1","name":"a1","generation":20,"parent_id":1,"root_id":1,"parent_uuid":"uuid-a","root_uuid":"uuid-a","updated_at":10000.0}'
            ),
        },
    ),
    "set none": (
        lambda store: set_aggregates(store, uuid("a"), [], 10, raises=True),
        {
            "- provider_aggregates a 1",
            "- provider_aggregates a 2",
            "resource_providers a generation=11 marked",
            (
                "returns "
                '{"id":1,"uuid":"uuid-a","name":"a","generation":11,"parent_id":null,"root_id":1,"parent_uuid":null,"root_uuid":"uuid-a","updated_at":10000.0}'
            ),
        },
    ),
    "set the same": (
        lambda store: set_aggregates(store, uuid("b"), ["g1"], 40, raises=True),
        {
            "resource_providers b generation=41 marked",
            (
                "returns "
                '{"id":4,"uuid":"uuid-b","name":"b","generation":41,"parent_id":null,"root_id":4,"parent_uuid":null,"root_uuid":"uuid-b","updated_at":10000.0}'
            ),
        },
    ),
    "set, of another generation": (
        lambda store: set_aggregates(store, uuid("a"), ["new"], 9, raises=True),
        {
            (
                "refused generation_conflict: resource provider generation conflict: actual: 10, given: 9. "
                "Resource provider's generation already changed. Please update the generation and try again."
            )
        },
    ),
    "set, of no provider": (
        lambda store: set_aggregates(store, "x", ["new"], 9, raises=True),
        {"refused no_such_provider: No resource provider with uuid x found"},
    ),
    "join": (
        lambda store: join_aggregate(store, uuid("b"), "g2"),
        {"+ provider_aggregates b 2", "resource_providers b generation=41 marked"},
    ),
    "join a new one": (
        lambda store: join_aggregate(store, uuid("b"), "new"),
        {"+ aggregates new", "+ provider_aggregates b 4", "resource_providers b generation=41 marked"},
    ),
    "join again": (lambda store: join_aggregate(store, uuid("a"), "g2"), set()),
    "join, of no provider": (
        lambda store: join_aggregate(store, "x", "new"),
        {"refused no_such_provider: No resource provider with uuid x found"},
    ),
    "leave": (
        lambda store: leave_aggregate(store, uuid("a"), "g2"),
        {"- provider_aggregates a 2", "resource_providers a generation=11 marked"},
    ),
    "leave again": (lambda store: leave_aggregate(store, uuid("b"), "g2"), set()),
}
READS: Cases = {
    "of a": (lambda store: of_provider(store, "a"), {'returns ["uuid-a",["g1","g2"]]'}),
    "of b1": (lambda store: of_provider(store, "b1"), {'returns ["uuid-b1",[]]'}),
    "of no provider": (
        lambda store: of_provider(store, "x"),
        {"refused no_such_provider: No resource provider with uuid uuid-x found"},
    ),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_sees_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, READS, name)


@pytest.mark.parametrize("name", WRITES)
def test_a_write_changes_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, WRITES, name)
