"""A request for an operation finds the journal that owns the server, wherever that is just now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.details import Details
from kilonova.domain.errors import Refused, Unreachable
from kilonova.domain.params import BuildRequest
from kilonova.domain.server import ARRIVING, LEAVING, Flavor, to_json
from kilonova.domain.volume import WantedVolume
from kilonova.engine import submit as submitting
from kilonova.engine.accept import Accepted, Ask, IdempotencyKey
from kilonova.engine.secrets import Seal
from kilonova.engine.submit import fresh, known_operation, submit
from kilonova.operations import REGISTRY
from kilonova.schema.tables import cell, control, journal
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.rows_of_one import CAUSE, OPERATION, SERVER, engine_of, play
from tests.support.neighbours import zeros

ASK = Ask(kind="stop", server_id="s", cause=CAUSE)
DELETE = Ask(kind="delete", server_id="s", cause=CAUSE)
KEY = IdempotencyKey("k", "route", "hash")
NEW, OLD = Accepted("new"), Accepted("old", joined=True)
BUSY, GONE = Refused("busy", "it is busy"), Refused("not_found", "it is gone")


class Answers:
    """Functions of the module that give these answers, one after the other, and the last one ever after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch, self.calls = monkeypatch, list[Any]()

    def of(self, name: str, *answers: Any) -> Callable[..., Awaitable[Any]]:
        left = list(answers)

        async def answer(*given: Any) -> Any:
            self.calls.append((name, *given[1:]))
            now = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(now, Exception):
                raise now
            return now

        if hasattr(submitting, name):
            self.monkeypatch.setattr(submitting, name, answer)
        return answer

    @property
    def names(self) -> list[str]:
        return [name for name, *_ in self.calls]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(monkeypatch)


def ask_for(work: Callable[[Any], Awaitable[Any]], engine: Any = None) -> Any:
    async def whole() -> Any:
        return await work(engine)

    return asyncio.run(whole())


# -- the same request, sent again -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("earlier", "now", "answer", "looks"),
    [
        ([None], NEW, NEW, 1),
        ([OLD], BUSY, OLD, 1),
        ([None, OLD], BUSY, OLD, 2),  # sent at the same time, and faster
        ([None], BUSY, None, 2),
    ],
)
def test_a_request_that_was_accepted_before_is_answered_with_its_operation(
    answers: Answers, earlier: list[Any], now: Any, answer: Any, looks: int
) -> None:
    answers.of("_earlier", *earlier)
    answers.of("_submit", now)
    if answer is None:
        with pytest.raises(Refused, match="it is busy"):
            ask_for(lambda engine: submit(engine, ASK))
    else:
        assert ask_for(lambda engine: submit(engine, ASK)) == answer
    assert answers.names.count("_earlier") == looks
    assert ("_submit" in answers.names) == (earlier != [OLD])


@pytest.mark.parametrize(("has_key", "where"), [(True, 2), (True, 0), (False, None), (True, None)])
def test_a_key_is_looked_for_in_every_journal_that_answers(
    monkeypatch: pytest.MonkeyPatch, has_key: bool, where: int | None
) -> None:
    async def known(tx: Any, ask: Ask) -> Accepted | None:
        assert (ask.key, ask.cause) == (KEY, CAUSE)
        return OLD if tx == where else None

    def database(number: int) -> Any:
        async def read(body: Any) -> Any:
            looked.append(number)
            if number == 1:
                raise Unreachable("away")
            return await body(number)

        return SimpleNamespace(read=read)

    looked: list[int] = []
    monkeypatch.setattr(submitting, "known_key", known)
    db = SimpleNamespace(journals=lambda: [database(number) for number in range(4)])
    engine: Any = SimpleNamespace(world=SimpleNamespace(db=db))
    if has_key:
        found = ask_for(lambda engine: known_operation(engine, KEY, CAUSE), engine)
    else:
        found = ask_for(lambda engine: submitting._earlier(engine, ASK), engine)
    assert found == (None if where is None else OLD)
    assert looked == (list(range(4 if where is None else where + 1)) if has_key else [])


