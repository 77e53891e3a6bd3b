"""Evacuations: the dead source's share stays under the same consumer, held for the evacuation, until it is clean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.placement import claims
from kilonova.placement.claims import Claimed, ClaimReturned, Dropped, GroupRule, HostCandidate, NotClaimed
from tests.placement.books import LARGE, SMALL, Books, provider_of
from tests.placement.neighbourhood import Act, Cases, assert_changes
from tests.placement.test_claims import BY, at, both, done, fence

Run = Callable[[Any], None]
ANTI = GroupRule("web", "anti-affinity")


def test_source_and_destination_are_held_until_the_source_is_clean(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("s1", "a")
        assert (await books.claim_evacuation("s1", "e1", "b")).provider == provider_of("b")
        assert await books.held() == {"s1": {("a", "e1"): SMALL, ("b", ""): SMALL}}
        assert (await books.used("a"), await books.used("b")) == (1, 1)
        assert await books.drop_holder("s1", "e1") == Dropped(3)
        assert await books.drop_holder("s1", "e1") == Dropped(0), "once is enough"
        assert await books.held() == {"s1": {("b", ""): SMALL}}

    run(story)


def test_an_undone_evacuation_leaves_the_source(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("s1", "a")
        await books.claim_evacuation("s1", "e1", "b")
        await books.host("a", vcpu=0, memory=0, disk=0)
        assert await books.return_evacuation("s1", "e1") == ClaimReturned(3, 3)
        assert await books.held() == {"s1": {("a", ""): SMALL}}
        assert await books.return_evacuation("s1", "e1") == ClaimReturned(0, 0)
        assert await books.drop_holder("s1", "e1") == Dropped(0), "a late cleaning touches nothing of the server's own"
        assert await books.held() == {"s1": {("a", ""): SMALL}}

    run(story)


def test_no_destination_leaves_everything_as_it_was(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a")
        await books.host("b", vcpu=1)
        await books.claim("s1", "a", size=LARGE)
        assert isinstance(await books.claim_evacuation("s1", "e1", "b", size=LARGE), NotClaimed)
        assert await books.return_evacuation("s1", "e1") == ClaimReturned(0, 0)
        assert await books.held() == {"s1": {("a", ""): LARGE}}

    run(story)


def test_a_second_evacuation_leaves_the_first_ones_share_alone(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        await books.claim("s1", "a")
        await books.claim_evacuation("s1", "e1", "b")
        await books.claim_evacuation("s1", "e2", "c")
        assert await books.places() == {"s1": {("a", "e1"), ("b", "e2"), ("c", "")}}
        assert await books.drop_holder("s1", "e1") == Dropped(3)
        await books.return_evacuation("s1", "e2")
        assert await books.places() == {"s1": {("b", "")}}

    run(story)


def test_the_next_destination_replaces_the_first(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        await books.claim("s1", "a")
        await books.claim_evacuation("s1", "e1", "b")
        await books.claim_evacuation("s1", "e1", "c")
        assert await books.places() == {"s1": {("a", "e1"), ("c", "")}}

    run(story)


def test_a_move_takes_only_what_the_server_holds_itself(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        await books.claim("s1", "a")
        await books.claim_evacuation("s1", "e1", "b")
        await books.claim_move("s1", "m1", "c")
        assert await books.places() == {"s1": {("a", "e1"), ("c", "")}, "m1": {("b", "")}}
        await books.drop_holder("s1", "e1")
        await books.return_move("s1", "m1")
        assert await books.places() == {"s1": {("b", "")}}

    run(story)


def test_evacuating_in_the_middle_of_an_open_move(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        await books.claim("s1", "a", group=ANTI)
        await books.claim_move("s1", "m1", "b", group=ANTI)
        await books.claim_evacuation("s1", "e1", "c", group=ANTI)
        assert await books.places() == {"s1": {("b", "e1"), ("c", "")}, "m1": {("a", "")}}
        assert await books.counted() == {("s1", "a"), ("s1", "c")}
        await books.release("s1", "m1")
        assert await books.held() == {} and await books.counted() == set()

    run(story)


def test_the_source_of_an_evacuation_does_not_count_in_its_group(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("w1", "a", group=ANTI)
        await books.claim_evacuation("w1", "e1", "b", group=ANTI)
        assert await books.counted() == {("w1", "b")}
        assert isinstance(await books.claim("w2", "a", group=ANTI), Claimed)
        await books.release("w2")
        await books.return_evacuation("w1", "e1")
        assert await books.counted() == {("w1", "a")}

    run(story)


def test_the_only_holder_cleaned_after_the_server_is_gone(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        await books.claim("s1", "a")
        await books.claim_evacuation("s1", "e1", "b")
        await books.release("s1")
        assert await books.drop_holder("s1", "e1") == Dropped(0)
        assert await books.drop_holder("s1", "") == Dropped(0), "the server's own rows are nobody's evacuation"

    run(story)


def evacuated(server: str, *hosts: HostCandidate, step: int = 2, group: GroupRule | None = None) -> Act:
    return lambda store: claims.claim_evacuation(store, fence(server, step), "f", hosts, group=group, **BY)


CASES: Cases = {
    "evacuate": (
        evacuated("v", at("a"), group=GroupRule("h", "anti-affinity")),
        {
            "claim_fence v ordinal=2 outcome=returned",
            "groups h",
            (
                "returns "
                '{"type":"not_claimed","refused":[{"provider":"uuid-a","reason":"group","sentence":"provider '
                'uuid-a: anti-affinity group h already has 1 there and allows 1"}]}'
            ),
        },
    ),
    "evacuate again": (
        evacuated("s", at("a")),
        {
            "+ allocations s a VCPU f used=1",
            "+ allocations s a1 DISK_GB f used=10",
            "+ claim_fence s ordinal=2 outcome=returned turn=1",
            (
                '+ ledger 1 consumer=s holds=[[1,1,"",1],[1,1,"f",1],[2,2,"f",10],[4,1,"e",2]] ordinal=2 '
                "server_id=s turn=1 verb=claim_evacuation"
            ),
            "- allocations s a1 DISK_GB",
            "consumers s generation=8 project_id=q user_id=bob",
            "inventories a VCPU used=4 marked",
            "resource_providers a generation=11 marked",
            "resource_providers a1 generation=21 marked",
            'returns {"type":"claimed","provider":"uuid-a","on_behalf_of":"f"}',
        },
    ),
    "evacuate to another destination": (
        both(evacuated("v", at("a")), evacuated("v", at("b"), step=3)),
        {
            "+ allocations v b VCPU f used=3",
            ('+ ledger 1 consumer=v holds=[[1,1,"",1],[4,1,"f",3]] ordinal=2 server_id=v turn=1 verb=claim_evacuation'),
            ('+ ledger 2 consumer=v holds=[[4,1,"",1],[4,1,"f",3]] ordinal=3 server_id=v turn=1 verb=claim_evacuation'),
            "allocations v b VCPU used=1",
            "claim_fence v ordinal=3 outcome=returned",
            "consumers v generation=9 project_id=q user_id=bob",
            "inventories a VCPU marked",
            "inventories b VCPU used=7 marked",
            "resource_providers a generation=12 marked",
            "resource_providers b generation=42 marked",
            'returns {"type":"claimed","provider":"uuid-b","on_behalf_of":"f"}',
        },
    ),
    "evacuate, refused elsewhere, and another destination": (
        both(evacuated("v", at("a")), evacuated("v", at("x"), step=3), evacuated("v", at("b"), step=4)),
        {
            "+ allocations v b VCPU f used=3",
            ('+ ledger 1 consumer=v holds=[[1,1,"",1],[4,1,"f",3]] ordinal=2 server_id=v turn=1 verb=claim_evacuation'),
            ('+ ledger 2 consumer=v holds=[[4,1,"",1],[4,1,"f",3]] ordinal=4 server_id=v turn=1 verb=claim_evacuation'),
            "allocations v b VCPU used=1",
            "claim_fence v ordinal=4 outcome=returned",
            "consumers v generation=9 project_id=q user_id=bob",
            "inventories a VCPU marked",
            "inventories b VCPU used=7 marked",
            "resource_providers a generation=12 marked",
            "resource_providers b generation=42 marked",
            'returns {"type":"claimed","provider":"uuid-b","on_behalf_of":"f"}',
        },
    ),
    "evacuate, refused elsewhere, and return": (
        both(evacuated("v", at("a")), evacuated("v", at("x"), step=3), done(claims.return_evacuation, "v", "f")),
        {
            ('+ ledger 1 consumer=v holds=[[1,1,"",1],[4,1,"f",3]] ordinal=2 server_id=v turn=1 verb=claim_evacuation'),
            '+ ledger 2 consumer=v holds=[[4,1,"",3]] ordinal=9 server_id=v turn=1 verb=return_evacuation',
            "allocations v b VCPU",
            "claim_fence v ordinal=9 outcome=returned",
            "consumers v generation=9 project_id=q user_id=bob",
            "groups h",
            "inventories a VCPU marked",
            "resource_providers a generation=12 marked",
            "resource_providers b generation=42 marked",
            'returns {"type":"returned","returned":1,"dropped":1}',
        },
    ),
    "evacuate and return": (
        both(evacuated("v", at("a")), done(claims.return_evacuation, "v", "f")),
        {
            ('+ ledger 1 consumer=v holds=[[1,1,"",1],[4,1,"f",3]] ordinal=2 server_id=v turn=1 verb=claim_evacuation'),
            '+ ledger 2 consumer=v holds=[[4,1,"",3]] ordinal=9 server_id=v turn=1 verb=return_evacuation',
            "allocations v b VCPU",
            "claim_fence v ordinal=9 outcome=returned",
            "consumers v generation=9 project_id=q user_id=bob",
            "groups h",
            "inventories a VCPU marked",
            "resource_providers a generation=12 marked",
            "resource_providers b generation=42 marked",
            'returns {"type":"returned","returned":1,"dropped":1}',
        },
    ),
    "evacuate, of a group, and return": (
        both(evacuated("v", at("a"), group=GroupRule("h", "affinity")), done(claims.return_evacuation, "v", "f")),
        {
            ('+ ledger 1 consumer=v holds=[[1,1,"",1],[4,1,"f",3]] ordinal=2 server_id=v turn=1 verb=claim_evacuation'),
            '+ ledger 2 consumer=v holds=[[4,1,"",3]] ordinal=9 server_id=v turn=1 verb=return_evacuation',
            "allocations v b VCPU",
            "claim_fence v ordinal=9 outcome=returned",
            "consumers v generation=9 project_id=q user_id=bob",
            "groups h",
            "inventories a VCPU marked",
            "resource_providers a generation=12 marked",
            "resource_providers b generation=42 marked",
            'returns {"type":"returned","returned":1,"dropped":1}',
        },
    ),
    "evacuate what holds nothing, and return": (
        both(evacuated("new", at("a")), done(claims.return_evacuation, "new", "f")),
        {
            "+ claim_fence new ordinal=9 outcome=returned turn=1",
            '+ ledger 1 consumer=new holds=[[1,1,"",1]] ordinal=2 server_id=new turn=1 verb=claim_evacuation',
            "+ ledger 2 consumer=new holds=[] ordinal=9 server_id=new turn=1 verb=return_evacuation",
            "inventories a VCPU marked",
            "resource_providers a generation=12 marked",
            'returns {"type":"returned","returned":0,"dropped":1}',
        },
    ),
    "evacuate what holds nothing, twice": (
        both(evacuated("new", at("a")), evacuated("new", at("b"), step=3)),
        {
            "+ allocations new b VCPU used=1",
            "+ claim_fence new ordinal=3 outcome=returned turn=1",
            "+ consumers new generation=2 project_id=q user_id=bob",
            '+ ledger 1 consumer=new holds=[[1,1,"",1]] ordinal=2 server_id=new turn=1 verb=claim_evacuation',
            '+ ledger 2 consumer=new holds=[[4,1,"",1]] ordinal=3 server_id=new turn=1 verb=claim_evacuation',
            "inventories a VCPU marked",
            "inventories b VCPU used=7 marked",
            "resource_providers a generation=12 marked",
            "resource_providers b generation=41 marked",
            'returns {"type":"claimed","provider":"uuid-b","on_behalf_of":"f"}',
        },
    ),
    "return no evacuation": (
        done(claims.return_evacuation, "s", "f"),
        {
            "+ claim_fence s ordinal=9 outcome=returned turn=1",
            "groups g",
            "groups h",
            'returns {"type":"returned","returned":0,"dropped":0}',
        },
    ),
    "the source is clean": (
        lambda store: claims.drop_holder(store, "s", "e"),
        {
            '+ ledger 1 consumer=s holds=[[1,1,"",1],[2,2,"",10]] server_id=s verb=drop_holder',
            "- allocations s b VCPU e",
            "consumers s generation=8",
            "inventories b VCPU used=4 marked",
            "resource_providers b generation=41 marked",
            'returns {"type":"dropped","rows":1}',
        },
    ),
    "another source is clean": (
        lambda store: claims.drop_holder(store, "s", "f"),
        {'returns {"type":"dropped","rows":0}'},
    ),
    "no source is clean": (lambda store: claims.drop_holder(store, "s", ""), {'returns {"type":"dropped","rows":0}'}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_act_changes_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, CASES, name)
