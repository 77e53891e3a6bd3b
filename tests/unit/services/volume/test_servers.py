"""A server's volumes, as compute asks for them: fenced, repeatable, its own and nobody else's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.errors import Failed, Superseded
from kilonova.domain.volume import BootSource
from kilonova.schema.tables.image import images
from kilonova.schema.tables.volume import attachments, volumes
from kilonova.services.image.image import Image
from kilonova.services.volume.volume import STATES
from kilonova.store import rows
from tests.support.mappings import map_servers
from tests.unit.services.volume.ledger import Ledger, code, ledger, refused
from tests.unit.services.volume.records import attachment, snapshot, volume
from tests.unit.services.volume.shop import ALICE, BACKEND, BOB, OTHER, PROJECT, SERVER, Story

Control = Callable[[Story], None]
OWN = {"server_id": SERVER, "turn": 1, "ordinal": 1}
CONNECTED = {**OWN, "host": "host1", "connected_at": 1.0, "status": "attached"}
IMAGE = "1a000000-0000-4000-8000-000000000001"
VERBS: dict[str, dict[str, Any]] = {
    "connect": {"attachment_id": "a", "host": "host2"},
    "complete": {"attachment_id": "a"},
    "disconnect": {"attachment_id": "a"},
    "release": {"attachment_id": "a"},
    "release_all": {},
    "reimage": {"attachment_id": "a", "image_id": IMAGE},
    "set_delete_on_termination": {"attachment_id": "a", "delete": True},
    "reserve": {"project_id": PROJECT, "volume_id": "v"},
    "snapshot": {"snapshot_id": "n", "attachment_id": "a", "name": "n", "user_id": "u"},
    "drop_snapshot": {"snapshot_id": "s"},
}


async def begin(here: Ledger, *held: Any, **values: Any) -> Any:
    await here.clear()
    return await here.volume(volume(*held, **values))


async def put_image(here: Ledger, **values: Any) -> None:
    about = {"visibility": "private", "owner": PROJECT, "disk_format": "raw", "container_format": "bare", "file": "f"}
    await here.image(Image(id=IMAGE, **{**about, "status": "active", "size": 1, **values}))


@pytest.mark.parametrize("verb", VERBS)
def test_what_comes_too_late_changes_nothing(control: Control, verb: str) -> None:
    async def story(here: Ledger) -> None:
        before = await begin(here, attachment(**CONNECTED), status="in-use")
        await here.snapshots(snapshot())
        taken = await here.taken()
        await here.volumes.servers.drop_snapshot((SERVER, 5, 5), snapshot_id="none")
        with pytest.raises(Superseded):
            await getattr(here.volumes.servers, verb)((SERVER, 5, 4), **VERBS[verb])
        assert await here.now() == before and await here.taken() == taken and here.closed == []

    ledger(control, story)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if "attachment_id" in VERBS[verb]])
@pytest.mark.parametrize("about", [{"server_id": OTHER}, {"turn": 0}, {"id": "another"}])
def test_what_is_not_the_servers_is_none(control: Control, verb: str, about: Any) -> None:
    """Another server's, one that a client made, one that is gone."""

    async def story(here: Ledger) -> None:
        before = await begin(here, attachment(**{**CONNECTED, **about}), status="in-use")
        told = await code(getattr(here.volumes.servers, verb)((SERVER, 5, 5), **VERBS[verb]))
        if verb == "snapshot" and about == {"turn": 0}:
            assert told == "", "compute takes one of what its image of the server shows"
            return
        assert told == ("" if verb in ("disconnect", "release") else "attachment_not_found")
        assert await here.now() == before and here.closed == []

    ledger(control, story)


@pytest.mark.parametrize("status", STATES)
def test_what_can_be_attached_now(control: Control, status: str) -> None:
    async def story(here: Ledger) -> None:
        await begin(here, attachment(**CONNECTED), status=status, size=3, zone="nova", reason="r")
        assert await code(here.volumes.servers.check(ALICE, "v")) == ("" if status == "available" else "invalid_volume")
        assert await code(here.volumes.servers.check(BOB, "v")) == "volume_not_found"
        state = await here.volumes.servers.state("v")
        assert (state.id, state.status, state.size, state.reason, state.type, state.zone) == (
            *("v", status, 3),
            *("r", "t", "nova"),
        )
        assert await code(here.volumes.servers.state("none")) == "volume_not_found"

    ledger(control, story)


def test_what_a_volume_is_like(control: Control) -> None:
    async def story(here: Ledger) -> None:
        about = {"bootable": True, "multiattach": True, "image_metadata": {"os": "x"}, "work": "extend"}
        await begin(here, **about)
        checked = await here.volumes.servers.check(ALICE, "v")
        assert checked == await here.volumes.servers.state("v")
        assert {name: getattr(checked, name) for name in about} == about

    ledger(control, story)