# -- where the server is --------------------------------------------------------------------------------------------


def of_kind(answers: Answers) -> Any:
    return SimpleNamespace(operation=lambda kind: SimpleNamespace(admit=answers.of("admit", None)))


def test_a_request_is_accepted_where_the_server_is(answers: Answers) -> None:
    answers.of("find_mapping", {"cell": "cell1"})
    answers.of("_owner", "cell7")
    answers.of("_accept_in", NEW)
    assert ask_for(lambda engine: submitting._submit(engine, ASK), of_kind(answers)) == NEW
    mapping = {"cell": "cell1"}
    owner = [("_owner", "cell1", ASK), ("_accept_in", "cell7", ASK)]
    assert answers.calls == [("find_mapping", "s"), ("admit", ASK, mapping), *owner]


def test_a_server_that_moves_meanwhile_is_looked_for_again(answers: Answers) -> None:
    answers.of("find_mapping", {"cell": None}, {"cell": "cell1"}, {"cell": "cell0"})
    answers.of("_owner", "cell1")
    answers.of("_accept_in", None, NEW)
    answers.of("_delete_unplaced", None)
    assert ask_for(lambda engine: submitting._submit(engine, DELETE), of_kind(answers)) == NEW
    assert answers.names.count("find_mapping") == 3


def test_one_that_moves_for_ever_is_busy(answers: Answers) -> None:
    answers.of("find_mapping", {"cell": "cell1"})
    answers.of("_owner", "cell1")
    answers.of("_accept_in", None)
    with pytest.raises(Refused, match="is being moved between cells; retry") as refused:
        ask_for(lambda engine: submitting._submit(engine, ASK), of_kind(answers))
    assert refused.value.code == "busy"


def test_before_it_has_a_host_a_server_can_only_be_deleted(answers: Answers) -> None:
    answers.of("find_mapping", {"cell": None})
    answers.of("_delete_unplaced", NEW)
    with pytest.raises(Refused, match="is being built; wait until it has a host") as refused:
        ask_for(lambda engine: submitting._submit(engine, ASK), of_kind(answers))
    assert (refused.value.code, "_delete_unplaced" in answers.names) == ("busy", False)
    assert ask_for(lambda engine: submitting._submit(engine, DELETE), of_kind(answers)) == NEW


@pytest.mark.parametrize(
    ("why", "mapped", "owner", "looks_again"),
    [
        (GONE, "cell2", "cell2", True),
        (GONE, None, "cell1", True),  # it is being placed again
        (GONE, "cell1", "cell1", False),
        (GONE, "cell0", "cell1", False),  # on its way, and still owned there
        (BUSY, "cell2", "cell2", False),
    ],
)
def test_a_server_that_left_its_cell_is_looked_for_elsewhere(
    answers: Answers, why: Refused, mapped: str | None, owner: str, looks_again: bool
) -> None:
    """One that is gone from where it is mapped to is gone."""
    answers.of("accept", why)
    answers.of("find_mapping", {"cell": mapped})
    answers.of("_owner", owner)
    engine = SimpleNamespace(world=SimpleNamespace(db=SimpleNamespace(cell=lambda name: name)))
    if looks_again:
        assert ask_for(lambda engine: submitting._accept_in(engine, "cell1", ASK), engine) is None
        return
    with pytest.raises(Refused) as refused:
        ask_for(lambda engine: submitting._accept_in(engine, "cell1", ASK), engine)
    assert refused.value is why


