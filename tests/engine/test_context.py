"""The changes that a step leaves for its finishing transaction, and what a driver is told of a guest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kilonova.domain.errors import Superseded
from kilonova.domain.hardware import HardwareRequest, HostClaim
from kilonova.domain.messages import StepFacts
from kilonova.domain.numa import GuestCell
from kilonova.domain.server import Flavor, Server, to_json
from kilonova.engine.context import HostContext, guest_spec
from kilonova.engine.core import context_for, load_server
from kilonova.engine.debts import owe_removal
from kilonova.engine.details import edit_details
from kilonova.engine.facts import OperationFacts, changed, copy_of, document_of, for_host, learn
from kilonova.engine.model import Target
from kilonova.operations import REGISTRY
from kilonova.operations.facts import CopyFacts
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.desk import SERVER, Desk
from tests.engine.rows_of_one import operation
from tests.support.small_cloud import SmallCloud, put

PLAIN = Flavor("plain", 1, 1, 1)
PINNED = msgspec.structs.replace(
    PLAIN, hardware=HardwareRequest(cells=(GuestCell(shared=(), dedicated=(0,), memory_mb=1),))
)
SHAPED = msgspec.structs.replace(PLAIN, hardware=HardwareRequest(realtime=(0,)))
Play = Callable[[Callable[[Desk], Awaitable[None]]], None]


@pytest.fixture
def play(small_cloud: SmallCloud) -> Play:
    def plays(story: Callable[[Desk], Awaitable[None]]) -> None:
        async def whole() -> None:
            desk = await Desk.made(small_cloud, REGISTRY)
            await put(desk.engine, "cell1", cell.host_hardware, host="host1", document="{}", version=1)
            await story(desk)

        small_cloud.run(whole)

    return plays


async def applied(desk: Desk, change: Callable[[Any], None], **values: Any) -> Any:
    """The context after its changes were written."""

    async def body(tx: Tx) -> Any:
        op = operation(turn=SERVER["turn"], **values)
        ctx = context_for(desk.engine, desk.journal, op, Target(""), await load_server(tx, desk.journal, op))
        change(ctx)
        await ctx.apply(tx, 7.0)
        return ctx

    return await desk.journal.write(body)


async def version(desk: Desk) -> int:
    return int((await desk.all(cell.host_hardware))[0]["version"])


@pytest.mark.parametrize(("flavor", "is_news"), [(PLAIN, False), (SHAPED, False), (PINNED, True)])
def test_the_scheduler_reads_a_host_again_if_its_hardware_is_given_or_taken(
    play: Play, flavor: Flavor, is_news: bool
) -> None:
    async def story(desk: Desk) -> None:
        await desk.change(cell.servers, {"flavor": to_json(flavor)}, id="s")
        for count, change in enumerate(
            (
                lambda ctx: ctx.set_copy(7, "host1", "making"),
                lambda ctx: ctx.forget_planned_copy(7, "host1"),
                lambda ctx: ctx.drop_copy(7, "host1"),
            ),
            1,
        ):
            await applied(desk, change)
            assert await version(desk) == 1 + count * is_news

    play(story)


@pytest.mark.parametrize("old", [PLAIN, PINNED])
@pytest.mark.parametrize("new", [PLAIN, PINNED])
def test_in_a_resize_either_flavor_counts(play: Play, old: Flavor, new: Flavor) -> None:
    async def story(desk: Desk) -> None:
        facts = {"old_flavor": to_json(old), "new_flavor": to_json(new)}
        resize = {"kind": "confirm_resize", "facts": to_json(facts), "params": "{}"}
        await applied(desk, lambda ctx: ctx.drop_copy(7, "host1"), **resize)
        assert await version(desk) == (2 if PINNED in (old, new) else 1)

    play(story)


def test_a_copy_keeps_its_claim_unless_its_host_reports_another(play: Play) -> None:
    async def story(desk: Desk) -> None:
        for state, claim in (("making", HostClaim()), ("whole", None)):
            await applied(desk, lambda ctx, state=state, claim=claim: ctx.set_copy(7, "host1", state, claim))  # type: ignore[misc]
        (row,) = await desk.all(cell.copies)
        assert (row["state"], row["claim"], row["operation_id"]) == ("whole", "{}", "o")
        await applied(desk, lambda ctx: ctx.forget_planned_copy(7, "host1"))
        assert len(await desk.all(cell.copies)) == 1, "it is whole"
        await applied(desk, lambda ctx: ctx.drop_copy(7, "host1"))
        assert await desk.all(cell.copies) == []
        await applied(desk, lambda ctx: ctx.set_copy(8, "host1", "making"))
        await applied(desk, lambda ctx: ctx.forget_planned_copy(8, "host1"))
        assert await desk.all(cell.copies) == [], "nobody has begun to make it"

    play(story)


def test_a_migration_is_changed_with_the_step(play: Play) -> None:
    async def story(desk: Desk) -> None:
        for name in ("m", "n"):
            await put(desk.engine, "cell1", cell.migrations, id=name, server_id="s", status="migrating")
        await applied(desk, lambda ctx: ctx.set_migration("m", status="finished"))
        found = {row["id"]: (row["status"], row["updated_at"]) for row in await desk.all(cell.migrations)}
        assert found == {"m": ("finished", 7.0), "n": ("migrating", 0.0)}

    play(story)


def test_the_server_is_changed_in_its_turn_alone(play: Play) -> None:
    async def story(desk: Desk) -> None:
        ctx = await applied(desk, lambda ctx: ctx.set_server(name="changed"))
        server = await desk.server()
        assert (server["name"], server["updated_at"]) == ("changed", 7.0)
        assert ctx.server.name == "n" and ctx.changed_server.name == "changed"
        await desk.change(cell.servers, {"turn": 99}, id="s")
        with pytest.raises(Superseded, match="server s has left turn"):
            await applied(desk, lambda ctx: ctx.set_server(name="again"))
        await applied(desk, lambda ctx: None)
        assert (await desk.server())["updated_at"] == 7.0, "nothing was changed"

    play(story)


def test_a_step_of_a_server_that_is_gone_is_superseded(play: Play) -> None:
    async def story(desk: Desk) -> None:
        ctx = await applied(desk, lambda ctx: None, server_id="t")
        ctx.set_server(name="changed")
        assert ctx.changed_server is None
        with pytest.raises(Superseded, match="server t is no longer in cell1"):
            _ = ctx.row

    play(story)


def test_writes_elsewhere_carry_server_turn_and_ordinal(play: Play) -> None:
    """Law 1. An operation without a server has a fence of nobody's."""

    async def story(desk: Desk) -> None:
        for server, name in (("s", "s"), (None, "")):
            fence = (await applied(desk, lambda ctx: None, server_id=server, ordinal=9)).fence
            assert (fence.server, fence.turn, fence.ordinal) == (name, SERVER["turn"], 9)
            assert fence.control is desk.engine.world.db.control

    play(story)


