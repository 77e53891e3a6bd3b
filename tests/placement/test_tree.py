"""Trees of providers: roots follow, marks are set, and many at once never make a circle."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.errors import KilonovaError, Refused
from kilonova.placement import providers, tree
from kilonova.placement.removal import remove_provider
from tests.placement.books import PROVIDERS, Books

Run = Callable[[Any], None]


async def grow(books: Books, *pairs: tuple[str, str | None]) -> None:
    for name, parent in pairs:
        await providers.create(books.store, name, name, parent)


async def move(books: Books, name: str, parent: tree.NewParent, *, may_move: bool = True) -> Any:
    return await providers.change(books.store, name, name, parent, may_move=may_move)


async def shape(books: Books) -> dict[str, tuple[str | None, str]]:
    """Of each provider: its parent and its root."""
    rows = {row["id"]: row for row in await books.all(PROVIDERS)}
    names = {number: row["uuid"] for number, row in rows.items()}
    return {row["uuid"]: (names.get(row["parent_id"]), names[row["root_id"]]) for row in rows.values()}


def check_is_forest(found: dict[str, tuple[str | None, str]]) -> None:
    """Every provider comes to its root by its parents."""
    for name, (_, root) in found.items():
        at, steps = name, 0
        while (above := found[at][0]) is not None:
            at, steps = above, steps + 1
            assert steps <= len(found), f"{name} is above itself"
        assert at == root, f"{name} has the root {root}, but its parents lead to {at}"


def test_the_root_of_all_below_changes_with_the_parent(run: Run) -> None:
    async def story(books: Books) -> None:
        await grow(books, ("a", None), ("b", "a"), ("c", "b"), ("d", "c"), ("x", None), ("y", "x"))
        moved = await move(books, "b", "y")
        assert (moved.parent_uuid, moved.root_uuid) == ("y", "x")
        found = await shape(books)
        assert {name for name, (_, root) in found.items() if root == "x"} == {"x", "y", "b", "c", "d"}
        await move(books, "c", None)
        found = await shape(books)
        assert (found["c"], found["d"]) == ((None, "c"), ("c", "c"))
        check_is_forest(found)

    run(story)


def test_each_that_is_moved_is_marked(run: Run) -> None:
    async def story(books: Books) -> None:
        await grow(books, ("a", None), ("b", "a"), ("c", "b"), ("d", "a"), ("x", None))

        since = await books.watermark()
        await move(books, "b", "x")
        marked = {row["uuid"] for row in await books.all(PROVIDERS) if row["mark"] >= since}
        assert marked == {"b", "c"}
        assert {row["generation"] for row in await books.all(PROVIDERS)} == {0}

    run(story)


@pytest.mark.parametrize(
    ("name", "parent", "may_move", "words"),
    [
        ("a", "c", True, "creating loop"),
        ("a", "a", True, "creating loop"),
        ("b", "x", False, "re-parenting a provider is not currently allowed"),
        ("b", None, False, "un-parenting a provider is not currently allowed"),
        ("b", "nobody", True, "parent provider UUID does not exist"),
    ],
)
def test_what_makes_no_tree_is_refused(run: Run, name: str, parent: str | None, may_move: bool, words: str) -> None:
    async def story(books: Books) -> None:
        await grow(books, ("a", None), ("b", "a"), ("c", "b"), ("x", None))
        before = await shape(books)
        with pytest.raises(Refused, match=words):
            await move(books, name, parent, may_move=may_move)
        assert await shape(books) == before
        await move(books, "b", "a", may_move=False)  # where it is
        await move(books, "x", "c", may_move=False)  # it had none

    run(story)


def test_two_that_go_below_each_other_make_no_circle(run: Run) -> None:
    async def story(books: Books) -> None:
        for number in range(10):
            left, right = f"l{number}", f"r{number}"
            await grow(books, (left, None), (right, None))
            done = await asyncio.gather(move(books, left, right), move(books, right, left), return_exceptions=True)
            assert sorted(isinstance(each, Refused) for each in done) == [False, True], done
        check_is_forest(await shape(books))

    run(story)


def test_many_moves_births_and_deaths_at_once_leave_trees(run: Run) -> None:
    async def story(books: Books) -> None:
        draw = random.Random(7)
        names = [f"p{number}" for number in range(12)]
        await grow(books, *((name, None) for name in names))

        async def act(number: int) -> None:
            one, other = draw.sample(names, 2)
            try:
                if number % 5 == 0:
                    await providers.create(books.store, f"new{number}", f"new{number}", one)
                elif number % 7 == 0:
                    await remove_provider(books.store, one)
                else:
                    await move(books, one, draw.choice([other, other, None]))
            except KilonovaError as error:
                assert isinstance(error, Refused), error

        for start in range(0, 60, 6):
            await asyncio.gather(*(act(number) for number in range(start, start + 6)))
            check_is_forest(await shape(books))

    run(story)


def test_a_name_is_taken_once_however_many_ask(run: Run) -> None:
    async def story(books: Books) -> None:
        made = await asyncio.gather(
            *(providers.create(books.store, f"p{n}", "same", None) for n in range(6)), return_exceptions=True
        )
        assert sum(isinstance(each, providers.Provider) for each in made) == 1
        assert {each.code for each in made if isinstance(each, Refused)} == {"duplicate_name"}
        await grow(books, *((f"q{n}", None) for n in range(4)))
        renamed = await asyncio.gather(
            *(providers.change(books.store, f"q{n}", "other", tree.AS_IT_IS, may_move=False) for n in range(4)),
            return_exceptions=True,
        )
        assert sum(isinstance(each, providers.Provider) for each in renamed) == 1
        assert {each.code for each in renamed if isinstance(each, Refused)} == {"duplicate_name"}

    run(story)
