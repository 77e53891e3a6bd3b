"""The rules of each step of an attachment, case by case; test_attachments.py goes the whole way."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.services.volume import attachment_steps as steps
from kilonova.services.volume.volume import STATES, Attachment, Volume
from tests.unit.services.volume.records import attachment, outcome, volume
from tests.unit.services.volume.shop import BACKEND, PROJECT, Seal, Story

Control = Callable[[Story], None]
NOW = 2000.0
ERRORS = ("error", "error_extending")
SHARED = ("available", "reserved", "attaching", "in-use")


def is_refused(one: Volume, server_id: str | None = "s1", mode: str = "rw", *, by_compute: bool = True) -> str:
    try:
        steps.check_reservable(one, server_id, mode, by_compute=by_compute)
    except Refused as why:
        assert why.code == "invalid_volume"
        return why.message
    return ""


@pytest.mark.parametrize("status", STATES)
def test_in_which_states_a_volume_is_reserved(status: str) -> None:
    has_it = [attachment(server_id="s2", turn=1), attachment("b", server_id="s1", turn=1)]
    allowed: dict[tuple[bool, bool], tuple[str, ...]] = {
        (False, False): ("available",),
        (True, False): SHARED,
        (False, True): ("available", "in-use", "reserved"),
        (True, True): SHARED,
    }
    for (shared, has), states in allowed.items():
        told = is_refused(volume(*(has_it if has else has_it[:1]), status=status, multiattach=shared))
        assert bool(told) == (status not in states), (shared, has)
        if told and status not in ERRORS:
            assert f"must be {' or '.join(SHARED if shared else ('available',))} to reserve" in told
            assert told.endswith(f"the current status is {status}.")


def test_a_reservation_is_of_one_server_and_of_one_api() -> None:
    """A second one, for another host, is the same server's, and of the same side: compute or a client."""
    mine = volume(attachment(server_id="s1", turn=1), status="in-use")
    assert not is_refused(mine) and is_refused(mine, "s2") and is_refused(mine, None)
    assert is_refused(mine, by_compute=False)
    clients = volume(attachment(server_id="s1"), status="reserved")
    assert not is_refused(clients, by_compute=False) and is_refused(clients)
    nobodys = volume(attachment(server_id=None), status="reserved")
    assert is_refused(nobodys, None, by_compute=False), "two that name no server are not the same"


def test_why_a_broken_volume_is_not_attached() -> None:
    for status in ERRORS:
        assert f"Volume v is {status} and cannot be attached: reset it." in is_refused(volume(status=status))
        assert "attached: no space." in is_refused(volume(status=status, reason="no space"))
        assert is_refused(volume(attachment(server_id="s1", turn=1), status=status, multiattach=True))


@pytest.mark.parametrize(("readonly", "refused"), [(None, ()), (False, ()), (True, ("rw", ""))])
def test_a_read_only_volume_is_reserved_to_be_read(readonly: bool | None, refused: tuple[str, ...]) -> None:
    for mode in ("ro", "rw", ""):
        told = is_refused(volume(readonly=readonly), mode=mode)
        assert bool(told) == (mode in refused)
        assert not told or f"cannot be attached with mode {mode}." in told


def test_reserving_records_it_as_it_was_asked(control: Control) -> None:
    async def story(store: Any) -> None:
        new = attachment(server_id="s1", turn=3, ordinal=4, device="/dev/vdb", mode="ro", created_at=NOW)
        done = await outcome(store, volume(), lambda tx: steps.reserve(tx, volume(), new))
        assert done.result == done.attached["a"] == new
        assert done.volume is not None and (done.volume.status, done.volume.updated_at) == ("reserved", NOW)
        own = volume(attachment(server_id="s1", turn=1), status="in-use")
        clients = attachment("b", server_id="s1")
        assert isinstance((await outcome(store, own, lambda tx: steps.reserve(tx, own, clients))).result, Refused)

    control(story)


async def connected(store: Any, one: Volume, **connector: Any) -> Any:
    """Its first attachment connected to host2, or the code of the refusal."""
    done = await outcome(
        store, one, lambda tx: steps.connect(tx, one, one.attachments[0], "host2", {"host": "host2", **connector}, NOW)
    )
    return done.result.code if isinstance(done.result, Refused) else done


CLIENTS, COMPUTES = {"turn": 0}, {"turn": 1}
WAS = {"host": "host1", "connected_at": 1000.0, "status": "attached"}


