"""What accepting an operation writes, whom it wakes, and what it refuses: operations of one step, on real databases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from kilonova.domain.errors import CommitUnknown, Conflict, Refused, Superseded
from kilonova.domain.params import Params
from kilonova.domain.server import ERROR, STOPPED
from kilonova.engine import accept as accepting
from kilonova.engine.accept import Accepted, Ask, IdempotencyKey, Overtaken, params_of
from kilonova.engine.course import INHERIT, Begun, Course
from kilonova.engine.facts import OperationFacts
from kilonova.engine.journal import op_from
from kilonova.engine.model import CONTROL, Step, StepTargets
from kilonova.schema.tables import cell
from kilonova.schema.tables.journal import idempotency_keys, operations, secrets, steps
from kilonova.store import rows
from tests.engine.desk import CAUSE, ON_HOST, SERVER, Desk, Simple, work
from tests.support.neighbours import zeros
from tests.support.small_cloud import SmallCloud, put

NOWHERE = StepTargets("nowhere", lambda facts: [])


class OnHost(Simple):
    name = "on_host"
    steps = (Step("stop", work, on=ON_HOST, event=("compute_stop", "compute_other")),)


class Quiet(Simple):
    name, action, task_state, from_states = "quiet", None, None, frozenset()


class Heir(Simple):
    name, supersedes, from_states = "heir", True, frozenset()


class Clearing(Heir):
    name, inherits = "clearing", False


class Noting(Simple):
    """It writes a row of its own with its acceptance."""

    name = "noting"

    async def accepted(self, tx: Any, op: Any, facts: Any, subject: Any, now: float) -> None:
        await rows.change(tx, cell.servers, {"name": f"noted by {op.id}"}, id=op.server_id)


class Joining(Heir):
    name = "joining"

    def joins(self, subject: Any) -> bool:
        return bool(subject.live["kind"] == "simple")


class Final(Simple):
    """Its step has no way back."""

    name = "final"
    steps = (
        Step("begin", work, on=CONTROL, undo=work),
        Step("give", work, on=CONTROL, no_return=True),
        Step("undoable", work, on=CONTROL, no_return=True, undo=work),
        Step("end", work, on=CONTROL),
    )


class Endless(Simple):
    name = "endless"
    steps = (Step("never", work, on=NOWHERE),)


class Delete(Heir):
    name = "delete"


KINDS = (Simple, Noting, OnHost, Quiet, Heir, Clearing, Joining, Final, Endless, Delete)
KNOWN = {kind.name: kind() for kind in KINDS}
Story = Callable[["Desk"], Awaitable[None]]


@pytest.fixture
def play(small_cloud: SmallCloud) -> Callable[[Story], None]:
    def plays(story: Story) -> None:
        async def whole() -> None:
            desk = await Desk.made(small_cloud, KNOWN)
            await story(desk)

        small_cloud.run(whole)

    return plays


@pytest.mark.parametrize(("kind", "host"), [("simple", ""), ("on_host", "host1")])
def test_an_accepted_operation_has_the_server_and_its_first_step_is_ready(play: Any, kind: str, host: str) -> None:
    async def story(desk: Desk) -> None:
        accepted = await desk.ask(kind)
        name = accepted.operation_id
        op, (step,), server = await desk.operation(name), await desk.all(steps), await desk.server()
        assert (op["kind"], op["state"], op["ordinal"], op["turn"], op["live"]) == (kind, "accepted", 1, 6, 1)
        assert (op["user_id"], op["project_id"], op["request_id"]) == ("u", "p", "req-1")
        assert (step["ordinal"], step["turn"], step["state"], step["host"], step["worker"]) == (
            1,
            6,
            "ready",
            host,
            None,
        )
        assert (server["turn"], server["operation_id"], server["task_state"]) == (6, name, "working")
        (action,) = await desk.all(cell.actions)
        assert (action["operation_id"], action["action"]) == (name, "simply")
        events = {event["event"]: event["host"] for event in await desk.all(cell.action_events)}
        assert events == ({"compute_stop": "host1", "compute_other": "host1"} if host else {"compute_plan": None})
        await desk.cloud.clock.sleep(0.1)
        assert desk.woken == [("host.host1" if host else "conductor.wake", name)]

    play(story)


def test_an_operation_writes_its_own_rows_with_its_acceptance(play: Any) -> None:
    async def story(desk: Desk) -> None:
        accepted = await desk.ask("noting")
        assert (await desk.server())["name"] == f"noted by {accepted.operation_id}"

    play(story)


def test_a_host_is_woken_too_when_the_commit_was_unknown(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 12: it is found again, without its first step."""

    async def story(desk: Desk) -> None:
        write, failures = desk.journal.write, iter([True])

        async def unknown(body: Any) -> Any:
            result = await write(body)
            if next(failures, False):
                raise CommitUnknown("the line went dead")
            return result

        monkeypatch.setattr(desk.journal, "write", unknown)
        accepted = await desk.ask("on_host")
        await desk.cloud.clock.sleep(0.1)
        assert not accepted.joined and desk.woken == [("host.host1", accepted.operation_id)]
        assert len(await desk.all(operations)) == 1

    play(story)


