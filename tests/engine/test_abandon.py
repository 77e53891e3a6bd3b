"""Law 17: every undo has an exit. A step that is refused for good waits for an operator, who may skip it; what it left
is a finding, owned until somebody settles it."""

import asyncio

import pytest

from kilonova.audit.run import audit
from kilonova.domain.errors import Failed, Refused
from kilonova.engine import abandon as abandoning
from kilonova.engine.abandon import abandon, resume
from kilonova.engine.accept import Ask
from kilonova.engine.findings import settle
from kilonova.hosts.states import declare_down, disable, enable
from kilonova.operations import REGISTRY
from kilonova.operations.in_cell0.retry import rebuild_unplaced
from kilonova.operations.migrate import Migrate
from kilonova.operations.rebuild_in_cell0 import RebuildInCell0
from kilonova.placement import claims
from kilonova.services.volume.servers import ServerVolumes
from kilonova.sim.invariants.invariants import check
from kilonova.sim.stories.operator import ADMIN


def word(cloud, verb, operation, *reason, database="cell1"):
    cause = cloud.cause()

    async def ask(engine):
        db = engine.world.db
        journal = db.control if database == "control" else db.cell(database)
        await verb(engine, journal, operation, cause, *reason)

    cloud.do(ask)


def look(cloud, *, mend=False):
    return cloud.do(lambda engine: audit(engine.world.db, engine.world.clock, mend=mend))


def findings(cloud):
    return [row for row in cloud.records().table("findings") if row["open"]]


def settled(cloud, *rows):
    for row in rows or findings(cloud):
        cause = cloud.cause()

        async def ask(engine, row=row, cause=cause):
            db = engine.world.db
            store = db.control if row["database"] == "control" else db.cell(row["database"])
            await settle(store, row["id"], cause, "seen to", engine.world.clock.now())

        cloud.do(ask)


@pytest.fixture
def stuck_claim(cloud, monkeypatch):
    """A migration that cannot be sent, and whose claim placement does not take back."""
    cloud = cloud()
    server, _ = cloud.make(host="host1")

    async def refuse(store, fence, migration):
        raise Failed("broken", "placement is out of order", final=True)

    monkeypatch.setattr(claims, "return_move", refuse)
    cloud.hardware.fail("host1", "send_disk", 1, "refuse")
    operation = cloud.submit("migrate", server).operation_id
    cloud.loop.run_for(20.0)
    return cloud, server, operation


def test_a_final_failure_of_an_undo_waits_at_once_and_is_tried_once_a_minute(stuck_claim, monkeypatch):
    cloud, _, operation = stuck_claim
    row = cloud.operation(operation)
    assert row["state"] == "waiting"
    assert row["waiting_for"] == (
        "claim to be undone: placement is out of order (failed 1 time, tried again every minute). "
        f"To try now: kilonova op resume {operation}. "
        f"To go on without it: kilonova op abandon {operation} --reason TEXT"
    )
    cloud.loop.run_for(300.0)
    tries = [step for step in cloud.steps(operation) if step[:2] == ("claim", "undo") and step[3] == "failed"]
    assert 5 <= len(tries) <= 7
    monkeypatch.undo()
    cloud.loop.run_for(61.0)
    assert cloud.operation(operation)["state"] == "undone"
    assert check(cloud) == []


def test_resume_tries_now_and_is_recorded(stuck_claim, monkeypatch):
    cloud, _, operation = stuck_claim
    monkeypatch.undo()
    word(cloud, resume, operation)
    cloud.loop.run_for(5.0)
    assert cloud.operation(operation)["state"] == "undone"
    with pytest.raises(Refused, match="has ended"):
        word(cloud, resume, operation)
    assert check(cloud) == []


def test_what_an_abandoned_claim_left_is_owned_until_it_is_settled(stuck_claim, monkeypatch):
    cloud, server, operation = stuck_claim
    word(cloud, abandon, operation, "nobody mends placement tonight")
    cloud.loop.run_for(10.0)
    row = cloud.operation(operation)
    assert row["state"] == "failed"
    assert '"code":"abandoned"' in row["error"] and "nobody mends placement tonight" in row["error"]
    after = cloud.server(server)
    assert (after["vm_state"], after["task_state"], after["host"], after["operation_id"]) == (
        "active",
        None,
        "host1",
        None,
    )
    (finding,) = findings(cloud)
    assert (finding["step"], finding["way"], finding["server_id"]) == ("claim", "undo", server)
    assert finding["reason"] == "nobody mends placement tonight" and finding["user_id"] == "admin"
    step = next(one for one in cloud.records().table("steps") if one["state"] == "abandoned")
    assert (step["open"], step["error"]) == (0, None) and "nobody mends placement tonight" in step["result"]
    assert check(cloud) == []

    held = cloud.records().held
    assert len(held) == 2, "the server on the destination, the migration on the source"
    for _ in range(2):
        report = look(cloud, mend=True)
        assert report.findings == [] and len(report.abandoned) == 1 and not report.is_clean
        assert f"kilonova finding settle {finding['id']}" in report.abandoned[0]
    assert cloud.records().held == held, "the audit freed nothing of it"

    settled(cloud)
    for _ in range(2):  # what is freed first makes room for the other
        report = look(cloud, mend=True)
    assert look(cloud).is_clean
    (places,) = cloud.records().held.values()
    assert list(places) == [("host1", "")]
    cloud.loop.run_for(30.0)
    assert check(cloud) == []
    with pytest.raises(Refused, match="already settled by admin"):
        settled(cloud, finding)


