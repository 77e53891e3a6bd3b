"""The rounds of the failure watch: what it begins, in which transaction, and what it says."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kilonova.domain.errors import StoreError
from kilonova.domain.failure_watch import ACTS, HELD
from kilonova.ha import watch as module
from kilonova.ha.watch import Watch
from kilonova.hosts.failures import HostObservation, Silent
from kilonova.settings import HaOptions, Settings
from tests.unit.ha.test_watch import WORD, Commands, Scene, failure, go_on, seen, silent
from tests.unit.ha.test_watch import commands as commands


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"facts": '{"account": {"sentence": "3 moved"}}', "error": '{"message": "no host"}'}, "3 moved"),
        ({"facts": "{}", "error": '{"message": "no host"}'}, "no host"),
        ({"facts": "{}", "error": "null"}, "the evacuation has ended"),
    ],
)
def test_the_account_of_an_evacuation_is_shown(row: Any, sentence: str) -> None:
    told: list[str] = []

    class Telling(Scene):
        async def _note(self, failure: str, state: str, **values: Any) -> None:
            told.append(values["sentence"])

    go_on(Telling(row={"state": "done", **row}), failure("evacuating"), seen(declared=silent(declared=True)))
    assert told == [sentence]


@pytest.mark.parametrize(
    ("word", "is_known", "begins"), [(ACTS, False, ["acts"]), (HELD, False, []), (ACTS, True, ["goes on"])]
)
def test_a_round_begins_what_is_due(word: str, is_known: bool, begins: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    class Rounds(Scene):
        async def _act(self, one: Silent) -> None:
            begun.append("acts")

        async def _go_on(self, record: Any, sight: HostObservation) -> None:
            begun.append("goes on")

    async def look(engine: Any, worker: str) -> HostObservation:
        assert worker == "me"
        sight = seen(silent=silent(word))
        return msgspec.structs.replace(sight, failures={"host1": failure("fencing")} if is_known else {})

    async def story() -> None:
        await Rounds().round()
        await asyncio.sleep(0.01)

    monkeypatch.setattr(module, "look", look)
    asyncio.run(story())
    assert begun == begins


class Store:
    """Every transaction of the watch: `answer` is what the record's own functions say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
        self.calls: list[Any] = []
        for name in ("begin_failure", "take_failure", "note_failure", "disarm", "set_back"):
            monkeypatch.setattr(module, name, self._recording(name, answer))
        self.watch = Scene()
        self.watch.engine.write = self._write  # type: ignore[method-assign]

    def _recording(self, name: str, answer: bool) -> Any:
        async def record(tx: Any, *given: Any, **told: Any) -> bool:
            self.calls.append((name, *given[:3]))
            return answer

        return record

    async def _write(self, store: Any, body: Any) -> Any:
        return await body(self)


@pytest.mark.parametrize("is_first", [False, True])
def test_only_the_first_watcher_fences(is_first: bool, monkeypatch: pytest.MonkeyPatch, commands: Commands) -> None:
    store = Store(monkeypatch, is_first)
    asyncio.run(store.watch._act(silent()))
    assert [call[0] for call in store.calls] == ["begin_failure"] and commands.fenced == ["host1"] * is_first


@pytest.mark.parametrize("is_allowed", [None, False, True])
def test_a_record_is_taken_only_if_that_is_allowed(is_allowed: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    async def allowed(tx: Any) -> bool:
        return bool(is_allowed)

    store = Store(monkeypatch, True)
    given = [] if is_allowed is None else [allowed]
    assert asyncio.run(Watch._take(store.watch, failure("fenced"), *given)) is (is_allowed is not False)
    assert bool(store.calls) is (is_allowed is not False)


@pytest.mark.parametrize(("is_noted", "reason"), [(True, ""), (True, "it lied"), (False, "it lied")])
def test_a_lie_disarms_the_watch_with_its_record(is_noted: bool, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(monkeypatch, is_noted)
    asyncio.run(Watch._note(store.watch, "f", "lied", disarm_for=reason))
    disarms = [("disarm", None, reason, "")] if is_noted and reason else []
    assert store.calls == [("note_failure", "f", "me", "lied"), *disarms]


@pytest.mark.parametrize("is_ahead", [False, True])
def test_times_ahead_of_the_clock_are_set_back_first(is_ahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(engine: Any, worker: str) -> HostObservation:
        return msgspec.structs.replace(seen(), is_ahead=is_ahead)

    store = Store(monkeypatch, True)
    monkeypatch.setattr(module, "look", look)
    asyncio.run(store.watch.round())
    assert store.calls == ([("set_back",)] if is_ahead else [])


def test_why_a_host_is_held_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    for sight in (seen(silent=silent(HELD)), seen(silent=silent(HELD)), seen(silent=silent(HELD), disarmed=WORD)):
        scene._log_held(sight)
    scene._log_held(seen(silent=silent(ACTS)))
    assert [record.getMessage() for record in caplog.records] == ["host not evacuated: host=host1 reason='why'"] * 2
    scene._log_held(seen(silent=silent(HELD)))
    assert len(caplog.records) == 3


@pytest.mark.parametrize("automatic", [False, True])
def test_the_watch_runs_only_where_it_is_automatic(automatic: bool) -> None:
    async def story() -> None:
        scene = Scene()
        scene.engine.settings = Settings(ha=HaOptions(automatic=automatic))  # type: ignore[misc]
        await scene.start()
        assert (scene._loop is not None) is automatic
        await scene.stop()

    asyncio.run(story())


def test_one_thing_at_a_time_is_done_about_a_host() -> None:
    """What hangs does not hold the others, and what fails does not end the watch."""
    done: list[str] = []

    async def story() -> None:
        scene, hangs = Scene(), asyncio.Event()

        async def hang() -> None:
            done.append("begins")
            await hangs.wait()

        async def fail() -> None:
            raise StoreError("database control: away")

        scene._begin("host1", hang)
        scene._begin("host1", hang)
        scene._begin("host2", fail)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert done == ["begins"] and list(scene._tasks) == ["host1"]
        hangs.set()
        await asyncio.sleep(0.01)
        assert not scene._tasks
        scene._begin("host1", hang)
        await asyncio.sleep(0.01)
        await scene.stop()
        assert done == ["begins", "begins"]

    asyncio.run(story())
