"""What comes next: the pure heart of the engine."""

import copy

import pytest

from kilonova.domain.operation import BACK, FORWARD
from kilonova.engine.course import (
    INHERIT,
    Begun,
    Course,
    End,
    Go,
    Problem,
    after_abandon,
    after_failure,
    after_success,
    backoff,
    begin,
    inherit,
    turn_back,
)
from kilonova.engine.model import CONTROL, FOREVER, Operation, Retired, Step, StepTargets, Target
from kilonova.operations.facts import EACH_COPY, DeleteFacts

NOWHERE = StepTargets("control", lambda facts: [])


async def work(ctx):
    return {}


class Plain(Operation):
    name = "plain"
    steps = [
        Step("a", work, on=CONTROL, undo=work),
        Step("b", work, on=NOWHERE, undo=work),
        Step("c", work, on=CONTROL, undo=work, retry=1),
        Step("d", work, on=CONTROL),
    ]


class Rerouting(Plain):
    again_from = "b"
    steps = [
        Step("a", work, on=CONTROL, undo=work),
        Step("b", work, on=CONTROL, undo=work),
        Step("c", work, on=CONTROL, undo=work),
    ]
    ending = [Step("bury", work, on=CONTROL)]


def fail(operation, course, go, *, attempts=3, elsewhere=False, final=False, committed=False):
    problem = Problem(code="x", message="y", elsewhere=elsewhere, final=final)
    return after_failure(operation, course, {}, go.way, problem, done=go, committed=committed, max_attempts=attempts)


def forward(operation, course, facts=None):
    """All step names of an undisturbed run."""
    facts = facts or {}
    names, move = [], begin(operation, course, facts)
    while isinstance(move, Go):
        names.append(f"{move.step}@{move.target.host}{move.target.copy or ''}")
        move = after_success(operation, course, facts, "do", False)
    return names, move


def undone(operation, course, move, committed=False):
    names = []
    while isinstance(move, Go) and move.way == "undo":
        names.append(move.step)
        move = after_success(operation, course, {}, "undo", committed)
    return names, move


def test_goes_forward_and_passes_over_steps_without_a_target():
    assert forward(Plain(), Course()) == (["a@", "c@", "d@"], End("done"))


def test_a_step_for_each_target_in_order():
    class Each(Operation):
        steps = [Step("t", work, on=EACH_COPY), Step("z", work, on=CONTROL)]

    assert forward(Each(), Course(), DeleteFacts(copies=[("h1", 3), ("h2", 4)]))[0] == ["t@h13", "t@h24", "z@"]


def test_a_failure_is_tried_again_then_undone_in_reverse_including_the_failed_step():
    operation, course = Plain(), Course()
    begin(operation, course, {})
    c = after_success(operation, course, {}, "do", False)
    again = fail(operation, course, c)
    assert (again.step, again.way, again.attempt) == ("c", "do", 2)
    assert again.delay > 0
    names, end = undone(operation, course, fail(operation, course, again))
    assert names == ["c", "a"]
    assert end == End("undone")


def test_final_failures_are_not_tried_again():
    operation, course = Plain(), Course()
    begin(operation, course, {})
    c = after_success(operation, course, {}, "do", False)
    assert fail(operation, course, c, final=True).way == "undo"


def test_past_the_point_of_no_return_it_has_failed():
    operation, course = Plain(), Course()
    a = begin(operation, course, {})
    assert undone(operation, course, fail(operation, course, a, final=True, committed=True), True)[1] == End("failed")


def test_another_host_is_tried_from_the_named_step_up_to_max_attempts():
    operation, course = Rerouting(), Course()
    begin(operation, course, {})
    b = after_success(operation, course, {}, "do", False)
    for attempt in (1, 2):
        c = after_success(operation, course, {}, "do", False)
        assert (b.step, c.step) == ("b", "c")
        names, b = undone(operation, course, fail(operation, course, c, elsewhere=True))
        assert names == ["c", "b"], "a stays done"
        assert (b.step, b.way, course.attempt) == ("b", "do", attempt + 1)
    c = after_success(operation, course, {}, "do", False)
    names, move = undone(operation, course, fail(operation, course, c, elsewhere=True))
    assert names == ["c", "b", "a"], "no attempt is left: everything is undone"
    assert (move.step, move.way) == ("bury", "do")
    assert after_success(operation, course, {}, "do", False) == End("undone")


