"""What a conductor does with each message of an agent, before the engine has any work: whom it hears, what it asks its
databases for, and whom it wakes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kilonova.bus import HOST_ALIVE, HOSTS_ANSWER
from kilonova.conductor import handlers
from kilonova.conductor.handlers import MessageHandlers
from kilonova.domain.errors import Halted, Superseded, Unreachable
from kilonova.domain.guest import HostInventory
from kilonova.domain.messages import Alive, Beat, Finish, Finished, Orders, Register, Returned, StepOrder
from kilonova.hosts.registration import identity_of
from kilonova.logs import OPERATION
from kilonova.schema.tables.cell import hosts
from kilonova.schema.tables.control import cells, host_mappings
from kilonova.sim.lab.database_files import CLOUD_ID
from kilonova.store import rows
from tests.support.small_cloud import SmallCloud, put

SUBJECTS = [f"conductor.{word}" for word in ("register", "returned", "beat", "finish", "network", "contents")]
INVENTORY = HostInventory({"VCPU": (8, 0, 1.0), "MEMORY_MB": (16384, 0, 1.0), "DISK_GB": (100, 0, 1.0)})
HOST = {"name": "host1", "id": "h", "provider_id": "p", "identity": identity_of("key"), "session": "now", "epoch": 3}
BEAT = Beat(host="host1", session="now", epoch=3, cloud=CLOUD_ID)
LATER = {"control": (1, 90_000), "cell1": (1, 90_000)}  # a mark that these databases never had


def replaced(message: Any, **values: Any) -> Any:
    return msgspec.structs.replace(message, **values)


@pytest.fixture
def desk(small_cloud: SmallCloud) -> MessageHandlers:
    """A conductor that has met host1."""
    made = MessageHandlers(small_cloud.engine())

    async def meet() -> None:
        await put(made.engine, "control", host_mappings, host="host1", cell="cell1")
        await put(made.engine, "cell1", hosts, **HOST)
        await made.on_beat(BEAT)
        await made.observer(made.engine.world.db.cell("cell1")).flush(True)

    small_cloud.run(meet)
    return made


@pytest.fixture
def looks(desk: MessageHandlers, monkeypatch: pytest.MonkeyPatch) -> list[Beat]:
    """The heartbeats for which orders were looked for."""
    found, really = list[Beat](), desk._orders

    async def orders(journal: Any, beat: Beat) -> Orders:
        found.append(beat)
        return await really(journal, beat)

    monkeypatch.setattr(desk, "_orders", orders)
    return found


def registration(**values: Any) -> Register:
    return Register(**{"host": "host1", "session": "now", "key": "key", "copies": [], "inventory": INVENTORY, **values})


def heard(desk: MessageHandlers) -> list[str]:
    return sorted(desk.observer(desk.engine.world.db.cell("cell1")).heard)


def test_one_conductor_answers_a_question_and_each_hears_a_host_that_got_no_answer(small_cloud: SmallCloud) -> None:
    """However often they look for new cells."""

    async def story() -> None:
        for made in [MessageHandlers(small_cloud.engine(name)) for name in ("conductor1", "conductor2")]:
            await made.serve()
            await made.serve()

    small_cloud.run(story)
    assert {subject: len(small_cloud.hub.receivers(subject)) for subject in SUBJECTS} == dict.fromkeys(SUBJECTS, 1)
    assert len(small_cloud.hub.receivers(HOST_ALIVE)) == 2


def test_the_hosts_of_a_new_cell_are_answered_under_its_prefix(small_cloud: SmallCloud) -> None:
    async def story() -> None:
        made = MessageHandlers(small_cloud.engine())
        await made.serve()
        await put(made.engine, "control", cells, name="cell1", bus_prefix="east", sealed_url="")
        await made.engine.world.db.learn()
        await made.serve()

    small_cloud.run(story)
    for prefix in ("", "east."):
        for subject in [*SUBJECTS, HOST_ALIVE]:
            assert len(small_cloud.hub.receivers(prefix + subject)) == 1, prefix + subject


def test_a_host_that_is_refused_is_not_heard(small_cloud: SmallCloud, desk: MessageHandlers) -> None:
    async def story() -> None:
        await small_cloud.keep_marks(desk.engine)
        answer = await desk.on_register(registration(cloud="another", seen=LATER))
        assert "belongs to cloud another" in answer.refused and not answer.epoch
        assert not desk.engine.world.db.halted
        answer = await desk.on_register(registration(cloud=CLOUD_ID))
        assert not answer.refused and answer.epoch == 3

    small_cloud.run(story)


@pytest.mark.parametrize("word", ["register", "beat"])
def test_a_host_that_saw_a_later_state_of_a_database_stops_all_writes(
    small_cloud: SmallCloud, desk: MessageHandlers, word: str
) -> None:
    """Law 15: the database was put back from a backup. The only host of its cell proves it alone."""

    async def story() -> None:
        await small_cloud.keep_marks(desk.engine)
        with pytest.raises(Halted, match=r"host1 saw 1\.90000"):
            if word == "register":
                await desk.on_register(registration(seen=LATER))
            else:
                await desk.on_beat(replaced(BEAT, seen=LATER))
        assert desk.engine.world.db.halted
        with pytest.raises(Halted):  # one that saw nothing waits, too
            await desk.on_beat(BEAT)

    small_cloud.run(story)


def test_a_process_that_keeps_no_marks_hears_hosts_that_saw_some(
    small_cloud: SmallCloud, desk: MessageHandlers
) -> None:
    small_cloud.run(lambda: desk.on_beat(replaced(BEAT, seen=LATER)))
    assert heard(desk) == ["host1"]


def test_a_host_is_sent_the_marks_that_it_does_not_have(small_cloud: SmallCloud, desk: MessageHandlers) -> None:
    async def story() -> None:
        assert (await desk.on_beat(BEAT)).seen == {}
        marks = await small_cloud.keep_marks(desk.engine)
        known = {name: (badge.era, badge.mark) for name, badge in marks.badges.items() if name != "cell0"}
        for pull in (False, True):
            assert (await desk.on_beat(replaced(BEAT, pull=pull))).seen == known
            later = {**known, "cell1": (0, 7)}
            assert (await desk.on_beat(replaced(BEAT, pull=pull, seen=later))).seen == {"cell1": known["cell1"]}
            assert (await desk.on_beat(replaced(BEAT, pull=pull, seen=known))).seen == {}

    small_cloud.run(story)


@pytest.mark.parametrize("is_current", [True, False])
def test_operations_that_wait_for_a_host_are_looked_at_when_it_has_returned(
    small_cloud: SmallCloud, desk: MessageHandlers, is_current: bool
) -> None:
    """By every conductor; not for a host that has to register again."""
    woken = list[bytes]()

    async def wake(body: bytes) -> bytes:
        woken.append(body)
        return b""

    async def story() -> None:
        await desk.engine.world.bus.serve(HOSTS_ANSWER, wake)
        epoch = (await desk.on_register(registration())).epoch
        message = Returned(host="host1", session="now", epoch=epoch if is_current else epoch + 1)
        assert await desk.on_returned(message) is is_current
        await desk.engine.world.clock.sleep(0.1)

    small_cloud.run(story)
    assert woken == [b""] * is_current


@pytest.mark.parametrize(("cloud", "is_heard"), [("", True), (CLOUD_ID, True), ("another", False)])
def test_the_messages_of_another_clouds_host_prove_nothing(
    small_cloud: SmallCloud, desk: MessageHandlers, cloud: str, is_heard: bool
) -> None:
    """An agent of an earlier release names no cloud."""

    async def story() -> None:
        assert (await desk.on_beat(replaced(BEAT, cloud=cloud))).register_again is not is_heard
        assert heard(desk) == ["host1"] * is_heard
        desk.observer(desk.engine.world.db.cell("cell1")).heard.clear()
        await desk.on_alive(Alive(host="host1", session="now", cloud=cloud))
        assert heard(desk) == ["host1"] * is_heard

    small_cloud.run(story)


def test_the_orders_of_a_host_are_looked_for_only_if_there_may_be_some(
    small_cloud: SmallCloud, desk: MessageHandlers, looks: list[Beat]
) -> None:
    """Thousands of hosts send a heartbeat every few seconds."""
    told = [("s", 1, False)]  # about a guest that the records do not have

    async def story() -> None:
        assert await desk.on_beat(BEAT) == Orders() and not looks
        assert await desk.on_beat(replaced(BEAT, pull=True)) == Orders() and len(looks) == 1
        assert await desk.on_beat(replaced(BEAT, powers=told)) == Orders(noted=[("s", 1)]) and len(looks) == 2
        desk.with_work.add("host1")
        assert await desk.on_beat(BEAT) == Orders() and len(looks) == 3
        assert await desk.on_beat(BEAT) == Orders() and len(looks) == 3, "once"

    small_cloud.run(story)


def test_a_host_with_a_guest_that_may_not_run_there_registers_again(
    small_cloud: SmallCloud, desk: MessageHandlers
) -> None:
    async def story() -> None:
        answer = await desk.on_beat(replaced(BEAT, powers=[("s", 1, True)]))
        assert answer == Orders(register_again=True, noted=[("s", 1)])

    small_cloud.run(story)


@pytest.mark.parametrize("other", [{"session": "before"}, {"epoch": 2}], ids=["session", "epoch"])
def test_a_host_that_is_not_known_so_registers_again(
    small_cloud: SmallCloud, desk: MessageHandlers, other: Any
) -> None:
    async def story() -> None:
        assert (await desk.on_beat(replaced(BEAT, **other))).register_again

    small_cloud.run(story)


@pytest.mark.parametrize(
    ("word", "register_again"), [({"returning": 1}, True), ({"forced_down": 1}, False), ({"fenced": "by"}, False)]
)
def test_a_host_that_may_not_work_is_asked_of_control_again(
    small_cloud: SmallCloud, desk: MessageHandlers, word: Any, register_again: bool
) -> None:
    """It may have moved to another cell."""

    async def story() -> None:
        await desk.engine.world.db.cell("cell1").write(lambda tx: rows.change(tx, hosts, word, name="host1"))
        assert await desk.on_beat(replaced(BEAT, pull=True)) == Orders(register_again=register_again)
        await desk.engine.world.db.control.write(lambda tx: rows.remove(tx, host_mappings, host="host1"))
        assert (await desk.on_beat(BEAT)).register_again

    small_cloud.run(story)


def test_a_host_without_a_record_registers_again(small_cloud: SmallCloud, desk: MessageHandlers) -> None:
    async def story() -> None:
        await desk.engine.world.db.cell("cell1").write(lambda tx: rows.remove(tx, hosts, name="host1"))
        assert (await desk.on_beat(replaced(BEAT, pull=True))).register_again

    small_cloud.run(story)


def test_the_transaction_that_gives_a_step_to_a_host_looks_whether_it_may_work(
    small_cloud: SmallCloud, desk: MessageHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been declared down since its steps were looked for."""

    async def steps(tx: Any, beat: Beat) -> list[tuple[str, int]]:
        return [("o", 1)]

    async def take(engine: Any, journal: Any, operation: str, ordinal: int, beat: Beat, guard: Any) -> None:
        await journal.write(guard)
        await journal.write(lambda tx: rows.change(tx, hosts, {"forced_down": 1}, name="host1"))
        await journal.write(guard)

    monkeypatch.setattr(handlers, "open_for_host", steps)
    monkeypatch.setattr(handlers, "take_for_host", take)

    async def story() -> None:
        with pytest.raises(Superseded, match="host1 may not run steps now"):
            await desk.on_beat(replaced(BEAT, pull=True))

    small_cloud.run(story)


