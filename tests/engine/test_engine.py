"""The engine's promises, on a whole simulated cloud."""

import re

import pytest

from kilonova.domain.errors import CommitUnknown, NotYet, Refused
from kilonova.engine.accept import Ask, IdempotencyKey, gather
from kilonova.engine.model import CONTROL, Step
from kilonova.engine.rehearse import rehearse
from kilonova.engine.restored import begin_era
from kilonova.engine.submit import submit
from kilonova.hosts.states import declare_down
from kilonova.operations import REGISTRY
from kilonova.operations.create.accept import NewServer, create
from kilonova.operations.facts import DESTINATION
from kilonova.operations.migrate import Migrate
from kilonova.operations.whole_hosts.requests import evacuate_host
from kilonova.schema.tables.cell import servers
from kilonova.settings import ConductorOptions, Default
from kilonova.sim.invariants.invariants import check
from kilonova.sim.lab.cloud import DATABASE_CLOCK
from kilonova.sim.lab.settings import simulated
from kilonova.store import rows

from .conftest import SMALL

TWO_AT_ONCE = simulated(conductor=ConductorOptions(evacuations_per_destination=2))


def test_the_loser_of_a_race_is_refused_with_the_state_that_won(cloud):
    """A10: Nova answers 500."""
    cloud = cloud()
    server, _ = cloud.make()
    ask = Ask(kind="migrate", server_id=server, cause=cloud.cause())
    answers = [cloud.ask(lambda engine: submit(engine, ask)) for _ in range(2)]
    cloud.loop.run_for(60.0)
    errors = [a.exception() for a in answers if a.exception() is not None]
    assert [error.code for error in errors] == ["busy"]
    assert "resize_prep" in str(errors[0])
    assert check(cloud) == []


def test_a_server_that_another_operation_got_in_the_same_turn_is_looked_at_again(cloud, monkeypatch):
    """On PostgreSQL `hand_over` may commit between a delete's look at the server and its compare-and-set. A delete that
    took the server then, unaware of `build`, would leave that operation on its host for ever."""
    cloud = cloud(hosts=1)
    server, _ = cloud.make()
    looks = []

    async def look(engine, tx, ask, operation, **more):
        subject = await gather(engine, tx, ask, operation, **more)
        looks.append(subject)
        if len(looks) == 1:
            await rows.change(tx, servers, {"operation_id": "of build"}, id=server)
        return subject

    monkeypatch.setattr("kilonova.engine.accept.gather", look)
    deleted = cloud.submit("delete", server)
    assert len(looks) == 2
    cloud.loop.run_for(10.0)
    assert cloud.operation(deleted.operation_id)["state"] == "done"


def test_an_idempotency_key_makes_two_requests_one_and_another_body_is_refused(cloud):
    cloud = cloud()
    server, _ = cloud.make()
    key = IdempotencyKey("k1", "POST /servers/x/action", "hash-of-body")
    first = cloud.submit("migrate", server, key=key)
    again = cloud.submit("migrate", server, key=key)
    assert (again.operation_id, again.joined) == (first.operation_id, True)
    with pytest.raises(Refused, match="another body"):
        cloud.submit("migrate", server, key=IdempotencyKey("k1", "POST /servers/x/action", "other"))


def test_a_key_stands_for_the_operation_that_its_request_joined(cloud):
    """Law 10: asked again when that has ended, it is still the answer, and the server moves once."""
    cloud = cloud(hosts=3)
    server, _ = cloud.make(host="host1")
    cloud.hardware.switch_power("host1", False)
    cloud.loop.run_for(100.0)
    cloud.do(lambda engine: declare_down(engine, "host1"))
    first = cloud.submit("evacuate", server)
    key = IdempotencyKey("k3", "POST /servers/x/action", "hash-of-body")
    joined = cloud.submit("evacuate", server, key=key)
    assert (joined.operation_id, joined.joined) == (first.operation_id, True)
    cloud.loop.run_for(120.0)
    assert cloud.operation(first.operation_id)["state"] == "done"
    assert cloud.submit("evacuate", server, key=key).operation_id == first.operation_id


