"""Attachments as clients ask for them, the newer way and the older one: who may, in which states, what is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.caller import Caller
from kilonova.domain.errors import Refused
from kilonova.records.query import EQUAL, Condition, ListQuery
from kilonova.services.volume.client_attachments import host_of
from kilonova.services.volume.volume import STATES, Attachment
from tests.support.mappings import map_servers
from tests.unit.services.volume.ledger import Ledger, code, ledger, refused
from tests.unit.services.volume.records import attachment, volume
from tests.unit.services.volume.shop import ADMIN, ALICE, BACKEND, BOB, NOVA, OTHER, SERVER, Story

Control = Callable[[Story], None]
CONNECTOR = {"host": "host2", "mountpoint": "/dev/vdb"}
CONNECTED = {"host": "host1", "connected_at": 1.0, "status": "attached"}
COMPUTES = {**CONNECTED, "server_id": SERVER, "turn": 1, "ordinal": 1}


async def begin(here: Ledger, *held: Attachment, **values: Any) -> None:
    await here.clear()
    await here.volume(volume(*held, **values))


async def status(here: Ledger) -> str:
    return (await here.now()).status


@pytest.mark.parametrize("host", [None, "", 7, ["host1"]])
def test_a_connector_names_its_host(host: object) -> None:
    assert host_of({"host": "host1"}) == "host1"
    for connector in ({"host": host}, {}):
        with pytest.raises(Refused, match="must name the host"):
            host_of(connector)


# -- the newer way -----------------------------------------------------------------------------------------------------


def test_reserving_and_connecting_at_once(control: Control) -> None:
    async def story(here: Ledger) -> None:
        attachments = here.volumes.attachments
        await begin(here)
        whole, made = await attachments.create(ALICE, "v", server_id=SERVER, mode="ro")
        assert (whole.status, whole.attachments) == ("reserved", (made,))
        assert (made.status, made.server_id, made.mode, made.turn, made.created_at) == (
            *("reserved", SERVER, "ro"),
            *(0, here.clock.at),
        )
        assert not made.is_connected and made.project_id == whole.project_id
        await begin(here)
        whole, made = await attachments.create(ALICE, "v", server_id=None, connector=CONNECTOR)
        assert (whole.status, made.host, made.device, made.connected_at) == (
            *("attaching", "host2", "/dev/vdb"),
            here.clock.at,
        )
        assert whole.attachments == (made,) and (await here.now("0-other")).attachments == ()
        assert await code(attachments.create(BOB, "v", server_id=None)) == "volume_not_found"

    ledger(control, story)


def test_a_server_of_another_project_gets_nothing(control: Control) -> None:
    """An id that no server has is the client's own affair."""

    async def story(here: Ledger) -> None:
        await map_servers(here.store, OTHER, project="bolt")
        attachments = here.volumes.attachments
        asked = {"device": None, "host": None, "mode": "rw"}
        for server, expected in ((OTHER, "invalid_input"), (SERVER, ""), ("unknown", ""), (None, "")):
            await begin(here)
            assert await code(attachments.create(ALICE, "v", server_id=server)) == expected
            await begin(here)
            assert await code(attachments.attach(ALICE, "v", {"server_id": server, **asked})) == expected

    ledger(control, story)


def test_connecting_elsewhere_drops_the_old_connection(control: Control) -> None:
    async def story(here: Ledger) -> None:
        attachments = here.volumes.attachments
        await begin(here, attachment(**CONNECTED), status="in-use")
        whole, made = await attachments.connect(ALICE, "a", CONNECTOR)
        assert (made.host, made.device, whole.attachments) == ("host2", "/dev/vdb", (made,))
        assert here.closed == [(BACKEND, "v")]
        assert await code(attachments.connect(ALICE, "a", {})) == "invalid_input"
        assert await code(attachments.connect(BOB, "a", CONNECTOR)) == "attachment_not_found"
        assert await code(attachments.connect(ALICE, "none", CONNECTOR)) == "attachment_not_found"

    ledger(control, story)


