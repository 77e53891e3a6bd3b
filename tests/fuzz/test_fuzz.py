"""Every route of the table, asked by schemathesis and by our own hand: no 500, no ERROR record, faults in the service's
shape, nothing of the inside. At least half of the requests get past form and policy, and at least one is done."""

from __future__ import annotations

import pytest
import schemathesis

from kilonova.api.app import service_apps
from kilonova.audit.run import audit
from tests.fuzz.rounds import Round
from tests.support.table import Entry, table
from tests.support.things.compute import is_in, new_server

ENTRIES = list(table(service_apps(None)))  # type: ignore[arg-type] - nobody asks them here
SAMPLE = 16  # requests of each kind of bad input


def each(entries: list[Entry]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entry", entries, ids=[entry.name for entry in entries])


@each(ENTRIES)
def test_fuzzed(fuzz: Round, entry: Entry) -> None:
    count = fuzz.fuzz(entry)
    assert not count.found, "\n\n".join(count.found)
    assert count.passed * 2 >= count.requests, f"{count.passed} of {count.requests} passed form and policy"
    assert count.done or not entry.is_ever_done, "not one request was done"


# The others have the same handlers as these.
@each([entry for entry in ENTRIES if entry.route.method != "HEAD" and entry.prefix != "/compute/v2"])
def test_bad_input_in_every_place(fuzz: Round, entry: Entry) -> None:
    count = fuzz.sweep(entry, SAMPLE)
    assert not count.found, "\n\n".join(count.found)


@pytest.mark.parametrize("service", ["compute", "identity", "image", "network", "volume", "placement", "kilonova"])
def test_each_service_describes_itself_as_openapi(fuzz: Round, service: str) -> None:
    found = fuzz.asker.done("GET", f"/kilonova/v1/openapi/{service}")
    loaded = schemathesis.openapi.from_dict(found)
    paths = {operation.ok().path for operation in loaded.get_all_operations()}
    prefix = found["servers"][0]["url"].removeprefix("http://cloud")
    newest = {entry.route.path for entry in ENTRIES if entry.prefix == prefix and entry.route.until is None}
    assert paths == newest and len(newest) > 5


def test_the_cloud_is_still_well(fuzz: Round) -> None:
    """After all that: a server can be made, everything has ended, and the books balance."""
    world = fuzz.examples.things.world
    is_in(world, new_server(world), "ACTIVE")
    cloud = fuzz.stage.cloud
    cloud.until(lambda: not fuzz.unended(), f"operations still run: {fuzz.unended()}")
    parts = cloud.service.engine.world
    report = cloud.wait(audit(parts.db, parts.clock, mend=False))  # what was claimed by hand belongs to nobody here
    assert (report.findings, report.unbalanced) == ([], [])