def test_reserving_is_repeatable(control: Control) -> None:
    async def story(here: Ledger) -> None:
        reserve = here.volumes.servers.reserve
        await begin(here)
        wish = {"project_id": PROJECT, "volume_id": "v", "mode": "ro", "device": "/dev/vdb"}
        made = await reserve((SERVER, 1, 3), **wish, delete_on_termination=True)
        assert await reserve((SERVER, 1, 3), **wish) == made
        (one,) = (await here.now()).attachments
        told = (one.id, one.server_id, one.turn, one.ordinal, one.mode, one.device, one.goes_with_server)
        assert told == (made, SERVER, 1, 3, "ro", "/dev/vdb", True)
        assert (one.project_id, one.created_at) == (PROJECT, here.clock.at)
        assert await reserve((SERVER, 1, 4), **wish) != made, "another step reserves it once more"
        await begin(here)
        second = await reserve((SERVER, 2, 4), project_id=PROJECT, volume_id="v")
        (one,) = (await here.now()).attachments
        assert (one.id, one.device, one.mode, one.goes_with_server) == (second, None, "rw", False)
        assert await reserve((SERVER, 3, 4), project_id=PROJECT, volume_id="v") != second
        with pytest.raises(Failed) as why:
            await reserve((SERVER, 3, 4), project_id="bolt", volume_id="v")
        assert why.value.code == "volume_not_found" and why.value.final, "no step tries that again"
        await here.change_volume("v", status="available", multiattach=1)
        await map_servers(here.store, OTHER, project=PROJECT)
        await reserve((OTHER, 3, 4), project_id=PROJECT, volume_id="v")
        assert len((await here.now()).attachments) == 3
        await reserve((OTHER, 3, 4), project_id=PROJECT, volume_id="0-other")
        assert len((await here.now("0-other")).attachments) == 1, "of another volume it is another one"

    ledger(control, story)


def test_a_new_servers_volumes_are_held_together(control: Control) -> None:
    async def story(here: Ledger) -> None:
        servers = here.volumes.servers

        async def hold(turn: int, **devices: str) -> None:
            fence = (SERVER, turn, 0)
            held = {name.replace("other", "0-other"): device for name, device in devices.items()}
            await here.store.write(lambda tx: servers.hold(tx, fence, project_id=PROJECT, devices=held))

        await begin(here)
        await hold(2, v="/dev/vdb", other="")
        for volume_id, device in (("v", "/dev/vdb"), ("0-other", None)):
            (one,) = (await here.now(volume_id)).attachments
            assert (one.server_id, one.turn, one.device) == (SERVER, 2, device)
        with pytest.raises(Superseded):
            await hold(1, v="")

    ledger(control, story)


def test_connecting_where_it_is_already_changes_nothing(control: Control) -> None:
    async def story(here: Ledger) -> None:
        connect = here.volumes.servers.connect
        before = await begin(here, attachment(**CONNECTED), status="in-use")
        info = await connect((SERVER, 5, 1), attachment_id="a", host="host1")
        assert await here.now() == before and here.closed == []
        assert info == await here.volumes.servers.connection("a") and info["data"]["auth_password"]
        moved = await connect((SERVER, 5, 2), attachment_id="a", host="host2")
        assert moved["data"]["host"] == "host2" and here.closed == [(BACKEND, "v")]
        assert moved["data"]["auth_password"] != info["data"]["auth_password"]
        assert (await here.now()).attachments[0].connector == {"host": "host2"}
        await begin(here, attachment(**{**CONNECTED, "connected_at": None, "status": "reserved"}), status="reserved")
        await connect((SERVER, 5, 3), attachment_id="a", host="host1")
        assert (await here.now()).attachments[0].connected_at == here.clock.at and here.closed == []
        assert await code(here.volumes.servers.connection("none")) == "attachment_not_found"

    ledger(control, story)


@pytest.mark.parametrize("status", STATES)
def test_in_which_states_a_servers_volume_is_re_imaged(control: Control, status: str) -> None:
    async def story(here: Ledger) -> None:
        await put_image(here)
        await begin(here, attachment(**CONNECTED), status=status)
        told = await code(here.volumes.servers.reimage((SERVER, 5, 1), attachment_id="a", image_id=IMAGE))
        assert told == ("" if status in ("in-use", "attaching") else "invalid_volume")
        after = await here.now()
        if told:
            assert (after.status, after.work, here.woken) == (status, "", 0)
        else:
            assert (after.status, after.previous_status, after.work, after.work_value) == (
                *("downloading", status),
                *("reimage", IMAGE),
            )
            assert here.woken == 1 and (await here.now("0-other")).work == ""
            await here.volumes.servers.reimage((SERVER, 5, 2), attachment_id="a", image_id=IMAGE)
            assert await here.now() == after, "an earlier try asked for the same"
            again = here.volumes.servers.reimage((SERVER, 5, 3), attachment_id="a", image_id="another")
            assert await code(again) == "invalid_volume"
            await here.change_volume("v", work="upload", work_value=IMAGE)
            again = here.volumes.servers.reimage((SERVER, 5, 4), attachment_id="a", image_id=IMAGE)
            assert await code(again) == "invalid_volume"

    ledger(control, story)


