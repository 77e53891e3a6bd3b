"""A request writes only what it names: the rows of another thing of the same kind, which was made before, stay as they
were. Every route of every table that names something in its path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.embedded import Embedded
from tests.support.examples import Examples
from tests.support.stage import Stage, stage
from tests.unit.api.test_every_route import THEIR_OWN, WRITES, by, each, is_quiet

pytestmark = pytest.mark.slow

# What things share is counted: addresses that are free, what a project uses, the version of all aggregates.
SHARED = ("control.network_free_ranges", "control.aggregate_version", "control.quota_usages", "control.volume_usage")
PATIENCE = 3.0  # seconds; an operation that waits for a host may never end
# The same handlers are there under two prefixes.
NAMING = [
    entry
    for entry in WRITES
    if "{" in entry.route.path
    and entry.is_ever_done
    and not entry.name.startswith(f"{entry.route.method} /compute/v2/")
]
Rows = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def staged() -> Iterator[Stage]:
    with stage() as made:
        yield made


@pytest.fixture(scope="module")
def examples(staged: Stage) -> Examples:
    return staged.examples(staged.member)


def rows_of(cloud: Embedded) -> Rows:
    """Return all rows by their table and their key."""
    return {
        (table, repr([row[name] for name in cloud.keys_of(table)])): row
        for table, found in cloud.records().items()
        if table not in SHARED
        for row in found
    }


@each(NAMING)
def test_another_thing_stays_as_it_was(staged: Stage, examples: Examples, entry: Any) -> None:
    cloud = staged.cloud
    whose = staged.member if entry.name in THEIR_OWN or "keypairs/{name}" in entry.name else staged.admin
    nothing = rows_of(cloud).keys()
    examples.request(entry, entry.newest, anew=True)
    cloud.settle(lambda: is_quiet(cloud), PATIENCE)
    another = rows_of(cloud).keys() - nothing
    asked = examples.request(entry, entry.newest, anew=True)
    cloud.settle(lambda: is_quiet(cloud), PATIENCE)
    before = rows_of(cloud)
    answer = by(whose, asked)
    assert answer.reached, f"{asked}: {answer.status} {answer.text}"
    cloud.settle(lambda: is_quiet(cloud), PATIENCE)
    after = rows_of(cloud)
    assert {key: after.get(key) for key in another} == {key: before.get(key) for key in another}
