"""What the failure watch does next about a host, decision by decision: its records and its hosts are given."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import Failed, Refused
from kilonova.domain.failure_watch import ACTS, EVACUATED_AGAIN, HELD, Disarmed, Sight, Use, WatchDecision
from kilonova.domain.host import HostState
from kilonova.ha import watch as module
from kilonova.ha.watch import TAKEN_FOR, Watch
from kilonova.hosts.failures import HostObservation, Silent
from kilonova.settings import HaOptions, Settings
from kilonova.store.failures import is_armed

NOW = 1000.0
PAUSE = 20.0  # twice the report_interval below
WORD = Disarmed(until=None, reason="r", user_id="u", said_at=0.0)


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def monotonic(self) -> float:
        return self.time


class Scene(Watch):
    """A watch whose records, hosts and commands are lists: `did` is everything that it did."""

    def __init__(self, **rows: Any) -> None:
        self.clock, self.did, self.dead, self.may_take, self.rows = Clock(), list[Any](), [True], True, rows
        cells = SimpleNamespace(read=self._read)
        db = SimpleNamespace(control=None, cell=lambda name: cells)
        world = SimpleNamespace(clock=self.clock, db=db, ids=SimpleNamespace(uuid=lambda: "f"))
        settings = Settings(ha=HaOptions(automatic=True))
        super().__init__(SimpleNamespace(world=world, settings=settings, worker="me"))  # type: ignore[arg-type]

    async def _read(self, body: Any) -> Any:
        return await body(self)

    async def one(self, statement: Any, **keys: Any) -> Any:
        """Its host, or its operation."""
        assert keys in ({"name": "host1"}, {"id": "o"})
        return self.rows.get("row")

    async def _is_dead(self, cell: str, host: str) -> bool:
        assert (cell, host) == ("cell1", "host1")
        return self.dead.pop(0) if len(self.dead) > 1 else self.dead[0]

    async def _take(self, failure: Any, allowed: Any = None) -> bool:
        self.allowed = allowed
        self.did.append("take" if allowed is None else "take if armed" if allowed is is_armed else "take if allowed")
        return self.may_take

    async def _note(self, failure: str, state: str, **told: Any) -> None:
        assert failure == "f"
        self.did.append((state, {name: value for name, value in told.items() if name != "sentence"}))


def failure(state: str, **values: Any) -> Any:
    texts = {"evidence": "silent", "proof": "off", "sentence": ""}
    row = {"id": "f", "host": "host1", "cell": "cell1", "session": "s", "attempts": 1, "operation_id": "o", **texts}
    return {**row, "state": state, "changed_at": NOW, **values}


def silent(word: str = ACTS, proven_by: str = "silence", declared: bool = False) -> Silent:
    state = HostState("host1", "down", "host1 is down", declared, proven_by=proven_by)
    return Silent(cell="cell1", session="s", state=state, use=Use(1), decision=WatchDecision(word, "why"))


def seen(
    *, silent: Silent | None = None, declared: Silent | None = None, now: float = NOW, **sight: Any
) -> HostObservation:
    return HostObservation(
        sight=Sight(hosts=9, silent=1, **sight),
        silent={} if silent is None else {"host1": silent},
        declared={} if declared is None else {"host1": declared},
        failures={},
        now=now,
        is_ahead=False,
    )


class Commands:
    """In place of the fence command and of the request to evacuate."""

    def __init__(self) -> None:
        self.fenced, self.asked = list[str](), list[Any]()
        self.delay = 0.0  # seconds until a fence begins
        self.error: Exception | None = None  # of the fence
        self.refusal: Refused | None = None  # of the evacuation

    async def fence(self, engine: Any, host: str, confirm: Any) -> str:
        engine.world.clock.time += self.delay
        await confirm()
        self.fenced.append(host)
        if self.error is not None:
            raise self.error
        return "off"

    async def ask(self, engine: Any, kind: str, hosts: list[str], cause: Any, key: Any, bulk: Any) -> Any:
        self.asked.append((kind, hosts, key.key, bulk.accept_unfenced))
        if self.refusal is not None:
            raise self.refusal
        return {"host1": SimpleNamespace(operation_id="evacuation")}


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    made = Commands()
    monkeypatch.setattr(module, "fence", made.fence)
    monkeypatch.setattr(module, "ask_for_hosts", made.ask)
    return made


def go_on(scene: Scene, record: Any, sight: HostObservation) -> list[Any]:
    asyncio.run(scene._go_on(record, sight))
    return scene.did


STATES = ("fencing", "fence_failed", "fenced", "evacuating", "incomplete", "done")


@pytest.mark.parametrize("state", STATES)
def test_nothing_is_done_about_a_host_whose_cell_cannot_be_seen(state: str, commands: Commands) -> None:
    assert go_on(Scene(), failure(state), seen(blind=["cell1"], now=NOW + 9999)) == []
    assert (commands.fenced, commands.asked) == ([], [])


@pytest.mark.parametrize("state", STATES)
def test_a_host_that_is_heard_has_returned(state: str, commands: Commands) -> None:
    scene = Scene(row={"session": "another"})
    assert go_on(scene, failure(state), seen(blind=["cell2"])) == [
        "take",
        ("returned", {"has_run": state == "fencing"}),
    ]
    assert (commands.fenced, commands.asked) == ([], [])


@pytest.mark.parametrize("state", ["fenced", "evacuating", "incomplete", "done"])
def test_a_host_that_fell_silent_again_has_returned_before(state: str, commands: Commands) -> None:
    """It is not fenced any more: its fence counts no longer."""
    scene = Scene(row={"session": "another"})
    assert go_on(scene, failure(state), seen(silent=silent()))[1][0] == "returned" and commands.asked == []


@pytest.mark.parametrize(
    ("row", "values", "state"),
    [
        (None, {}, "gone"),
        ({"session": "s"}, {}, "lied"),
        ({"session": "another"}, {}, "returned"),
        ({"session": "s"}, {"proof": ""}, "returned"),
        ({"session": None}, {"session": None}, "returned"),
        ({"session": None}, {}, "returned"),
    ],
)
def test_a_fence_lied_if_the_same_agent_answers(row: Any, values: Any, state: str) -> None:
    did = go_on(Scene(row=row), failure("done", **values), seen())
    assert did[1][0] == state and bool(did[1][1].get("disarm_for")) is (state == "lied")


def test_what_another_watcher_has_taken_is_left_to_it(commands: Commands) -> None:
    for state in STATES:
        for sight in (seen(), seen(silent=silent()), seen(declared=silent(declared=True), now=NOW + 9999)):
            scene = Scene(row={"session": "another", "state": "done", "facts": "{}", "error": "{}"})
            scene.may_take = False
            assert [one for one in go_on(scene, failure(state), sight) if not str(one).startswith("take")] == []
    assert (commands.fenced, commands.asked) == ([], [])


@pytest.mark.parametrize(
    ("proven_by", "state", "told"),
    [
        ("fence", "fencing", {"has_run": True}),
        ("fence", "fence_failed", {"has_run": True}),
        ("forced_down", "fencing", {"has_run": True, "session": None}),
        ("forced_down", "fence_failed", {"has_run": False, "session": None}),
    ],
)
def test_a_declared_host_needs_no_other_command(proven_by: str, state: str, told: Any, commands: Commands) -> None:
    did = go_on(Scene(), failure(state), seen(declared=silent(proven_by=proven_by, declared=True)))
    assert did == ["take", ("fenced", {"proof": "host1 is down", **told})] and commands.fenced == []


@pytest.mark.parametrize(
    ("state", "word", "runs"),
    [("fencing", ACTS, True), ("fencing", HELD, True), ("fence_failed", ACTS, True), ("fence_failed", HELD, False)],
)
def test_a_fence_is_repeated_when_due_or_when_its_watcher_died(
    state: str, word: str, runs: bool, commands: Commands
) -> None:
    did = go_on(Scene(), failure(state), seen(silent=silent(word)))
    assert commands.fenced == (["host1"] if runs else []) and did[:1] == (["take if allowed"] if runs else [])


@pytest.mark.parametrize(("state", "may", "allowed"), [("fencing", False, True), ("fence_failed", False, False)])
def test_a_command_that_failed_counts_as_one_more(
    state: str, may: bool, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command whose watcher died is counted already."""

    async def may_fence(tx: Any, host: str, rules: HaOptions) -> bool:
        return may

    monkeypatch.setattr(module, "may_fence", may_fence)
    scene = Scene()
    go_on(scene, failure(state), seen(silent=silent()))
    assert asyncio.run(scene.allowed(None)) is allowed


