"""What an agent does with its orders, whoever sends them and however they arrive (law 4)."""

import logging

import msgspec
import pytest

from kilonova.domain.messages import Verdict
from tests.support.one_host import HOST, INTERVAL, OneHost, order


@pytest.fixture
def room():
    room = OneHost()
    yield room
    room.close()


def test_an_order_is_done_and_told(room):
    room.say(order("a", 1, 1))
    assert room.log == ["a begun", "a done"]
    assert [(f.operation, f.ordinal, f.error) for f in room.finished] == [("operation-1", 1, None)]
    assert room.operations == ["operation-1"], "in each line that the step logs"


def test_an_order_that_was_done_is_done_again_when_it_comes_again(room):
    """Its result was lost with a conductor's database, or the conductor that had it."""
    for _ in range(2):
        room.say(order("a", 1, 1))
    assert room.log == ["a begun", "a done"] * 2
    assert [f.error for f in room.finished] == [None, None]


def test_the_next_step_may_come_with_the_answer(room):
    room.following = [order("b", 1, 2), order("c", 1, 3)]
    room.say(order("a", 1, 1), wait=INTERVAL)
    assert room.log == ["a begun", "a done", "b begun", "b done", "c begun", "c done"]
    assert [(f.ordinal, f.goes_on) for f in room.finished] == [(1, True), (2, True), (3, True)]
    assert not any(beat.pull for beat in room.beats[1:]), "nobody had to be asked"


@pytest.mark.parametrize("meanwhile", [False, True], ids=["", "unless it had to register meanwhile"])
def test_a_step_that_comes_with_the_answer_is_begun(room, meanwhile):
    """What is decided about the host while it registers comes first; then the step is handed out again."""
    room.register_meanwhile, room.following = meanwhile, [order("b", 1, 2)]
    room.say(order("a", 1, 1), wait=1.5 * INTERVAL)
    assert room.log == ["a begun", "a done", *([] if meanwhile else ["b begun", "b done"])]


@pytest.mark.parametrize("late", [(1, 9), (2, 2)], ids=["of an earlier turn", "of an earlier step"])
@pytest.mark.parametrize("again", [False, True], ids=["", "after a restart"])
def test_an_order_that_comes_too_late_is_dropped(room, late, again):
    room.say(order("new", 2, 3))
    if again:
        room.restart()
    room.say(order("late", *late))
    assert room.log == ["new begun", "new done"]
    (answer,) = [f for f in room.finished if f.error is not None]
    assert (answer.operation, answer.ordinal) == (f"operation-{late[0]}", late[1]), "and whoever sent it hears so"
    assert (answer.error["code"], answer.error["final"]) == ("order_outdated", True)
    assert "is older than turn 2, step 3" in answer.error["message"]


def test_each_time_a_late_order_comes_it_is_answered_once(room):
    room.say(order("new", 2, 3))
    for times in (1, 2):
        room.say(order("late", 1, 1), order("late", 1, 1))
        answers = [f.error for f in room.finished if f.error is not None]
        assert [(one["code"], one["elsewhere"], one["final"]) for one in answers] == [
            ("order_outdated", False, True)
        ] * times


def test_a_result_that_nobody_hears_is_told_again_after_a_quarter_of_an_interval(room):
    room.say(order("a", 1, 1, seconds=INTERVAL), wait=1.5 * INTERVAL)
    room.absent = True
    room.loop.run_for(INTERVAL)
    assert room.log == ["a begun", "a done"] and room.finished == []
    room.absent = False
    room.loop.run_for(INTERVAL / 4)
    assert len(room.finished) == 1


def test_an_order_that_was_dropped_is_answered_until_somebody_hears(room):
    room.say(order("new", 2, 3))
    room.silent = True
    room.say(order("late", 1, 1), wait=12.0)
    room.say(order("late", 1, 1), wait=28.0)
    room.silent = False
    room.loop.run_for(40.0)
    assert room.log == ["new begun", "new done"]
    assert room.finished[-1].error["code"] == "order_outdated"
    told = len(room.finished)
    room.loop.run_for(60.0)
    assert len(room.finished) == told, "then it is quiet"


def test_one_servers_orders_say_nothing_of_anothers(room):
    room.say(order("a", 5, 5))
    room.say(order("b", 1, 1, server="s2"))
    assert room.log == ["a begun", "a done", "b begun", "b done"]


def test_a_doubled_order_is_done_once_while_it_is_under_way(room):
    room.say(order("a", 1, 1, seconds=100.0), order("a", 1, 1, seconds=100.0))
    room.say(order("a", 1, 1, seconds=100.0), wait=200.0)
    assert room.log == ["a begun", "a done"]
    assert any(beat.has == ["operation-1/1"] for beat in room.beats), "the conductor hears what is under way"