def test_what_is_not_re_imaged(control: Control) -> None:
    async def story(here: Ledger) -> None:
        await put_image(here, owner="bolt")
        reimage = here.volumes.servers.reimage
        await begin(here, attachment(**CONNECTED), attachment("b"), attachment("c"), status="in-use")
        told = await refused(reimage((SERVER, 5, 1), attachment_id="a", image_id=IMAGE))
        assert "Volume v has 2 other attachments; it cannot be re-imaged." in told
        await begin(here, attachment(**CONNECTED), status="in-use")
        assert "not active" in await refused(reimage((SERVER, 5, 2), attachment_id="a", image_id="gone"))

    ledger(control, story)


def test_disconnecting_keeps_the_volume_for_the_server(control: Control) -> None:
    async def story(here: Ledger) -> None:
        disconnect = here.volumes.servers.disconnect
        await begin(here, attachment(**CONNECTED, device="/dev/vdb", mode="ro"), status="in-use")
        await disconnect((SERVER, 5, 1), attachment_id="a")
        whole = await here.now()
        (one,) = whole.attachments
        assert (one.server_id, one.turn, one.ordinal, one.device, one.mode) == (SERVER, 5, 1, "/dev/vdb", "ro")
        assert (whole.status, one.is_connected, here.closed) == ("reserved", False, [(BACKEND, "v")])
        await disconnect((SERVER, 5, 1), attachment_id="a")
        assert await here.now() == whole
        await begin(here, attachment(**{**CONNECTED, "status": "detaching"}), status="maintenance")
        await disconnect((SERVER, 5, 2), attachment_id="a")
        assert (await here.now()).attachments == (), "it is in nobody's hands, and the server does not wait for it"

    ledger(control, story)


def test_releasing_one(control: Control) -> None:
    async def story(here: Ledger) -> None:
        await begin(here, attachment(**CONNECTED), attachment("b", **OWN), status="in-use", multiattach=True)
        await here.volumes.servers.release((SERVER, 5, 1), attachment_id="a")
        assert [one.id for one in (await here.now()).attachments] == ["b"] and (await here.now()).status == "reserved"
        assert here.closed == [(BACKEND, "v")]
        await here.volumes.servers.release((SERVER, 5, 2), attachment_id="b")
        assert (await here.now()).status == "available" and len(here.closed) == 1
        assert len((await here.now("0-other")).attachments) == 2

    ledger(control, story)


@pytest.mark.parametrize(
    ("values", "held", "more", "expected"),
    [
        ({}, CONNECTED, {}, "available"),
        ({}, {**CONNECTED, "goes_with_server": True}, {}, "deleting"),
        ({"created_for": SERVER, "created_slot": 1, "goes_with_server": True}, CONNECTED, {}, "deleting"),
        ({"created_for": SERVER, "created_slot": 1, "goes_with_server": True}, None, {}, "deleting"),
        ({"created_for": SERVER, "created_slot": 1}, CONNECTED, {}, "available"),
        ({"created_for": SERVER, "created_slot": 1}, None, {"slots": [1]}, "deleting"),
        ({"created_for": SERVER, "created_slot": 1}, None, {"slots": [2]}, "available"),
        ({"created_for": OTHER, "created_slot": 1, "goes_with_server": True}, CONNECTED, {}, "available"),
        ({}, CONNECTED, {"delete": ["v", "gone"]}, "deleting"),
        ({}, {**CONNECTED, "turn": 0}, {}, "in-use"),
        ({}, {**CONNECTED, "server_id": OTHER}, {}, "in-use"),
    ],
)
def test_what_goes_with_a_server(control: Control, values: Any, held: Any, more: Any, expected: str) -> None:
    async def story(here: Ledger) -> None:
        about = {"status": "in-use" if held else "available", **values, "goes_with_server": False}
        await here.put_one(volume(*([attachment(**held)] if held else []), **about))
        if values.get("goes_with_server"):
            await here.change_volume("v", goes_with_server=1)
        await here.volumes.servers.release_all((SERVER, 5, 1), **more)
        after = await here.now()
        assert (after.status, after.work) == (expected, "delete" if expected == "deleting" else "")
        assert len(after.attachments) == (1 if expected == "in-use" else 0)
        assert here.closed == ([(BACKEND, "v")] if held and expected != "in-use" else [])
        assert here.woken == 1

    ledger(control, story)