def test_a_create_with_the_same_key_is_the_same_server(cloud):
    cloud = cloud()
    key, cause = IdempotencyKey("k2", "POST /servers", "h"), cloud.cause()
    new = NewServer(name="a", flavor=SMALL, image="img")
    first = cloud.do(lambda engine: create(engine, new, cause, key))
    again = cloud.do(lambda engine: create(engine, new, cause, key))
    assert first[0] == again[0]
    cloud.loop.run_for(10.0)
    assert len(cloud.records().table("server_mappings")) == 1


def test_an_unknown_commit_is_read_again_before_the_answer(cloud):
    """A12, law 12: the connection is lost during COMMIT; the request was stored once and is acknowledged once."""
    cloud = cloud()
    store = cloud.roles["api"].stores.control

    class LosesOneAnswer:
        left = 1

        def before_commit(self, name): ...

        def after_commit(self, name):
            if self.left:
                self.left -= 1
                raise CommitUnknown("the line went dead")

    store.faults = LosesOneAnswer()
    server, operation = cloud.make()
    assert store.faults.left == 0
    assert [op["id"] for op in cloud.records().databases["control"]["operations"]] == [operation]
    assert cloud.server(server)["vm_state"] == "active"


def test_cancel_undoes_in_reverse_until_the_point_of_no_return(cloud):
    cloud = cloud(copy_seconds=30.0)
    server, _ = cloud.make()
    before = cloud.server(server)
    operation = cloud.submit("migrate", server).operation_id
    cloud.loop.run_for(10.0)
    cloud.cancel(operation)
    cloud.loop.run_for(30.0)
    assert cloud.operation(operation)["state"] == "cancelled"
    undone = [name for name, way, _, state in cloud.steps(operation) if way == "undo" and state == "done"]
    assert undone == ["resize_instance", "prep_resize", "claim"]
    after = cloud.server(server)
    assert {k: after[k] for k in ("host", "copy", "vm_state", "runner_host", "task_state")} == {
        k: before[k] for k in ("host", "copy", "vm_state", "runner_host", "task_state")
    }
    assert check(cloud) == []


def test_cancel_is_refused_past_the_point_of_no_return(cloud):
    cloud = cloud(boot_seconds=30.0)
    server, _ = cloud.make()
    cloud.loop.run_for(40.0)
    cloud.hardware.switch_power(cloud.server(server)["host"], False)
    cloud.loop.run_for(100.0)
    operation = cloud.submit("evacuate", server).operation_id
    cloud.loop.run_for(5.0)
    with pytest.raises(Refused, match="point of no return"):
        cloud.cancel(operation)


def test_an_operation_of_the_previous_release_is_resumed(cloud, monkeypatch):
    """Law 14: the journal says `prep_resize` of version 1; the new release has another list of steps."""
    cloud = cloud(copy_seconds=30.0)
    server, _ = cloud.make()
    operation = cloud.submit("migrate", server).operation_id
    cloud.loop.run_for(5.0)
    assert cloud.steps(operation)[-1][0] == "resize_instance"

    async def look(ctx):
        return {"looked": True}

    class NewerMigrate(Migrate):
        version = 2
        steps = [
            Migrate.steps[0],
            Step("look_around", look, on=CONTROL),
            *Migrate.steps[1:4],
            Step("look_again", look, on=CONTROL),
            *Migrate.steps[4:],
        ]

    for role in ("conductor1", "host1", "host2", "host3"):
        cloud.kill(role)
    monkeypatch.setitem(REGISTRY, "migrate", NewerMigrate())
    cloud.start_all()
    cloud.loop.run_for(200.0)
    row = cloud.operation(operation)
    assert (row["state"], row["version"]) == ("done", 1)
    names = [name for name, way, _, _ in cloud.steps(operation)]
    assert "look_around" not in names, "that part of the list had been passed"
    assert "look_again" in names
    assert cloud.server(server)["vm_state"] == "resized"
    assert check(cloud) == []