def test_what_is_logged_about_a_result_names_its_operation(
    small_cloud: SmallCloud, desk: MessageHandlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = list[str]()

    async def end(message: Finish) -> Finished:
        logged.append(OPERATION.get())
        return Finished(accepted=True)

    monkeypatch.setattr(desk, "_finish", end)

    async def story() -> None:
        await desk.serve()
        for operation in ("first", "second"):
            result = Finish(host="host1", session="now", epoch=3, journal="cell1", operation=operation, ordinal=1)
            await desk.engine.world.bus.call("conductor.finish", msgspec.json.encode(result))
        assert OPERATION.get() == ""

    small_cloud.run(story)
    assert logged == ["first", "second"]


@pytest.mark.parametrize("knows", ["cell_of_host", "observers", ""])
def test_a_host_is_heard_while_control_is_away_by_all_who_know_its_cell(
    small_cloud: SmallCloud, desk: MessageHandlers, monkeypatch: pytest.MonkeyPatch, knows: str
) -> None:
    async def away(*_: Any) -> None:
        raise Unreachable("control: no answer")

    monkeypatch.setattr(handlers, "cell_of", away)
    for name in {"cell_of_host", "observers"} - {knows}:
        getattr(desk, name).clear()
    if not knows:
        desk.observer(desk.engine.world.db.cell("cell1")).known["another"] = ("now", 1)

    async def story() -> None:
        if knows:
            assert (await desk.on_beat(BEAT)).register_again is False
        else:
            with pytest.raises(Unreachable, match="no cell is known to have host1"):
                await desk.on_beat(BEAT)
        await desk.on_alive(Alive(host="host1", session="now"))

    small_cloud.run(story)
    assert heard(desk) == ["host1"] * bool(knows)


def order(length: int) -> StepOrder:
    ids = {"journal": "cell1", "operation": "o", "kind": "rebuild", "name": "s", "way": "do", "server": "s"}
    return StepOrder(**ids, ordinal=1, turn=1, copy=1, facts={"text": "a" * length})  # type: ignore[arg-type]


def test_orders_up_to_half_a_message_let_one_more_in() -> None:
    exactly = handlers.ORDERS_BYTES - len(msgspec.json.encode(order(0)))
    for more, sent in ((0, 2), (1, 1)):
        orders = [order(exactly + more), order(1)]
        assert len(handlers.within_a_message(orders).steps) == sent


def test_a_result_that_cannot_be_read_is_refused_for_good_and_may_work_elsewhere() -> None:
    said = Finish(host="host1", session="now", epoch=3, journal="cell1", operation="o", ordinal=1, error={"code": 5})
    problem = handlers._outcome(said).problem
    assert problem is not None and (problem.code, problem.final, problem.elsewhere) == ("bad_report", True, True)


@pytest.mark.parametrize(
    ("lengths", "sent"),
    [
        ([], 0),
        ([handlers.MAX_BODY], 1),
        ([10, 10], 2),
        ([handlers.ORDERS_BYTES, 10], 1),
        ([10, handlers.ORDERS_BYTES, 10], 2),
        ([handlers.ORDERS_BYTES // 2, handlers.ORDERS_BYTES // 4, 10], 3),
    ],
)
def test_orders_that_do_not_fit_into_a_message_follow_at_once(lengths: list[int], sent: int) -> None:
    orders = [order(length) for length in lengths]
    assert handlers.within_a_message(orders) == Orders(steps=orders[:sent], more=sent < len(orders))
