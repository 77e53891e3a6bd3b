"""When an observer has listened without a gap (law 9), what it writes of what it heard, and when it writes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kilonova.conductor.observer import FORGOTTEN_AFTER, Observer
from kilonova.domain.errors import Unreachable
from kilonova.schema.tables.cell import hosts, observers
from kilonova.store import rows
from kilonova.world import Row
from tests.support.small_cloud import SmallCloud, put

DOWN = 60.0  # service_down_time
FLUSH = 1.0  # seconds between two flushes


class Listener:
    """An observer of a cell with hosts, in virtual time."""

    def __init__(self, cloud: SmallCloud) -> None:
        self.cloud = cloud
        self.engine = cloud.engine()
        self.store: Any = self.engine.world.db.cell("cell1")
        self.observer = Observer(self.engine, self.store)

    async def add(self, *names: str, **values: Any) -> None:
        for name in names:
            keys = {"id": name, "provider_id": name, "identity": name, "session": "s", "epoch": 1}
            await put(self.engine, "cell1", hosts, name=name, **{**keys, "last_seen": self.now, **values})

    @property
    def now(self) -> float:
        return self.cloud.clock.now()

    async def wait(self, seconds: float) -> None:
        await self.cloud.clock.sleep(seconds)

    async def flush(self, *heard: str, echo_works: bool = True) -> bool:
        for name in heard:
            self.observer.hear(name, "s")
        return await self.observer.flush(echo_works)

    async def read(self, table: Any) -> list[Row]:
        return list(await self.store.read(lambda tx: rows.fetch_all(tx, table)))

    async def last_seen(self, name: str) -> float:
        return next(float(row["last_seen"]) for row in await self.read(hosts) if row["name"] == name)

    async def own(self) -> tuple[float, float] | None:
        """Since when it has been listening, and until when, as recorded."""
        return next(((row["since"], row["until"]) for row in await self.read(observers) if row["id"] == "me"), None)

    @property
    def written(self) -> int:
        return int(self.store.stats.transactions)


@pytest.fixture
def listen(small_cloud: SmallCloud) -> Callable[[Callable[[Listener], Awaitable[None]]], None]:
    return lambda story: small_cloud.run(lambda: story(Listener(small_cloud)), 10 * FORGOTTEN_AFTER)


@pytest.mark.parametrize(
    ("seconds", "follows"), [(FLUSH, True), (DOWN / 2, True), (DOWN / 2 + 0.5, False)], ids=["soon", "still", "late"]
)
def test_listening_ends_with_a_gap_between_two_flushes(listen: Any, seconds: float, follows: bool) -> None:
    """In it nothing was heard: the process hung, or nothing could be written."""

    async def story(one: Listener) -> None:
        await one.add("host1")
        began = one.now
        await one.flush("host1")
        assert await one.own() == (began, began)
        await one.wait(seconds)
        await one.flush("host1")
        assert await one.own() == (began if follows else one.now, one.now)

    listen(story)


def test_slow_flushes_leave_no_gap(listen: Any) -> None:
    """With a short service_down_time, three of them may be missed."""

    async def story(one: Listener) -> None:
        one.engine.flush_seconds = 20.0
        await one.add("host1")
        began = one.now
        for seconds, since in ((0.0, began), (60.0, began), (60.5, began + 120.5)):
            await one.wait(seconds)
            await one.flush("host1")
            assert await one.own() == (since, one.now)

    listen(story)


@pytest.mark.parametrize("hosts_there", [1, 2])
def test_a_conductor_that_does_not_hear_itself_does_not_listen(listen: Any, hosts_there: int) -> None:
    async def story(one: Listener) -> None:
        await one.add(*("host1", "host2")[:hosts_there])
        await one.flush("host1")
        await one.wait(FLUSH)
        await one.flush("host1", echo_works=False)
        assert await one.own() == (one.now, one.now)

    listen(story)


@pytest.mark.parametrize(
    ("hosts_there", "silence", "listens"),
    [(2, DOWN / 2, True), (2, DOWN / 2 + FLUSH, False), (1, DOWN / 2 + FLUSH, True), (1, 3 * DOWN, True)],
)
def test_who_hears_none_of_several_hosts_does_not_listen(
    listen: Any, hosts_there: int, silence: float, listens: bool
) -> None:
    """A single host may be the one that is silent."""

    async def story(one: Listener) -> None:
        await one.add(*("host1", "host2")[:hosts_there])
        began = one.now
        await one.flush("host1")
        while one.now < began + silence:
            await one.wait(FLUSH)
            await one.flush()
        assert (one.observer.since == began) is listens
        await one.wait(FLUSH)
        await one.flush("host1")
        assert await one.own() == (began if listens else one.now, one.now)

    listen(story)


def test_a_cell_without_hosts_needs_no_observer(listen: Any) -> None:
    async def story(one: Listener) -> None:
        before = one.written
        for _ in range(5):
            assert not await one.flush()
            await one.wait(DOWN)
        assert await one.own() is None and one.written == before

    listen(story)


def test_while_nothing_is_heard_an_observer_is_recorded_now_and_then(listen: Any) -> None:
    """Every second flush; more often if hosts soon count as silent."""

    async def story(one: Listener) -> None:
        await one.add("host1")
        await one.flush()
        recorded = [await one.own()]
        for _ in range(4):
            await one.wait(FLUSH)
            await one.flush()
            recorded.append(await one.own())
        assert [until - recorded[0][0] for _, until in recorded if recorded[0]] == [0.0, 0.0, 2.0, 2.0, 4.0]  # type: ignore[misc]
        one.engine.flush_seconds = DOWN / 8
        await one.wait(DOWN / 8)
        await one.flush()
        assert (await one.own() or (0, 0))[1] == one.now

    listen(story)


def test_what_an_observer_writes_is_nothing_that_a_backup_would_miss(listen: Any) -> None:
    """Else each flush would raise the mark of the database."""

    async def story(one: Listener) -> None:
        await one.add("host1")
        stats = one.store.stats
        before = stats.transactions - stats.upkeep
        await one.flush("host1")
        assert stats.transactions - stats.upkeep == before

    listen(story)


def test_what_could_not_be_recorded_is_recorded_later_with_its_time(
    listen: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(one: Listener) -> None:
        await one.add("host1", "host2", "host3")
        began = one.now

        async def away(body: Any) -> None:
            raise Unreachable("cell1: no answer")

        with monkeypatch.context() as patch:
            patch.setattr(one.store, "write", away)
            await one.wait(5.0)
            assert not await one.flush("host1", "host2")
            assert one.observer.since is None and one.observer.flushed is None
        await one.wait(10.0)
        assert not await one.flush("host2")
        found = [await one.last_seen(name) - began for name in ("host1", "host2", "host3")]
        assert found == [5.0 + FLUSH, 15.0, 0.0], "host1 was heard in the second before that flush"

    listen(story)


def test_a_cell_that_cannot_be_read_is_looked_at_again(listen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(one: Listener) -> None:
        async def away(body: Any) -> None:
            raise Unreachable("cell1: no answer")

        await one.add("host1")
        with monkeypatch.context() as patch:
            patch.setattr(one.store, "read", away)
            assert not await one.flush()
        assert await one.own() is None
        await one.flush()
        assert await one.own() is not None

    listen(story)


@pytest.mark.parametrize(("silent", "is_news"), [(DOWN, False), (DOWN + 1.0, True)])
@pytest.mark.parametrize("name", ["host1", "host2"])
def test_a_host_that_is_heard_again_is_news(listen: Any, silent: float, is_news: bool, name: str) -> None:
    """Operations that wait for it are looked at again. One that is still silent, or was not, is none."""

    async def story(one: Listener) -> None:
        await one.add("host1", last_seen=one.now - silent)
        await one.add("host2")
        assert await one.flush(name) is (is_news and name == "host1")

    listen(story)


@pytest.mark.parametrize("jump", [-DOWN / 4 - 1.0, -DOWN / 4, DOWN / 4, DOWN / 4 + 1.0])
def test_after_the_databases_clock_was_set_no_silence_is_proven_by_it(listen: Any, jump: float) -> None:
    """Law 16: hosts that were heard within service_down_time are up by the new clock, and nobody has listened yet."""

    async def story(one: Listener) -> None:
        await one.add("host1", "host2", "host3")
        began = one.now
        await one.flush("host1", "host2", "host3")
        await one.wait(10.0)
        await one.flush("host2")
        one.cloud.clock.skew += jump
        await one.flush("host2")
        has_jumped = abs(jump) > DOWN / 4
        assert (await one.own() or (0, 0))[0] == (one.now if has_jumped else began)
        heard_before = one.now - 10.0 if has_jumped else began
        assert await one.last_seen("host1") == heard_before
        if jump > 0:
            assert await one.last_seen("host2") == one.now

    listen(story)


def test_a_host_whose_time_is_ahead_of_a_clock_that_was_set_back_is_silent_until_somebody_says_otherwise(
    listen: Any,
) -> None:
    async def story(one: Listener) -> None:
        await one.add("host1", "host2")
        await one.flush("host1")  # host2 was heard by another conductor, or by none
        one.cloud.clock.skew -= 3600.0
        await one.flush("host1")
        assert await one.last_seen("host1") == one.now
        assert await one.last_seen("host2") == one.now - DOWN

    listen(story)


@pytest.mark.parametrize(("age", "counts"), [(DOWN, True), (DOWN + 1.0, False)])
def test_what_was_heard_too_long_before_the_clock_was_set_does_not_count(listen: Any, age: float, counts: bool) -> None:
    async def story(one: Listener) -> None:
        await one.add("host1", "host2")
        await one.flush("host1", "host2")
        await one.wait(age)
        await one.flush("host2")
        one.cloud.clock.skew -= 3600.0
        await one.flush("host2")
        assert await one.last_seen("host1") == one.now - DOWN
        assert (
            "host1" in {seen["host"] for seen in one.observer._seen_lately(one.now, one.cloud.loop.time())}
        ) is counts

    listen(story)


def test_a_host_that_is_gone_is_forgotten(listen: Any) -> None:
    """And one that is not recorded here is not remembered."""

    async def story(one: Listener) -> None:
        await one.add("host1", "host2")
        await one.flush("host1", "host2", "stranger")
        assert sorted(one.observer.heard_at) == sorted(one.observer.known) == ["host1", "host2"]
        await one.store.write(lambda tx: rows.remove(tx, hosts, name="host2"))
        await one.flush("host1")
        assert list(one.observer.heard_at) == list(one.observer.known) == ["host1"]

    listen(story)


def test_a_returning_host_is_known_under_no_session(listen: Any) -> None:
    """Its heartbeats are looked at until it has settled."""

    async def story(one: Listener) -> None:
        await one.add("host1", returning=1, epoch=7)
        await one.add("host2")
        await one.flush("host1")
        assert one.observer.known == {"host1": (None, 7), "host2": ("s", 1)}

    listen(story)
