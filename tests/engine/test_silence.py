"""What silence may lead to, for every step there is (law 3): a pure rule, tried with everything."""

import pytest

from kilonova.domain.host import HostState
from kilonova.engine.model import DEBT, FAIL, WAIT
from kilonova.engine.silence import on_silence
from kilonova.operations import REGISTRY

STEPS = [
    pytest.param(step, id=f"{kind} {step.name}")
    for kind, operation in REGISTRY.items()
    for step in operation.course
    if step.on.name != "control"
]
SILENT = HostState("host1", "down", "host1 has been silent for 61 s while others were heard")
UNKNOWN = HostState("host1", "unknown", "nobody has listened for long enough")
DECLARED = HostState("host1", "down", "host1 was declared down", declared=True)


@pytest.mark.parametrize("step", STEPS)
def test_silence_alone_ends_nothing_that_may_have_left_a_guest_running(step):
    if step.starts_guest:
        assert {on_silence(step, way, SILENT, False) for way in ("do", "undo")} == {WAIT}
    if step.undo_starts_guest:
        assert on_silence(step, "do", SILENT, False) == WAIT, "it stops a guest that may run on"


@pytest.mark.parametrize("step", STEPS)
def test_what_is_not_known_ends_nothing(step):
    assert {on_silence(step, way, UNKNOWN, False) for way in ("do", "undo")} == {WAIT}


@pytest.mark.parametrize("step", STEPS)
def test_an_operators_word_ends_every_wait(step):
    assert on_silence(step, "undo", DECLARED, True) == DEBT
    assert on_silence(step, "do", DECLARED, True) in (DEBT, FAIL)
