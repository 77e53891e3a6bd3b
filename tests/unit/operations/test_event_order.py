"""The events of an action are listed in Nova's order, the newest first, also those that began at the same time and
whatever the database does with their rows; our own REST lists the oldest first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import bindparam, update

from kilonova.schema.tables.cell import action_events
from kilonova.store.statements import Sql
from kilonova.world import Tx
from tests.support.embedded import Embedded
from tests.support.people import administrator
from tests.support.stage import databases
from tests.unit.operations.test_burial import shown
from tests.unit.operations.test_user_data import SERVERS, ask, is_quiet

IN_ORDER = [
    *("conductor_migrate_server", "cold_migrate"),
    *("compute_prep_resize", "compute_resize_instance", "compute_finish_resize"),
]
# A clock that stands still. Rows that are written later lie elsewhere: on PostgreSQL that is the order of a plain read.
SAME_TIME = Sql(
    update(action_events).where(action_events.c.event == bindparam("which")).values(started_at=bindparam("at"))
)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Embedded]:
    with contextlib.ExitStack() as stack:
        settings: list[str] = []
        if request.param == "postgres":
            settings = stack.enter_context(databases(request.getfixturevalue("fast_postgres")))
        yield stack.enter_context(Embedded(tmp_path / "var", "audit.interval=0", *settings))


def same_time(cloud: Embedded, order: list[str]) -> None:
    async def body(tx: Tx) -> None:
        for event in order:
            await tx.run(SAME_TIME, which=event, at=1.0)

    cloud.wait(cloud.service.engine.world.db.cell("cell1").write(body))


def test_events_of_a_migration(cloud: Embedded) -> None:
    admin = administrator(cloud)
    server = ask(admin, "1")
    cloud.until(lambda: shown(admin, server)["status"] == "ACTIVE", "it runs")
    answer = admin.ask("POST", f"{SERVERS}/{server}/action", {"migrate": None})
    assert answer.status == 202, answer.text
    cloud.until(lambda: shown(admin, server)["status"] == "VERIFY_RESIZE", "it has moved")
    cloud.until(lambda: is_quiet(cloud), "nothing is under way")
    actions, operation = f"{SERVERS}/{server}/os-instance-actions", answer.headers["x-kilonova-operation"]
    request = admin.done("GET", actions)["instanceActions"][0]["request_id"]
    for order in (IN_ORDER, sorted(IN_ORDER), IN_ORDER[::-1]):
        same_time(cloud, order)
        events = admin.done("GET", f"{actions}/{request}")["instanceAction"]["events"]
        assert [one["event"] for one in events] == IN_ORDER[::-1]
        (action,) = admin.done("GET", f"/kilonova/v1/operations/{operation}")["operation"]["actions"]
        assert [one["event"] for one in action["events"]] == IN_ORDER