def test_undo_and_endings_are_tried_until_they_work():
    operation, course = Rerouting(), Course()
    a = begin(operation, course, {})
    move = fail(operation, course, a, final=True)
    for attempt in range(2, 30):
        move = fail(operation, course, move, final=True)
        assert (move.step, move.way, move.attempt) == ("a", "undo", attempt)
        assert (move.waits, move.delay) == (True, 60.0), "refused for good, it waits at once"


def test_an_undo_that_was_refused_ten_times_waits_and_is_tried_once_a_minute():
    operation, course = Plain(), Course()
    move = fail(operation, course, begin(operation, course, {}), final=True)
    pauses = []
    for refused in range(1, 15):
        move = fail(operation, course, move)
        assert (move.step, move.way, move.waits) == ("a", "undo", refused >= 10)
        pauses.append(move.delay)
    assert pauses[:7] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0] and set(pauses[9:]) == {60.0}
    after_success(operation, course, {}, "undo", False)
    assert (course.refusals, course.stuck) == (0, "")


@pytest.mark.parametrize("code", ["deadline", "host_down"])
def test_silence_does_not_count(code):
    operation, course = Plain(), Course()
    move = fail(operation, course, begin(operation, course, {}), final=True)
    silent = Problem(code=code, message="nobody answers", final=True)
    for _ in range(30):
        move = after_failure(operation, course, {}, "undo", silent, done=move, committed=False, max_attempts=3)
        assert not move.waits
    for _ in range(9):
        assert not fail(operation, course, move).waits
    assert fail(operation, course, move).waits, "only what was refused is counted"


def test_an_abandoned_entry_is_skipped_and_the_rest_is_undone():
    operation, course = Rerouting(), Course()
    begin(operation, course, {})
    after_success(operation, course, {}, "do", False)
    c = after_success(operation, course, {}, "do", False)
    assert fail(operation, course, c, elsewhere=True).way == "undo"
    move = after_abandon(operation, course, {}, "undo", Problem(code="abandoned", message="enough"), False)
    names, move = undone(operation, course, move)
    assert names == ["b", "a"], "not elsewhere: everything that is left is undone"
    assert move.step == "bury"
    assert after_success(operation, course, {}, "do", False) == End("failed")


def test_an_abandoned_step_without_a_way_back_is_skipped_and_the_rest_is_done():
    class Cleaning(Operation):
        steps = [
            Step("clean", work, on=CONTROL, no_return=True, retry=FOREVER),
            Step("sweep", work, on=CONTROL, retry=1),
        ]

    operation, course = Cleaning(), Course()
    clean = begin(operation, course, {})
    assert fail(operation, course, clean, final=True).waits
    sweep = after_abandon(operation, course, {}, "do", Problem(code="abandoned", message="enough"), True)
    assert (sweep.step, sweep.way, course.mode) == ("sweep", "do", FORWARD)
    assert after_success(operation, copy.deepcopy(course), {}, "do", True) == End("failed"), (
        "it was not done as a whole"
    )
    end = fail(operation, course, sweep, final=True, committed=True)
    assert (end, course.problem.code) == (End("failed"), "abandoned"), "a later failure does not hide it"


def test_forever_means_forever():
    class Cleaning(Operation):
        steps = [Step("clean", work, on=CONTROL, retry=FOREVER)]

    operation, course = Cleaning(), Course()
    move = begin(operation, course, {})
    for _ in range(50):
        move = fail(operation, course, move, final=True)
    assert (move.step, move.way) == ("clean", "do")


def test_after_a_point_of_no_return_without_undo_nothing_before_it_is_undone():
    class Forward(Operation):
        steps = [
            Step("stop", work, on=CONTROL, undo=work),
            Step("give", work, on=CONTROL, no_return=True),
            Step("start", work, on=CONTROL),
        ]

    operation, course = Forward(), Course()
    begin(operation, course, {})
    after_success(operation, course, {}, "do", False)
    start = after_success(operation, course, {}, "do", True)
    assert start.step == "start"
    assert fail(operation, course, start, final=True, committed=True) == End("failed")