def test_only_the_try_that_was_looked_at_is_abandoned(stuck_claim, monkeypatch):
    """Placement is asked in between, and takes its time: what is tried then may be another step, or work."""
    cloud, _, operation = stuck_claim
    held = abandoning._held

    async def slowly(engine, seen):
        await asyncio.sleep(90.0)
        return await held(engine, seen)

    monkeypatch.setattr(abandoning, "_held", slowly)
    with pytest.raises(Refused, match="modified concurrently"):
        word(cloud, abandon, operation, "enough")
    assert findings(cloud) == [] and cloud.operation(operation)["state"] == "waiting"
    assert "abandoned" not in {step[3] for step in cloud.steps(operation)}


def test_a_server_with_a_finding_can_be_deleted(stuck_claim, monkeypatch):
    cloud, server, operation = stuck_claim
    word(cloud, abandon, operation, "never mind")
    cloud.loop.run_for(10.0)
    monkeypatch.undo()
    cloud.submit("delete", server)
    cloud.loop.run_for(20.0)
    assert cloud.records().held == {}
    assert len(findings(cloud)) == 1, "an operator settles it, nobody else"
    assert check(cloud) == []


def test_silence_does_not_count(cloud, monkeypatch):
    """A CONTROL undo that nobody answers is tried on, but it was not refused."""
    cloud = cloud()
    server, _ = cloud.make(host="host1")

    async def hang(store, fence, migration):
        await cloud.clock.sleep(3600.0)

    monkeypatch.setattr(claims, "return_move", hang)
    cloud.hardware.fail("host1", "send_disk", 1, "refuse")
    operation = cloud.submit("migrate", server).operation_id
    cloud.loop.run_for(1800.0)
    tries = [step for step in cloud.steps(operation) if step[:2] == ("claim", "undo") and step[3] == "failed"]
    assert len(tries) > 10
    assert cloud.operation(operation)["state"] == "undoing"
    with pytest.raises(Refused) as refused:
        word(cloud, abandon, operation, "impatience")
    assert refused.value.code == "not_stuck"
    monkeypatch.undo()
    cloud.loop.run_for(130.0)
    assert cloud.operation(operation)["state"] == "undone"


def test_abandon_is_refused_while_a_host_that_answers_has_the_step(cloud, monkeypatch):
    cloud = cloud(hosts=1, boot_seconds=20.0)
    server, _ = cloud.make(host="host1")
    cloud.hardware.fail("host1", "ensure_power", 11, "error")
    operation = cloud.submit("stop", server).operation_id
    cloud.loop.run_for(245.0)
    assert cloud.operation(operation)["state"] == "waiting"
    cloud.hardware.switch_power("host1", False)
    cloud.hardware.switch_power("host1", True)
    word(cloud, resume, operation)
    cloud.loop.run_for(3.0)
    if cloud.steps(operation)[-1][3] == "taken":
        with pytest.raises(Refused) as refused:
            word(cloud, abandon, operation, "now")
        assert refused.value.code == "being_tried"
        assert cloud.operation(operation)["state"] == "waiting", "it says so until it has worked"
    cloud.loop.run_for(60.0)
    assert cloud.operation(operation)["state"] == "undone"


def test_steps_that_only_write_rows_are_not_abandoned(cloud, monkeypatch):
    cloud = cloud()
    server, _ = cloud.make(host="host1")
    give_back = next(step for step in Migrate.steps if step.name == "grant_runner")

    async def refuse(ctx):
        raise Failed("broken", "told to fail", final=True)

    object.__setattr__(give_back, "undo", refuse)
    try:
        cloud.hardware.fail("host2", "ensure_power", 1, "refuse")
        cloud.hardware.fail("host3", "ensure_power", 1, "refuse")
        operation = cloud.submit("migrate", server).operation_id
        cloud.loop.run_for(30.0)
        assert cloud.operation(operation)["state"] == "waiting"
        assert "abandon" not in cloud.operation(operation)["waiting_for"]
        with pytest.raises(Refused) as refused:
            word(cloud, abandon, operation, "why not")
        assert refused.value.code == "not_abandonable"
    finally:
        from kilonova.operations.steps.ownership import give_to_source

        object.__setattr__(give_back, "undo", give_to_source)
    word(cloud, resume, operation)
    cloud.loop.run_for(30.0)
    assert cloud.operation(operation)["state"] == "undone"
    assert check(cloud) == []


