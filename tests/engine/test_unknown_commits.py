"""After a COMMIT whose outcome is unknown a worker finds its own move, and nobody else's (law 12)."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import CommitFailed, CommitUnknown, Superseded
from kilonova.schema.tables.journal import operations, steps
from kilonova.store import rows
from tests.engine.desk import Desk
from tests.engine.moving import play as play
from tests.support.small_cloud import put


def spoil(desk: Desk, monkeypatch: pytest.MonkeyPatch, meanwhile: Any = None) -> None:
    """The next COMMIT is unknown, although it is in."""
    write, failures = desk.journal.write, iter([True])

    async def unknown(body: Any) -> Any:
        result = await write(body)
        if next(failures, False):
            if meanwhile is not None:
                await meanwhile()
            raise CommitUnknown("the line went dead")
        return result

    monkeypatch.setattr(desk.journal, "write", unknown)


@pytest.mark.parametrize("kind", ["moving", "at_once", "careless", "no_return"])
def test_after_an_unknown_commit_a_worker_finds_its_own_move(
    play: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Law 12: with the step that it took, after those that were done at once."""

    async def story(desk: Desk) -> None:
        begun = await desk.begun(kind)
        spoil(desk, monkeypatch)
        following = await desk.end(begun)
        step = await desk.step(begun.op.id)
        assert (following.op.ordinal, following.step and following.step.name) == (step["ordinal"], step["name"])
        assert following.server is not None and following.host == step["host"]
        assert following.is_mine is (kind != "moving")

    play(story)


def test_and_the_end(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("ends_at_once")
        spoil(desk, monkeypatch)
        assert (await desk.end(begun)).ended == "done"

    play(story)


def test_what_was_surely_not_committed_is_done_again(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("no_return")
        write, failures = desk.journal.write, iter([True])

        async def fail_once(body: Any) -> Any:
            async def spoiled(tx: Any) -> Any:
                result = await body(tx)
                if next(failures, False):
                    raise CommitFailed("the disk was full for a moment")
                return result

            return await write(spoiled)

        monkeypatch.setattr(desk.journal, "write", fail_once)
        assert (await desk.end(begun)).is_mine
        assert await desk.states(begun.op.id) == [("plan", "do", "done"), ("give", "do", "taken")]

    play(story)


@pytest.mark.parametrize("kind", ["at_once", "twice"])
def test_nor_steps_that_this_worker_did_not_do_in_that_transaction(
    play: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """They were another's, or are not of those that are done at once."""

    async def story(desk: Desk) -> None:
        begun = await desk.begun(kind)

        async def meanwhile() -> None:
            if kind == "at_once":
                await desk.change(steps, {"worker": "other"}, operation_id=begun.op.id, name="look")
                return
            (row,) = await desk.all(steps, operation_id=begun.op.id, name="second")
            await put(desk.engine, "cell1", steps, **{**row, "ordinal": 3, "name": "end"})
            await desk.change(operations, {"ordinal": 3}, id=begun.op.id)

        spoil(desk, monkeypatch, meanwhile)
        with pytest.raises(Superseded, match="has moved on"):
            await desk.end(begun)

    play(story)


def test_an_inherited_undo_is_found_again_by_its_owners_steps(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(desk: Desk) -> None:
        await desk.end(await desk.begun("twice"))
        undo = await desk.begun("heir")
        assert undo.step is not None and (undo.step.name, undo.go and undo.go.way) == ("second", "undo")
        spoil(desk, monkeypatch)
        following = await desk.end(undo)
        assert following.step is not None and (following.step.name, following.go and following.go.way) == (
            "plan",
            "undo",
        )
        own = await desk.end(following)
        assert own.step is not None and (own.step.name, own.go and own.go.way) == ("own", "do")

    play(story)


@pytest.mark.parametrize("taken", ["by another", "further", "purged", "gone"])
def test_but_not_that_of_another(play: Any, monkeypatch: pytest.MonkeyPatch, taken: str) -> None:
    async def story(desk: Desk) -> None:
        begun = await desk.begun("no_return")

        async def meanwhile() -> None:
            if taken == "by another":
                await desk.change(steps, {"worker": "other"}, operation_id=begun.op.id, open=1)
            elif taken == "gone":
                await desk.journal.write(lambda tx: rows.remove(tx, operations, id=begun.op.id))
            elif taken == "purged":
                await desk.journal.write(lambda tx: rows.remove(tx, steps, operation_id=begun.op.id, open=1))
            else:
                await desk.change(operations, {"ordinal": 9}, id=begun.op.id)
                await desk.change(steps, {"ordinal": 9}, operation_id=begun.op.id, open=1)

        spoil(desk, monkeypatch, meanwhile)
        with pytest.raises(Superseded, match="another worker" if taken == "by another" else "has moved on"):
            await desk.end(begun)

    play(story)