def test_an_heir_undoes_first_and_an_inherited_undo_keeps_its_first_owner():
    stack = [Begun("a", "", 0), Begun("c", "h1", 2)]
    once = inherit(stack, "op1", "plain")
    twice = inherit([*once, Begun("x", "", 0)], "op2", "other")
    assert [b.owner for b in twice] == ["op1", "op1", "op2"]
    operation, course = Rerouting(), Course(mode=INHERIT, stack=list(once))
    move = begin(operation, course, {})
    assert (move.step, move.way, move.owner, move.kind) == ("c", "undo", "op1", "plain")
    names, move = undone(operation, course, move)
    assert names == ["c", "a"]
    assert (move.step, move.way, move.owner, course.mode) == ("a", "do", "", FORWARD)


def test_cancelled():
    operation, course = Plain(), Course()
    begin(operation, course, {})
    move = turn_back(operation, course, {}, Problem(code="cancelled", message="by test"), False)
    assert course.mode == BACK
    assert undone(operation, course, move) == (["a"], End("cancelled"))


def test_one_that_is_cancelled_on_its_way_elsewhere_goes_nowhere():
    operation, course = Rerouting(), Course()
    begin(operation, course, {})
    b = after_success(operation, course, {}, "do", False)
    assert fail(operation, course, b, elsewhere=True).way == "undo"
    move = turn_back(operation, course, {}, Problem(code="cancelled", message="by test"), False)
    names, move = undone(operation, course, move)
    assert (names, move.step) == (["b", "a"], "bury")


def test_an_ending_is_tried_until_it_works():
    operation, course = Rerouting(), Course()
    bury = undone(operation, course, fail(operation, course, begin(operation, course, {}), final=True))[1]
    again = fail(operation, course, bury, final=True)
    assert (again.step, again.way, again.waits) == ("bury", "do", True)


def test_another_host_is_tried_from_the_first_step_on():
    class FromStart(Rerouting):
        again_from = "a"

    operation, course = FromStart(), Course()
    names, move = undone(operation, course, fail(operation, course, begin(operation, course, {}), elsewhere=True))
    assert (names, move.step, move.way, course.attempt, course.mode) == (["a"], "a", "do", 2, FORWARD)


def test_an_operation_that_tries_no_other_host_turns_back():
    operation, course = Plain(), Course()
    fail(operation, course, begin(operation, course, {}), elsewhere=True)
    assert course.mode == BACK


@pytest.mark.parametrize(
    ("middle", "names"),
    [
        (Step("b", work, on=CONTROL), ["c", "a"]),
        (Step("b", work, on=CONTROL, undo=work, no_return=True), ["c", "b", "a"]),
        (Step("b", work, on=CONTROL, no_return=True), ["c"]),
    ],
)
def test_only_a_step_of_no_return_without_an_undo_ends_what_is_undone(middle, names):
    class Three(Operation):
        steps = [Step("a", work, on=CONTROL, undo=work), middle, Step("c", work, on=CONTROL, undo=work)]

    operation, course = Three(), Course()
    begin(operation, course, {})
    after_success(operation, course, {}, "do", False)
    c = after_success(operation, course, {}, "do", True)
    assert undone(operation, course, fail(operation, course, c, final=True, committed=True), True)[0] == names


@pytest.mark.parametrize("leave", ["succeed", "cancel", "abandon"])
def test_the_next_entry_has_not_been_refused_yet(leave):
    """Whatever ends a step that was refused often enough: an operator may skip only what was refused itself."""

    class Waiting(Operation):
        steps = [
            Step("close", work, on=CONTROL, undo=work),
            Step("wait", work, on=CONTROL, retry=FOREVER),
            Step("end", work, on=CONTROL, retry=FOREVER),
        ]

    operation, course = Waiting(), Course()
    begin(operation, course, {})
    wait = after_success(operation, course, {}, "do", False)
    assert fail(operation, course, wait, final=True).waits
    course.stuck = "wait to be done"
    problem = Problem(code="cancelled" if leave == "cancel" else "abandoned", message="enough")
    if leave == "succeed":
        move = after_success(operation, course, {}, "do", False)
    elif leave == "cancel":
        move = turn_back(operation, course, {}, problem, False)
    else:
        move = after_abandon(operation, course, {}, "do", problem, False)
    assert (move.step, course.stuck) == ("close" if leave == "cancel" else "end", "")
    assert not fail(operation, course, move).waits