def test_a_step_past_the_point_of_no_return_is_abandoned_and_the_rest_is_done(cloud, monkeypatch):
    """A delete whose claims cannot be freed: the server goes, the claims stay a finding."""
    cloud = cloud()
    server, _ = cloud.make(host="host1")

    async def refuse(store, fence, consumers):
        raise Failed("broken", "placement is out of order", final=True)

    monkeypatch.setattr(claims, "release", refuse)
    operation = cloud.submit("delete", server).operation_id
    cloud.loop.run_for(20.0)
    row = cloud.operation(operation)
    assert row["state"] == "waiting" and row["waiting_for"].startswith("release_claims to be done: ")
    with pytest.raises(Refused, match="point of no return"):
        cloud.cancel(operation)
    word(cloud, abandon, operation, "the server must go tonight")
    cloud.loop.run_for(10.0)
    assert cloud.operation(operation)["state"] == "failed"
    assert cloud.server(server)["deleted"] == 1
    assert [step[0] for step in cloud.steps(operation)][-1] == "unmap"
    held = cloud.records().held
    assert list(held) == [server]
    assert look(cloud, mend=True).findings == [] and cloud.records().held == held
    assert check(cloud) == []
    settled(cloud)
    look(cloud, mend=True)
    assert cloud.records().held == {}
    assert check(cloud) == []


def test_an_operation_that_inherited_the_entry_ends_too(cloud, monkeypatch):
    """A soft delete takes over a migration whose claim cannot be returned."""
    cloud = cloud(copy_seconds=60.0)
    server, _ = cloud.make(host="host1", wait=200.0)

    async def refuse(store, fence, migration):
        raise Failed("broken", "placement is out of order", final=True)

    monkeypatch.setattr(claims, "return_move", refuse)
    cloud.submit("migrate", server)
    cloud.loop.run_for(10.0)
    operation = cloud.submit("soft_delete", server).operation_id
    cloud.loop.run_for(60.0)
    row = cloud.operation(operation)
    assert (row["state"], row["waiting_for"][:19]) == ("waiting", "claim to be undone:")
    word(cloud, abandon, operation, "enough")
    cloud.loop.run_for(20.0)
    assert cloud.operation(operation)["state"] == "failed"
    after = cloud.server(server)
    assert (after["vm_state"], after["host"], after["task_state"]) == ("active", "host1", None)
    assert [row["kind"] for row in findings(cloud)] == ["migrate"]
    assert check(cloud) == []


def test_a_copy_that_is_not_whole_leaves_the_server_in_error(cloud, monkeypatch):
    """Of a build that cannot be undone: nobody has a whole copy, so nothing is as before."""
    cloud = cloud()

    async def refuse(store, fence, consumers):
        raise Failed("broken", "placement is out of order", final=True)

    monkeypatch.setattr(claims, "release", refuse)
    for host in ("host1", "host2", "host3"):
        cloud.hardware.fail(host, "ensure_disk", 1, "refuse")
    server, operation = cloud.make()
    cloud.loop.run_for(30.0)
    assert cloud.operation(operation)["state"] == "waiting"
    word(cloud, abandon, operation, "enough")
    cloud.loop.run_for(30.0)
    assert (cloud.operation(operation)["state"], cloud.server(server)["vm_state"]) == ("failed", "error")
    assert check(cloud) == []


def test_a_server_without_a_copy_that_may_run_is_in_error(cloud):
    """A rebuild from cell0 that cannot be undone: the server is building no more."""
    cloud = cloud(hosts=2)
    for said in (disable, enable):
        for host in cloud.hardware.hosts():
            cloud.do(lambda engine, said=said, host=host: said(engine, host))
        if said is disable:
            server, _ = cloud.make()
    cloud.loop.run_for(10.0)
    step = RebuildInCell0.steps[0]
    kept = step.do, step.undo

    async def refuse(ctx):
        raise Failed("broken", "the volumes are out of order", final=True)

    ask = Ask(kind="rebuild", server_id=server, cause=cloud.cause())
    try:
        for name in ("do", "undo"):
            object.__setattr__(step, name, refuse)
        operation = cloud.do(lambda engine: rebuild_unplaced(engine, ask)).operation_id
        cloud.loop.run_for(10.0)
        assert cloud.server(server)["vm_state"] == "building"
        word(cloud, abandon, operation, "enough", database="cell0")
    finally:
        object.__setattr__(step, "do", kept[0])
        object.__setattr__(step, "undo", kept[1])
    cloud.loop.run_for(10.0)
    after = cloud.server(server)
    assert (after["vm_state"], after["task_state"], after["operation_id"]) == ("error", None, None)
    assert cloud.operation(operation, "cell0")["state"] == "failed"