def _verbs(here: Ledger, caller: Caller) -> dict[str, Callable[[], Any]]:
    attachments = here.volumes.attachments
    return {
        "connect": lambda: attachments.connect(caller, "a", CONNECTOR),
        "complete": lambda: attachments.complete(caller, "a"),
        "delete": lambda: attachments.delete(caller, "a"),
        "terminate": lambda: attachments.terminate(caller, "v", None),
        "detach": lambda: attachments.detach(caller, "v", "a"),
        "initialize": lambda: attachments.initialize(caller, "v", CONNECTOR),
        "attach": lambda: attachments.attach(
            caller, "v", {"server_id": None, "host": "host1", "device": None, "mode": "rw"}
        ),
    }


@pytest.mark.parametrize("verb", ["connect", "complete", "delete", "terminate", "detach", "initialize", "attach"])
def test_what_compute_attached_is_computes(control: Control, verb: str) -> None:
    """Only the service itself may change it, and nobody connects beside it unless the volume is for several."""

    async def story(here: Ledger) -> None:
        one = attachment(**COMPUTES)
        for caller in (ALICE, ADMIN):
            await begin(here, one, status="in-use")
            told = await refused(_verbs(here, caller)[verb]())
            assert (
                "Compute API" in told
                and SERVER in told
                and await here.now() == volume(one, status="in-use", type_name="t")
            )
        if verb in ("connect", "complete", "delete", "detach"):
            await _verbs(here, NOVA)[verb]()
        elif verb in ("initialize", "attach"):
            await begin(here, one, status="in-use", multiattach=True)
            await _verbs(here, ALICE)[verb]()
            assert (await here.now()).attachments[0] == one and len((await here.now()).attachments) == 2

    ledger(control, story)


def test_completing_and_deleting(control: Control) -> None:
    async def story(here: Ledger) -> None:
        attachments = here.volumes.attachments
        await begin(here, attachment(**{**CONNECTED, "status": "attaching"}), status="attaching")
        await attachments.complete(ALICE, "a")
        assert await status(here) == "in-use" and (await here.now()).attachments[0].attached_at == here.clock.at
        assert await code(attachments.complete(BOB, "a")) == "attachment_not_found"
        assert await code(attachments.delete(BOB, "a")) == "attachment_not_found"
        await begin(here, attachment(**CONNECTED), attachment("b"), status="in-use", multiattach=True)
        left = await attachments.delete(ALICE, "a")
        assert [one.id for one in left] == ["b"] and here.closed == [(BACKEND, "v")]
        assert [one.id for one in (await here.now()).attachments] == ["b"] and await status(here) == "reserved"
        here.closed.clear()
        assert await attachments.delete(ALICE, "b") == [] and here.closed == []
        assert await status(here) == "available" and len((await here.now("0-other")).attachments) == 2

    ledger(control, story)


def test_finding_and_listing(control: Control) -> None:
    async def story(here: Ledger) -> None:
        attachments = here.volumes.attachments
        await begin(here, attachment(server_id=SERVER), attachment("b", project_id="bolt"))
        whole, one = await attachments.find(ALICE, "a")
        assert (whole.id, one.id, one in whole.attachments) == ("v", "a", True)
        assert await code(attachments.find(ALICE, "b")) == "attachment_not_found"
        assert (await attachments.find(ADMIN, "b"))[1].id == "b"
        of_one = ListQuery(conditions=(Condition("volume_id", EQUAL, "v"),))
        assert [(v.id, a.id) for v, a in await attachments.list_("acme", of_one)] == [("v", "a")]
        assert {a.id for _, a in await attachments.list_(None, of_one)} == {"a", "b"}

    ledger(control, story)