def test_a_key_is_taken_before_anything_else_is_looked_at(play: Any) -> None:
    """A second request with it waits then, until the first one is accepted."""

    async def story(desk: Desk) -> None:
        ask = Ask(kind="simple", server_id="s", cause=CAUSE, key=IdempotencyKey("k", "route", "hash"))
        assert await desk.journal.write(lambda tx: accepting.claim_key(tx, ask, 1.0)) is None
        (row,) = await desk.all(idempotency_keys)
        assert (row["key"], row["operation_id"], row["user_id"], row["project_id"]) == ("k", "", "u", "p")

    play(story)


def test_an_operation_without_an_action_is_not_shown(play: Any) -> None:
    async def story(desk: Desk) -> None:
        await desk.ask("quiet")
        assert await desk.all(cell.actions) == []

    play(story)


def test_an_operation_without_a_step_is_an_error_and_nothing_is_stored(play: Any) -> None:
    async def story(desk: Desk) -> None:
        with pytest.raises(RuntimeError, match="operation endless has no step"):
            await desk.ask("endless")
        assert await desk.all(operations) == [] and (await desk.server())["turn"] == 5

    play(story)


def test_secrets_are_stored_apart(play: Any) -> None:
    async def story(desk: Desk) -> None:
        accepted = await desk.ask("simple", secrets={"password": "x"})
        (sealed,) = await desk.all(secrets)
        assert sealed["operation_id"] == accepted.operation_id

    play(story)


@pytest.mark.parametrize(
    ("server", "kind", "code"),
    [
        ({"deleted": 1}, "simple", "not_found"),
        ({"hidden": 1}, "simple", "busy"),
        ({"hidden": 1}, "delete", ""),
        ({"vm_state": STOPPED}, "simple", "invalid_state"),
        ({"vm_state": ERROR}, "quiet", ""),
    ],
)
def test_which_servers_are_refused(play: Any, server: dict[str, Any], kind: str, code: str) -> None:
    async def story(desk: Desk) -> None:
        await desk.change(cell.servers, server, id="s")
        if not code:
            assert await desk.ask(kind)
            return
        with pytest.raises(Refused) as refused:
            await desk.ask(kind)
        assert refused.value.code == code
        assert await desk.all(operations) == [] and not desk.woken

    play(story)


def test_what_a_restored_server_may_not_do_is_refused(play: Any) -> None:
    """Law 15: a copy from before may be newer."""

    async def story(desk: Desk) -> None:
        await desk.change(cell.servers, {"turn_floor": 5}, id="s")
        await put(desk.engine, "cell1", cell.quarantine, server_id="s", host="host2", copy=4, reason="", power="off")
        with pytest.raises(Refused) as refused:
            await desk.ask("simple")
        assert refused.value.code == "quarantined"

    play(story)