def test_a_copy_on_a_host_that_was_declared_down_becomes_a_debt(cloud):
    """Between the word and the next look at the host: abandoning does the same as waiting for that look."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make(host="host1")
    cloud.hardware.fail("host2", "ensure_power", 1000, "error")
    operation = cloud.submit("migrate", server).operation_id
    cloud.loop.run_for(300.0)
    with pytest.raises(Refused) as refused:
        word(cloud, abandon, operation, "now")
    assert refused.value.code == "may_run"
    cloud.hardware.switch_power("host2", False)
    cause = cloud.cause()

    async def ask(engine):
        await declare_down(engine, "host2")
        await abandon(engine, engine.world.db.cell("cell1"), operation, cause, "it is down")

    cloud.do(ask)
    cloud.loop.run_for(30.0)
    assert cloud.operation(operation)["state"] == "failed"
    assert findings(cloud) == []
    assert [(row["host"], row["copy"]) for row in cloud.records().table("debts")] == [("host2", 2)]
    assert cloud.server(server)["runner_host"] == "host1"


@pytest.mark.parametrize("kind", REGISTRY)
def test_what_cannot_be_skipped_is_said_of_every_step(kind):
    """What moves permission to run is never skipped; what may have started a guest, only its host can end."""
    for step in REGISTRY[kind].course:
        if step.name == "grant_runner":
            assert step.only_rows
        if step.undo is not None and (step.starts_guest or step.undo_debt):
            assert step.ends_copy("undo")
        if step.name in ("claim", "return_claim", "drop_claim", "release_claims"):
            assert step.claims


def test_a_guest_that_could_not_be_stopped_is_kept(cloud):
    """Skipping a stop on a host that was declared down never lets it remove the only copy."""
    cloud = cloud(hosts=1)
    server, _ = cloud.make(host="host1")
    cloud.submit("stop", server)
    cloud.loop.run_for(10.0)
    cloud.hardware.fail("host1", "ensure_power", 1000, "error")
    operation = cloud.submit("start", server).operation_id
    cloud.loop.run_for(300.0)
    cloud.hardware.switch_power("host1", False)
    cause = cloud.cause()

    async def ask(engine):
        await declare_down(engine, "host1")
        await abandon(engine, engine.world.db.cell("cell1"), operation, cause, "it is down")

    cloud.do(ask)
    cloud.loop.run_for(30.0)
    records = cloud.records()
    assert cloud.operation(operation)["state"] == "failed"
    assert (records.table("debts"), [row["state"] for row in records.table("copies")]) == ([], ["whole"])
    assert records.server(server)["vm_state"] == "stopped"


def forced_off(cloud):
    """What an administrator does with os-force_detach."""

    async def ask(engine):
        attachments = cloud.roles["api"].volumes.attachments
        await attachments.detach(ADMIN, cloud.stock.volumes[0], None, force=True)

    return cloud.ask(ask)


@pytest.mark.parametrize("fails", [False, True], ids=["a move", "a move that is undone"])
def test_a_volume_that_is_forced_off_in_the_middle_holds_nothing_up(cloud, monkeypatch, fails):
    """After a move has listed the server's attachments one of them is gone: nothing is left to connect."""
    cloud = cloud(volumes=1)
    server, _ = cloud.make(host="host1")
    cloud.submit("attach_volume", server, id="bdm", volume_id=cloud.stock.volumes[0])
    cloud.loop.run_for(10.0)
    listed = ServerVolumes.attached
    forced = []

    async def attached(self, servers):
        found = await listed(self, servers)
        if not forced:
            forced.append(True)
            await forced_off(cloud)
        return found

    monkeypatch.setattr(ServerVolumes, "attached", attached)
    for host in ("host2", "host3") if fails else ():
        cloud.hardware.fail(host, "ensure_power", 1, "refuse")
    operation = cloud.submit("migrate", server).operation_id
    cloud.loop.run_for(30.0)
    assert forced
    assert cloud.operation(operation)["state"] == ("undone" if fails else "done")
    assert cloud.server(server)["vm_state"] == ("active" if fails else "resized")
    assert len(cloud.hardware.running(server)) == 1
    cloud.submit("detach_volume", server, volume_id=cloud.stock.volumes[0])
    cloud.loop.run_for(10.0)
    assert cloud.server(server)["volume_info"] == "[]", "the record can be put right"
    assert check(cloud) == []