def test_a_volume_that_is_needed_stays_when_its_server_goes(control: Control) -> None:
    async def story(here: Ledger) -> None:
        held = attachment(**OWN, goes_with_server=True)
        await begin(here, held, attachment("b", server_id=OTHER, turn=1), status="reserved", multiattach=True)
        await here.snapshots(snapshot())
        await here.volumes.servers.release_all((SERVER, 5, 1))
        after = await here.now()
        assert ([one.id for one in after.attachments], after.status, after.work) == (["b"], "reserved", "")

    ledger(control, story)


def test_what_goes_with_it_is_said_later(control: Control) -> None:
    async def story(here: Ledger) -> None:
        say = here.volumes.servers.set_delete_on_termination
        for created_for in (None, SERVER, OTHER):
            await begin(here, attachment(**CONNECTED), attachment("b"), status="in-use", created_for=created_for)
            for delete in (True, False):
                await say((SERVER, 5, 1), attachment_id="a", delete=delete)
                after = await here.now()
                flags = {one.id: one.goes_with_server for one in after.attachments}
                assert flags == {"a": delete, "b": False}
                assert after.goes_with_server == (delete and created_for == SERVER)
            assert not (await here.now("0-other")).goes_with_server

    ledger(control, story)


def test_what_a_server_has(control: Control) -> None:
    async def story(here: Ledger) -> None:
        servers = here.volumes.servers
        await begin(
            here,
            attachment("late", **{**CONNECTED, "created_at": 2.0}, device="/dev/vdb", goes_with_server=True),
            attachment("early", server_id=SERVER, turn=2, created_at=1.0),
            attachment("clients", server_id=SERVER),
            attachment("others", server_id=OTHER, turn=1),
            status="in-use",
            created_for=SERVER,
        )
        told = (await servers.attached([SERVER]))[SERVER]
        mine = [one for one in told if one.volume_id == "v"]
        assert [one.id for one in mine] == ["early", "late"]
        one = mine[1]
        assert (one.server_id, one.status, one.mode, one.host, one.device) == (
            *(SERVER, "attached", "rw"),
            *("host1", "/dev/vdb"),
        )
        assert one.created_here and one.delete_on_termination and mine[0].host == mine[0].device == ""
        assert not any(each.created_here for each in told if each.volume_id != "v")
        assert {*await servers.attached([SERVER])} == {SERVER}
        assert {*await servers.attached([SERVER, OTHER, "none"])} == {SERVER, OTHER} and await servers.attached(
            []
        ) == {}

    ledger(control, story)


def test_a_volume_is_made_for_a_server_once(control: Control) -> None:
    async def story(here: Ledger) -> None:
        servers = here.volumes.servers
        await put_image(here)
        wish: dict[str, Any] = {"project_id": PROJECT, "user_id": "u", "size": 3, "source": BootSource(image_id=IMAGE)}
        about = {"volume_type": "shared", "name": "root", "zone": "nova"}
        made = await servers.create_for_boot((SERVER, 1, 2), slot=1, **wish, **about, delete_on_termination=True)
        assert await servers.create_for_boot((SERVER, 2, 2), slot=1, **wish) == made and here.woken == 2
        one = await here.now(made)
        assert (one.project_id, one.user_id, one.size, one.name, one.type_id, one.image_id) == (
            *(PROJECT, "u", 3),
            *("root", "shared", IMAGE),
        )
        assert (one.created_for, one.created_slot, one.goes_with_server) == (SERVER, 1, True)
        other = await here.now(await servers.create_for_boot((SERVER, 2, 3), slot=2, **wish))
        assert other.id != made and not other.goes_with_server and other.type_id == "plain"
        await map_servers(here.store, OTHER, project=PROJECT)
        assert await servers.create_for_boot((OTHER, 1, 1), slot=1, **wish) not in (made, other.id)
        copy = {**wish, "size": None, "source": BootSource(volume_id=made)}
        await here.change_volume(made, status="available")
        assert (await here.now(await servers.create_for_boot((SERVER, 2, 4), slot=3, **copy))).source_id == made
        await here.store.write(lambda tx: rows.change(tx, images, {"owner": "bolt"}, id=IMAGE))
        told = await refused(servers.create_for_boot((SERVER, 2, 5), slot=4, **wish))
        assert told == f"Invalid image identifier or unable to access requested image: {IMAGE}"
        gone = {**wish, "source": BootSource(image_id="x" * 100)}
        assert (await refused(servers.create_for_boot((SERVER, 2, 5), slot=4, **gone))).endswith(f": {'x' * 80}")
        assert len(await here.rows(volumes)) == 4 and await here.rows(attachments) == []

    ledger(control, story)