def test_steps_of_the_previous_release_are_found_by_name_and_lead_on():
    class Newer(Plain):
        version = 2
        steps = [
            Step("a", work, on=CONTROL, undo=work),
            Step("new", work, on=CONTROL),
            Step("d", work, on=CONTROL),
        ]
        retired = [Retired(Step("c", work, on=CONTROL, undo=work), then="new")]

    operation = Newer()
    course = Course(at="c", stack=[Begun("a", "", 0), Begun("c", "", 0)])
    assert after_success(operation, course, {}, "do", False).step == "new"
    course = Course(at="c", stack=[Begun("a", "", 0), Begun("c", "", 0)])
    move = fail(operation, course, Go(step="c", way="do", target=Target("")), final=True)
    assert undone(operation, course, move)[0] == ["c", "a"]
    with pytest.raises(LookupError, match="another release"):
        operation.step("never")


BROKE = Problem(code="x", step="build", message="it broke.")
ENOUGH = Problem(code="abandoned", step="build", message="Enough.")


@pytest.mark.parametrize(
    ("earlier", "code", "text"),
    [
        (None, "no_valid_host", "none fits"),
        (BROKE, "no_valid_host", "none fits The destination before: build: it broke."),
        (BROKE, "not_known", "none fits The destination before: build: it broke."),
        (BROKE, "other", "none fits"),
        (ENOUGH, "other", "Enough. Then a failed: none fits"),
        (ENOUGH, "no_valid_host", "Enough. Then a failed: none fits"),
    ],
)
def test_the_problem_that_is_shown_says_why_the_first_destination_failed(earlier, code, text):
    """And what was abandoned stays abandoned."""
    operation, course = Plain(), Course(problem=earlier)
    move = begin(operation, course, {})
    problem = Problem(code=code, message="none fits", step="a", final=True)
    after_failure(operation, course, {}, "do", problem, done=move, committed=False, max_attempts=1)
    assert course.problem.message == text
    assert course.problem.code == ("abandoned" if earlier is not None and earlier.code == "abandoned" else code)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 0.5), (2, 1.0), (7, 32.0), (8, 60.0), (12, 60.0), (10_000, 60.0)])
def test_pauses_grow_up_to_a_minute(attempt, seconds):
    assert backoff(attempt) == seconds


def test_a_step_with_several_targets_is_undone_on_each_that_was_begun():
    class Each(Operation):
        steps = [Step("t", work, on=EACH_COPY, undo=work), Step("z", work, on=CONTROL, retry=1)]

    facts = DeleteFacts(copies=[("h1", 3), ("h2", 4), ("h3", 5)])
    operation, course = Each(), Course()
    begin(operation, course, facts)
    second = after_success(operation, course, facts, "do", False)
    problem = Problem(code="x", message="y", final=True)
    move = after_failure(operation, course, facts, "do", problem, done=second, committed=False, max_attempts=1)
    assert course.targets == [], "the third is not begun any more"
    hosts = []
    while isinstance(move, Go):
        hosts.append(move.target.host)
        move = after_success(operation, course, facts, "undo", False)
    assert hosts == ["h2", "h1"]


def test_a_step_that_is_repeated_is_undone_once():
    operation, course = Plain(), Course()
    begin(operation, course, {})
    again = begin(operation, course, {})
    assert undone(operation, course, fail(operation, course, again, final=True))[0] == ["a"]


def test_a_cancel_begins_no_other_targets():
    class Each(Operation):
        steps = [Step("t", work, on=EACH_COPY, undo=work)]

    facts, operation, course = DeleteFacts(copies=[("h1", 3), ("h2", 4)]), Each(), Course()
    begin(operation, course, facts)
    move = turn_back(operation, course, facts, Problem(code="cancelled", message="by test"), False)
    assert course.targets == [] and (move.target.host, move.way) == ("h1", "undo")
