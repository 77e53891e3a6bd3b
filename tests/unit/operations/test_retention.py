"""A created and deleted server leaves no row after the purge; what is live, owed, in quarantine or a finding stays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import bindparam, update

from kilonova.cli.database import purge as purge_command
from kilonova.domain.errors import Refused, StoreError
from kilonova.schema.tables import control, placement
from kilonova.schema.tables.failures import host_failures
from kilonova.schema.tables.journal import idempotency_keys, operations
from kilonova.store import rows
from kilonova.store.failures import arm, disarm
from kilonova.store.purge import purge
from kilonova.store.statements import Sql
from kilonova.world import Store, Tx
from tests.support.embedded import Embedded
from tests.support.people import Person, administrator
from tests.support.stage import databases
from tests.unit.operations.test_burial import HUGE, shown
from tests.unit.operations.test_user_data import SERVERS, VERSION, ask, delete_all, is_quiet

pytestmark = pytest.mark.slow

DAYS = 86400.0
AGED = {
    name: Sql(update(table).values({one: table.c[one] - bindparam("seconds") for one in columns}))
    for name, table, columns in (
        ("operations", operations, ("created_at", "ended_at")),
        ("ledger", placement.ledger, ("at",)),
        ("keys", idempotency_keys, ("created_at",)),
        ("unmapped", control.unmapped_servers, ("at",)),
    )
}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Embedded]:
    with contextlib.ExitStack() as stack:
        settings: list[str] = []
        if request.param == "postgres":
            settings = stack.enter_context(databases(request.getfixturevalue("fast_postgres")))
        yield stack.enter_context(Embedded(tmp_path / "var", "audit.interval=0", *settings))


def stores_of(cloud: Embedded) -> Any:
    return cloud.service.engine.world.db


def write(cloud: Embedded, store: Store, statement: Sql, **params: Any) -> None:
    async def body(tx: Tx) -> int:
        return await tx.run(statement, **params)

    cloud.wait(store.write(body))


def age(cloud: Embedded, days: float = 2.0) -> None:
    """Everything that ended did so that many days earlier."""
    stores = stores_of(cloud)
    for journal in stores.journals():
        write(cloud, journal, AGED["operations"], seconds=days * DAYS)
        write(cloud, journal, AGED["keys"], seconds=days * DAYS)
    write(cloud, stores.placement, AGED["ledger"], seconds=days * DAYS)
    write(cloud, stores.control, AGED["unmapped"], seconds=days * DAYS)


def count(cloud: Embedded) -> dict[str, int]:
    """Rows of every table, but for the ids of images: no id is given twice."""
    records = cloud.records()
    return {table: len(content) for table, content in records.items() if content and table != "control.image_ids"}


def run_purge(cloud: Embedded, days: float = 0.0) -> dict[str, int]:
    return dict(cloud.wait(purge(stores_of(cloud), days)))


def make(cloud: Embedded, admin: Person, **more: Any) -> str:
    """A server that runs, with user data, a port and a volume."""
    networks = admin.done("GET", "/network/v2.0/networks")["networks"]
    network = next(str(one["id"]) for one in networks if one["name"] == "shared")
    image = admin.done("GET", "/image/v2/images")["images"][0]["id"]
    devices = [
        {"source_type": "image", "destination_type": "local", "uuid": image, "boot_index": 0},
        {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "delete_on_termination": True},
    ]
    server = ask(admin, "1", networks=[{"uuid": network}], block_device_mapping_v2=devices, **more)
    cloud.until(lambda: shown(admin, server)["status"] == "ACTIVE", "it runs")
    cloud.until(lambda: is_quiet(cloud), "nothing is under way")
    return server


def no_volumes(admin: Person) -> bool:
    return not admin.done("GET", f"/volume/v3/{admin.project_id}/volumes")["volumes"]


def move(cloud: Embedded, admin: Person, server: str) -> None:
    for kind, status in (("migrate", "VERIFY_RESIZE"), ("confirm_resize", "ACTIVE")):
        admin.done("POST", "/kilonova/v1/operations", {"operation": kind, "server": server})
        cloud.until(lambda status=status: shown(admin, server)["status"] == status, kind)
        cloud.until(lambda: is_quiet(cloud), "nothing is under way")


def upload_and_delete(admin: Person) -> None:
    image = admin.done("POST", "/image/v2/images", {"name": "i", "disk_format": "raw", "container_format": "bare"})[
        "id"
    ]
    headers = {"content-type": "application/octet-stream"}
    assert admin.ask("PUT", f"/image/v2/images/{image}/file", b"x" * 4096, headers).status == 204
    assert admin.ask("DELETE", f"/image/v2/images/{image}").status == 204


def live_and_die(cloud: Embedded, admin: Person) -> None:
    """One that runs and moves, one of several, one that finds no host, and one deleted at once; an image too."""
    move(cloud, admin, make(cloud, admin))
    upload_and_delete(admin)
    ask(admin, "1", min_count=2)
    buried = ask(admin, "huge")
    cloud.until(lambda: shown(admin, buried)["status"] == "ERROR", "it is buried")
    ask(admin, "1")
    delete_all(cloud, admin)
    cloud.until(lambda: no_volumes(admin), "its volume is gone")
    cloud.until(lambda: not any(cloud.records()[name] for name in FILES), "their files are gone")


FILES = ("control.volume_files_to_remove", "control.image_files_to_remove")
FENCES = ("placement.claim_fence", "control.fences", "cell0.fences", "cell1.fences")


def test_a_created_and_deleted_server_leaves_no_row(cloud: Embedded) -> None:
    admin = administrator(cloud)
    admin.done("POST", "/compute/v2.1/flavors", {"flavor": HUGE})
    live_and_die(cloud, admin)  # a project's first server also makes rows that belong to the project
    for _ in range(2):  # fences go a day later
        age(cloud)
        run_purge(cloud)
    before = count(cloud)
    assert before.keys().isdisjoint(FENCES)
    for table in ("operations", "steps", "servers", "actions", "action_events", "faults", "migrations"):
        assert not any(name.endswith(f".{table}") for name in before), before
    live_and_die(cloud, admin)
    after = count(cloud)
    assert after.keys() >= {*FENCES}, "the test makes fences everywhere"
    assert sum(after.values()) > sum(before.values()) + 29
    age(cloud)
    counts = run_purge(cloud)
    assert counts["control.server_mappings"] == 5
    left = count(cloud)
    assert {name: left.get(name) for name in FENCES} == {name: after[name] for name in FENCES}
    assert left.keys() - before.keys() == {*FENCES, "control.unmapped_servers"}
    assert run_purge(cloud) == {}, "a fence stays for a day after its mapping"
    age(cloud)
    assert run_purge(cloud).keys() == {*FENCES, "control.unmapped_servers"}
    assert count(cloud) == before
    assert run_purge(cloud) == {}, "nothing is left to purge"


def test_what_is_younger_stays(cloud: Embedded) -> None:
    admin = administrator(cloud)
    make(cloud, admin)
    delete_all(cloud, admin)
    before = count(cloud)
    assert run_purge(cloud) == {}, "a fence stays for a day"
    age(cloud, 80.0)
    assert run_purge(cloud, 90.0).keys() <= {"placement.ledger", "control.idempotency_keys"}
    assert count(cloud) == before


def test_a_server_that_runs_loses_its_old_operations_and_nothing_else(cloud: Embedded) -> None:
    admin = administrator(cloud)
    server = make(cloud, admin)
    before = cloud.records()
    age(cloud)
    counts = run_purge(cloud)
    gone = {"operations", "steps", "secrets", "interventions", "findings", "idempotency_keys", "ledger"}
    assert {name.partition(".")[2] for name in counts} <= gone
    after = cloud.records()
    for name, content in before.items():
        if name.partition(".")[2] not in gone:
            assert len(after[name]) == len(content), name
    assert shown(admin, server)["status"] == "ACTIVE"
    admin.done("POST", f"{SERVERS}/{server}/action", {"os-stop": None}, VERSION)
    cloud.until(lambda: shown(admin, server)["status"] == "SHUTOFF", "it stops")
    cloud.until(lambda: is_quiet(cloud), "nothing is under way")
    delete_all(cloud, admin)
    age(cloud)
    run_purge(cloud)
    assert not cloud.records()["cell1.servers"] and not cloud.records()["control.server_mappings"]


def test_an_idempotency_key_keeps_its_operation_for_a_week(cloud: Embedded) -> None:
    admin = administrator(cloud)
    image = admin.done("GET", "/image/v2/images")["images"][0]["id"]
    wish = {"server": {"name": "a", "flavorRef": "1", "imageRef": image, "networks": "none"}}
    headers = {**VERSION, "idempotency-key": "once"}
    server = admin.done("POST", SERVERS, wish, headers)["server"]["id"]
    cloud.until(lambda: shown(admin, server)["status"] == "ACTIVE", "it runs")
    cloud.until(lambda: is_quiet(cloud), "nothing is under way")
    age(cloud)
    run_purge(cloud)
    assert admin.done("POST", SERVERS, wish, headers)["server"]["id"] == server
    age(cloud, 8.0)
    run_purge(cloud)
    assert not cloud.records()["control.idempotency_keys"] and not cloud.records()["control.operations"]


def put_failure(cloud: Embedded, host: str, state: str, days: float, *, is_open: bool = False) -> None:
    """A record of the failure watch that changed that many days ago."""

    async def body(tx: Tx) -> None:
        at = await tx.now() - days * DAYS
        values: dict[str, Any] = {"id": f"of-{host}", "host": host, "cell": "cell1", "state": state, "attempts": 1}
        values |= dict.fromkeys(("evidence", "sentence", "proof"), "")
        values |= {"created_at": min(at, at - DAYS), "changed_at": at, "open": 1 if is_open else None}
        await rows.put(tx, host_failures, **values)

    cloud.wait(stores_of(cloud).control.write(body))


def failures(cloud: Embedded) -> list[str]:
    return sorted(row["host"] for row in cloud.records()["control.host_failures"])


def test_records_of_the_failure_watch_go_when_they_are_over(cloud: Embedded) -> None:
    """A host that has not come back stays; so does a lie that keeps the watch disarmed."""
    for host, state, days in (("back", "returned", 2.0), ("lately", "returned", 0.5), ("gone", "gone", 2.0)):
        put_failure(cloud, host, state, days)
    put_failure(cloud, "dead", "done", 200.0, is_open=True)
    put_failure(cloud, "liar", "lied", 200.0)
    control = stores_of(cloud).control
    cloud.wait(control.write(lambda tx: disarm(tx, None, "the fence command lied", "")))
    assert run_purge(cloud, 90.0) == {}
    assert run_purge(cloud) == {"control.host_failures": 2}
    assert failures(cloud) == ["dead", "lately", "liar"]
    cloud.wait(control.write(arm))
    put_failure(cloud, "other", "lied", 0.5)
    assert run_purge(cloud) == {"control.host_failures": 1}
    assert failures(cloud) == ["dead", "lately", "other"], "an operator has looked at the lie, and nothing is young"


def test_a_conductor_purges_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kilonova.conductor.service.SECONDS_BETWEEN", 0.2)
    with Embedded(tmp_path / "var", "retention.days=1.5", "audit.ledger_days=1") as cloud:
        admin = administrator(cloud)
        make(cloud, admin)
        delete_all(cloud, admin)
        assert cloud.records()["cell1.servers"]
        put_failure(cloud, "back", "returned", 2.0)
        age(cloud)
        cloud.until(lambda: not cloud.records()["control.server_mappings"], "it is purged")
        cloud.until(lambda: not failures(cloud), "so is a record of the failure watch")
        cloud.until(lambda: not cloud.records()["cell1.servers"], "its row went last")


def test_the_command_purges_what_is_not_running(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "var"
    with Embedded(data) as cloud:
        admin = administrator(cloud)
        make(cloud, admin)
        delete_all(cloud, admin)
        age(cloud)
        put_failure(cloud, "back", "returned", 2.0)
        with pytest.raises(StoreError, match="in use"):
            purge_command(before=1.0, data=data)
    for wrong in ({"before": 0.5}, {"before": -1.0}, {"overrides": ["retention.days=0"]}):
        with pytest.raises(Refused, match="--before"):
            purge_command(data=data, **wrong)
    with pytest.raises(Refused, match=r"no control\.db"):
        purge_command(data=tmp_path / "elsewhere")
    purge_command(data=data)
    assert "purged: 0 rows of records that ended more than 90 days ago" in capsys.readouterr().out
    purge_command(before=1.0, data=data)
    lines = capsys.readouterr().out.splitlines()
    removed = [line.split() for line in lines]
    assert ["cell1.servers", "1"] in removed and ["control.host_failures", "1"] in removed
    with Embedded(data) as cloud:
        assert not cloud.records()["cell1.servers"] and not cloud.records()["cell1.operations"]
