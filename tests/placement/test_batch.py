"""Several servers claimed at once: all of them or none, whoever else is claiming."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kilonova.placement import claims
from kilonova.placement.batch import BatchMember, Outcomes, claim_many
from kilonova.placement.claims import Claimed, Fence, GroupRule, HostCandidate, NotClaimed
from kilonova.schema.tables.control import server_mappings
from kilonova.store import rows
from kilonova.store.open_stores import open_store
from kilonova.world import Store
from tests.placement.books import ROWS, SMALL, Books, provider_of
from tests.placement.neighbourhood import NOW, Act, Cases, StandingClock, assert_changes, play
from tests.placement.test_claims import APART, BY, at, both, fence
from tests.support.neighbours import zeros

Run = Callable[[Any], None]


def member(server: str, *hosts: str, ordinal: int = 1, size: Mapping[str, int] = SMALL) -> BatchMember:
    return BatchMember(Fence(server, 1, ordinal), tuple(HostCandidate(provider_of(host), dict(size)) for host in hosts))


async def claim(books: Books, *members: BatchMember, group: GroupRule | None = None) -> Outcomes:
    return await claim_many(books.store, members, project="lab", user="ada", group=group)


def places(outcomes: Outcomes) -> dict[str, str]:
    claimed = {server: one for server, one in outcomes.items() if isinstance(one, Claimed)}
    return {server: one.provider.removeprefix("provider-of-") for server, one in claimed.items()}


async def held(books: Books) -> set[str]:
    return {row["consumer"] for row in await books.all(ROWS)}


def test_each_gets_the_first_that_has_room_for_it_and_those_before_it(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=2)
        await books.host("b", vcpu=2)
        found = await claim(books, *(member(server, "a", "b") for server in ("s1", "s2", "s3")))
        assert places(found) == {"s1": "a", "s2": "a", "s3": "b"}
        assert await held(books) == {"s1", "s2", "s3"}
        await books.check()

    run(story)


def test_there_is_no_room_for_the_last_so_nobody_gets_any(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=2)
        members = [member(server, "a") for server in ("s1", "s2", "s3")]
        found = await claim(books, *members)
        assert set(found) == {"s1", "s2", "s3"} and all(isinstance(one, NotClaimed) for one in found.values())
        why = found["s3"]
        assert isinstance(why, NotClaimed) and why.sentence() == "provider provider-of-a: needs 1 VCPU, 0 free of 2"
        assert await held(books) == set()
        await books.host("b")
        assert await claim(books, *members) == found, "what was recorded is said again"
        again = [member(server, "a", "b", ordinal=3) for server in ("s1", "s2", "s3")]
        assert len(places(await claim(books, *again))) == 3

    run(story)


def test_asked_again_it_is_not_done_again(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=2)
        members = [member("s1", "a"), member("s2", "a")]
        assert await claim(books, *members) == await claim(books, *members)
        await books.check()

    run(story)


def test_who_was_deleted_meanwhile_is_left_out(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=2)
        await claims.release(books.store, Fence("s2", 2, 1), ["s2"])
        found = await claim(books, *(member(server, "a") for server in ("s1", "s2", "s3")))
        assert places(found) == {"s1": "a", "s3": "a"} and "s2" not in found
        assert await held(books) == {"s1", "s3"}

    run(story)


def test_a_group_is_kept_among_them(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        apart = GroupRule("g", "anti-affinity")
        found = await claim(books, member("s1", "a", "b"), member("s2", "a", "b"), group=apart)
        assert places(found) == {"s1": "a", "s2": "b"}
        refused = await claim(books, member("s3", "a", "b"), group=apart)
        assert places(refused) == {}
        together = GroupRule("t", "affinity")
        found = await claim(books, member("s4", "b", "a"), member("s5", "a", "b"), group=together)
        assert places(found) == {"s4": "b", "s5": "b"}

    run(story)


@pytest.mark.parametrize(("most", "expected"), [(1, "abc"), (2, "aabbc"), (3, "aaabbbccc")])
def test_members_that_come_together_count_each(run: Run, most: int, expected: str) -> None:
    """Also where more than one of them may be on a host."""

    async def story(books: Books) -> None:
        await books.hosts("a", "b", "c")
        rule = GroupRule("g", "anti-affinity", max_per_host=most)
        servers = [f"s{number}" for number in range(len(expected))]
        found = await claim(books, *(member(server, "a", "b", "c") for server in servers), group=rule)
        assert "".join(places(found)[server] for server in servers) == expected
        more = await claim(books, *(member(f"t{n}", "a", "b", "c") for n in range(3 * most)), group=rule)
        assert places(more) == {}, "the hosts have no seat for so many"

    run(story)


def test_soft_groups_and_affinity_count_members_that_come_together(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.hosts("a", "b")
        servers = [member(f"s{number}", *("ab" if number else "b")) for number in range(4)]
        together = await claim(books, *servers, group=GroupRule("t", "affinity"))
        assert set(places(together).values()) == {"b"} and len(places(together)) == 4

    run(story)


def test_batches_at_once_are_whole_or_not_at_all(run: Run) -> None:
    async def story(books: Books) -> None:
        await books.host("a", vcpu=5)
        await books.host("b", vcpu=5)

        def batch(number: int) -> Sequence[BatchMember]:
            first, second = ("a", "b") if number % 2 else ("b", "a")
            return [member(f"{number}-{n}", first, second) for n in range(3)]

        done = await asyncio.gather(*(claim(books, *batch(number)) for number in range(6)))
        whole = [number for number, found in enumerate(done) if len(places(found)) == 3]
        none = [number for number, found in enumerate(done) if not places(found)]
        assert sorted([*whole, *none]) == list(range(6)) and len(whole) == 3
        assert await held(books) == {f"{number}-{n}" for number in whole for n in range(3)}
        await books.check()

    run(story)


def claimed_together(
    *members: tuple[str, tuple[HostCandidate, ...]], step: int = 2, group: GroupRule | None = None
) -> Act:
    given = [BatchMember(fence(server, step), hosts) for server, hosts in members]

    async def act(store: Store) -> Any:
        return dict(sorted((await claim_many(store, given, group=group, **BY)).items()))

    return act


CASES: Cases = {
    "several": (
        claimed_together(("new", (at("x"), at("a"))), ("n2", (at("b", b1={"DISK_GB": 1}),)), group=APART),
        {
            "+ claim_fence n2 ordinal=2 outcome=returned turn=1",
            "+ claim_fence new ordinal=2 outcome=returned turn=1",
            (
                "returns "
                '{"n2":{"type":"not_claimed","refused":[{"provider":"uuid-b","reason":"group","sentence":"provider'
                " uuid-b: anti-affinity group g already has 1 there and allows "
                '1"}]},"new":{"type":"not_claimed","refused":[{"provider":"uuid-b","reason":"group","sentence":"provider'
                ' uuid-b: anti-affinity group g already has 1 there and allows 1"}]}}'
            ),
        },
    ),
    "several, apart": (
        claimed_together(("n1", (at("a"), at("b"))), ("n2", (at("a"), at("b"))), group=GroupRule("n", "anti-affinity")),
        {
            "+ allocations n1 a VCPU used=1",
            "+ allocations n2 b VCPU used=1",
            "+ claim_fence n1 ordinal=2 outcome=returned turn=1",
            "+ claim_fence n2 ordinal=2 outcome=returned turn=1",
            "+ consumers n1 generation=1 project_id=q user_id=bob",
            "+ consumers n2 generation=1 project_id=q user_id=bob",
            "+ group_use n n1 a",
            "+ group_use n n2 b",
            "+ groups n",
            '+ ledger 1 consumer=n1 holds=[[1,1,"",1]] ordinal=2 server_id=n1 turn=1 verb=claim',
            '+ ledger 2 consumer=n2 holds=[[4,1,"",1]] ordinal=2 server_id=n2 turn=1 verb=claim',
            "inventories a VCPU used=4 marked",
            "inventories b VCPU used=7 marked",
            "resource_providers a generation=11 marked",
            "resource_providers b generation=41 marked",
            (
                "returns "
                '{"n1":{"type":"claimed","provider":"uuid-a"},"n2":{"type":"claimed","provider":"uuid-b","refused":[{"provider":"uuid-a","reason":"group","sentence":"provider'
                ' uuid-a: anti-affinity group n already has 1 there and allows 1"}]}}'
            ),
        },
    ),
    "several, with too little for all": (
        claimed_together(("n1", (at("a"),)), ("t", (at("a", {"VCPU": 51}),))),
        {
            "+ claim_fence n1 ordinal=2 outcome=returned turn=1",
            "claim_fence t ordinal=2 outcome=returned",
            (
                "returns "
                '{"n1":{"type":"not_claimed","refused":[{"provider":"uuid-a","reason":"wrong_unit","sentence":"provider'
                " uuid-a: VCPU 51 is more than one consumer may hold, "
                '50","resource_class":"VCPU","wanted":51,"used":4,"capacity":192}]},"t":{"type":"not_claimed","refused":[{"provider":"uuid-a","reason":"wrong_unit","sentence":"provider'
                " uuid-a: VCPU 51 is more than one consumer may hold, "
                '50","resource_class":"VCPU","wanted":51,"used":4,"capacity":192}]}}'
            ),
        },
    ),
    "several, again": (
        both(claimed_together(("n1", (at("a"),))), claimed_together(("n1", (at("b"),)), ("n2", (at("b"),)))),
        {
            "+ allocations n1 a VCPU used=1",
            "+ allocations n2 b VCPU used=1",
            "+ claim_fence n1 ordinal=2 outcome=returned turn=1",
            "+ claim_fence n2 ordinal=2 outcome=returned turn=1",
            "+ consumers n1 generation=1 project_id=q user_id=bob",
            "+ consumers n2 generation=1 project_id=q user_id=bob",
            '+ ledger 1 consumer=n1 holds=[[1,1,"",1]] ordinal=2 server_id=n1 turn=1 verb=claim',
            '+ ledger 2 consumer=n2 holds=[[4,1,"",1]] ordinal=2 server_id=n2 turn=1 verb=claim',
            "inventories a VCPU used=4 marked",
            "inventories b VCPU used=7 marked",
            "resource_providers a generation=11 marked",
            "resource_providers b generation=41 marked",
            'returns {"n1":{"type":"claimed","provider":"uuid-a"},"n2":{"type":"claimed","provider":"uuid-b"}}',
        },
    ),
    "several, one of which has gone on": (
        claimed_together(("n1", (at("b"),)), ("t", (at("b"),)), step=0),
        {
            "+ allocations n1 b VCPU used=1",
            "+ claim_fence n1 ordinal=0 outcome=returned turn=1",
            "+ consumers n1 generation=1 project_id=q user_id=bob",
            '+ ledger 1 consumer=n1 holds=[[4,1,"",1]] ordinal=0 server_id=n1 turn=1 verb=claim',
            "inventories b VCPU used=7 marked",
            "resource_providers b generation=41 marked",
            'returns {"n1":{"type":"claimed","provider":"uuid-b"}}',
        },
    ),
    "several, one of which has just begun": (
        claimed_together(("n1", (at("b"),)), ("t", (at("b"),)), step=1),
        {
            "+ allocations n1 b VCPU used=1",
            "+ claim_fence n1 ordinal=1 outcome=returned turn=1",
            "+ consumers n1 generation=1 project_id=q user_id=bob",
            '+ ledger 1 consumer=n1 holds=[[4,1,"",1]] ordinal=1 server_id=n1 turn=1 verb=claim',
            "claim_fence t outcome=returned",
            "claim_fence v outcome=returned",
            "inventories b VCPU used=7 marked",
            "resource_providers b generation=41 marked",
            'returns {"n1":{"type":"claimed","provider":"uuid-b"},"t":{"type":"claimed","provider":"before"}}',
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_act_changes_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, CASES, name)


HOURS = 7 * 3600.0  # so old a mapping may have been purged with the fence


@pytest.mark.parametrize("mapped_at", [0.0, NOW - HOURS, NOW - 1.0])
def test_only_servers_that_are_still_mapped_are_claimed(tmp_path: Path, mapped_at: float) -> None:
    """Where a server has no fence, and its mapping was seen long ago, control is asked again."""

    async def story(store: Store) -> None:
        control = await open_store("control", f"sqlite:///{tmp_path}/control.db", clock=StandingClock())
        try:
            mapping = zeros(server_mappings, server_id="here", cell="cell1", project_id="p", user_id="u")
            await control.write(lambda tx: rows.put(tx, server_mappings, **mapping))
            members = [
                BatchMember(Fence(server, 1, 2, control, mapped_at), (at("b"),)) for server in ("here", "purged", "t")
            ]
            outcomes = await claim_many(store, members, **BY)
            may_be_purged = {"purged"} if NOW - mapped_at > HOURS - 1 else set()
            assert outcomes.keys() == {"here", "purged", "t"} - may_be_purged - ({"t"} if may_be_purged else set())
            assert isinstance(outcomes["here"], Claimed)
        finally:
            await control.close()

    play(tmp_path, story)