def test_a_server_that_is_not_there(play: Any) -> None:
    async def story(desk: Desk) -> None:
        with pytest.raises(Refused, match="Instance t could not be found"):
            await desk.ask("simple", server_id="t")

    play(story)


@pytest.mark.parametrize(
    ("live", "kind", "refusal"),
    [
        ("simple", "simple", "Cannot 'simply' instance s while it is in task_state working"),
        ("quiet", "quiet", "Cannot 'quiet' instance s while it is in operation quiet"),
        ("delete", "heir", "Cannot 'simply' instance s while it is in task_state deleting"),
        ("delete", "delete", ""),
        ("simple", "heir", ""),
    ],
)
def test_a_busy_server_is_refused_unless_the_request_takes_over(play: Any, live: str, kind: str, refusal: str) -> None:
    async def story(desk: Desk) -> None:
        first = (await desk.ask(live)).operation_id
        if not refusal:
            second = (await desk.ask(kind)).operation_id
            old = await desk.operation(first)
            assert (old["state"], old["live"], old["superseded_by"]) == ("superseded", 0, second)
            return
        with pytest.raises(Refused) as refused:
            await desk.ask(kind)
        assert (refused.value.code, refused.value.message) == ("busy", refusal)
        assert (await desk.operation(first))["live"] == 1

    play(story)


def test_a_request_that_joins_gets_the_live_operation_and_wakes_nobody(play: Any) -> None:
    async def story(desk: Desk) -> None:
        first = (await desk.ask("simple")).operation_id
        key = IdempotencyKey("k", "route", "hash")
        await desk.cloud.clock.sleep(0.1)
        desk.woken.clear()
        await put(desk.engine, "cell1", cell.servers, **{**SERVER, "id": "t"})
        assert not (await desk.ask("joining", server_id="t")).joined, "there was none"
        await desk.cloud.clock.sleep(0.1)
        desk.woken.clear()
        for _ in range(2):
            assert await desk.ask("joining", key=key) == Accepted(first, joined=True)
        await desk.cloud.clock.sleep(0.1)
        assert len(await desk.all(operations, server_id="s")) == 1 and not desk.woken
        (kept,) = await desk.all(idempotency_keys)
        assert kept["operation_id"] == first, "the next answer is the same, also when that has ended"

    play(story)


@pytest.mark.parametrize(("kind", "inherits"), [("heir", True), ("clearing", False)])
def test_an_heir_undoes_what_was_begun_and_a_delete_works_from_records(play: Any, kind: str, inherits: bool) -> None:
    async def story(desk: Desk) -> None:
        first = (await desk.ask("simple", secrets={"password": "x"})).operation_id
        heir = await desk.operation((await desk.ask(kind)).operation_id)
        course = msgspec.json.decode(heir["course"], type=Course)
        undo = [Begun("plan", "", 0, first, "simple")]
        assert (course.mode, course.stack) == ((INHERIT, undo) if inherits else ("forward", [Begun("plan", "", 0)]))
        assert bool(heir["committed"]) is not inherits
        old, new = await desk.all(steps, operation_id=first), await desk.all(steps, operation_id=heir["id"])
        assert [(step["state"], step["open"]) for step in old] == [("dropped", 0)]
        assert [(step["way"], step["heir_of"]) for step in new] == ([("undo", first)] if inherits else [("do", None)])
        assert await desk.all(secrets) == [], "an operation that has ended has none"
        events = await desk.all(cell.action_events, operation_id=first)
        assert [(one["result"], one["details"]) for one in events] == [
            ("Error", f"The operation was superseded by {kind}.")
        ]
        (action,) = await desk.all(cell.actions, operation_id=first)
        assert action["message"] == "Error"
        shown = await desk.all(cell.action_events, operation_id=heir["id"])
        assert len(shown) == (not inherits), "what is undone is shown as no event"

    play(story)


