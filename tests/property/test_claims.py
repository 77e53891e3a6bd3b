"""Claims, moves, releases, evacuations and inventory changes: in parallel on both engines, and step by step against
a model. The same checks must catch a ledger that was broken on purpose."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlalchemy import bindparam, select, update

from kilonova.domain.errors import CommitFailed, Conflict, Superseded
from kilonova.placement import ledger
from kilonova.placement.claims import Claimed, NotClaimed
from kilonova.placement.groups import GroupRule
from kilonova.schema.tables.placement import consumers, inventories
from kilonova.store.postgres import PostgresStore
from kilonova.store.sqlite import SqliteStore
from kilonova.store.statements import Sql, in_list
from kilonova.store.upgrade import upgrade
from tests.placement.books import OWNER, Books, WallClock, provider_of
from tests.placement.interleavings import RAISED, Act, Script, Stage, check, scripts, watched
from tests.placement.model import Model, Own

FULL = bool(os.environ.get("KILONOVA_FULL"))
NUMBERS = itertools.count()
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}

UNGUARDED = Sql(
    update(inventories)
    .where(inventories.c.provider_id == bindparam("provider"), inventories.c.class_id == bindparam("class_"))
    .values(used=inventories.c.used + bindparam("n", type_=inventories.c.used.type), mark=bindparam("mark"))
    .returning(inventories)
)
UNLOCKED = Sql(select(consumers).where(in_list(consumers.c.uuid, "uuids")))


class Arena:
    """One store and one event loop for many scripts: the books are shared, so every check is about all of them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.runner = asyncio.Runner()
        self.store: Any = self.runner.run(self._open())
        self.books = Books(self.store)

    async def _open(self) -> Any:
        await upgrade(self.url, "placement")
        if self.url.startswith("postgresql"):
            store: Any = PostgresStore("placement", self.url, connections=8)
        else:
            path = self.url.removeprefix("sqlite:///")
            store = SqliteStore("placement", path, threaded=True, clock=WallClock(), synchronous="OFF")
        await store.write(watched(self.url.partition(":")[0]))
        return store

    def play(self, script: Script) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(30):
                await Stage(self.books, f"x{next(NUMBERS)}").play(script)
                await check(self.books)

        self.runner.run(bounded())

    def ask(self, statement: Sql) -> list[dict[str, Any]]:
        return [dict(row) for row in self.runner.run(self.books.all(statement))]

    def close(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()


@pytest.fixture(scope="module")
def claims_database(fast_postgres: Any) -> str:
    url: str = fast_postgres.create_database("claims_suite")
    fast_postgres.sql("ALTER DATABASE claims_suite SET deadlock_timeout = '50ms'")
    return url


@pytest.fixture
def sqlite_arena(tmp_path: Path) -> Iterator[Arena]:
    arena = Arena(f"sqlite:///{tmp_path / 'placement.db'}")
    yield arena
    arena.close()


@pytest.fixture
def postgres_arena(claims_database: str) -> Iterator[Arena]:
    arena = Arena(f"{claims_database}?schema=s{next(NUMBERS)}")
    yield arena
    arena.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def arena(request: pytest.FixtureRequest) -> Arena:
    chosen: Arena = request.getfixturevalue(f"{request.param}_arena")
    return chosen


def explore(arena: Arena, examples: int) -> None:
    @settings(max_examples=examples, phases=[Phase.generate], **QUIET)  # type: ignore[arg-type]
    @given(scripts)
    def every(script: Script) -> None:
        arena.play(script)

    every()


@pytest.mark.parametrize("round_", range(12 if FULL else 1))
def test_the_books_balance_whatever_happens_at_once(arena: Arena, round_: int) -> None:
    explore(arena, 100)


CROWD: Script = [[Act("put", server=0, hosts=(0,), amount=1 + n % 4), Act("claim", 2, (0, 1), 2)] for n in range(8)] * 2


def test_many_hands_on_one_consumer(arena: Arena) -> None:
    for _ in range(5):
        arena.play(CROWD)


def test_a_guard_that_does_not_look_at_capacity_is_caught(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "RAISE_USED", UNGUARDED)
    with pytest.raises(AssertionError):
        explore(arena, 100)
    assert arena.ask(RAISED), "caught for what it did"


@pytest.mark.postgres
def test_consumers_that_are_not_locked_are_caught(postgres_arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LOCK_CONSUMERS", UNLOCKED)
    with pytest.raises((AssertionError, Conflict)):
        for _ in range(100):
            postgres_arena.play(CROWD)


def to_and_fro(server: int) -> list[Act]:
    """Moves between three hosts, each touching two; servers start in different directions."""
    here, there, *_ = [(server + step) % 3 for step in range(3)]
    start = [Act("inventory", hosts=(here,), amount=4), Act("claim", server, (here,))]
    return start + [Act("claim_move", server, (there,)), Act("return_move", server)] * 4


CIRCLE: Script = [to_and_fro(server) for server in range(0, 16, 2)]


@pytest.mark.postgres
def test_nobody_waits_in_a_circle(postgres_arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store would try again after a deadlock and so hide that locks were taken in different orders."""
    monkeypatch.setattr("kilonova.store.postgres.TRIES", 1)
    for _ in range(3):
        postgres_arena.play(CIRCLE)


@pytest.mark.postgres
def test_locks_in_any_order_are_caught(postgres_arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    ordered, chance = ledger._touched, random.Random(1)
    monkeypatch.setattr("kilonova.store.postgres.TRIES", 1)
    monkeypatch.setattr(ledger, "_touched", lambda *args: chance.sample(found := ordered(*args), len(found)))
    with pytest.raises(CommitFailed, match="deadlock"):
        for _ in range(100):
            postgres_arena.play(CIRCLE)


# -- step by step, against the model ----------------------------------------------------------------------------

servers = st.sampled_from(["s1", "s2", "s3"])
orders = st.permutations(["a", "b", "c"])
sizes = st.integers(1, 3)
ENDS = ("return_move", "drop_move", "release")  # of a move
evacuations = st.sampled_from(["e1", "e2"])
group_rules = st.builds(
    GroupRule,
    group=st.just("g"),
    policy=st.sampled_from(["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]),
    max_per_host=st.integers(1, 2),
)


OWNERS = {(OWNER["project"], OWNER["user"])}


class Ledgers(RuleBasedStateMachine):
    """Books and model take the same steps; after each, both hold the same."""

    directory: Path

    @initialize(rooms=st.lists(st.integers(2, 6), min_size=3, max_size=3), group=st.none() | group_rules)
    def open(self, rooms: list[int], group: GroupRule | None) -> None:
        path = self.directory / f"{next(NUMBERS)}.db"
        self.runner = asyncio.Runner()
        self.runner.run(upgrade(f"sqlite:///{path}", "placement"))
        self.store = SqliteStore("placement", path, threaded=False, clock=WallClock(), synchronous="OFF")
        self.books, self.model, self.ordinal = Books(self.store), Model(rule=group), 0
        self.last: dict[str, tuple[tuple[int, int], Any, list[str]]] = {}
        for host, room in zip("abc", rooms, strict=True):
            self.runner.run(self.books.host(host, vcpu=room))
            self.model.capacity[host], self.model.accepting[host] = room, True

    def teardown(self) -> None:
        self.runner.run(self.store.close())
        self.runner.close()

    def _at(self) -> tuple[int, int]:
        """Turn and ordinal, always growing; a turn has three steps."""
        self.ordinal += 1
        return self.ordinal // 3, self.ordinal

    def _claimed(
        self, server: str, verb: str, args: list[str], order: list[str], size: int, dead_host: str = ""
    ) -> None:
        at = self._at()
        claim = getattr(self.books, verb)
        group, dead = self.model.rule, {"dead_host": dead_host} if dead_host else {}
        if group is not None:
            group = msgspec.structs.replace(group, dead_host=dead_host)
        outcome = self.runner.run(claim(server, *args, *order, size={"VCPU": size}, group=group, at=at))
        expected = getattr(self.model, verb)(server, *args, order, size, **dead)
        if expected is None:
            assert isinstance(outcome, NotClaimed) and len(outcome.refused) == len(order)
        else:
            assert isinstance(outcome, Claimed) and outcome.provider == provider_of(expected)
        self.last[server] = (at, outcome, args)

    def _moves_in_group(self, server: str) -> bool:
        """Other claims of a server wait for the end of its open move; the count of its group relies on that."""
        return self.model.rule is not None and f"m-{server}" in self.model.held()

    @rule(server=servers, order=orders, size=sizes)
    def claim(self, server: str, order: list[str], size: int) -> None:
        if not self._moves_in_group(server):
            self._claimed(server, "claim", [], order, size)

    @rule(server=servers, order=orders, size=sizes)
    def claim_move(self, server: str, order: list[str], size: int) -> None:
        self._claimed(server, "claim_move", [f"m-{server}"], order, size)

    @rule(
        server=servers, evacuation=evacuations, order=orders, size=sizes, dead_host=st.sampled_from(["", "a", "b", "c"])
    )
    def claim_evacuation(self, server: str, evacuation: str, order: list[str], size: int, dead_host: str) -> None:
        if not self._moves_in_group(server):
            self._claimed(server, "claim_evacuation", [evacuation], order, size, dead_host)

    @rule(server=servers, verb=st.sampled_from(ENDS))
    def end_move(self, server: str, verb: str) -> None:
        at = self._at()
        self.runner.run(getattr(self.books, verb)(server, f"m-{server}", at=at))
        getattr(self.model, verb)(server, f"m-{server}")
        self.last.pop(server, None)

    @rule(server=servers)
    def drop_source(self, server: str) -> None:
        """The source of its move was declared gone."""
        self.runner.run(self.books.drop_source(server, f"m-{server}"))
        self.model.drop_source(server, f"m-{server}")

    @rule(server=servers, order=orders, in_place=st.booleans(), taken=st.booleans(), verb=st.sampled_from(ENDS))
    def whole_move(self, server: str, order: list[str], in_place: bool, taken: bool, verb: str) -> None:
        """To another host, or to the one where it began: then both shares lie there, and only one of them goes.
        `taken`: a client removes the server's own share meanwhile."""
        if f"m-{server}" in self.model.held():
            return
        self.claim(server, order, 1)
        own = [host for host, holder in self.model.held().get(server, {}) if holder == Own]
        if len(own) == 1:
            hosts = [host for host in order if host != own[0]]
            self._claimed(server, "claim_move", [f"m-{server}"], [*own, *hosts] if in_place else hosts, 1)
            self.both_hold_the_same()
            if taken:
                self.client_takes_away(server)
            self.end_move(server, verb)

    @rule(server=servers)
    def client_takes_away(self, server: str) -> None:
        """A group goes on counting a server whose allocation a client has removed: only where there is none."""
        if self.model.rule is None:
            self.runner.run(self.books.take_away(server))
            self.model.take_away(server)

    @rule(server=servers, evacuation=evacuations)
    def return_evacuation(self, server: str, evacuation: str) -> None:
        if self._moves_in_group(server):
            return
        self.runner.run(self.books.return_evacuation(server, evacuation, at=self._at()))
        self.model.return_evacuation(server, evacuation)
        self.last.pop(server, None)

    @rule(server=servers, evacuation=evacuations)
    def drop_holder(self, server: str, evacuation: str) -> None:
        self.runner.run(self.books.drop_holder(server, evacuation))
        self.model.drop_holder(server, evacuation)

    @rule(host=st.sampled_from("abc"), room=st.integers(1, 6))
    def set_inventory(self, host: str, room: int) -> None:
        self.runner.run(self.books.host(host, vcpu=room))
        self.model.capacity[host] = room

    @rule(host=st.sampled_from("abc"), accepting=st.booleans())
    def set_accepting(self, host: str, accepting: bool) -> None:
        self.runner.run(self.books.accept(host, accepting))
        self.model.accepting[host] = accepting

    @rule(server=servers, order=orders)
    def ask_again(self, server: str, order: list[str]) -> None:
        """The same step once more, by a conductor that was away: the recorded answer, and nothing else happens."""
        if server in self.last:
            at, outcome, _ = self.last[server]
            assert self.runner.run(self.books.claim(server, *order, size={"VCPU": 1}, at=at)) == outcome

    @rule(server=servers, order=orders)
    def come_too_late(self, server: str, order: list[str]) -> None:
        if server in self.last:
            turn, ordinal = self.last[server][0]
            with pytest.raises(Superseded):
                self.runner.run(self.books.claim(server, *order, at=(turn, ordinal - 1)))

    @invariant()
    def both_hold_the_same(self) -> None:
        held = self.runner.run(self.books.held())
        amounts = {
            consumer: {place: classes["VCPU"] for place, classes in places.items()} for consumer, places in held.items()
        }
        assert amounts == self.model.held()
        assert {
            (row["project_id"], row["user_id"]) for row in self.runner.run(self.books.consumers()).values()
        } <= OWNERS
        if self.model.rule is not None:
            assert self.runner.run(self.books.counted()) == self.model.counted()
        self.runner.run(self.books.check())


def test_every_verb_does_what_the_model_does(tmp_path: Path) -> None:
    Ledgers.directory = tmp_path
    steps = settings(max_examples=1000 if FULL else 80, stateful_step_count=30, **QUIET)  # type: ignore[arg-type]
    run_state_machine_as_test(Ledgers, settings=steps)
