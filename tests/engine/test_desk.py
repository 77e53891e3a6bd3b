"""Where agents knock: what a conductor tells them, and which of their words count. The test speaks as the agents do."""

import asyncio

import pytest
from sqlalchemy import select

from kilonova.conductor import desk
from kilonova.conductor.returning import register
from kilonova.domain.guest import CopyReport
from kilonova.operations import REGISTRY
from kilonova.operations.hosts import declare_down
from kilonova.operations.migrate import Migrate
from kilonova.store import rows
from kilonova.store.statements import Sql
from kilonova.store.tables.cell import servers
from kilonova.store.tables.placement import resource_providers
from tests.engine.speaking import Speaker

PROVIDERS = Sql(select(resource_providers.c.name, resource_providers.c.accepting))


@pytest.fixture
def building(cloud):
    """A host of two, spoken for by the test, with an order to build a guest."""
    cloud = cloud(hosts=2)
    speaker = Speaker(cloud, "host1").join()
    _, operation = cloud.make(host="host1")
    (order,) = speaker.beat().steps
    assert (order.operation, order.name) == (operation, "build_and_run_instance")
    return cloud, speaker, order


def state(cloud, order):
    row = cloud.operation(order.operation)
    return row["state"], row["ordinal"]


def test_a_result_ends_the_step_once(building):
    cloud, speaker, order = building
    assert speaker.finish(order)
    assert not speaker.finish(order), "a doubled result changes nothing"
    cloud.loop.run_for(5.0)
    assert state(cloud, order)[0] == "done"


@pytest.mark.parametrize(
    "other",
    [{"epoch": 0}, {"session": "an earlier life"}, {"ordinal": 1}, {"ordinal": 99}, {"operation": "another"}],
    ids=lambda other: next(iter(other)),
)
def test_a_result_that_is_not_of_now_changes_nothing(building, other):
    cloud, speaker, order = building
    before = state(cloud, order)
    assert not speaker.finish(order, **other)
    assert state(cloud, order) == before
    assert speaker.finish(order), "the right one still counts"


def test_a_step_that_cannot_be_given_away_does_not_keep_the_others(building):
    """As if its server had been given to another host behind the operation's back."""
    cloud, speaker, order = building

    async def give_away(engine):
        async def body(tx):
            await rows.change(tx, servers, {"runner_host": "host2"}, id=order.server)

        await engine.world.db.cell("cell1").write(body)

    cloud.do(give_away)
    _, other = cloud.make("b", host="host1")
    assert {step.operation for step in speaker.beat().steps} == {other}


def test_a_host_cannot_end_another_hosts_step(building):
    cloud, _, order = building
    before = state(cloud, order)
    stranger = Speaker(cloud, "host2", session="of host2").join()
    assert not stranger.finish(order)
    assert state(cloud, order) == before


def test_what_was_said_before_a_decision_about_the_host_does_not_count_after_it(building):
    cloud, speaker, order = building
    cloud.do(lambda engine: declare_down(engine, "host1"))
    assert not speaker.finish(order)
    assert speaker.beat().register_again


def test_a_new_life_gets_the_step_again_and_the_old_one_is_not_heard(building):
    _, speaker, order = building
    old, speaker.session = speaker.session, "second life"
    speaker.join()
    assert not speaker.finish(order, session=old)
    assert not speaker.finish(order), "it has not been given to this life yet"
    (again,) = speaker.beat().steps
    assert (again.operation, again.ordinal) == (order.operation, order.ordinal)
    assert speaker.beat(has=[f"{order.operation}/{order.ordinal}"]).steps == [], "what it has it is not told again"
    assert speaker.finish(again)


def test_a_returning_host_pays_before_it_works_or_receives(building):
    cloud, speaker, order = building
    assert speaker.finish(order)
    cloud.loop.run_for(5.0)
    server, copy = order.server, order.copy
    cloud.do(lambda engine: declare_down(engine, "host1"))
    operation = cloud.submit("delete", server).operation_id
    cloud.loop.run_for(30.0)
    assert cloud.operation(operation)["state"] == "done"
    assert [debt["host"] for debt in cloud.records().table("debts")] == ["host1"]
    report = CopyReport(server=server, copy=copy, power="on", whole=True, marker="x", defined=True)
    told = speaker.register(report)
    assert [(v.server, v.copy, v.word) for v in told.verdicts] == [(server, copy, "destroy")]
    assert speaker.beat().register_again, "no work before the verdicts are carried out"
    assert _accepting(cloud) == {"host1": 0, "host2": 1}
    assert speaker.returned(destroyed=[(server, copy)])
    assert cloud.records().table("debts") == []
    assert _accepting(cloud) == {"host1": 0, "host2": 1}, "declared down until somebody takes the word back"


