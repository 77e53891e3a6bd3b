"""Who comes in, when, and who is sent away."""

import asyncio

import pytest

from kilonova.conductor.admission import Admission
from kilonova.domain.errors import Crowded


async def visit(admission, inside, name, weight=1, patience=1.0, stays=None):
    async with admission.passed(weight, patience, name):
        inside.append(name)
        await (stays.wait() if stays else asyncio.sleep(0))
        inside.remove(name)


def test_as_many_as_there_is_room_for_in_the_order_of_arrival():
    async def story():
        admission, inside, end = Admission(3), [], asyncio.Event()
        visits = [asyncio.create_task(visit(admission, inside, name, stays=end)) for name in "abcd"]
        await asyncio.sleep(0.01)
        assert inside == ["a", "b", "c"]
        end.set()
        await asyncio.gather(*visits)
        assert inside == []

    asyncio.run(story())


def test_a_heavy_one_is_not_overtaken_for_ever_and_one_that_is_too_heavy_comes_in_alone():
    async def story():
        admission, inside, first, second = Admission(3), [], asyncio.Event(), asyncio.Event()
        visits = [asyncio.create_task(visit(admission, inside, "light", stays=first))]
        await asyncio.sleep(0)
        visits += [asyncio.create_task(visit(admission, inside, "heavy", weight=100, stays=second))]
        visits += [asyncio.create_task(visit(admission, inside, "late", stays=second))]
        await asyncio.sleep(0.01)
        assert inside == ["light"]
        first.set()
        await asyncio.sleep(0.01)
        assert inside == ["heavy"]
        second.set()
        await asyncio.gather(*visits)

    asyncio.run(story())


def test_who_waits_for_too_long_is_sent_away_and_takes_nothing_along():
    async def story():
        admission, inside, end = Admission(1), [], asyncio.Event()
        busy = asyncio.create_task(visit(admission, inside, "busy", stays=end))
        await asyncio.sleep(0)
        for _ in range(2):  # the first one has left no room for the second
            with pytest.raises(Crowded, match="late retries"):
                await visit(admission, inside, "late", patience=0.01)
        gone = asyncio.create_task(visit(admission, inside, "gone"))
        await asyncio.sleep(0)
        end.set()
        gone.cancel()  # in the moment in which it might have come in
        await asyncio.gather(busy, gone, return_exceptions=True)
        await visit(admission, inside, "next", patience=0.01)

    asyncio.run(story())


def test_one_that_gives_up_in_the_moment_in_which_it_comes_in_takes_nothing_along():
    async def story():
        admission, inside = Admission(1), []
        async with admission.passed(1, 1.0, "busy"):
            gone = asyncio.create_task(visit(admission, inside, "gone"))
            await asyncio.sleep(0)
        gone.cancel()  # it was let in just now, and does not know it yet
        with pytest.raises(asyncio.CancelledError):
            await gone
        await visit(admission, inside, "next", patience=0.01)

    asyncio.run(story())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_one_that_gives_up_lets_those_behind_it_come_in_at_once(is_cancelled):
    async def story():
        admission, inside, end = Admission(3), [], asyncio.Event()
        visits = [asyncio.create_task(visit(admission, inside, "busy", weight=2, stays=end))]
        await asyncio.sleep(0)
        heavy = asyncio.create_task(visit(admission, inside, "heavy", weight=2, patience=0.01))
        await asyncio.sleep(0)
        visits += [asyncio.create_task(visit(admission, inside, "light", patience=5.0, stays=end))]
        await asyncio.sleep(0)
        if is_cancelled:
            heavy.cancel()
        with pytest.raises(asyncio.CancelledError if is_cancelled else Crowded):
            await heavy
        await asyncio.sleep(0)
        assert inside == ["busy", "light"]
        end.set()
        await asyncio.gather(*visits)
        await visit(admission, inside, "next", weight=3, patience=0.01)

    asyncio.run(story())


def test_what_goes_wrong_inside_gives_the_room_back():
    async def story():
        admission = Admission(1)
        for _ in range(2):
            with pytest.raises(ValueError):
                async with admission.passed(1, 0.01, "a"):
                    raise ValueError

    asyncio.run(story())