def test_a_superseding_operation_inherits_the_undo(cloud):
    """E3 in small: the source dies while it sends the disk; evacuate takes over and undoes what was begun."""
    cloud = cloud(copy_seconds=300.0)
    server, _ = cloud.make()
    migrate = cloud.submit("migrate", server).operation_id
    cloud.loop.run_for(10.0)
    source = cloud.server(server)["host"]
    cloud.hardware.switch_power(source, False)
    cloud.loop.run_for(100.0)
    evacuate = cloud.submit("evacuate", server).operation_id
    cloud.loop.run_for(500.0)
    assert (cloud.operation(migrate)["state"], cloud.operation(migrate)["superseded_by"]) == ("superseded", evacuate)
    steps = cloud.steps(evacuate)
    assert [(name, way) for name, way, _, _ in steps[:3]] == [
        ("resize_instance", "undo"),
        ("prep_resize", "undo"),
        ("claim", "undo"),
    ]
    assert steps[0][3] == "waived", "the dead source cannot be asked; the operator's word stands for it"
    assert cloud.operation(evacuate)["state"] == "done"
    assert cloud.server(server)["host"] != source
    cloud.hardware.switch_power(source, True)
    cloud.loop.run_for(60.0)
    assert check(cloud) == []


def test_what_a_step_found_out_before_it_waits_is_known_to_its_next_try(cloud):
    """Else whoever was refused would be asked again at each look."""
    cloud = cloud()
    server, _ = cloud.make()
    step, known = REGISTRY["migrate"].step("claim"), []
    work = step.do

    async def waits_once(ctx):
        known.append(ctx.facts.tried)
        if len(known) == 1:
            ctx.facts.tried = ["b"]
            raise NotYet("others to end", 1.0, keeps_facts=True)
        return await work(ctx)

    object.__setattr__(step, "do", waits_once)
    try:
        operation = cloud.submit("migrate", server).operation_id
        cloud.loop.run_for(0.5)
        assert cloud.operation(operation)["state"] == "waiting"
        cloud.loop.run_for(20.0)
    finally:
        object.__setattr__(step, "do", work)
    assert known == [[], ["b"]] and cloud.operation(operation)["state"] == "done"


def test_secrets_are_apart_sealed_and_gone_with_the_operation(cloud):
    cloud = cloud(boot_seconds=20.0)
    seen = {}
    build = REGISTRY["build"]
    original = build.step("build_and_run_instance").do
    object.__setattr__(build.step("build_and_run_instance"), "do", nosy_then(original, seen))
    try:
        _, operation = cloud.make(wait=10.0, secrets={"admin_pass": "hunter2"})
        records = cloud.records()
        assert seen["secrets"].admin_password == "hunter2"
        assert "hunter2" not in repr(seen), "nor does a log or a traceback show it"
        journals = str([records.table(name) for name in ("operations", "steps", "secrets")])
        assert "hunter2" not in journals
        assert [s["operation_id"] for s in records.table("secrets")] == [operation]
        cloud.loop.run_for(30.0)
        assert cloud.records().table("secrets") == []
    finally:
        object.__setattr__(build.step("build_and_run_instance"), "do", original)


def test_secrets_go_with_an_operation_that_another_one_took_over_from(cloud):
    """Law 13: superseded is an end, too."""
    cloud = cloud(boot_seconds=20.0)
    server, operation = cloud.make(wait=10.0, secrets={"admin_pass": "hunter2"})
    assert [row["operation_id"] for row in cloud.records().table("secrets")] == [operation]
    cloud.submit("delete", server)
    cloud.loop.run_for(60.0)
    assert cloud.operation(operation)["state"] == "superseded" and cloud.records().table("secrets") == []


def test_secrets_go_with_an_operation_that_a_restore_ends(cloud):
    """Law 13: so is a new era; nobody goes on with the operation, and no purge looks for its secrets."""
    cloud = cloud(boot_seconds=20.0)
    _, operation = cloud.make(wait=10.0, secrets={"admin_pass": "hunter2"})
    assert [row["operation_id"] for row in cloud.records().table("secrets")] == [operation]
    cloud.alone(begin_era, "a new era", faulty=False)
    assert cloud.operation(operation)["state"] == "failed" and cloud.records().table("secrets") == []


def nosy_then(original, seen):
    async def work(host):
        seen.update(secrets=host.guest_secrets, guest=host.guest)
        return await original(host)

    return work