def test_a_fence_that_ran_is_recorded_with_its_proof(commands: Commands) -> None:
    scene = Scene()
    asyncio.run(scene._fence(failure("fencing", attempts=3), TAKEN_FOR))
    assert scene.did == [("fenced", {"proof": "off", "attempts": 0, "has_run": True})]


def test_a_host_that_answers_before_the_command_is_asked_for_has_returned(commands: Commands) -> None:
    scene = Scene()
    scene.dead = [False]
    asyncio.run(scene._fence(failure("fencing"), TAKEN_FOR))
    assert scene.did == [("returned", {})] and commands.fenced == []


@pytest.mark.parametrize(("dead", "delay"), [([True, False], 0.0), ([True], TAKEN_FOR + 1)])
def test_a_command_is_not_begun_late_or_against_a_host_that_answers(
    dead: Any, delay: float, commands: Commands
) -> None:
    scene = Scene()
    scene.dead, commands.delay = dead, delay
    asyncio.run(scene._fence(failure("fencing"), TAKEN_FOR))
    assert scene.did == [("fence_failed", {"has_run": False, "attempts": 2})] and commands.fenced == []


def test_a_command_that_failed_may_have_switched_the_host_off(commands: Commands) -> None:
    scene = Scene()
    commands.error = Failed("fence_failed", "no route")
    asyncio.run(scene._fence(failure("fencing"), TAKEN_FOR))
    assert scene.did == [("fence_failed", {"has_run": True, "attempts": 2})]