def test_a_copied_context_has_changes_of_its_own(play: Play) -> None:
    async def story(desk: Desk) -> None:
        ctx = await applied(desk, lambda ctx: None)
        copied = ctx.copied()
        copied.set_server(name="changed")
        copied.drop_copy(1, "host1")
        assert not ctx.server_changes and not ctx.changes and copied.server is ctx.server
        assert not copied.wrote_rows
        copied.in_transaction(copied.changes[0])
        assert copied.wrote_rows and len(copied.changes) == 2

    play(story)


# -- a guest --------------------------------------------------------------------------------------------------------


def loaded(cloud: SmallCloud, **values: Any) -> Server:
    async def story() -> Any:
        desk = await Desk.made(cloud, REGISTRY, **values)
        return await desk.journal.read(lambda tx: load_server(tx, desk.journal, operation()))

    return cloud.run(story)  # type: ignore[no-any-return]


def test_a_guest_gets_the_volumes_that_have_an_attachment(small_cloud: SmallCloud) -> None:
    volumes = [{"id": one, "volume_id": f"v{one}", "attachment_id": one} for one in ("a", "", "b")]
    volumes[2]["tag"] = "t"
    server = loaded(small_cloud, volume_info=to_json(volumes))
    assert [(one.volume, one.attachment, one.tag) for one in guest_spec(server, 1).volumes] == [
        *(("va", "a", ""), ("vb", "b", "t")),
    ]


def test_a_guest_is_made_by_the_flavor_that_its_copy_has(small_cloud: SmallCloud) -> None:
    server, large = loaded(small_cloud), Flavor("large", 4, 4096, 40)
    assert [(one.vcpus, one.contents.flavor_name) for one in (guest_spec(server, 1), guest_spec(server, 2, large))] == [
        (1, "f"),
        (4, "large"),
    ]


@pytest.mark.parametrize(
    ("details", "keys", "drive"),
    [
        ({}, [], False),
        ({"public_key": {"name": "k", "text": "ssh-rsa A"}}, ["ssh-rsa A"], False),
        ({"config_drive": True}, [], True),
        ({"image_properties": {"img_config_drive": "mandatory"}}, [], True),
        ({"image_properties": {"img_config_drive": "optional"}}, [], False),
    ],
)
def test_what_a_guest_finds_about_itself(
    small_cloud: SmallCloud, details: dict[str, Any], keys: list[str], drive: bool
) -> None:
    contents = guest_spec(loaded(small_cloud, details=to_json(details)), 1).contents
    assert contents is not None
    assert ([key.text for key in contents.public_keys], contents.config_drive) == (keys, drive)