def test_whether_a_broken_volume_is_connected(control: Control) -> None:
    """Where compute has it connected already: that server moves, or is evacuated."""

    async def story(store: Any) -> None:
        for status in ERRORS:
            for own, expected in (
                ({**COMPUTES, **WAS}, "attached"),
                (COMPUTES, "attachment_conflict"),
                ({**CLIENTS, **WAS}, "attachment_conflict"),
                (CLIENTS, "attachment_conflict"),
            ):
                done = await connected(store, volume(attachment(**own), status=status))
                if expected == "attached":
                    assert (done.result.status, done.volume.status) == (expected, status)
                else:
                    assert done == expected

    control(story)


def test_one_at_a_time_is_connected_to_what_is_for_one(control: Control) -> None:
    async def story(store: Any) -> None:
        mine = attachment(**COMPUTES)
        for other, shared, expected in (
            (WAS, False, "attachment_conflict"),
            (WAS, True, ""),
            ({**WAS, "status": "detaching"}, False, ""),
            ({"host": "host1"}, False, ""),
        ):
            one = volume(mine, attachment("b", **other), status="in-use", multiattach=shared)
            done = await connected(store, one)
            assert done == expected if expected else done.attached["a"].host == "host2", other
        again = await connected(store, volume(attachment(**WAS), status="in-use"))
        assert again.result.host == "host2", "its own connection is not another one"

    control(story)


def test_what_a_connection_records(control: Control) -> None:
    async def story(store: Any) -> None:
        first = attachment("a", device="/dev/vdb", mode="ro")
        second = attachment("b", host="host1", device="/dev/vdx", mode="rw")
        one = volume(first, second, status="reserved", multiattach=True)
        done = await connected(store, one)
        told: Attachment = done.result
        assert (told.host, told.device, told.mode, told.status) == ("host2", "/dev/vdb", "ro", "attaching")
        assert (told.connected_at, told.connector) == (NOW, {"host": "host2"})
        assert (done.volume.status, done.volume.updated_at) == ("attaching", NOW)
        assert done.attached["a"] == told and done.attached["b"] == second
        given = (await connected(store, one, mountpoint="/dev/vdz", mode="rw")).result
        assert (given.device, given.mode) == ("/dev/vdz", "rw")
        for mode, readonly, expected in (
            ("strange", None, "rw"),
            ("ro", None, "ro"),
            ("rw", True, "ro"),
            ("rw", False, "rw"),
        ):
            done = await connected(store, volume(first, status="reserved", readonly=readonly), mode=mode)
            assert done.result.mode == expected

    control(story)


@pytest.mark.parametrize("status", ["attaching", "in-use", "detaching", "extending"])
def test_only_a_reserved_volume_becomes_attaching(control: Control, status: str) -> None:
    async def story(store: Any) -> None:
        done = await connected(store, volume(attachment(**WAS), status=status))
        assert (done.volume.status, done.volume.updated_at) == (status, None)
        assert done.result.status == "attached", "connected elsewhere, it is attached still"

    control(story)


def test_each_connection_is_later_than_the_one_before(control: Control) -> None:
    """Its moment is a part of its secret: also when the clock was set back."""

    async def story(store: Any) -> None:
        for before, after in ((None, NOW), (1000.0, NOW), (NOW, NOW + 1e-3), (NOW + 5.0, NOW + 5.001)):
            done = await connected(store, volume(attachment(connected_at=before)))
            assert done.result.connected_at == pytest.approx(after, abs=1e-6)

    control(story)


def test_completing(control: Control) -> None:
    async def story(store: Any) -> None:
        async def completed(shown: str, **own: Any) -> Any:
            one = volume(attachment(**own), attachment("b", status="attaching"), status=shown)
            return await outcome(store, one, lambda tx: steps.complete(tx, one, one.attachments[0], NOW))

        for own in ({}, {**WAS, "status": "detaching"}):
            assert (await completed("attaching", **own)).result.code == "attachment_unconnected"
        begun = {**WAS, "status": "attaching"}
        done = await completed("attaching", **begun)
        assert (done.volume.status, done.volume.updated_at) == ("in-use", NOW)
        assert (done.attached["a"].status, done.attached["a"].attached_at) == ("attached", NOW)
        assert done.attached["b"].status == "attaching"
        again = await completed("extending", **WAS, attached_at=1.0)
        assert (again.attached["a"].attached_at, again.volume.status) == (1.0, "extending"), "the same again"
        for broken in ERRORS:
            done = await completed(broken, **begun)
            assert (done.volume.status, done.attached["a"].status) == (broken, "attached")

    control(story)