@pytest.mark.parametrize(
    ("state", "waited", "disarmed", "begins"),
    [
        ("fenced", PAUSE, None, True),
        ("fenced", PAUSE - 1, None, False),
        ("fenced", PAUSE, WORD, False),
        ("incomplete", EVACUATED_AGAIN, None, True),
        ("incomplete", EVACUATED_AGAIN - 1, None, False),
        ("done", 1e9, None, False),
    ],
)
def test_servers_are_evacuated_after_the_pause(
    state: str, waited: float, disarmed: Any, begins: bool, commands: Commands
) -> None:
    sight = seen(declared=silent(declared=True), now=NOW + waited, disarmed=disarmed)
    did = go_on(Scene(), failure(state), sight)
    told = {"operation_id": "evacuation", "attempts": 2}
    assert did == (["take if armed", ("evacuating", told)] if begins else [])
    assert commands.asked == ([("evacuate_host", ["host1"], "f:2", False)] if begins else [])


def test_an_evacuation_is_not_begun_late(commands: Commands) -> None:
    """Another watcher may have taken the record by then."""
    scene = Scene()
    take = scene._take

    async def slow(record: Any, allowed: Any = None) -> bool:
        scene.clock.time += TAKEN_FOR + 1
        return await take(record, allowed)

    scene._take = slow  # type: ignore[method-assign]
    asyncio.run(scene._evacuate(failure("fenced")))
    assert commands.asked == [] and scene.did == ["take if armed"]


def test_a_refused_evacuation_is_asked_for_again_later(commands: Commands) -> None:
    commands.refusal = Refused("busy", "it is drained")
    scene = Scene()
    asyncio.run(scene._evacuate(failure("incomplete")))
    assert scene.did == ["take if armed", ("incomplete", {})]


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ({"state": "running"}, None),
        ({"state": "done", "facts": '{"account": {"sentence": "3 moved"}}'}, "done"),
        ({"state": "done", "facts": '{"account": {"failed": ["s"]}}'}, "incomplete"),
        ({"state": "done", "facts": '{"account": {"impossible": ["s"]}}'}, "incomplete"),
        ({"state": "done", "facts": '{"account": {"refused": ["s"]}}'}, "incomplete"),
        ({"state": "done", "facts": '{"account": {"not_begun": ["s"]}}'}, "incomplete"),
        ({"state": "failed"}, "incomplete"),
        ({"state": "undone"}, "incomplete"),
        ({"state": "cancelled"}, "done"),
        ({"state": "cancelled", "facts": '{"account": {"not_begun": ["s"]}}'}, "done"),
        (None, "done"),
    ],
)
def test_an_evacuation_is_done_unless_servers_are_left(row: Any, state: str | None) -> None:
    row = row and {"facts": "{}", "error": "{}", **row}
    did = go_on(Scene(row=row), failure("evacuating"), seen(declared=silent(declared=True)))
    assert did == ([] if state is None else ["take", (state, {})])
