"""Which servers of a group count on which host: what a claim changes of it, and what a policy refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kilonova.placement.groups import GroupPlacement, GroupRule, leave, resettle, stand, stand_again
from kilonova.world import Tx
from tests.placement.neighbourhood import (
    Act,
    Cases,
    assert_changes,
    writing,
)


def settled(standing: GroupPlacement, *, gone: set[int], here: set[int]) -> Act:
    return writing(lambda tx: resettle(tx, standing, gone=gone, here=here))


def placed(*own: tuple[str, int], rule: GroupRule | None = None) -> GroupPlacement:
    return GroupPlacement("s", rule, set(own))


def counted(rule: GroupRule) -> Act:
    """How server s finds the group."""

    async def body(tx: Tx) -> Any:
        standing = await stand(tx, "s", rule)
        return [sorted(standing.own), sorted((root, sorted(of)) for root, of in standing.others.items())]

    return writing(body)


async def _again(tx: Tx, server: str) -> Any:
    return sorted((await stand_again(tx, server)).own)


async def _leave(tx: Tx, server: str) -> None:
    await leave(tx, await stand_again(tx, server))


A, A1, B, GONE = 1, 2, 4, 99
CASES: Cases = {
    "of a group": (counted(GroupRule("g", "affinity")), {"groups g", 'returns [[["g",1]],[[4,["t"]]]]'}),
    "of a group with a member on a dead host": (
        counted(GroupRule("g", "affinity", dead_host="b")),
        {"groups g", 'returns [[["g",1]],[]]'},
    ),
    "of another group": (counted(GroupRule("h", "affinity")), {"groups h", 'returns [[["h",1]],[[4,["v"]]]]'}),
    "of a new group": (counted(GroupRule("new", "affinity")), {"+ groups new", "returns [[],[]]"}),
    "of all its groups": (writing(lambda tx: _again(tx, "s")), {"groups g", "groups h", 'returns [["g",1],["h",1]]'}),
    "of no group": (writing(lambda tx: _again(tx, "w")), {"returns []"}),
    "goes": (settled(placed(("g", A)), gone={A1}, here=set()), {"- group_use g s a"}),
    "goes elsewhere, of both groups": (
        settled(placed(("g", A), ("h", A)), gone={A}, here={B}),
        {"+ group_use g s b", "+ group_use h s b", "- group_use g s a", "- group_use h s a"},
    ),
    "stays, with all that goes and comes below": (settled(placed(("g", A)), gone={A}, here={A1}), set()),
    "comes, by a rule": (
        settled(placed(rule=GroupRule("new", "affinity")), gone=set(), here={B, A1}),
        {"+ group_use new s a", "+ group_use new s b"},
    ),
    "goes from providers that are gone": (
        settled(placed(("g", A)), gone={A, GONE}, here={B, GONE}),
        {"+ group_use g s b", "- group_use g s a"},
    ),
    "counts nowhere": (settled(GroupPlacement("w"), gone={A}, here={B}), set()),
    "leaves": (writing(lambda tx: _leave(tx, "s")), {"- group_use g s a", "- group_use h s a", "groups g", "groups h"}),
}


@pytest.mark.parametrize(
    ("policy", "others", "why"),
    [
        ("anti-affinity", {}, None),
        ("anti-affinity", {A: {"t"}}, None),
        ("anti-affinity", {B: {"t"}}, None),
        ("anti-affinity", {B: {"t", "u"}}, "anti-affinity group g already has 2 there and allows 2"),
        ("anti-affinity", {B: {"t", "u", "v"}}, "anti-affinity group g already has 3 there and allows 2"),
        ("affinity", {}, None),
        ("affinity", {B: {"t"}, A: {"u"}}, None),
        ("affinity", {A: {"u"}}, "affinity group g has its servers elsewhere"),
        ("soft-affinity", {A: {"u"}}, None),
        ("soft-anti-affinity", {B: {"t", "u", "v"}}, None),
    ],
)
def test_a_policy_refuses_a_host(policy: str, others: dict[int, set[str]], why: str | None) -> None:
    assert GroupPlacement("s", GroupRule("g", policy, max_per_host=2), others=others).refusal(B) == why
    assert GroupPlacement("s", None, others=others).refusal(B) is None


@pytest.mark.parametrize("name", CASES)
def test_an_act_changes_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, CASES, name)
