"""Lists of images: what a project sees in which list, and the filters that look into other tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.domain.errors import Refused
from kilonova.records.kinds import Order
from kilonova.records.query import EQUAL, Condition, ListQuery
from kilonova.services.image.listing import ALL, PROPERTY, TAG, scope
from tests.unit.services.image.cloud import ALICE, BOB, Life, life, run

ADMIN = Caller(user=IdentityRef("root", "root"), project=IdentityRef("office", "office"), roles=("admin",))
# name: owner, visibility, and the status of bolt's membership
IMAGES: dict[str, tuple[str, str, str]] = {
    "a-private": ("acme", "private", ""),
    "b-private": ("bolt", "private", ""),
    "a-public": ("acme", "public", ""),
    "a-community": ("acme", "community", ""),
    "b-community": ("bolt", "community", ""),
    "a-shared": ("acme", "shared", ""),
    "b-shared": ("bolt", "shared", ""),
    "a-pending": ("acme", "shared", "pending"),
    "a-accepted": ("acme", "shared", "accepted"),
    "a-rejected": ("acme", "shared", "rejected"),
    "a-unshared": ("acme", "private", "accepted"),
    "c-shared": ("corp", "shared", ""),
}
OWN = {"b-private", "b-community", "b-shared"}
PUBLIC = {"a-public"}


async def fill(lived: Life) -> None:
    for name, (owner, visibility, status) in IMAGES.items():
        properties = {"os": name[0], "kind": visibility}
        await lived.create(
            id=name, owner=owner, visibility=visibility, tags=(name[0], visibility), properties=properties
        )
        if status:
            await lived.images.members.add(name, "bolt")
            await lived.images.members.answer(name, "bolt", status)
    await lived.images.members.add("c-shared", "acme")
    await lived.images.members.answer("c-shared", "acme", "accepted")


def play(tmp_path: Path, story: Callable[[Life], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with life(tmp_path) as lived:
            await fill(lived)
            await story(lived)

    run(whole)


async def ids(lived: Life, caller: Caller, *conditions: Condition, **query: Any) -> list[str]:
    wanted = ListQuery(conditions=conditions, **query)
    return [image.id for image in await lived.images.list_(caller, wanted)]


SCOPES: list[tuple[Caller, dict[str, str], set[str]]] = [
    (BOB, {}, OWN | PUBLIC | {"a-accepted"}),
    (BOB, {"member_status": "pending"}, OWN | PUBLIC | {"a-pending"}),
    (BOB, {"member_status": "rejected"}, OWN | PUBLIC | {"a-rejected"}),
    (BOB, {"member_status": ALL}, OWN | PUBLIC | {"a-pending", "a-accepted", "a-rejected"}),
    (BOB, {"visibility": ALL}, OWN | PUBLIC | {"a-accepted", "a-community"}),
    (BOB, {"visibility": "community"}, {"a-community", "b-community"}),
    (BOB, {"visibility": "shared"}, {"b-shared", "a-accepted"}),
    (BOB, {"visibility": "private"}, {"b-private"}),
    (BOB, {"visibility": "public"}, PUBLIC),
    (ALICE, {"visibility": "shared"}, {"a-shared", "a-pending", "a-accepted", "a-rejected", "c-shared"}),
    (ADMIN, {"visibility": ALL}, {*IMAGES}),
    (ADMIN, {}, {*IMAGES} - {"a-community", "b-community"}),
    (ADMIN, {"visibility": "private", "member_status": "pending"}, {"a-private", "b-private", "a-unshared"}),
]


def test_each_list_has_what_it_is_of(tmp_path: Path) -> None:
    async def story(lived: Life) -> None:
        for caller, given, expected in SCOPES:
            assert set(await ids(lived, caller, *scope(caller, **given))) == expected, (caller.project_id, given)

    play(tmp_path, story)


def test_filters_by_properties_and_tags(tmp_path: Path) -> None:
    async def story(lived: Life) -> None:
        def has(name: str, value: str) -> Condition:
            return Condition(PROPERTY, EQUAL, (name, value))

        for conditions, expected in (
            ((has("os", "b"),), OWN),
            ((has("os", "b"), has("kind", "shared")), {"b-shared"}),
            ((has("os", "shared"),), set()),
            ((has("kind", "b"),), set()),
            ((Condition(TAG, EQUAL, "b"),), OWN),
            ((Condition(TAG, EQUAL, "a"), Condition(TAG, EQUAL, "community")), {"a-community"}),
            ((Condition(TAG, EQUAL, "c"), has("os", "a")), set()),
        ):
            assert set(await ids(lived, ADMIN, *conditions)) == expected, conditions

    play(tmp_path, story)


def test_lists_say_what_each_image_has_and_whether_it_was_shared_with_the_caller(tmp_path: Path) -> None:
    async def story(lived: Life) -> None:
        found = {image.id: image for image in await lived.images.list_(BOB, ListQuery())}
        assert found["b-shared"].tags == ("b", "shared")
        assert found["b-shared"].properties == {"os": "b", "kind": "shared"}
        assert {name for name, image in found.items() if image.is_member} == {"a-pending", "a-accepted", "a-rejected"}

    play(tmp_path, story)


def test_pages_are_newest_first_and_a_marker_is_one_that_the_caller_sees(tmp_path: Path) -> None:
    async def story(lived: Life) -> None:
        newest = [*reversed(IMAGES)]
        assert await ids(lived, ADMIN) == newest
        assert await ids(lived, ADMIN, limit=2, marker=newest[3]) == newest[4:6]
        by_name = [Order("id")]
        assert await ids(lived, ADMIN, order=tuple(by_name), limit=3) == sorted(IMAGES)[:3]
        for marker in ("a-private", "nowhere" * 20):
            with pytest.raises(Refused, match=f"The marker {marker[:80]} is not an image that you can see.") as why:
                await ids(lived, BOB, marker=marker)
            assert why.value.code == "bad_marker"

    play(tmp_path, story)