def test_a_whole_host_is_evacuated_with_a_limit_per_destination_and_an_account(cloud):
    """Law 11: children count running ones at their destination; never more than the limit at once."""
    cloud = cloud(hosts=3, vcpus=16, boot_seconds=20.0, settings=TWO_AT_ONCE)
    servers = [cloud.make(f"s{n}", host="host1")[0] for n in range(6)]
    cloud.loop.run_for(120.0)
    assert {cloud.server(s)["host"] for s in servers} == {"host1"}
    cloud.hardware.switch_power("host1", False)
    cloud.loop.run_for(100.0)
    accepted = cloud.do(lambda e: evacuate_host(e, e.world.db.cell("cell1"), "host1", cloud.cause()))
    again = cloud.do(lambda e: evacuate_host(e, e.world.db.cell("cell1"), "host1", cloud.cause()))
    assert again.joined and again.operation_id == accepted.operation_id, "asked twice, it is one operation"
    most = 0
    for _ in range(400):
        cloud.loop.run_for(1.0)
        records = cloud.records()
        live = [op for op in records.table("operations") if op["live"] and op["parent_id"]]
        for host in ("host2", "host3"):
            most = max(most, sum(op["destination"] == host for op in live))
        if not any(op["live"] for op in records.table("operations")):
            break
    row = cloud.operation(accepted.operation_id)
    assert row["state"] == "done"
    assert '"moved":6' in row["facts"]
    assert most == 2, "the limit was reached and never passed"
    last_child = max(op["ended_at"] for op in cloud.records().table("operations") if op["parent_id"])
    assert row["ended_at"] - last_child < 1.0, "the last child wakes its parent, which would look again after 5 s"
    cloud.hardware.switch_power("host1", True)
    cloud.loop.run_for(60.0)
    assert check(cloud) == []


@pytest.mark.parametrize("set_back", (0.0, 3600.0))
def test_a_deadline_fails_a_step_that_cannot_have_left_a_guest_running(cloud, set_back):
    """prep_resize hangs on a living host: another destination is tried, and the first is cleaned. Also when the
    database's clock is set back meanwhile (law 16)."""
    cloud = cloud(hosts=3)
    server, _ = cloud.make()
    hung = {"left": 1}
    step = REGISTRY["migrate"].step("prep_resize")
    original = step.do

    async def hangs_once(host):
        if hung["left"]:
            hung["left"] -= 1
            await cloud.hardware.never()
        return await original(host)

    object.__setattr__(step, "do", hangs_once)
    try:
        operation = cloud.submit("migrate", server).operation_id
        cloud.loop.run_for(5.0)
        cloud.set_clock(DATABASE_CLOCK, -set_back)
        cloud.loop.run_for(step.deadline + 240.0)  # and the rest of the migration
    finally:
        object.__setattr__(step, "do", original)
    tried = [place for name, way, place, _ in cloud.steps(operation) if (name, way) == ("prep_resize", "do")]
    assert len(set(tried)) == 2
    assert cloud.operation(operation)["state"] == "done"
    assert check(cloud) == []


def test_an_operation_says_soon_that_its_host_does_not_answer(cloud):
    """Long before the silence proves anything; and it takes its word back when the host is heard again."""
    cloud = cloud()
    server, _ = cloud.make()
    host = cloud.server(server)["host"]
    cloud.hardware.switch_power(host, False)
    operation = cloud.submit("stop", server).operation_id
    cloud.loop.run_for(25.0)
    row = cloud.operation(operation)
    assert row["state"] != "waiting", "it is no proof yet"
    assert re.fullmatch(rf"{host} to answer about stop_instance; last heard \d+ s ago", row["waiting_for"])
    cloud.hardware.switch_power(host, True)
    cloud.loop.run_for(40.0)
    assert (cloud.operation(operation)["state"], cloud.operation(operation)["waiting_for"]) == ("done", None)
    assert check(cloud) == []