@pytest.mark.parametrize(
    ("status", "others", "expected"),
    [
        ("in-use", (), "detaching"),
        ("attaching", (), "detaching"),
        ("in-use", ("reserved",), "reserved"),
        ("in-use", ("reserved", "attaching"), "attaching"),
        ("in-use", ("attaching", "attached"), "in-use"),
        ("extending", (), "extending"),
        ("error", ("reserved",), "error"),
    ],
)
def test_a_connection_is_void_before_it_is_dropped(
    control: Control, status: str, others: tuple[str, ...], expected: str
) -> None:
    async def story(store: Any) -> None:
        gone = [attachment("a", **WAS), attachment("b", host="host1")]
        left = [attachment(f"c{n}", status=each, connected_at=1.0) for n, each in enumerate(others)]
        one = volume(*gone, *left, status=status)
        done = await outcome(store, one, lambda tx: steps.cut(tx, one, gone))
        assert done.result == [(BACKEND, "v")]
        states = {name: each.status for name, each in done.attached.items()}
        assert states == {"a": "detaching", "b": "reserved", **{each.id: each.status for each in left}}
        assert done.volume is not None and done.volume.status == expected
        nothing = await outcome(store, one, lambda tx: steps.cut(tx, one, gone[1:]))
        assert nothing.result == [] and nothing.volume is not None and nothing.volume.status == status

    control(story)


@pytest.mark.parametrize(
    ("status", "others", "expected"),
    [
        ("in-use", (), ("available", "")),
        ("reserved", (), ("available", "")),
        ("attaching", ("reserved",), ("reserved", "")),
        ("detaching", ("attached",), ("in-use", "")),
        ("error", (), ("available", "")),
        ("error_extending", ("attached",), ("in-use", "")),
        ("extending", (), ("extending", "available")),
        ("uploading", ("attached",), ("uploading", "in-use")),
        ("downloading", ("reserved",), ("downloading", "reserved")),
        ("available", (), ("available", "")),
        ("maintenance", (), ("maintenance", "")),
    ],
)
def test_what_a_volume_is_without_its_attachment(
    control: Control, status: str, others: tuple[str, ...], expected: tuple[str, str]
) -> None:
    context: Any = SimpleNamespace(clock=SimpleNamespace(now=lambda: NOW))

    async def story(store: Any) -> None:
        left = [attachment(f"c{n}", status=each) for n, each in enumerate(others)]
        one = volume(attachment("a", status="detaching"), *left, status=status)
        done = await outcome(store, one, lambda tx: steps.detach(tx, context, one, one.attachments[:1]))
        assert done.volume == done.result and [*done.attached] == [each.id for each in left]
        assert (done.volume.status, done.volume.previous_status, done.volume.updated_at) == (*expected, NOW)
        if status in ERRORS:
            none = await outcome(store, one, lambda tx: steps.detach(tx, context, one, []))
            assert none.result.status == status, "nothing went: it is as broken as before"

    control(story)


def test_the_status_that_attachments_make() -> None:
    for states, expected in (
        (("attached", "attaching", "reserved", "detaching"), "in-use"),
        (("detaching", "reserved", "attaching"), "attaching"),
        (("detaching", "reserved"), "reserved"),
        (("detaching",), "detaching"),
        ((), "available"),
    ):
        assert steps.status_by([attachment(str(n), status=each) for n, each in enumerate(states)]) == expected


def test_what_a_host_is_given_to_reach_a_volume() -> None:
    one = volume(multiattach=True, size=7)
    own = attachment(host="host1", mode="ro", connected_at=1.0)
    whole = steps.connection_of(Seal(), one, own)
    assert whole["driver_volume_type"] == "kilonova"
    secret = whole["data"].pop("auth_password")
    assert whole["data"] == {
        "volume_id": "v",
        "attachment_id": "a",
        "pool": f"kilonova-{BACKEND[:8]}@files#files",
        "backend": BACKEND,
        "multiattach": True,
        "host": "host1",
        "size": 7,
        "access_mode": "ro",
        "encrypted": False,
        "qos_specs": None,
        "auth_username": "a",
    }
    assert len(secret) == 64 and secret == steps.secret_of(Seal(), own)
    assert "auth_password" not in steps.connection_of(Seal(), one, own, with_secret=False)["data"]
    for away in (attachment(host="host1"), attachment(host="host1", connected_at=1.0, status="detaching")):
        assert steps.connection_of(Seal(), one, away) == {}
    others = (attachment("b", connected_at=1.0), attachment(connected_at=1.001))
    assert len({secret, *(steps.secret_of(Seal(), each) for each in others)}) == 3
    long = steps.connection_closed("x" * 100)
    assert long.code == "volume_connection_closed" and f"Attachment {'x' * 80} is" in long.message
    assert PROJECT not in str(whole)