# -- the older way -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("verb", ["reserve", "unreserve", "begin_detaching", "roll_detaching"])
def test_what_a_volume_shows_after_a_mark(control: Control, verb: str, before: str) -> None:
    expected: dict[str, Callable[[bool], str]] = {
        "reserve": lambda shared: (
            "attaching" if before == "available" or (shared and before == "in-use") else "invalid_volume"
        ),
        "unreserve": lambda _: "in-use" if before == "attaching" else before,
        "roll_detaching": lambda _: "in-use" if before == "detaching" else before,
        "begin_detaching": lambda _: "detaching" if before == "in-use" else "invalid_volume",
    }

    async def story(here: Ledger) -> None:
        for shared in (False, True):
            await begin(here, attachment(**CONNECTED), status=before, multiattach=shared)
            told = await code(here.volumes.attachments.mark(ALICE, "v", verb))
            after = expected[verb](shared)
            assert told or await status(here) == after, shared
            assert not told or (told, await status(here)) == (after, before)
            assert (await here.now()).updated_at == (None if told else here.clock.at)
            assert (await here.now("0-other")).status == before

    ledger(control, story)


def test_detaching_begins_where_it_is_attached(control: Control) -> None:
    async def story(here: Ledger) -> None:
        await begin(here, attachment(**{**CONNECTED, "status": "attaching"}), status="in-use")
        told = await refused(here.volumes.attachments.mark(ALICE, "v", "begin_detaching"))
        assert told.endswith("Unable to detach volume v: it must be in-use and attached, not in-use.")
        assert await code(here.volumes.attachments.mark(BOB, "v", "reserve")) == "volume_not_found"

    ledger(control, story)


def test_a_host_connects_that_attaches_later(control: Control) -> None:
    """Its own connection again, if it has one; never compute's."""

    async def story(here: Ledger) -> None:
        initialize = here.volumes.attachments.initialize
        await begin(here, status="attaching")
        info = await initialize(ALICE, "v", CONNECTOR)
        (made,) = (await here.now()).attachments
        assert (made.status, made.host, made.turn, made.created_at) == ("attaching", "host2", 0, here.clock.at)
        assert info["data"]["attachment_id"] == made.id and info["data"]["auth_password"]
        assert here.closed == [(BACKEND, "v")] and await status(here) == "attaching"
        again = await initialize(ALICE, "v", CONNECTOR)
        assert again["data"]["attachment_id"] == made.id and len((await here.now()).attachments) == 1
        computes = attachment(**{**COMPUTES, "host": "host2"})
        await begin(here, computes, status="in-use", multiattach=True)
        assert (await initialize(ALICE, "v", CONNECTOR))["data"]["attachment_id"] != "a"
        await begin(here, attachment(**CONNECTED), status="in-use", multiattach=True)
        assert (await initialize(ALICE, "v", CONNECTOR))["data"]["attachment_id"] != "a"
        assert await code(initialize(BOB, "v", CONNECTOR)) == "volume_not_found"
        assert await code(initialize(ALICE, "v", {"ip": "x"})) == "invalid_input"

    ledger(control, story)


@pytest.mark.parametrize("verb", ["initialize", "attach", "detach"])
def test_nothing_is_attached_while_an_administrator_works_on_it(control: Control, verb: str) -> None:
    async def story(here: Ledger) -> None:
        await begin(here, attachment(host="host1", status="attaching"), status="maintenance")
        before = await here.now()
        assert "is in maintenance mode" in await refused(_verbs(here, ALICE)[verb]())
        assert await here.now() == before

    ledger(control, story)


def test_terminating_ends_what_nobody_attached_by(control: Control) -> None:
    async def story(here: Ledger) -> None:
        terminate = here.volumes.attachments.terminate
        begun = {"connected_at": 1.0, "status": "attaching"}
        held = (
            attachment("a", host="host1", **begun),
            attachment("b", host="host2", **begun),
            attachment("c", host="host2", **{**begun, "status": "attached"}),
            attachment("d", host="host2", status="detaching"),
            attachment("e", host="host2"),
        )
        for connector, left, after in (
            (CONNECTOR, ["a", "c", "e"], "in-use"),
            (None, ["c", "e"], "in-use"),
            ({"host": "host9"}, ["a", "b", "c", "d", "e"], "in-use"),
        ):
            await begin(here, *held, status="attaching", multiattach=True)
            await terminate(ALICE, "v", connector)
            assert sorted(one.id for one in (await here.now()).attachments) == left and await status(here) == after
            assert here.closed == ([] if len(left) == 5 else [(BACKEND, "v")])
        await begin(here, status="attaching")
        await terminate(ALICE, "v", None)
        assert await status(here) == "available", "reserved in the older way, and given back"
        await begin(here, status="extending")
        await terminate(ALICE, "v", None)
        assert await status(here) == "extending"
        assert await code(terminate(BOB, "v", None)) == "volume_not_found"

    ledger(control, story)