def test_silence_never_moves_permission_to_run_but_the_operators_word_does(cloud):
    """Z16: the destination was powered on and then cut off before it could say so."""
    cloud = cloud(boot_seconds=5.0)
    server, _ = cloud.make()
    source = cloud.server(server)["host"]
    operation = cloud.submit("migrate", server).operation_id
    cloud.loop.run_until(lambda: bool(running_elsewhere(cloud, server, source)), 60.0, "the destination to run it")
    destination = running_elsewhere(cloud, server, source)[0]
    cloud.hardware.switch_link(destination, False)
    cloud.hub.detach(destination)
    cloud.loop.run_for(600.0)
    row = cloud.operation(operation)
    assert row["state"] == "waiting"
    assert destination in row["waiting_for"] and "--down" in row["waiting_for"]
    assert cloud.server(server)["runner_host"] == destination
    cloud.hardware.switch_power(destination, False)
    cloud.do(lambda engine: declare_down(engine, destination))
    cloud.loop.run_for(120.0)
    assert cloud.operation(operation)["state"] == "undone"
    assert (cloud.server(server)["runner_host"], cloud.server(server)["vm_state"]) == (source, "active")
    assert cloud.hardware.running(server) == [(source, 1)]


def running_elsewhere(cloud, server, source):
    return [host for host, _ in cloud.hardware.running(server) if host != source]


def test_every_operation_names_where_its_steps_run():
    for operation in REGISTRY.values():
        names = [step.name for step in operation.course]
        assert len(names) == len(set(names)), f"{operation.name} has a step twice"
        if operation.again_from:
            assert operation.again_from in names
    assert REGISTRY["migrate"].step("prep_resize").on is DESTINATION


def test_a_dry_run_takes_the_same_path_and_stores_nothing(cloud):
    cloud = cloud()
    server, _ = cloud.make()
    before = cloud.records()

    def rehearsal(**params):
        ask = Ask(kind="migrate", server_id=server, cause=cloud.cause(), params=params)
        return cloud.do(lambda engine: rehearse(engine, engine.world.db.cell("cell1"), ask))

    told = rehearsal()
    assert [step.name for step in told.steps] == [step.name for step in REGISTRY["migrate"].steps]
    assert told.facts["candidates"][0]["host"] != cloud.server(server)["host"]
    assert told.problem is None
    assert rehearsal(host="host3").facts["candidates"][0]["host"] == "host3"
    with pytest.raises(Refused, match="already on"):
        rehearsal(host=cloud.server(server)["host"])
    after = cloud.records()
    for table in ("operations", "steps", "servers", "migrations", "copies"):
        assert after.table(table) == before.table(table)
    assert after.held == before.held


def test_a_dry_run_of_what_is_under_way_names_the_operation_it_would_join(cloud):
    cloud = cloud(boot_seconds=30.0)
    server, _ = cloud.make()
    ask = Ask(kind="delete", server_id=server, cause=cloud.cause())
    cloud.hardware.switch_power(cloud.server(server)["host"], False)
    running = cloud.submit("delete", server).operation_id
    told = cloud.do(lambda engine: rehearse(engine, engine.world.db.cell("cell1"), ask))
    assert cloud.submit("delete", server).operation_id == told.joins == running
    assert told.supersedes is None and told.problem is None


def test_a_dry_run_says_why_nothing_fits(cloud):
    cloud = cloud(hosts=1)
    server, _ = cloud.make()
    ask = Ask(kind="migrate", server_id=server, cause=cloud.cause())
    told = cloud.do(lambda engine: rehearse(engine, engine.world.db.cell("cell1"), ask))
    assert told.problem.code == "no_valid_host"
    verdicts = {v["filter"]: v["sentence"] for v in told.problem.details["decision"]["verdicts"] if not v["passed"]}
    assert "already there" in verdicts["excluded"]


@pytest.mark.parametrize("resumes", [True, False])
def test_a_host_that_lost_power_starts_its_guests_again_or_says_that_they_are_off(cloud, resumes):
    cloud = cloud(settings=simulated(default=Default(resume_guests_state_on_host_boot=resumes)))
    server, _ = cloud.make()
    host = cloud.server(server)["host"]
    cloud.hardware.switch_power(host, False)
    cloud.loop.run_for(20.0)
    cloud.hardware.switch_power(host, True)
    cloud.loop.run_for(60.0)
    row = cloud.server(server)
    assert (row["vm_state"], row["power_state"]) == (("active", 1) if resumes else ("stopped", 4))
    assert bool(cloud.hardware.running(server)) is resumes
    assert check(cloud) == []