@pytest.mark.parametrize(
    ("at", "mode", "committed", "is_undone"),
    [
        ("give", "forward", 1, False),
        ("give", "forward", 0, True),
        ("give", "back", 1, True),
        ("begin", "forward", 1, True),
        ("undoable", "forward", 1, True),
        ("end", "forward", 1, True),
    ],
)
def test_what_cannot_be_taken_back_is_not_undone_by_an_heir(
    play: Any, at: str, mode: str, committed: int, is_undone: bool
) -> None:
    """Law 8: the step of no return was taken. It may be done although its report is missing."""

    async def story(desk: Desk) -> None:
        first = (await desk.ask("final")).operation_id
        course = Course(at=at, mode=mode, stack=[Begun("begin", "", 0)])
        document = msgspec.json.encode(course).decode()
        await desk.change(operations, {"course": document, "committed": committed}, id=first)
        heir = await desk.operation((await desk.ask("heir")).operation_id)
        assert (msgspec.json.decode(heir["course"], type=Course).mode == INHERIT) is is_undone

    play(story)


def test_a_request_is_one_by_its_key_alone(play: Any) -> None:
    async def story(desk: Desk) -> None:
        key = IdempotencyKey("k", "route", "hash")
        first = await desk.ask("simple", key=key)
        assert not first.joined
        assert await desk.ask("simple", key=key) == Accepted(first.operation_id, joined=True)
        with pytest.raises(Refused) as refused:
            await desk.ask("simple", key=IdempotencyKey("k", "route", "of another body"))
        assert refused.value.code == "idempotency_key_reused"
        for other in (None, IdempotencyKey("l", "route", "hash"), IdempotencyKey("k", "another", "hash")):
            with pytest.raises(Refused) as refused:
                await desk.ask("simple", key=other)
            assert refused.value.code == "busy"
        assert [row["key"] for row in await desk.all(idempotency_keys)] == ["k"], "what was refused keeps no key"

    play(story)


def test_a_child_is_asked_for_twice_and_accepted_once(play: Any) -> None:
    """Its parent crashed in between: the id is stable, and nobody may have been woken for it."""

    async def story(desk: Desk) -> None:
        for _ in range(2):
            assert await desk.ask("simple", operation_id="child") == Accepted("child")
        await desk.cloud.clock.sleep(0.1)
        assert desk.woken == [("conductor.wake", "child")] * 2
        assert len(await desk.all(steps)) == 1

    play(story)


@pytest.mark.parametrize(
    ("mode", "live", "begins"), [("forward", 1, True), ("back", 1, False), ("forward", 0, False), ("", 0, False)]
)
def test_a_parent_that_turned_back_begins_no_more_children(play: Any, mode: str, live: int, begins: bool) -> None:
    async def story(desk: Desk) -> None:
        if mode:
            course = msgspec.json.encode(Course(mode=mode)).decode()
            values = {"id": "parent", "kind": "simple", "state": "running" if live else "done", "live": live}
            texts = {"params": "{}", "facts": "{}", "cause": msgspec.json.encode(CAUSE).decode(), "course": course}
            await put(desk.engine, "cell1", operations, **zeros(operations, **values, **texts))
        if begins:
            child = await desk.ask("simple", parent_id="parent", operation_id="child")
            assert (await desk.operation(child.operation_id))["parent_id"] == "parent"
            return
        with pytest.raises(Superseded, match="begins no more children"):
            await desk.ask("simple", parent_id="parent", operation_id="child")

    play(story)


