"""Every undo has an exit, in every operation (law 17).

Each undo, and each step past the point of no return, is refused for good. The operation waits at once, with the reason
and the command. `abandon` ends it; where that is not safe, the refusal ends and `resume` does.
"""

import logging
from dataclasses import replace

import pytest

from kilonova.domain.errors import Failed, Refused
from kilonova.engine.abandon import abandon, resume
from kilonova.operations import REGISTRY
from kilonova.schema.tables.journal import operations
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import read_records
from kilonova.store import rows
from tests.engine.test_cancel_everywhere import SCENES, STEPS, is_past

REASON = "the volume cannot be connected"
# What the operation says when it waits for an operator who has something else to do first.
ANOTHER_WORD = {"host_gone start_reverts": "1 servers to leave host2; evacuate or delete them"}
REFUSED = [(kind, name) for kind, name in STEPS if REGISTRY[kind].step(name).undo is not None or is_past(kind, name)]


class Refusal:
    """In place of a step and its undo: the undo is refused, past the point of no return the step itself."""

    def __init__(self, kind, name):
        self.step = REGISTRY[kind].step(name)
        self.do, self.undo = self.step.do, self.step.undo
        self.past = is_past(kind, name)
        self.happened = False

    def begin(self):
        object.__setattr__(self.step, "do", self.refuse if self.past else self.fail_in_the_end)
        object.__setattr__(self.step, "undo", None if self.undo is None else self.refuse)

    def end(self):
        object.__setattr__(self.step, "do", self.do)
        object.__setattr__(self.step, "undo", self.undo)

    async def refuse(self, ctx):
        self.happened = True
        raise Failed("refused", REASON, final=True)

    async def fail_in_the_end(self, ctx):
        await self.do(ctx)
        self.happened = True
        raise Failed("failed", REASON, final=True)


def live(cloud, kind):
    return [row for row in read_records(cloud).table("operations") if row["kind"] == kind and row["live"]]


def say(cloud, kind, operation_id, word):
    """Give a word about the operation of that kind in the journal that has it: `place` and `build` share their id."""

    async def ask(engine):
        for journal in engine.world.db.journals():
            if await journal.read(lambda tx: rows.fetch(tx, operations, id=operation_id, kind=kind, live=1)):
                try:
                    await word(engine, journal)
                except Refused as why:
                    return why.code
                return "accepted"
        return "there was none"

    return cloud.do(ask)


def give_a_word(cloud, kind, row, refusal):
    """Abandon it. That is refused where only a database is waited for, or a copy may run: then the reason goes away,
    and it is resumed."""
    if row["waiting_for"] in ANOTHER_WORD.values():
        return
    operation_id, cause = row["id"], cloud.cause()
    assert row["state"] == "waiting" and f"kilonova op resume {operation_id}" in row["waiting_for"]
    said = say(cloud, kind, operation_id, lambda *at: abandon(*at, operation_id, cause, "because"))
    if said != "accepted":
        ends_copy = refusal.step.ends_copy("do") or refusal.step.ends_copy("undo")
        assert said == ("not_abandonable" if refusal.step.only_rows else "may_run" if ends_copy else "accepted")
        refusal.end()
        assert say(cloud, kind, operation_id, lambda *at: resume(*at, operation_id, cause)) == "accepted"


@pytest.fixture
def quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("kind", "name"), REFUSED, ids=[f"{kind} {name}" for kind, name in REFUSED])
def test_a_step_that_is_refused_for_good_has_an_exit(kind, name):
    before, act, shape = SCENES.get(f"{kind} {name}") or SCENES[kind]
    cloud = SimCloud(replace(shape, conductors=1), seed=f"{kind} {name}")
    refusal = Refusal(kind, name)
    try:
        cloud.start_all()
        cloud.loop.run_for(15.0)
        for prepare in before:
            prepare(cloud)
        refusal.begin()
        act(cloud)
        for _ in range(60):
            cloud.loop.run_for(1.0)
            if refusal.happened:
                break
        assert refusal.happened
        cloud.loop.run_for(15.0)
        assert all(REASON in row["waiting_for"] for row in live(cloud, kind))  # none, if another way was found
        for _ in range(3):  # what was skipped may be the reason why another undo is refused
            for row in live(cloud, kind):
                give_a_word(cloud, kind, row, refusal)
            cloud.loop.run_for(75.0)
        waits = [row["waiting_for"] for row in live(cloud, kind)]
        assert waits == [ANOTHER_WORD[f"{kind} {name}"]] if f"{kind} {name}" in ANOTHER_WORD else waits == []
    finally:
        refusal.end()
        cloud.close()