@pytest.mark.parametrize(
    ("kind", "mapped", "left", "hidden", "owner"),
    [
        ("delete", "cell0", "cell1", LEAVING, "cell1"),
        ("delete", "cell0", "cell1", 0, "cell0"),  # its row there is gone, or is another one
        ("delete", "cell0", "cell9", LEAVING, "cell0"),  # a cell that is lost
        ("delete", "cell0", None, LEAVING, "cell0"),
        ("stop", "cell0", "cell1", LEAVING, "cell0"),
        ("delete", "cell1", "cell1", LEAVING, "cell1"),
    ],
)
def test_a_delete_on_the_way_to_cell0_belongs_to_the_cell_that_is_left(
    tmp_path: Path, kind: str, mapped: str, left: str | None, hidden: int, owner: str
) -> None:
    """Until its row there is gone (law 6)."""
    here = {"hidden": ARRIVING, "runner_proof": to_json({"left": left})} if left else {"hidden": 0}

    async def body(tx: Tx) -> None:
        looked = []

        def database(name: str) -> Any:
            async def read(body: Any, **_: Any) -> Any:
                looked.append(name)
                await rows.remove(tx, cell.servers, id="s")
                await rows.put(tx, cell.servers, **{**SERVER, **(here if name == "cell0" else {"hidden": hidden})})
                return await body(tx)

            return SimpleNamespace(read=read)

        engine: Any = SimpleNamespace(
            world=SimpleNamespace(db=SimpleNamespace(cell=database, cells=lambda: ["cell0", "cell1"]))
        )
        ask = Ask(kind=kind, server_id="s", cause=CAUSE)
        assert await submitting._owner(engine, mapped, ask) == owner
        assert (looked != []) == (kind == "delete" and mapped == "cell0")
        assert "cell9" not in looked

    play(tmp_path, body)


def test_a_server_without_a_mapping_is_not_found(tmp_path: Path) -> None:
    async def body(tx: Tx) -> None:
        table = control.server_mappings
        mapping = {"cell": "cell1", "project_id": "p", "user_id": "u"}
        for name, queued in (("s", 1), ("other", 0)):
            await rows.put(tx, table, **zeros(table, server_id=name, queued_for_delete=queued, **mapping))
        with pytest.raises(Refused, match="Instance s could not be found") as refused:
            await submitting.find_mapping(engine_of(tx), "s")
        assert refused.value.code == "not_found"
        assert (await submitting.find_mapping(engine_of(tx), "other"))["server_id"] == "other"

    play(tmp_path, body, "control")


# -- a server that is in no cell ------------------------------------------------------------------------------------


