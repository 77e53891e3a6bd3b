"""Which reports of a guest's power are noted, which are followed by an operation, and which call the host back."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kilonova.conductor import powers
from kilonova.conductor.powers import MOST_AT_ONCE, Followed, follow_powers
from kilonova.domain.errors import Refused
from kilonova.domain.messages import Beat
from kilonova.domain.server import (
    ACTIVE,
    ERROR,
    POWER_RUNNING,
    POWER_SHUTDOWN,
    SOFT_DELETED,
    STOPPED,
)
from kilonova.engine.accept import Ask
from kilonova.schema.tables.cell import servers
from kilonova.store import rows
from tests.engine.test_restored import server
from tests.support.small_cloud import SmallCloud, put

ON, OFF = True, False
HERE = {
    "runner_host": "host1",
    "runner_copy": 1,
    "operation_id": None,
    "vm_state": ACTIVE,
    "power_state": POWER_RUNNING,
}
NOTED, NOT_NOTED, CALLED_BACK = Followed([("s", 1)]), Followed([]), Followed([("s", 1)], register_again=True)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Ask]:
    found = list[Ask]()

    async def submit(engine: Any, ask: Ask) -> None:
        found.append(ask)

    monkeypatch.setattr(powers, "submit", submit)
    return found


async def follow(cloud: SmallCloud, *reports: tuple[str, int, bool]) -> Followed:
    engine = cloud.engine()
    beat = Beat(host="host1", session="s", epoch=1, powers=list(reports))
    return await follow_powers(engine, engine.world.db.cell("cell1"), beat)


def power_after(cloud: SmallCloud, record: dict[str, Any], on: bool) -> tuple[Followed, int]:
    """What is answered, and the power state that is shown then."""

    async def story() -> tuple[Followed, int]:
        engine = cloud.engine()
        this = server(**{**HERE, **record})
        another = {**this, "id": "0", "vm_state": ERROR, "runner_host": "host3"}
        for row in (another, this):
            await put(engine, "cell1", servers, **row)
        answer = await follow(cloud, ("s", 1, on))
        found = await engine.world.db.cell("cell1").read(lambda tx: rows.fetch_all(tx, servers))
        shown = {row["id"]: row["power_state"] for row in found}
        assert shown["0"] == this["power_state"]
        return answer, shown["s"]

    return cloud.run(story)


@pytest.mark.parametrize(
    ("state", "on", "is_followed"),
    [
        (ACTIVE, ON, False),
        (ACTIVE, OFF, True),
        (STOPPED, ON, True),
        (STOPPED, OFF, False),
        (SOFT_DELETED, ON, True),
        (SOFT_DELETED, OFF, False),
        *((other, on, False) for other in (ERROR) for on in (ON, OFF)),
    ],
)
@pytest.mark.parametrize("shown", [POWER_RUNNING, POWER_SHUTDOWN])
def test_a_report_that_differs_from_what_the_owner_wants_is_followed(
    small_cloud: SmallCloud, asked: list[Ask], state: str, on: bool, is_followed: bool, shown: int
) -> None:
    """It is told again until the records agree. Any other one corrects at most what is shown."""
    power = POWER_RUNNING if on else POWER_SHUTDOWN
    expected = (NOT_NOTED, shown) if is_followed else (NOTED, power)
    assert power_after(small_cloud, {"vm_state": state, "power_state": shown}, on) == expected
    assert [(ask.kind, ask.server_id) for ask in asked] == [("follow_power", "s")] * is_followed


@pytest.mark.parametrize("on", [ON, OFF])
def test_an_operation_alone_decides_about_the_power_of_its_server(
    small_cloud: SmallCloud, asked: list[Ask], on: bool
) -> None:
    assert power_after(small_cloud, {"operation_id": "o"}, on) == (NOT_NOTED, POWER_RUNNING)
    assert not asked


@pytest.mark.parametrize("record", [{"runner_host": "host2"}, {"runner_copy": 2}, {"deleted": 1}])
def test_a_guest_that_may_not_run_there_calls_its_host_back(
    small_cloud: SmallCloud, asked: list[Ask], record: dict[str, Any]
) -> None:
    assert power_after(small_cloud, record, ON) == (CALLED_BACK, POWER_RUNNING)
    assert not asked


@pytest.mark.parametrize(
    ("record", "on"), [({"runner_host": "host2"}, OFF), ({"runner_host": "host2", "operation_id": "o"}, ON)]
)
def test_one_that_has_ended_or_moves_does_not(
    small_cloud: SmallCloud, asked: list[Ask], record: dict[str, Any], on: bool
) -> None:
    assert power_after(small_cloud, record, on) == (NOTED, POWER_RUNNING)
    assert not asked


def test_a_host_is_called_back_for_one_of_several(small_cloud: SmallCloud, asked: list[Ask]) -> None:
    reports = [("unknown", 1, ON), ("gone", 2, OFF)]
    expected = Followed([("unknown", 1), ("gone", 2)], register_again=True)
    assert small_cloud.run(lambda: follow(small_cloud, *reports)) == expected


def test_a_host_tells_the_rest_with_its_next_heartbeat(small_cloud: SmallCloud, asked: list[Ask]) -> None:
    reports = [(f"s{number}", 1, OFF) for number in range(MOST_AT_ONCE + 1)]
    followed = small_cloud.run(lambda: follow(small_cloud, *reports))
    assert followed.noted == [(name, 1) for name, _, _ in reports[:MOST_AT_ONCE]]


@pytest.mark.parametrize(("code", "is_noted"), [("busy", False), ("host_down", False), ("wrong_state", True)])
def test_a_report_that_cannot_be_followed_now_is_told_again(
    small_cloud: SmallCloud, monkeypatch: pytest.MonkeyPatch, code: str, is_noted: bool
) -> None:
    async def submit(*_: Any) -> None:
        raise Refused(code, "why")

    monkeypatch.setattr(powers, "submit", submit)
    assert power_after(small_cloud, {}, OFF) == (NOTED if is_noted else NOT_NOTED, POWER_RUNNING)


@pytest.mark.parametrize(
    ("state", "on", "word"), [(ACTIVE, OFF, "ended"), (STOPPED, ON, "started")], ids=["ended", "started"]
)
def test_the_owner_reads_why_an_operation_was_begun(
    small_cloud: SmallCloud,
    asked: list[Ask],
    caplog: pytest.LogCaptureFixture,
    state: str,
    on: bool,
    word: str,
) -> None:
    with caplog.at_level(logging.INFO, logger=powers.__name__):
        power_after(small_cloud, {"vm_state": state}, on)
    (ask,) = asked
    assert (ask.cause.user_id, ask.cause.project_id, ask.cause.through) == ("u", "p", "periodic")
    assert word in (ask.cause.reason or "") and "without an order" in (ask.cause.reason or "")
    assert [record.getMessage() for record in caplog.records] == [f"guest {word} without an order: server=s host=host1"]


@pytest.mark.parametrize("since", [{"turn": 10**9}, {"operation_id": "o"}])
def test_what_changed_since_it_was_read_is_left_alone(
    small_cloud: SmallCloud, asked: list[Ask], monkeypatch: pytest.MonkeyPatch, since: dict[str, Any]
) -> None:
    """A server that was stopped in between, by an operation from its beginning to its end, is off."""
    really = powers._find

    async def find(journal: Any, name: str) -> Any:
        row = await really(journal, name)
        await journal.write(lambda tx: rows.change(tx, servers, since, id=name))
        return row

    monkeypatch.setattr(powers, "_find", find)
    assert power_after(small_cloud, {"power_state": POWER_SHUTDOWN}, ON) == (NOTED, POWER_SHUTDOWN)
