"""Where agents knock: what a conductor tells them, and which of their words count. The test speaks as the agents do."""

import asyncio

import pytest
from sqlalchemy import select

from kilonova.conductor import handlers
from kilonova.domain.errors import Superseded
from kilonova.domain.guest import CopyReport
from kilonova.hosts import registration, registration_end
from kilonova.hosts.registration import register
from kilonova.hosts.states import declare_down
from kilonova.operations import REGISTRY
from kilonova.operations.migrate import Migrate
from kilonova.operations.rebuild import Rebuild
from kilonova.schema.tables.cell import hosts, servers
from kilonova.schema.tables.control import host_mappings
from kilonova.schema.tables.placement import resource_providers
from kilonova.store import rows
from kilonova.store.statements import Sql
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
    [
        {"epoch": 0},
        {"host": "nobody"},
        {"session": "an earlier life"},
        {"ordinal": 1},
        {"ordinal": 99},
        {"operation": "another"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_result_that_is_not_of_now_changes_nothing(building, other):
    cloud, speaker, order = building
    before = state(cloud, order)
    assert not speaker.finish(order, **other)
    assert state(cloud, order) == before
    assert speaker.finish(order), "the right one still counts"


@pytest.fixture
def rebuilding(building):
    """The same host, with an order for the first of several steps that it has in a row."""
    cloud, speaker, order = building
    assert speaker.finish(order)
    cloud.loop.run_for(5.0)
    operation = cloud.submit("rebuild", order.server, image="other").operation_id
    cloud.loop.run_for(2.0)
    (order,) = speaker.beat().steps
    assert (order.operation, order.name) == (operation, "make_copy")
    return cloud, speaker, order


def standing(cloud, order):
    """The newest step and who has it."""
    name, _, host, word = cloud.steps(order.operation)[-1]
    return name, host, word


def test_a_host_gets_its_next_step_with_the_answer(rebuilding):
    cloud, speaker, order = rebuilding
    for name in ("stop_old_copy", "rebuild_instance", "remove_old_copy"):
        order = speaker.report(order, goes_on=True).order
        assert (order.name, standing(cloud, order)) == (name, (name, "host1", "taken"))
        row = cloud.server(order.server)
        assert (row["runner_copy"] == row["turn"]) is (name != "stop_old_copy"), "permission comes with the step"
        committed = cloud.operation(order.operation)["committed"]
        assert bool(committed) is (name == "remove_old_copy"), "the point of no return is passed with it"
    answer = speaker.report(order, goes_on=True)
    assert (answer.accepted, answer.order, state(cloud, order)[0]) == (True, None, "done")


def test_an_answer_that_gets_lost_costs_nothing_but_time(rebuilding):
    _, speaker, order = rebuilding
    following = speaker.report(order, goes_on=True).order
    assert not speaker.finish(order, goes_on=True), "told again, it is refused"
    (again,) = speaker.beat().steps
    assert again == following


def test_an_agent_of_the_release_before_asks_for_its_next_step(rebuilding):
    cloud, speaker, order = rebuilding
    assert speaker.report(order).order is None
    assert standing(cloud, order) == ("stop_old_copy", "host1", "ready")
    assert [step.name for step in speaker.beat().steps] == ["stop_old_copy"]


@pytest.mark.parametrize("column", ["returning", "forced_down", "fenced"])
def test_a_host_that_may_not_work_gets_no_step_with_the_answer(rebuilding, column):
    cloud, speaker, order = rebuilding

    async def decide(engine):
        async def body(tx):
            await rows.change(tx, hosts, {column: 1}, name="host1")

        await engine.world.db.cell("cell1").write(body)

    cloud.do(decide)
    answer = speaker.report(order, goes_on=True)
    assert (answer.accepted, answer.order) == (True, None)
    assert standing(cloud, order)[2] == "ready"


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
    assert [(v.server, v.copy, v.action) for v in told.verdicts] == [(server, copy, "destroy")]
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
    assert (verdict.action, verdict.copy) == ("quarantine", newer)
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


WORDS_ABOUT_A_HOST = {"disabled": 1, "draining": 1, "forced_down": 1, "fenced": "the word"}


def write_host(cloud, **columns):
    async def body(tx):
        assert await rows.change(tx, hosts, columns, name="host1")

    cloud.do(lambda engine: engine.world.db.cell("cell1").write(body))


@pytest.mark.parametrize("word", WORDS_ABOUT_A_HOST)
def test_a_host_that_was_closed_while_it_returned_stays_closed(building, word):
    cloud, speaker, order = building
    speaker.finish(order)
    speaker.register()
    write_host(cloud, **{word: WORDS_ABOUT_A_HOST[word]})
    assert speaker.returned()
    assert _accepting(cloud) == {"host1": 0, "host2": 1}


@pytest.mark.parametrize("word", ["forced_down", "fenced", "returning"])
def test_a_host_that_counts_as_dead_or_returns_gets_no_steps(building, word):
    """Whatever its session and epoch are."""
    cloud, speaker, order = building
    assert [again.ordinal for again in speaker.beat().steps] == [order.ordinal]
    write_host(cloud, **{word: WORDS_ABOUT_A_HOST.get(word, 1)})
    assert speaker.beat().steps == []


def test_a_registration_that_nobody_finishes_is_noticed_by_the_next_beat(building, monkeypatch):
    """A doubled message closes the host's provider, and the conductor dies before it records that the host returns."""
    cloud, speaker, order = building
    speaker.finish(order)

    async def die(*_):
        raise ConnectionError("the conductor dies here")

    monkeypatch.setattr("kilonova.hosts.registration.take_report", die)
    with pytest.raises(ConnectionError):
        cloud.do(lambda engine: register(engine, speaker.message()))
    assert _accepting(cloud) == {"host1": 0, "host2": 1}
    assert speaker.beat().register_again
    monkeypatch.undo()
    speaker.join()
    assert _accepting(cloud) == {"host1": 1, "host2": 1}


def test_a_host_that_nobody_knows_is_told_to_register(building):
    """It was removed while it was cut off, or joined since the backup that control was restored from."""
    cloud, speaker, order = building
    speaker.finish(order)

    async def forget(engine):
        await engine.world.db.control.write(lambda tx: rows.remove(tx, host_mappings, host="host1"))

    cloud.do(forget)
    cloud.kill("conductor1")  # who may have remembered it
    cloud.start("conductor1")
    cloud.loop.run_for(5.0)
    assert speaker.beat().register_again
    speaker.join()
    assert not speaker.beat().register_again


@pytest.fixture
def overtaken(building, monkeypatch):
    """A doubled registration, whose conductor stands still before it closes the host's provider."""
    cloud, speaker, order = building
    speaker.finish(order)
    close, stalled = registration.set_by_registration, []

    async def stands_still(*args):
        if not stalled:
            stalled.append(args)
            await asyncio.sleep(200.0)
        return await close(*args)

    monkeypatch.setattr(registration, "set_by_registration", stands_still)
    late = cloud.ask(lambda engine: register(engine, speaker.message()))
    cloud.loop.run_for(1.0)
    speaker.join()
    assert stalled and _accepting(cloud) == {"host1": 1, "host2": 1}
    return cloud, speaker, late


def test_a_late_registration_does_not_close_a_host_that_has_returned_since(overtaken):
    """Nobody would notice, if its conductor died then: the host's beats are answered as if all were well."""
    cloud, speaker, late = overtaken
    cloud.loop.run_for(300.0)
    assert isinstance(late.exception(), Superseded)
    assert _accepting(cloud) == {"host1": 1, "host2": 1}
    assert not speaker.beat().register_again


def test_a_late_registration_whose_copies_are_of_the_past_is_not_judged(building, monkeypatch):
    """It closed the provider in time, and comes to the host's record late."""
    cloud, speaker, order = building
    speaker.finish(order)
    report, stalled = registration.take_report, []

    async def stands_still(*args):
        if not stalled:
            stalled.append(args)
            await asyncio.sleep(200.0)
        return await report(*args)

    monkeypatch.setattr(registration, "take_report", stands_still)
    unknown = CopyReport(server="unknown", copy=1, power="off", whole=True)
    late = cloud.ask(lambda engine: register(engine, speaker.message(unknown)))
    cloud.loop.run_for(1.0)
    speaker.join()
    cloud.loop.run_for(300.0)
    assert isinstance(late.exception(), Superseded)
    assert cloud.records().table("quarantine") == []
    assert not speaker.beat().register_again


def test_who_has_returned_does_not_end_a_later_registration(building, monkeypatch):
    """Of a conductor that died before it closed the provider: a beat has to notice that it is not ended."""
    cloud, speaker, order = building
    speaker.finish(order)
    speaker.register()
    let_in, died = registration.set_by_registration, []

    async def meanwhile(placement, provider, accepting, number):
        if accepting and not died:
            died.append(number)
            with pytest.raises(ConnectionError):
                await register(cloud.roles["api"].engine, speaker.message())
        if not accepting and died == [number - 1]:
            raise ConnectionError("the conductor dies here")
        return await let_in(placement, provider, accepting, number)

    for module in (registration, registration_end):
        monkeypatch.setattr(module, "set_by_registration", meanwhile)
    assert not speaker.returned()
    assert died and _accepting(cloud) == {"host1": 0, "host2": 1}
    assert speaker.beat().register_again


@pytest.mark.parametrize("table", [hosts, resource_providers], ids=["the cell", "placement"])
def test_registrations_are_numbered_above_what_a_restored_database_knows(building, table):
    cloud, speaker, order = building
    speaker.finish(order)
    speaker.join()

    async def forget(engine):
        store = engine.world.db.cell("cell1") if table is hosts else engine.world.db.placement
        await store.write(lambda tx: rows.change(tx, table, {"registration": None}, name="host1"))

    cloud.do(forget)
    speaker.join()
    assert _accepting(cloud) == {"host1": 1, "host2": 1}


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


def test_a_guest_is_not_started_with_the_answer_either(rebuilding, monkeypatch):
    class Careless(Rebuild):
        steps = [step for step in Rebuild.steps if step.name != "grant_runner"]

    monkeypatch.setitem(REGISTRY, "rebuild", Careless())
    cloud, speaker, order = rebuilding
    order = speaker.report(order, goes_on=True).order
    assert speaker.report(order, goes_on=True).order is None
    assert standing(cloud, order) == ("rebuild_instance", "host1", "ready")


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

    monkeypatch.setattr(handlers, "register", slowly)
    monkeypatch.setattr(handlers, "REGISTRATIONS", 4)
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