@pytest.mark.parametrize("overtaken", [1, accepting.LOOKS - 1, accepting.LOOKS])
def test_a_server_that_another_request_got_meanwhile_is_looked_at_again(
    play: Any, monkeypatch: pytest.MonkeyPatch, overtaken: int
) -> None:
    """A moment later, and not for ever."""
    really, tries = accepting._seize, list[float]()

    async def seize(*args: Any) -> None:
        tries.append(0.0)
        if len(tries) <= overtaken:
            raise Overtaken("the server was modified")
        await really(*args)

    monkeypatch.setattr(accepting, "_seize", seize)

    async def story(desk: Desk) -> None:
        began = desk.cloud.loop.time()
        if overtaken < accepting.LOOKS:
            accepted = await desk.ask("simple")
            assert (await desk.server())["operation_id"] == accepted.operation_id
        else:
            with pytest.raises(Refused, match="modified concurrently too often"):
                await desk.ask("simple")
        assert desk.cloud.loop.time() - began == pytest.approx(0.01 * overtaken)

    play(story)


@pytest.mark.parametrize("stale", [{"turn": 9}, {"operation_id": "another"}])
def test_the_server_is_seized_as_it_was_read(play: Any, stale: dict[str, Any]) -> None:
    async def story(desk: Desk) -> None:
        async def body(tx: Any) -> None:
            ask = Ask(kind="simple", server_id="s", cause=CAUSE)
            subject = await accepting.gather(desk.engine, tx, ask, KNOWN["simple"])
            op = accepting.new_operation(KNOWN["simple"], ask, subject, OperationFacts(), "o")
            await rows.change(tx, cell.servers, stale, id="s")
            await accepting._seize(tx, KNOWN["simple"], op, subject, 1.0)

        with pytest.raises(Conflict):
            await desk.journal.write(body)

    play(story)


def test_parameters_of_another_operation_are_not_lost_in_silence() -> None:
    simple: Any = KNOWN["simple"]
    given = Params(host="host1")
    assert params_of(simple, given) is given
    assert params_of(simple, {"host": "host1"}) == given
    with pytest.raises(TypeError, match="operation simple has no parameter image"):
        params_of(simple, {"image": "i"})


def test_what_is_read_of_the_server_before_an_operation_is_judged(play: Any) -> None:
    """Its host, the host that the request names, and the host that an open move left."""

    async def story(desk: Desk) -> None:
        now = desk.cloud.clock.now()
        for name in ("host1", "host2", "host3"):
            keys = {"id": name, "provider_id": name, "identity": name, "last_seen": now}
            await put(desk.engine, "cell1", cell.hosts, name=name, **keys)
        move = {"id": "m", "server_id": "s", "source_host": "host3", "status": "finished", "open": 1}
        seen = []
        for params, has_move in (({}, False), ({"host": "host2"}, True)):
            if has_move:
                await put(desk.engine, "cell1", cell.migrations, **move)
            ask = Ask(kind="simple", server_id="s", cause=CAUSE, params=params)  # type: ignore[arg-type]
            seen.append(
                await desk.journal.read(lambda tx, ask=ask: accepting.gather(desk.engine, tx, ask, KNOWN["simple"]))  # type: ignore[misc]
            )
        names = [[None if state is None else state.name for state in (s.host, s.target, s.source)] for s in seen]
        assert names == [["host1", None, None], ["host1", "host2", "host3"]]
        await desk.change(cell.servers, {"host": None}, id="s")
        homeless = await desk.journal.read(
            lambda tx: accepting.gather(
                desk.engine, tx, Ask(kind="simple", server_id="s", cause=CAUSE), KNOWN["simple"]
            )
        )
        assert homeless.host is None

    play(story)


def test_an_ended_operation_does_not_keep_its_server(play: Any) -> None:
    async def story(desk: Desk) -> None:
        first = (await desk.ask("simple")).operation_id
        await desk.change(operations, {"live": 0, "state": "done"}, id=first)
        assert (await desk.ask("simple")).operation_id != first
        assert op_from(await desk.operation(first)).state == "done"  # type: ignore[arg-type]

    play(story)
