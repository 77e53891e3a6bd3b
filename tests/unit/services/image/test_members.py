"""Members of images: one row for each project and image, which answers for itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.schema.tables.image import image_members, images
from kilonova.services.image import members as module
from kilonova.services.image.image import ACCEPTED, PENDING, Member
from kilonova.services.image.members import Members
from tests.support.locks import Locking
from tests.support.neighbours import contents
from tests.unit.control import Clock
from tests.unit.services.image.cloud import Life, life, run

MEMBERS = {("a", "bolt"): 3.0, ("a", "acid"): 2.0, ("b", "bolt"): 1.0, ("a", "corp"): 2.0}


def at(lived: Life, now: float) -> Members:
    return Members(lived.store, Clock(now))


async def fill(lived: Life) -> None:
    for name in "abc":
        await lived.create(id=name)
    for (image, member), now in MEMBERS.items():
        await at(lived, now).add(image, member)


async def rows_of(lived: Life) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await lived.store.read(lambda tx: contents(tx, image_members))
    return found


def play(tmp_path: Path, story: Callable[[Life], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with life(tmp_path) as lived:
            await fill(lived)
            await story(lived)

    run(whole)


def test_members_are_of_one_image_the_oldest_first(tmp_path: Path) -> None:
    async def story(lived: Life) -> None:
        members = at(lived, 9.0)
        assert [one.member_id for one in await members.all("a")] == ["acid", "corp", "bolt"]
        assert [one.member_id for one in await members.all("b")] == ["bolt"] and await members.all("c") == []
        expected = Member(image_id="b", member_id="bolt", status=PENDING, created_at=1.0, updated_at=1.0)
        assert await members.find("b", "bolt") == expected
        assert await members.add("c", "bolt") == await members.find("c", "bolt")

    play(tmp_path, story)


def test_an_answer_is_of_one_member_of_one_image(tmp_path: Path) -> None:
    async def story(lived: Life) -> None:
        before = await rows_of(lived)
        answered = await at(lived, 9.0).answer("a", "bolt", ACCEPTED)
        expected = Member(image_id="a", member_id="bolt", status=ACCEPTED, created_at=3.0, updated_at=9.0)
        assert answered == expected == await at(lived, 0.0).find("a", "bolt")
        after = await rows_of(lived)
        assert [row["member_id"] for row in after if row not in before] == ["bolt"] and len(after) == len(before)
        other = await at(lived, 9.0).answer("b", "bolt", ACCEPTED)
        assert (other.image_id, other.created_at) == ("b", 1.0)

    play(tmp_path, story)


def test_one_member_of_one_image_is_removed(tmp_path: Path) -> None:
    async def story(lived: Life) -> None:
        await at(lived, 9.0).remove("a", "bolt")
        left = {(row["image_id"], row["member_id"]) for row in await rows_of(lived)}
        assert left == MEMBERS.keys() - {("a", "bolt")}

    play(tmp_path, story)


Act = Callable[[Members], Awaitable[object]]
REFUSED: dict[str, tuple[Act, str, str]] = {
    "no image": (lambda members: members.add("x", "bolt"), "image_not_found", "Image x could not be found."),
    "twice": (lambda members: members.add("b", "bolt"), "image_member_exists", "bolt is already a member of image b."),
    "find": (lambda members: members.find("b", "acid"), "image_member_not_found", "acid was not found in the member"),
    "answer": (
        lambda members: members.answer("b", "acid", ACCEPTED),
        "image_member_not_found",
        "acid was not found in the member list of image b.",
    ),
    "remove": (
        lambda members: members.remove("c", "bolt"),
        "image_member_not_found",
        "bolt was not found in the member",
    ),
    "one more": (lambda members: members.add("a", "new"), "image_limit", "An image may have at most 3 members."),
}


def test_what_is_refused_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_MEMBERS", 3)

    async def story(lived: Life) -> None:
        before = await rows_of(lived)
        for name, (act, code, text) in REFUSED.items():
            with pytest.raises(Refused, match=text) as why:
                await act(at(lived, 9.0))
            assert (why.value.code, await rows_of(lived)) == (code, before), name
        await at(lived, 9.0).add("b", "new")
        await at(lived, 9.0).add("b", "newer")

    play(tmp_path, story)


def test_who_adds_a_member_waits_for_others(tmp_path: Path) -> None:
    async def story(lived: Life) -> None:
        locking: Any = Locking(lived.store)
        await Members(locking, Clock()).add("c", "bolt")
        assert locking.locked == [(images.name, {"id": "c"})]

    play(tmp_path, story)
