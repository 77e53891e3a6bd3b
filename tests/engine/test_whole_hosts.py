"""Operations about whole hosts: what is begun, what is not, and what the account says of it."""

import asyncio

import msgspec
import pytest

from kilonova.domain.errors import Refused
from kilonova.domain.whole_hosts import FIRST, LAST, MIDDLE, PlannedMove, choice_of_owners, estimate
from kilonova.engine.accept import Ask
from kilonova.engine.submit import submit
from kilonova.hosts.states import declare_down, disable
from kilonova.operations import REGISTRY
from kilonova.operations.whole_hosts import steps as bulk
from kilonova.operations.whole_hosts.requests import Bulk, ask_for_hosts
from kilonova.schema.tables.journal import operations, steps
from kilonova.settings import ConductorOptions
from kilonova.sim.invariants.invariants import check
from kilonova.sim.lab.settings import simulated
from kilonova.store import rows

ONE_AT_ONCE = simulated(conductor=ConductorOptions(evacuations_per_destination=1))
TWO_AT_ONCE = simulated(conductor=ConductorOptions(evacuations_per_destination=2))


def dead(cloud, *hosts):
    for host in hosts:
        cloud.hardware.switch_power(host, False)
        cloud.do(lambda engine, host=host: declare_down(engine, host))
    cloud.loop.run_for(1.0)


def evacuate(cloud, *hosts, **bulk):
    accepted = cloud.do(lambda engine: ask_for_hosts(engine, "evacuate_host", hosts, cloud.cause(), None, Bulk(**bulk)))
    return {cell: one.operation_id for cell, one in accepted.items()}


def account(cloud, operation_id):
    return msgspec.json.decode(cloud.operation(operation_id)["facts"])["account"]


def children(cloud, operation_id):
    return [op for op in cloud.records().table("operations") if op["parent_id"] == operation_id]


def test_no_child_begins_once_the_whole_was_cancelled(cloud, monkeypatch):
    """The cancel comes while a conductor has the step that begins them."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make("a", host="host1")
    dead(cloud, "host1")
    step = REGISTRY["evacuate_host"].step("move_servers")
    work, said = step.do, []

    async def cancelled_first(ctx):
        if not said:
            said.append(ctx.operation_id)
            cloud.loop.call_soon(cloud.cancel_later, ctx.operation_id)
            await ctx.world.clock.sleep(2.0)
        return await work(ctx)

    def cancel_later(operation_id):
        from kilonova.engine.cancel import cancel

        cloud.ask(lambda engine: cancel(engine, engine.world.db.cell("cell1"), operation_id, "alice"))

    cloud.cancel_later = cancel_later
    object.__setattr__(step, "do", cancelled_first)
    try:
        operation = evacuate(cloud, "host1")["cell1"]
        cloud.loop.run_for(60.0)
    finally:
        object.__setattr__(step, "do", work)
    assert (cloud.operation(operation)["state"], children(cloud, operation)) == ("cancelled", [])
    assert account(cloud, operation)["not_begun"] == {server: "it was cancelled before"}
    assert cloud.server(server)["host"] == "host1" and check(cloud, at_rest=False) == []


def test_a_server_that_somebody_evacuates_already_is_not_a_child(cloud, monkeypatch):
    """An administrator asks for it after it was planned: the parent waits for nobody else's operation, and says so."""
    cloud = cloud(hosts=3, boot_seconds=20.0)
    first, other = (cloud.make(name, host="host1")[0] for name in ("a", "b"))
    dead(cloud, "host1")
    begin, others = bulk._begin, []

    async def after_somebody(ctx, *given):
        if not others:
            ask = Ask(kind="evacuate", server_id=first, cause=cloud.cause())
            others.append((await submit(cloud.roles["api"].engine, ask)).operation_id)
        return await begin(ctx, *given)

    monkeypatch.setattr(bulk, "_begin", after_somebody)
    operation = evacuate(cloud, "host1")["cell1"]
    cloud.loop.run_for(200.0)
    found = account(cloud, operation)
    assert [child["server_id"] for child in children(cloud, operation)] == [other]
    assert found["refused"] == {first: f"it is being evacuated already: operation {others[0]}"}
    assert (found["moved"], found["not_begun"]) == (1, {}) and cloud.operation(others[0])["state"] == "done"
    assert "host1" not in {cloud.server(server)["host"] for server in (first, other)}


