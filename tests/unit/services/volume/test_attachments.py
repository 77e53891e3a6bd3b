"""Attached, detached, by clients and by servers: one at a time, fenced, with secrets that end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.bus.memory import MemoryBus, MemoryHub
from kilonova.domain.errors import Failed, Superseded
from kilonova.domain.volume import BootSource, Content
from kilonova.schema.tables.volume import volumes
from kilonova.services.volume.changing import Said
from kilonova.services.volume.content import ask
from kilonova.services.volume.files import NoBytes
from kilonova.services.volume.volume import VolumeType
from kilonova.store import rows
from tests.unit.services.volume.shop import (
    ADMIN,
    ALICE,
    BOB,
    MANY,
    NOVA,
    OTHER,
    PROJECT,
    SERVER,
    Shop,
    Story,
    refusal,
    shop,
)

Control = Callable[[Story], None]
CONNECTOR = {"host": "host1", "mountpoint": "/dev/vdb"}


async def reserved(here: Shop, volume_id: str, turn: int = 1, server: str = SERVER) -> str:
    return await here.volumes.servers.reserve((server, turn, 3), project_id=PROJECT, volume_id=volume_id)


async def status(here: Shop, volume_id: str) -> str:
    return (await here.volumes.volumes.find(ADMIN, volume_id)).status


def test_a_server_gets_a_volume_and_gives_it_back(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            volume, servers = await here.volume(), here.volumes.servers
            attachment = await reserved(here, volume.id)
            assert await reserved(here, volume.id) == attachment, "the same again finds what was done"
            assert await status(here, volume.id) == "reserved"
            assert await refusal(reserved(here, volume.id, server=OTHER)) == "invalid_volume"
            info = await servers.connect((SERVER, 1, 4), attachment_id=attachment, host="host1")
            assert await servers.connect((SERVER, 1, 4), attachment_id=attachment, host="host1") == info
            assert info["data"]["volume_id"] == volume.id and await servers.connection(attachment) == info
            await servers.complete((SERVER, 1, 5), attachment_id=attachment)
            await servers.complete((SERVER, 1, 5), attachment_id=attachment)
            assert await status(here, volume.id) == "in-use"
            (told,) = (await servers.attached([SERVER, OTHER]))[SERVER]
            assert (told.volume_id, told.status, told.host, told.created_here) == (
                volume.id,
                "attached",
                "host1",
                False,
            )
            assert await refusal(here.volumes.attachments.delete(ALICE, attachment)) == "attachment_of_compute"
            assert await refusal(here.volumes.volumes.delete(ADMIN, volume.id, force=True)) == "invalid_volume"
            await servers.release((SERVER, 2, 1), attachment_id=attachment)
            await servers.release((SERVER, 2, 1), attachment_id=attachment)
            assert await status(here, volume.id) == "available"

    control(story)


def test_the_volume_of_a_stopped_server_is_re_imaged(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            volume, servers = await here.volume(), here.volumes.servers
            image = await here.image(b"new")
            attachment = await reserved(here, volume.id)
            asked = {"attachment_id": attachment, "image_id": image.id}
            assert await refusal(servers.reimage((SERVER, 2, 1), **asked)) == "invalid_volume", "nobody has it yet"
            await servers.connect((SERVER, 2, 2), attachment_id=attachment, host="host1")
            await servers.complete((SERVER, 2, 3), attachment_id=attachment)
            await servers.reimage((SERVER, 2, 4), **asked)
            await servers.reimage((SERVER, 2, 4), **asked)
            after = await here.settled(volume.id)
            assert (after.status, after.marker, after.reason) == ("in-use", f"image:{image.id}", "")
            assert (await servers.state(volume.id)).work == ""
            asked["image_id"] = "00000000-0000-4000-8000-00000000dead"
            assert await refusal(servers.reimage((SERVER, 2, 5), **asked)) == "invalid_input"
            assert await refusal(servers.reimage((OTHER, 1, 1), **asked)) == "attachment_not_found"

    control(story)


def test_a_volume_that_others_have_is_not_re_imaged(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            await here.volumes.types.create(VolumeType(id="", name="shared", extra_specs={"multiattach": "<is> True"}))
            volume, image = await here.volume(type="shared"), await here.image(b"new")
            for server in (SERVER, OTHER):
                attachment = await reserved(here, volume.id, server=server)
                fence = (server, 1, 4)
                await here.volumes.servers.connect(fence, attachment_id=attachment, host="host1")
                await here.volumes.servers.complete(fence, attachment_id=attachment)
            asked = {"attachment_id": attachment, "image_id": image.id}
            assert await refusal(here.volumes.servers.reimage((OTHER, 2, 1), **asked)) == "invalid_volume"
            assert await status(here, volume.id) == "in-use"

    control(story)


def test_a_new_servers_volumes_are_held_until_its_host_has_them(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            first, second, servers = await here.volume(), await here.volume(), here.volumes.servers
            await reserved(here, second.id, server=OTHER)

            async def hold(*ids: str) -> None:
                wanted = dict.fromkeys(ids, "/dev/vdb")
                await store.write(lambda tx: servers.hold(tx, (SERVER, 1, 0), project_id=PROJECT, devices=wanted))

            assert await refusal(hold(first.id, second.id)) == "invalid_volume"
            assert await status(here, first.id) == "available", "all of them or none"
            await hold(first.id)
            assert await status(here, first.id) == "reserved"
            (held,) = (await servers.attached([SERVER]))[SERVER]
            before = await servers.connect((SERVER, 1, 4), attachment_id=held.id, host="host1")
            await servers.disconnect((SERVER, 1, 5), attachment_id=held.id)
            await servers.disconnect((SERVER, 1, 5), attachment_id=held.id)
            (kept,) = (await servers.attached([SERVER]))[SERVER]
            assert (kept.status, kept.host, kept.device) == ("reserved", "", "/dev/vdb")
            assert await status(here, first.id) == "reserved"
            after = await servers.connect((SERVER, 1, 6), attachment_id=kept.id, host="host2")
            assert before["data"]["auth_password"] != after["data"]["auth_password"]
            await servers.release_all((SERVER, 1, 7))
            assert await status(here, first.id) == "available"

    control(story)


def test_what_comes_too_late_changes_nothing(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            volume, servers = await here.volume(), here.volumes.servers
            attachment = await reserved(here, volume.id)
            await servers.release_all((SERVER, 2, 1))
            assert await status(here, volume.id) == "available"
            for late in (
                reserved(here, volume.id),
                servers.connect((SERVER, 1, 4), attachment_id=attachment, host="host1"),
                servers.complete((SERVER, 1, 9), attachment_id=attachment),
                servers.release((SERVER, 1, 9), attachment_id=attachment),
                servers.create_for_boot(
                    (SERVER, 1, 9), slot=0, project_id=PROJECT, user_id="u", size=1, source=BootSource()
                ),
            ):
                with pytest.raises(Superseded):
                    await late
            assert await status(here, volume.id) == "available"
            assert await refusal(servers.complete((SERVER, 3, 1), attachment_id=attachment)) == "attachment_not_found"

    control(story)


def test_another_projects_volume_is_none(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            volume, servers = await here.volume(), here.volumes.servers
            theirs = servers.reserve((SERVER, 1, 3), project_id="bolt", volume_id=volume.id)
            assert await refusal(theirs) == "volume_not_found"
            assert await refusal(servers.check(BOB, volume.id)) == "volume_not_found"
            assert (await servers.check(ALICE, volume.id)).is_settled
            attachment = await reserved(here, volume.id)
            stolen = servers.connect((OTHER, 1, 1), attachment_id=attachment, host="host2")
            assert await refusal(stolen) == "attachment_not_found"
            assert await refusal(here.volumes.attachments.find(BOB, attachment)) == "attachment_not_found"

    control(story)


COMPUTES_VERBS: dict[str, dict[str, Any]] = {
    "connect": {"host": "host2"},
    "complete": {},
    "disconnect": {},
    "release": {},
    "set_delete_on_termination": {"delete": True},
}


@pytest.mark.parametrize("also", [False, True], ids=["the client alone", "compute has the volume, too"])
@pytest.mark.parametrize("verb", [*COMPUTES_VERBS, "release_all"])
def test_what_a_client_attached_is_not_computes(control: Control, tmp_path: Path, verb: str, also: bool) -> None:
    """A client may attach a volume in the name of any server: compute does not see it, and no verb of compute changes
    it."""

    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            shared = VolumeType(id="", name="shared", extra_specs={"multiattach": "<is> True"})
            await here.volumes.types.create(shared)
            volume, servers = await here.volume(type="shared"), here.volumes.servers
            attachments = here.volumes.attachments
            _, made = await attachments.create(ALICE, volume.id, server_id=SERVER)
            await attachments.connect(ALICE, made.id, CONNECTOR)
            await attachments.complete(ALICE, made.id)
            _, before = await attachments.find(ALICE, made.id)
            own = [await servers.reserve((SERVER, 1, 2), project_id=PROJECT, volume_id=volume.id)] if also else []
            assert [one.id for one in (await servers.attached([SERVER])).get(SERVER, [])] == own
            about = {} if verb == "release_all" else {"attachment_id": made.id, **COMPUTES_VERBS[verb]}
            with contextlib.suppress(Failed):
                await getattr(servers, verb)((SERVER, 1, 3), **about)
            assert (await attachments.find(ALICE, made.id))[1] == before
            is_held = also and verb != "release_all"
            assert await status(here, volume.id) == ("reserved" if is_held else "in-use")

    control(story)


def test_every_connection_has_a_secret_of_its_own(control: Control, tmp_path: Path) -> None:
    """Also of two that are made at the same moment: clocks are coarse, and may be set back."""

    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            volume, servers = await here.volume(), here.volumes.servers
            attachment = await reserved(here, volume.id)
            moment = here.volumes.context.clock.now()
            secrets = []
            for ordinal, (host, now) in enumerate((("host1", moment), ("host2", moment), ("host1", moment - 5.0)), 4):
                here.volumes.context.clock.now = lambda now=now: now
                told = await servers.connect((SERVER, 1, ordinal), attachment_id=attachment, host=host)
                secrets.append(told["data"]["auth_password"])
            assert len({*secrets}) == 3

    control(story)


@pytest.mark.parametrize("work", ["extending", "uploading"])
def test_detached_while_it_is_worked_on(control: Control, tmp_path: Path, work: str) -> None:
    """What it is afterwards is what those that are left make it."""

    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            volume, servers = await here.volume(), here.volumes.servers
            attachment = await reserved(here, volume.id)
            await servers.connect((SERVER, 1, 4), attachment_id=attachment, host="host1")
            await servers.complete((SERVER, 1, 5), attachment_id=attachment)
            begun = {"status": work, "previous_status": "in-use"}
            await store.write(lambda tx: rows.change(tx, volumes, begun, id=volume.id))
            await servers.release((SERVER, 2, 1), attachment_id=attachment)
            left = await here.volumes.volumes.find(ADMIN, volume.id)
            assert (left.status, left.previous_status, left.attachments) == (work, "available", ())

    control(story)


def test_a_secret_ends_with_its_connection(control: Control, tmp_path: Path) -> None:
    """A host that lost its place cannot write any more, whatever it believes."""

    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            volume, servers, contents = await here.volume(), here.volumes.servers, here.volumes.contents
            attachment = await reserved(here, volume.id)
            first = (await servers.connect((SERVER, 1, 4), attachment_id=attachment, host="host1"))["data"]
            assert await contents.write(attachment, first["auth_password"], "one") == "one"
            assert await refusal(contents.read(attachment, "guess")) == "volume_connection_closed"
            second = (await servers.connect((SERVER, 2, 1), attachment_id=attachment, host="host2"))["data"]
            assert second["auth_password"] != first["auth_password"]
            late = contents.write(attachment, first["auth_password"], "late")
            assert await refusal(late) == "volume_connection_closed"
            assert await contents.write(attachment, second["auth_password"], "two") == "one+two"
            await servers.release((SERVER, 2, 2), attachment_id=attachment)
            gone = contents.read(attachment, second["auth_password"])
            assert await refusal(gone) == "volume_connection_closed"
            snapshot = await here.snapshot(volume)
            copy = await here.volume(None, snapshot_id=snapshot.id)
            assert copy.marker == "one+two", "what was written goes with every copy"

    control(story)


def test_hosts_read_and_write_over_the_bus(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            hub = MemoryHub()
            inside, host = MemoryBus(hub, "api"), MemoryBus(hub, "host1")
            await inside.start()
            await host.start()
            await here.volumes.contents.serve(inside)
            volume = await here.volume()
            attachment = await reserved(here, volume.id)
            info = await here.volumes.servers.connect((SERVER, 1, 4), attachment_id=attachment, host="host1")
            secret = info["data"]["auth_password"]
            assert await ask(host, Content(attachment=attachment, secret=secret, text="hello")) == "hello"
            assert await ask(host, Content(attachment=attachment, secret=secret)) == "hello"
            wrong = ask(host, Content(attachment=attachment, secret="wrong"))
            assert await refusal(wrong) == "volume_connection_closed"

    control(story)


def test_only_one_host_is_connected_unless_it_is_for_several(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            specs = {"multiattach": "<is> True"}
            await here.volumes.types.create(VolumeType(id="", name="shared", extra_specs=specs))
            servers = here.volumes.servers
            for turn, type_, expected in ((1, "", "attachment_conflict"), (2, "shared", "")):
                volume = await here.volume(type=type_)
                first = await reserved(here, volume.id, turn=turn)
                await servers.connect((SERVER, turn, 4), attachment_id=first, host="host1")
                await servers.complete((SERVER, turn, 5), attachment_id=first)
                second = await servers.reserve((SERVER, turn, 6), project_id=PROJECT, volume_id=volume.id)
                assert second != first
                connecting = servers.connect((SERVER, turn, 7), attachment_id=second, host="host2")
                if expected:
                    assert await refusal(connecting) == expected
                else:
                    await connecting
                await servers.release_all((SERVER, turn, 8))
                assert await status(here, volume.id) == "available"

    control(story)


def test_what_is_for_several_is_reserved_by_several_at_once(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            await here.volumes.types.create(VolumeType(id="", name="shared", extra_specs={"multiattach": "<is> True"}))
            volume, servers = await here.volume(type="shared"), here.volumes.servers
            first = await reserved(here, volume.id)
            second = await reserved(here, volume.id, server=OTHER)
            await servers.connect((SERVER, 1, 4), attachment_id=first, host="host1")
            await servers.complete((SERVER, 1, 5), attachment_id=first)
            assert await status(here, volume.id) == "in-use"
            await servers.release((OTHER, 1, 4), attachment_id=second)
            assert await status(here, volume.id) == "in-use"

    control(story)


def test_two_servers_race_for_one_volume(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            volume = await here.volume()
            asked = (reserved(here, volume.id, server=server) for server in MANY)
            told = await asyncio.gather(*asked, return_exceptions=True)
            assert sum(isinstance(each, str) for each in told) == 1

    control(story)


def test_a_volume_made_for_a_server_goes_with_it(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes(), quota_defaults={"volumes": 2}) as here:
            servers = here.volumes.servers
            origin = await here.volume(2)
            snapshot = await here.snapshot(origin)

            async def boot(turn: int, slot: int, **source: str) -> str:
                return await servers.create_for_boot(
                    (SERVER, turn, 2),
                    slot=slot,
                    project_id=PROJECT,
                    user_id="u",
                    size=None,
                    source=BootSource(**source),
                    delete_on_termination=True,
                )

            made = await boot(1, 0, snapshot_id=snapshot.id)
            assert await boot(1, 0, snapshot_id=snapshot.id) == made, "the same again"
            assert await boot(2, 0, snapshot_id=snapshot.id) == made, "and after another try"
            assert await refusal(boot(2, 1, snapshot_id=snapshot.id)) == "over_quota"
            assert await refusal(boot(2, 1, image_id="none")) == "bad_request"
            assert await refusal(boot(2, 1)) == "invalid_input", "an empty one needs a size"
            volume = await here.settled(made)
            assert (volume.size, volume.project_id, (await servers.state(made)).is_settled) == (2, PROJECT, True)
            attachment = await reserved(here, made, turn=3)
            await servers.connect((SERVER, 3, 4), attachment_id=attachment, host="host1")
            await servers.complete((SERVER, 3, 5), attachment_id=attachment)
            assert (await servers.attached([SERVER]))[SERVER][0].created_here
            await servers.release_all((SERVER, 4, 1))
            await here.gone(made)
            await servers.release_all((SERVER, 4, 1), delete=[made])
            assert await status(here, origin.id) == "available"

    control(story)


def test_what_goes_with_the_server_can_be_said_later(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            goes, stays, needed = [await here.volume() for _ in range(3)]
            servers = here.volumes.servers
            held = [await reserved(here, volume.id) for volume in (goes, stays, needed)]
            for attachment in (held[0], held[2]):
                await servers.set_delete_on_termination((SERVER, 1, 4), attachment_id=attachment, delete=True)
            assert [one.delete_on_termination for one in (await servers.attached([SERVER]))[SERVER]] == [
                True,
                False,
                True,
            ]
            await here.volumes.changes.reset(ADMIN, needed.id, Said(status="available"))
            await here.snapshot(needed)
            await servers.release_all((SERVER, 2, 1))
            await here.gone(goes.id)
            assert [await status(here, volume.id) for volume in (stays, needed)] == ["available", "available"]

    control(story)


def test_the_older_way_step_by_step(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            volume, attachments = await here.volume(), here.volumes.attachments
            told = {"server_id": SERVER, "host": None, "device": "/dev/vdc", "mode": "rw"}
            await attachments.mark(ALICE, volume.id, "reserve")
            assert await refusal(attachments.mark(ALICE, volume.id, "reserve")) == "invalid_volume"
            info = await attachments.initialize(ALICE, volume.id, CONNECTOR)
            await attachments.attach(ALICE, volume.id, told)
            attached = await here.volumes.volumes.find(ALICE, volume.id)
            (one,) = attached.attachments
            assert (attached.status, one.id, one.host) == ("in-use", info["data"]["attachment_id"], "host1")
            assert await refusal(attachments.attach(ALICE, volume.id, told)) == "invalid_volume"
            await attachments.mark(ALICE, volume.id, "begin_detaching")
            await attachments.mark(ALICE, volume.id, "roll_detaching")
            await attachments.mark(ALICE, volume.id, "begin_detaching")
            await attachments.detach(ALICE, volume.id, one.id)
            assert await status(here, volume.id) == "available"
            assert await refusal(attachments.mark(ALICE, volume.id, "begin_detaching")) == "invalid_volume"
            assert await refusal(attachments.initialize(ALICE, volume.id, {"ip": "x"})) == "invalid_input"

    control(story)


def test_the_newer_way(control: Control, tmp_path: Path) -> None:
    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            volume, attachments = await here.volume(), here.volumes.attachments
            _, made = await attachments.create(ALICE, volume.id, server_id=SERVER)
            assert await refusal(attachments.create(ALICE, volume.id, server_id=OTHER)) == "invalid_volume"
            assert await refusal(attachments.complete(ALICE, made.id)) == "attachment_unconnected"
            _, connected = await attachments.connect(ALICE, made.id, CONNECTOR)
            assert (connected.status, connected.device, await status(here, volume.id)) == (
                "attaching",
                "/dev/vdb",
                "attaching",
            )
            await attachments.complete(ALICE, made.id)
            assert await status(here, volume.id) == "in-use"
            assert await attachments.delete(NOVA, made.id) == []
            assert await status(here, volume.id) == "available"
            await here.volumes.changes.set_readonly(ALICE, volume.id, True)
            assert await refusal(attachments.create(ALICE, volume.id, server_id=SERVER)) == "invalid_volume"

    control(story)


@pytest.mark.parametrize("broken", ["error", "error_extending"])
def test_a_broken_volume_is_connected_again_where_its_server_is(control: Control, tmp_path: Path, broken: str) -> None:
    """A move, its undo and an evacuation go on; a server that never had it does not get it."""

    async def story(store: Any) -> None:
        async with shop(store, tmp_path, NoBytes()) as here:
            volume, new, servers = await here.volume(), await here.volume(), here.volumes.servers
            attachment, fresh = await reserved(here, volume.id), await reserved(here, new.id)
            await servers.connect((SERVER, 1, 4), attachment_id=attachment, host="host1")
            await servers.complete((SERVER, 1, 5), attachment_id=attachment)
            half = await here.volume()
            connected = await servers.reserve((SERVER, 1, 6), project_id=PROJECT, volume_id=half.id)
            await servers.connect((SERVER, 1, 7), attachment_id=connected, host="host1")
            for one in (volume, new, half):
                await here.volumes.changes.reset(ADMIN, one.id, Said(status=broken))
            await servers.complete((SERVER, 1, 8), attachment_id=connected)
            assert await status(here, half.id) == broken, "that its guest has it does not mend it"
            assert await refusal(servers.connect((SERVER, 2, 1), attachment_id=fresh, host="host2")) != ""
            for turn, host in ((3, "host2"), (4, "host1")):
                info = await servers.connect((SERVER, turn, 1), attachment_id=attachment, host=host)
                assert info["data"]["host"] == host
                await servers.complete((SERVER, turn, 2), attachment_id=attachment)
            assert await status(here, volume.id) == broken, "that it was moved does not mend it"
            await servers.release((SERVER, 5, 1), attachment_id=attachment)

    control(story)