def test_a_copy_that_is_newer_than_the_records_is_left_alone(building):
    """Somebody restored an old database: the host knows of turns that these records never saw."""
    cloud, speaker, order = building
    assert speaker.finish(order)
    cloud.loop.run_for(5.0)
    newer = cloud.server(order.server)["turn"] + 1
    report = CopyReport(server=order.server, copy=newer, power="on", whole=True, marker="x", defined=True)
    (verdict,) = speaker.register(report).verdicts
    assert (verdict.word, verdict.copy) == ("quarantine", newer)
    assert [(q["server_id"], q["copy"]) for q in cloud.records().table("quarantine")] == [(order.server, newer)]


def test_a_host_that_registers_is_no_destination_until_it_has_settled(building):
    cloud, speaker, order = building
    speaker.finish(order)
    speaker.register()
    assert _accepting(cloud) == {"host1": 0, "host2": 1}
    assert speaker.returned()
    assert _accepting(cloud) == {"host1": 1, "host2": 1}
    row = next(host for host in cloud.records().table("hosts") if host["name"] == "host1")
    assert not row["returning"]


def test_a_guest_is_started_only_where_permission_was_committed_before(cloud, monkeypatch):
    """Law 3, for operations not yet written: one that forgets to move the permission does not get far."""

    class Careless(Migrate):
        steps = [step for step in Migrate.steps if step.name != "grant_runner"]

    monkeypatch.setitem(REGISTRY, "migrate", Careless())
    cloud = cloud()
    server, _ = cloud.make()
    source = cloud.server(server)["host"]
    operation = cloud.submit("migrate", server).operation_id
    cloud.loop.run_for(60.0)
    assert cloud.steps(operation)[-1][0] == "finish_resize", "it has come to the step that starts the guest"
    assert cloud.steps(operation)[-1][3] == "ready", "and nobody was told to do it"
    assert [host for host, _ in cloud.hardware.running(server) if host != source] == []


def _accepting(cloud):
    """Which hosts take claims."""

    async def body(tx):
        return {row["name"]: row["accepting"] for row in await tx.all(PROVIDERS)}

    return cloud.do(lambda engine: engine.world.db.placement.read(body))


def test_a_whole_fleet_that_starts_at_once_is_taken_in_once(cloud, monkeypatch):
    turn, done = asyncio.Lock(), []

    async def slowly(engine, message):
        async with turn:
            await asyncio.sleep(0.5)
        done.append(message.host)
        return await register(engine, message)

    monkeypatch.setattr(desk, "register", slowly)
    monkeypatch.setattr(desk, "REGISTRATIONS", 4)
    cloud(hosts=60)
    assert len(set(done)) == 60
    assert len(done) == 60, "no host that had given up was registered for nobody"


@pytest.mark.parametrize("kind", ["stop", "reboot", "migrate", "delete"])
def test_an_operation_of_records_older_than_the_host_says_so(cloud, kind):
    """The records were restored: the host has had later turns of the server, and drops what comes now. The operation
    must not stay in `running` without a word."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make(host="host1")
    cloud.hardware.note("host1", server, (1000, 1))
    cloud.crash("host1", 1.0)
    cloud.loop.run_for(30.0)
    operation = cloud.submit(kind, server).operation_id
    cloud.loop.run_for(120.0)
    row = cloud.operation(operation)
    said = f"{row['waiting_for']} {row['error']} {[s['error'] for s in cloud.records().table('steps') if s['error']]}"
    assert "is older than turn 1000" in said
    assert (row["state"], row["waiting_for"]) != ("running", None)
    assert cloud.hardware.running(server) == [("host1", 1)], "nothing happened to the guest"