@pytest.mark.parametrize(("zone", "shown"), [(None, ""), ("here", "here")])
def test_a_guest_knows_its_zone(small_cloud: SmallCloud, zone: str | None, shown: str) -> None:
    contents = guest_spec(loaded(small_cloud, details=to_json({"availability_zone": zone})), 1).contents
    assert contents is not None and contents.availability_zone == shown


def test_a_step_without_a_guest_has_no_definition_of_one() -> None:
    given = {"driver": None, "claims": SimpleNamespace(of=lambda server, copy: (server, copy)), "secrets": {}}
    ctx: Any = HostContext(host="host1", server="s", copy=4, facts=None, guest=None, **given)  # type: ignore[arg-type]
    with pytest.raises(Superseded, match="server s is gone, or its step is not one with a guest"):
        _ = ctx.spec


# -- facts ----------------------------------------------------------------------------------------------------------


class Facts(OperationFacts, kw_only=True):
    one: int = 0
    many: list[int] = []


def test_only_facts_that_differ_are_stored() -> None:
    before = Facts(one=1, many=[1])
    after = copy_of(before)
    assert changed(before, after) == {} and after is not before
    after.many = [1]
    assert changed(before, after) == {}
    after.one = 2
    assert changed(before, after) == {"one": 2} and before.one == 1
    learn(before, {"many": [3]})
    assert document_of(before) == {"one": 1, "many": [3]}


def test_a_host_gets_the_facts_that_its_steps_use_by_their_names() -> None:
    sent = for_host(CopyFacts(host="host1", copy=3, was="stopped"))
    assert isinstance(sent, StepFacts) and sent.was == "stopped"


def test_an_operation_holds_nothing_of_its_own_unless_it_says_so() -> None:
    plain = OperationFacts()
    assert (plain.flavor_of(1), plain.flavors(), plain.consumers_held()) == (None, [], [])


# -- debts and details ----------------------------------------------------------------------------------------------


def test_a_debt_is_recorded_once_and_its_host_called_back_each_time(play: Play) -> None:
    """What is to be recorded after it replaces what was said before; nothing replaces nothing."""

    async def story(desk: Desk) -> None:
        for name in ("host1", "host2"):
            keys = {"name": name, "id": name, "provider_id": name, "identity": name, "epoch": 1}
            await put(desk.engine, "cell1", cell.hosts, **keys)
        seen = []
        for after in (None, {"first": 1}, None, {"second": 2}):
            await desk.journal.write(lambda tx, after=after: owe_removal(tx, "host1", "s", 3, "o", 5.0, after))
            (debt,) = await desk.all(cell.debts)
            seen.append(debt["after"])
        assert seen == ["{}", '{"first":1}', '{"first":1}', '{"second":2}']
        assert (debt["host"], debt["copy"], debt["verb"], debt["operation_id"]) == ("host1", 3, "ensure_absent", "o")
        await desk.journal.write(lambda tx: owe_removal(tx, "host1", "s", 4, "o", 5.0, {"new": 1}))
        assert [one["after"] for one in await desk.all(cell.debts, copy=4)] == ['{"new":1}']
        hosts = {row["name"]: (row["epoch"] > 1, row["returning"]) for row in await desk.all(cell.hosts)}
        assert hosts == {"host1": (True, 1), "host2": (False, 0)}

    play(story)


def test_details_are_changed_field_by_field(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a locked row: its owner may change other fields at the same time."""
    locks, really = list[bool](), rows.fetch

    async def fetch(tx: Tx, table: Any, *, lock: bool = False, **keys: Any) -> Any:
        locks.append(lock)
        return await really(tx, table, lock=lock, **keys)

    monkeypatch.setattr(rows, "fetch", fetch)

    async def story(desk: Desk) -> None:
        await desk.change(cell.servers, {"details": '{"description": "mine", "tags": ["a"]}'}, id="s")
        await desk.journal.write(lambda tx: edit_details(tx, "s", {"tags": ["b"]}, name="changed"))
        server = await desk.server()
        assert (server["details"], server["name"]) == ('{"description":"mine","tags":["b"]}', "changed")
        assert locks == [True]
        await desk.journal.write(lambda tx: edit_details(tx, "s", {}, name="not without a change"))
        await desk.journal.write(lambda tx: edit_details(tx, "t", {"tags": []}))
        assert (await desk.server())["name"] == "changed"

    play(story)