class Unplaced:
    """The delete of a server that has a build request, or had one."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.woken, self.notifies = path, list[Any](), False
        self.requested, self.running = True, False
        self.volumes = list[WantedVolume]()
        self.known: Accepted | None = None
        self.remembered = list[Any]()
        monkeypatch.setattr(submitting, "known_key", self._known)
        monkeypatch.setattr(submitting, "remember_key", self._remember)

    async def _known(self, tx: Tx, ask: Ask) -> Accepted | None:
        return self.known

    async def _remember(self, tx: Tx, ask: Ask, operation: str, now: float) -> None:
        self.remembered.append(operation)

    async def _wake(self, *given: str) -> None:
        self.woken.append(given)

    def delete(self, operation: str | None = None, *, stored: bool = False) -> Any:
        found: list[Any] = []
        details = Details(user_data="sealed", personality="sealed")
        given: dict[str, Any] = {"project_id": "p", "user_id": "u", "created_at": 1.0, "name": "n"}
        given |= {"details": details, "volumes": self.volumes, "flavor": Flavor("f", 1, 1, 1), "vm_state": "building"}
        request = to_json(BuildRequest(**given))

        async def body(tx: Tx) -> None:
            for name, turn in (("other", 3), ("s", 7)):
                if name != "s" or self.requested:
                    of = {"server_id": name, "turn": turn, "operation_id": "none", "server": request}
                    await rows.put(tx, control.build_requests, **of, created_at=1.0)
            if self.running:
                await rows.put(tx, journal.operations, **{**OPERATION, "id": "old", "kind": "delete_unplaced"})
            if stored:
                await rows.put(tx, journal.operations, **{**OPERATION, "id": "mine", "live": 0})
            engine: Any = engine_of(tx)
            engine.wake, engine.seal = self._wake, Seal(b"c2ltdWxhdGVkLXNlYWwta2V5LTMyLWJ5dGVzLWxvbmc=")
            engine.world.ids = SimpleNamespace(uuid=lambda: "made")
            engine.settings = SimpleNamespace(notifications=SimpleNamespace(is_on=self.notifies))
            ask = Ask(kind="delete", server_id="s", cause=CAUSE, operation_id=operation)
            found.append(await submitting._delete_unplaced(engine, ask))
            self.requests = [row["server_id"] for row in await rows.fetch_all(tx, control.build_requests)]
            self.row = await rows.fetch(tx, journal.operations, id=operation or "made")

        play(self.path, body, "control")
        return found[0]


@pytest.fixture
def unplaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unplaced:
    return Unplaced(tmp_path, monkeypatch)


@pytest.mark.parametrize("operation", [None, "mine"])
@pytest.mark.parametrize("volumes", [0, 1])
def test_a_server_in_no_cell_is_deleted_from_its_build_request(
    unplaced: Unplaced, operation: str | None, volumes: int
) -> None:
    """In the next turn, and for good: the request is gone."""
    unplaced.volumes = [WantedVolume(volume_id="v")] * volumes
    name = operation or "made"
    assert unplaced.delete(operation) == Accepted(name)
    assert (unplaced.requests, unplaced.woken) == (["other"], [("control", name)])
    row = unplaced.row
    assert (row["kind"], row["server_id"], row["turn"], row["committed"]) == ("delete_unplaced", "s", 8, 1)
    assert (row["ordinal"], row["live"], row["request_id"]) == (1, 1, "r")
    assert '"cells":[]' in row["facts"] and ('"devices":true' in row["facts"]) is bool(volumes)
    assert "build_request" not in row["facts"]


def test_the_notification_of_its_end_says_what_it_was_without_its_secrets(
    unplaced: Unplaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begun(self: Any) -> None: ...

    monkeypatch.setattr("kilonova.engine.accept.Teller.begun", begun)
    unplaced.notifies = True
    unplaced.delete()
    assert '"build_request":{' in unplaced.row["facts"] and '"name":"n"' in unplaced.row["facts"]
    assert "sealed" not in unplaced.row["facts"]


def test_a_delete_whose_commit_was_unknown_is_found_again(unplaced: Unplaced) -> None:
    assert unplaced.delete("mine", stored=True) == Accepted("mine", joined=True)
    assert (unplaced.requests, unplaced.woken) == (["other", "s"], [("control", "mine")])


def test_a_server_that_was_placed_meanwhile_is_deleted_in_its_cell(unplaced: Unplaced) -> None:
    unplaced.requested = False
    assert unplaced.delete() is None
    assert unplaced.woken == []


@pytest.mark.parametrize("known", [None, OLD, Accepted("another", joined=True)])
def test_a_delete_that_is_asked_again_is_the_one_that_runs(unplaced: Unplaced, known: Accepted | None) -> None:
    """And its key is remembered, unless it is known already."""
    unplaced.requested, unplaced.running, unplaced.known = False, True, known
    assert unplaced.delete() == (known or OLD)
    assert unplaced.remembered == ([] if known else ["old"])


@pytest.mark.parametrize(("kind", "is_kind"), [("", "stop"), ("start", "start")])
@pytest.mark.parametrize("server", ["s", ""])
def test_a_fresh_operation_has_done_nothing(kind: str, is_kind: str, server: str) -> None:
    engine: Any = SimpleNamespace(operation=REGISTRY.__getitem__)
    ask = Ask(kind="stop", server_id=server, cause=CAUSE)
    op = fresh(engine, ask, "o", turn=7, kind=kind)
    assert (op.id, op.kind, op.server_id, op.turn) == ("o", is_kind, server or None, 7)
    assert (op.state, op.ordinal, op.committed, op.course.mode) == ("accepted", 0, False, "forward")
    assert (op.cause, op.request_id) == (CAUSE, "r")
    assert op.known_facts == REGISTRY[is_kind].facts_type()