@pytest.mark.parametrize("higher", [(1, 2), (2, 1)], ids=["step", "turn"])
def test_a_higher_order_aborts_a_lower_one_before_it_begins(room, higher):
    room.say(order("low", 1, 1, seconds=100.0))
    room.say(order("high", *higher, way="undo"), wait=200.0)
    assert room.log == ["low begun", "low aborted", "high begun", "high done"]
    assert [f.ordinal for f in room.finished] == [higher[1]], "an aborted step has no result"


def test_two_servers_are_worked_on_at_once(room):
    room.say(order("a", 1, 1, seconds=50.0), order("b", 1, 1, seconds=5.0, server="s2"), wait=100.0)
    assert room.log == ["a begun", "b begun", "b done", "a done"]


def test_a_result_is_told_until_somebody_answers(room):
    room.silent = True
    room.say(order("a", 1, 1), wait=40.0)
    room.silent = False
    room.loop.run_for(40.0)
    assert room.log == ["a begun", "a done"]
    assert len(room.finished) > 1 and room.finished[-1].ordinal == 1


def test_a_refused_result_undoes_nothing_and_asks_what_there_is(room):
    room.accepts = False
    room.say(order("a", 1, 1), wait=1.5 * INTERVAL)
    assert room.log == ["a begun", "a done"]
    assert len(room.finished) == 1
    assert room.beats[-1].pull, "it asks what should be there"


def test_many_refused_results_are_noted_once_and_quietly(room, caplog):
    room.accepts = False
    with caplog.at_level(logging.DEBUG, logger="kilonova.compute.agent"):
        room.say(*(order(name, 1, 1, server=name) for name in "abc"), wait=1.5 * INTERVAL)
    assert len(room.finished) == 3
    noted = [(entry.levelno, entry.getMessage()) for entry in caplog.records]
    assert noted == [(logging.DEBUG, "host host1: the result of work came too late: not now")]
    assert room.beats[-1].has == [], "each of them has ended"


def test_what_a_step_does_not_expect_is_told_as_an_error(room):
    unknown = msgspec.structs.replace(order("a", 1, 1), name="nonsense")
    room.say(unknown)
    assert room.finished[0].error["code"] == "unknown_step" and room.finished[0].error["final"]


@pytest.mark.parametrize(
    ("word", "run", "goes_on"),
    [("adopt", True, False), ("stop", False, False), ("adopt", False, True)],
    ids=["it should run", "it should be off", "an operation is under way"],
)
def test_what_is_decided_while_a_step_is_under_way_ends_that_step(room, word, run, goes_on):
    """Its operation has ended without this host: going on would change again what was just decided."""
    room.hardware.plant(HOST, "s1", 1, power="off")
    room.say(order("old", 1, 1, seconds=100.0))
    room.register_again, room.verdicts = True, [Verdict("s1", 1, word, "decided meanwhile", run)]
    room.loop.run_for(200.0)
    assert room.log == ["old begun", "old done" if goes_on else "old aborted"]
    assert bool(room.hardware.running("s1")) == run


@pytest.mark.parametrize(("how", "tries"), [("error", 3), ("refuse", 1)])
def test_a_guest_that_cannot_be_started_keeps_its_host_from_nothing_for_long(room, how, tries):
    """The others are adopted, the host works, and it says which one is off and why."""
    for server in ("bad", "good"):
        room.hardware.plant(HOST, server, 1, power="off")
    room.hardware.fail(HOST, "ensure_power", 3, how)
    room.returned.clear()
    room.register_again, room.verdicts = (
        True,
        [Verdict("bad", 1, "adopt", "", True), Verdict("good", 1, "adopt", "", True)],
    )
    if how == "refuse":
        room.hardware.fail(HOST, "ensure_power", 1, how)
        room.verdicts.pop()
    room.loop.run_for(10 * INTERVAL)
    (message,) = room.returned
    assert ("bad", 1, False) in message.adopted
    ((server, copy, reason),) = message.failed
    assert (server, copy) == ("bad", 1) and "ensure_power" in reason
    assert room.hardware.running("good") or tries == 1
    assert len(room.beats) > 2, "it works"


def test_the_servers_of_which_it_has_heard_lately_are_remembered(room, monkeypatch):
    """Which one came first does not count: an order that is older than another server's last one may still turn up."""
    monkeypatch.setattr("kilonova.compute.agent.REMEMBERED", 2)
    for turn, server in enumerate(["s1", "s2", "s1", "s3"], start=1):
        room.say(order(server, turn, 1, server=server))
    kept = room.hardware.recall(HOST)
    assert {name: kept.get(name) for name in ("s1", "s2", "s3")} == {"s1": [3, 1], "s2": None, "s3": [4, 1]}
    room.say(order("late", 1, 1, server="s1"))
    assert "late begun" not in room.log
