"""What silence may lead to, for every step there is (law 3): a pure rule, tried with everything."""

import pytest

from kilonova.domain.host import HostState
from kilonova.engine import silence
from kilonova.engine.model import DEBT, FAIL, WAIT
from kilonova.engine.silence import on_silence
from kilonova.operations import REGISTRY
from kilonova.schema.tables.journal import operations, steps
from kilonova.store import rows
from tests.engine.rows_of_one import OPERATION, STEP, engine_of, play, store_of

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


def test_only_steps_that_lie_with_a_host_are_looked_at(tmp_path, monkeypatch):
    """Each as a step of its own operation, or of the one whose undo it is."""
    kinds = ("stop", "migrate", "reboot")
    looked = []

    async def look(engine, journal, row, step, *_):
        looked.append((row["operation_id"], row["kind"], step.name))

    async def put(tx, operation, name, **values):
        step = {**STEP, "operation_id": operation, "name": name, "host": "host1", **values}
        await rows.put(tx, steps, **step)

    async def body(tx):
        for kind in kinds:
            await rows.put(tx, operations, **{**OPERATION, "id": kind, "kind": kind})
        for ordinal, other in enumerate(({"open": 0}, {"host": ""})):
            await put(tx, "migrate", "claim", ordinal=ordinal, **other)
        await put(tx, "migrate", "resize_instance")
        await put(tx, "reboot", "resize_instance", heir_of="migrate")
        await put(tx, "stop", "stop_instance")
        await silence.watch_hosts(engine_of(tx), store_of(tx))

    monkeypatch.setattr(silence, "_look", look)
    play(tmp_path, body)
    assert looked == [
        ("migrate", "migrate", "resize_instance"),
        ("reboot", "reboot", "resize_instance"),
        ("stop", "stop", "stop_instance"),
    ]