def test_after_the_deadline_nobody_begins(cloud):
    cloud = cloud(hosts=2, boot_seconds=20.0, settings=ONE_AT_ONCE)
    servers = {cloud.make(f"s{n}", host="host1")[0] for n in range(3)}
    dead(cloud, "host1")
    operation = evacuate(cloud, "host1", deadline=10.0)["cell1"]
    cloud.loop.run_for(200.0)
    found = account(cloud, operation)
    assert cloud.operation(operation)["state"] == "done" and found["moved"] == 1
    assert set(found["not_begun"].values()) == {"the deadline was over"} and found["not_begun"].keys() < servers
    assert found["sentence"] == "1 moved; 0 failed; 0 impossible; 2 not begun: the deadline was over"


def test_a_destination_counts_the_children_of_all_operations(cloud):
    """Law 11: each of the two keeps its own limit, and knows nothing of the other."""
    cloud = cloud(hosts=3, vcpus=16, boot_seconds=20.0, settings=TWO_AT_ONCE)
    for number in range(6):
        cloud.make(f"s{number}", host=f"host{1 + number % 2}")
    dead(cloud, "host1", "host2")
    whole = [evacuate(cloud, host)["cell1"] for host in ("host1", "host2")]
    most = 0
    for _ in range(300):
        cloud.loop.run_for(1.0)
        found = cloud.records().table("operations")
        most = max(most, sum(op["destination"] == "host3" for op in found if op["live"] and op["parent_id"]))
    assert most == 2 and [account(cloud, one)["moved"] for one in whole] == [3, 3]


def test_a_destination_that_is_gone_by_then_is_said_in_the_account(cloud):
    cloud = cloud(hosts=3, boot_seconds=20.0, settings=ONE_AT_ONCE)
    servers = [cloud.make(f"s{n}", host="host1")[0] for n in range(4)]
    dead(cloud, "host1")
    operation = evacuate(cloud, "host1")["cell1"]
    cloud.loop.run_for(5.0)
    cloud.do(lambda engine: disable(engine, "host3"))
    cloud.loop.run_for(200.0)
    found = account(cloud, operation)
    assert (found["moved"], found["failed"]) == (4, {})
    (why,) = found["elsewhere"].values()
    assert why.startswith("it went to host2; host3 was planned: the host is disabled")
    assert sorted(cloud.server(server)["host"] for server in servers) == ["host2", "host2", "host2", "host3"]


def test_hosts_of_two_cells_make_two_operations(cloud):
    cloud = cloud(hosts=4, cells=2)
    servers = [cloud.make(f"s{n}", host=f"host{n}")[0] for n in (1, 2)]
    dead(cloud, "host1", "host2")
    operations = evacuate(cloud, "host1", "host2")
    assert set(operations) == {"cell1", "cell2"}
    again = evacuate(cloud, "host1")
    cloud.loop.run_for(60.0)
    assert again == {"cell1": operations["cell1"]}, "it is about that host already"
    assert [cloud.server(server)["host"] for server in servers] == ["host3", "host4"]


def test_another_operation_about_some_of_the_hosts_is_in_the_way(cloud):
    cloud = cloud(hosts=3, boot_seconds=20.0)
    cloud.make("a", host="host1")
    dead(cloud, "host1", "host2")
    evacuate(cloud, "host1")
    with pytest.raises(Refused, match="is about host1; ask for the other hosts"):
        evacuate(cloud, "host1", "host2")