ASKED = {"server_id": SERVER, "host": None, "device": "/dev/vdc", "mode": "rw"}


@pytest.mark.parametrize("before", STATES)
def test_in_which_states_a_volume_is_attached(control: Control, before: str) -> None:
    async def story(here: Ledger) -> None:
        for shared in (False, True):
            await begin(here, status=before, multiattach=shared)
            told = await code(here.volumes.attachments.attach(ALICE, "v", ASKED))
            allowed = ("available", "attaching", *(("in-use",) if shared else ()))
            assert told == ("" if before in allowed else "invalid_volume"), shared
            assert await status(here) == (before if told else "in-use")

    ledger(control, story)


def test_attaching_by_a_connection_or_without_one(control: Control) -> None:
    async def story(here: Ledger) -> None:
        attach = here.volumes.attachments.attach
        await begin(here)
        await attach(ALICE, "v", ASKED)
        (made,) = (await here.now()).attachments
        assert (made.status, made.attached_at, made.connected_at, made.created_at) == (
            "attached",
            *[here.clock.at] * 3,
        )
        assert (made.server_id, made.host, made.device, made.mode) == (SERVER, None, "/dev/vdc", "rw")
        begun = attachment(host="host1", connected_at=1.0, status="attaching", device="/dev/old", mode="ro")
        await begin(here, attachment("0", **CONNECTED), begun, status="attaching", multiattach=True)
        await attach(ALICE, "v", ASKED)
        after = {one.id: one for one in (await here.now()).attachments}
        assert after.keys() == {"0", "a"} and after["0"].server_id is None
        mine = after["a"]
        assert (mine.status, mine.attached_at, mine.connected_at) == ("attached", here.clock.at, 1.0)
        assert (mine.server_id, mine.host, mine.device, mine.mode) == (SERVER, "host1", "/dev/vdc", "rw")
        twins = (await here.now("0-other")).attachments
        assert {one.status for one in twins} == {"attached", "attaching"}
        computes = attachment(**{**COMPUTES, "status": "attaching"})
        await begin(here, computes, status="attaching", multiattach=True)
        await attach(ALICE, "v", ASKED)
        assert len((await here.now()).attachments) == 2, "compute's connection is not the client's"
        assert await code(attach(BOB, "v", ASKED)) == "volume_not_found"
        for mode, expected in (("rw", "invalid_input"), ("ro", "")):
            await begin(here, readonly=True)
            assert await code(attach(ALICE, "v", {**ASKED, "mode": mode})) == expected

    ledger(control, story)


def test_detaching_one(control: Control) -> None:
    async def story(here: Ledger) -> None:
        detach = here.volumes.attachments.detach
        both = (attachment(**CONNECTED), attachment("b", **CONNECTED))
        await begin(here, *both, status="in-use", multiattach=True)
        assert "attached 2 times; name the attachment_id" in await refused(detach(ALICE, "v", None))
        assert "attachment_id = none." in await refused(detach(ALICE, "v", "none"))
        await detach(ALICE, "v", "b")
        assert [one.id for one in (await here.now()).attachments] == ["a"] and here.closed == [(BACKEND, "v")]
        await detach(ALICE, "v", None)
        assert await status(here) == "available" and (await here.now()).attachments == ()
        await detach(ALICE, "v", None)
        await begin(here, attachment(**COMPUTES), status="in-use")
        await detach(ADMIN, "v", None, force=True)
        assert await status(here) == "available", "an administrator knows that it is not open"
        await begin(here, attachment("b"), status="reserved")
        await detach(ALICE, "v", "b")
        assert await status(here) == "available" and here.closed == []
        assert await code(detach(BOB, "v", None)) == "volume_not_found"

    ledger(control, story)