@pytest.mark.parametrize("step", ["list_servers", "start_children", "await_children"])
def test_one_of_the_release_before_goes_on(cloud, step):
    """Law 14: it stands at a step of the old list, with the old parameters."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make("a", host="host1")
    dead(cloud, "host1")
    cloud.kill("conductor1")
    operation = evacuate(cloud, "host1")["cell1"]
    course = cloud.operation(operation)["course"].replace("plan_moves", step)

    async def body(tx):
        old = {"course": course, "version": 1, "params": '{"host":"host1"}', "facts": f'{{"servers":["{server}"]}}'}
        await rows.change(tx, operations, old, id=operation)
        await rows.change(tx, steps, {"name": step}, operation_id=operation)

    cloud.alone(lambda stores: stores.cell("cell1").write(body), "the records")
    cloud.start("conductor1")
    cloud.loop.run_for(120.0)
    assert (cloud.operation(operation)["state"], account(cloud, operation)["moved"]) == ("done", 1)
    assert cloud.server(server)["host"] == "host2"


def test_the_proof_is_the_one_that_was_accepted(cloud):
    """Whoever plans may have started a moment ago, and not have listened for long enough."""
    cloud = cloud(hosts=2)
    server, _ = cloud.make("a", host="host1")
    cloud.hardware.switch_power("host1", False)
    cloud.loop.run_for(100.0)
    cloud.kill("conductor1")
    operation = evacuate(cloud, "host1")["cell1"]
    cloud.loop.run_for(100.0)
    cloud.start("conductor1")
    cloud.loop.run_for(300.0)
    found = account(cloud, operation)
    assert (cloud.operation(operation)["state"], found["moved"]) == ("done", 1)
    assert cloud.server(server)["host"] == "host2"
    assert found["proof"]["host1"]["proven_by"] == "silence"


@pytest.mark.parametrize(
    ("flavor", "owner", "rank"),
    [
        (None, None, MIDDLE),
        ("first", None, FIRST),
        ("last", None, LAST),
        ("never", None, None),
        (None, "last", LAST),
        (None, "never", None),
        (None, "first", MIDDLE),  # not for owners to say
        ("first", "last", FIRST),
        ("first", "never", None),
        ("sometimes", "last", LAST),
    ],
)
def test_who_says_what_about_the_order(flavor, owner, rank):
    key = "kilonova:evacuate"
    found, why = choice_of_owners({key: flavor} if flavor else {}, {key: owner} if owner else {})
    assert found == rank and bool(why) == (rank is None)


def test_destinations_work_side_by_side_a_few_at_a_time():
    moves = [PlannedMove(server=str(n), name="", source="x", to=to, bytes=100) for n, to in enumerate("aaab")]
    assert estimate(moves, at_once=2, each=10.0, bytes_per_second=10.0) == 30.0
    assert estimate(moves, at_once=9, each=10.0, bytes_per_second=10.0) == 20.0
    assert estimate([], at_once=1, each=10.0, bytes_per_second=10.0) == 0.0


@pytest.mark.parametrize(("conductors", "slow"), [(1, 0.0), (3, 0.0), (1, 1.0), (3, 1.0)])
def test_a_parent_never_sleeps_over_children_that_have_ended(cloud, monkeypatch, conductors, slow):
    """Also those that end while it looks (`slow`): it would look again only after five seconds. Those that end together
    cost it one look."""
    times = {"boot_seconds": 0.01, "copy_seconds": 0.01}
    cloud = cloud(hosts=4, vcpus=64, memory_mb=2**17, disk_gb=1000, conductors=conductors, **times)
    for number in range(24):
        cloud.make(f"s{number}", host="host1", wait=0.2)
    cloud.loop.run_for(10.0)
    dead(cloud, "host1")
    looks, standing = [], bulk._standing

    async def look(ctx):
        found = await standing(ctx)
        looks.append(len(found[1]))
        await asyncio.sleep(slow)
        return found

    monkeypatch.setattr(bulk, "_standing", look)
    (operation,) = evacuate(cloud, "host1").values()
    cloud.loop.run_for(1.0 + len(looks) * slow)
    cloud.loop.run_for(2.0 if not slow else 9.0)
    shown = cloud.operation(operation)
    assert shown["state"] == "done", (shown["state"], shown["waiting_for"], looks)
    assert len(looks) <= 12, looks
