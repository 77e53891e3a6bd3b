"""The verbs of a claim: which rows each changes, its outcome, and what it leaves to others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kilonova.placement import claims
from kilonova.placement.claims import Fence, GroupRule, HostCandidate
from tests.placement.neighbourhood import (
    Act,
    Cases,
    assert_changes,
    one_after_the_other,
    uuid,
)

BY: Any = {"project": "q", "user": "bob"}
APART, TOGETHER = GroupRule("g", "anti-affinity"), GroupRule("g", "affinity")


def at(host: str, amounts: dict[str, int] | None = None, **others: dict[str, int]) -> HostCandidate:
    return HostCandidate(uuid(host), amounts or {"VCPU": 1}, {uuid(name): of for name, of in others.items()})


def fence(server: str, step: int = 2) -> Fence:
    return Fence(server, 1, step)


def claimed(server: str, *hosts: HostCandidate, step: int = 2, group: GroupRule | None = None) -> Act:
    return lambda store: claims.claim(store, fence(server, step), hosts, group=group, **BY)


def moved(server: str, *hosts: HostCandidate, step: int = 2, group: GroupRule | None = None) -> Act:
    return lambda store: claims.claim_move(store, fence(server, step), "m", hosts, group=group, **BY)


def done(verb: Any, server: str, *args: Any, step: int = 9) -> Act:
    return lambda store: verb(store, fence(server, step), *args)


def both(*acts: Act) -> Act:
    return one_after_the_other(*acts)


CASES: Cases = {
    "claim, of a new server": (
        claimed("new", at("a"), group=APART),
        {
            "+ claim_fence new ordinal=2 outcome=returned turn=1",
            "groups g",
            (
                "returns "
                '{"type":"not_claimed","refused":[{"provider":"uuid-a","reason":"group","sentence":"provider '
                'uuid-a: anti-affinity group g already has 1 there and allows 1"}]}'
            ),
        },
    ),
    "claim again elsewhere, beside an evacuation": (
        claimed("s", at("b", a2={}), group=TOGETHER),
        {
            "+ allocations s b VCPU used=1",
            "+ claim_fence s ordinal=2 outcome=returned turn=1",
            "+ group_use g s b",
            '+ ledger 1 consumer=s holds=[[4,1,"",1],[4,1,"e",2]] ordinal=2 server_id=s turn=1 verb=claim',
            "- allocations s a VCPU",
            "- allocations s a1 DISK_GB",
            "- group_use g s a",
            "consumers s generation=8 project_id=q user_id=bob",
            "groups g",
            "inventories a VCPU used=2 marked",
            "inventories a1 DISK_GB used=0 marked",
            "inventories b VCPU used=7 marked",
            "resource_providers a generation=11 marked",
            "resource_providers a1 generation=21 marked",
            "resource_providers b generation=41 marked",
            'returns {"type":"claimed","provider":"uuid-b"}',
        },
    ),
    "claim where a member is": (
        claimed("s", at("b"), group=APART),
        {
            "+ claim_fence s ordinal=2 outcome=returned turn=1",
            "groups g",
            (
                "returns "
                '{"type":"not_claimed","refused":[{"provider":"uuid-b","reason":"group","sentence":"provider '
                'uuid-b: anti-affinity group g already has 1 there and allows 1"}]}'
            ),
        },
    ),
    "claim where no member is": (
        claimed("s", at("a"), group=TOGETHER),
        {
            "+ claim_fence s ordinal=2 outcome=returned turn=1",
            "groups g",
            (
                "returns "
                '{"type":"not_claimed","refused":[{"provider":"uuid-a","reason":"group","sentence":"provider '
                'uuid-a: affinity group g has its servers elsewhere"}]}'
            ),
        },
    ),
    "claim beside a member on a dead host": (
        claimed("new", at("b"), group=GroupRule("g", "anti-affinity", dead_host="b")),
        {
            "+ allocations new b VCPU used=1",
            "+ claim_fence new ordinal=2 outcome=returned turn=1",
            "+ consumers new generation=1 project_id=q user_id=bob",
            "+ group_use g new b",
            '+ ledger 1 consumer=new holds=[[4,1,"",1]] ordinal=2 server_id=new turn=1 verb=claim',
            "groups g",
            "inventories b VCPU used=7 marked",
            "resource_providers b generation=41 marked",
            'returns {"type":"claimed","provider":"uuid-b"}',
        },
    ),
    "claim more than one may have": (
        claimed("v", at("b", {"VCPU": 1, "DISK_GB": 1}), at("a", a1={"DISK_GB": 60})),
        {
            "claim_fence v ordinal=2 outcome=returned",
            (
                "returns "
                '{"type":"not_claimed","refused":[{"provider":"uuid-b","reason":"no_inventory","sentence":"provider'
                " uuid-b has no "
                'DISK_GB","resource_class":"DISK_GB","wanted":1},{"provider":"uuid-a1","reason":"wrong_unit","sentence":"provider'
                " uuid-a1: DISK_GB 60 is more than one consumer may hold, "
                '50","resource_class":"DISK_GB","wanted":60,"used":10,"capacity":192}]}'
            ),
        },
    ),
    "claim, the second host is free": (
        claimed("new", at("x"), at("b", {"VCPU": 99}), at("b")),
        {
            "+ allocations new b VCPU used=1",
            "+ claim_fence new ordinal=2 outcome=returned turn=1",
            "+ consumers new generation=1 project_id=q user_id=bob",
            '+ ledger 1 consumer=new holds=[[4,1,"",1]] ordinal=2 server_id=new turn=1 verb=claim',
            "inventories b VCPU used=7 marked",
            "resource_providers b generation=41 marked",
            (
                "returns "
                '{"type":"claimed","provider":"uuid-b","refused":[{"provider":"uuid-x","reason":"no_such_provider","sentence":"there'
                ' is no provider uuid-x"},{"provider":"uuid-b","reason":"wrong_unit","sentence":"provider uuid-b:'
                " VCPU 99 is more than one consumer may hold, "
                '50","resource_class":"VCPU","wanted":99,"used":6,"capacity":192}]}'
            ),
        },
    ),
    "claim twice": (
        both(claimed("new", at("a")), claimed("new", at("b"))),
        {
            "+ allocations new a VCPU used=1",
            "+ claim_fence new ordinal=2 outcome=returned turn=1",
            "+ consumers new generation=1 project_id=q user_id=bob",
            '+ ledger 1 consumer=new holds=[[1,1,"",1]] ordinal=2 server_id=new turn=1 verb=claim',
            "inventories a VCPU used=4 marked",
            "resource_providers a generation=11 marked",
            'returns {"type":"claimed","provider":"uuid-a"}',
        },
    ),
    "move": (
        moved("v", at("a"), group=GroupRule("h", "anti-affinity")),
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
    "move on the same host": (
        moved("v", at("b"), group=GroupRule("h", "anti-affinity")),
        {
            "+ allocations m b VCPU used=3",
            "+ consumers m generation=1 project_id=q user_id=bob",
            '+ ledger 1 consumer=m holds=[[4,1,"",3]] ordinal=2 server_id=v turn=1 verb=claim_move',
            '+ ledger 2 consumer=v holds=[[4,1,"",1]] ordinal=2 server_id=v turn=1 verb=claim_move',
            "allocations v b VCPU used=1",
            "claim_fence v ordinal=2 outcome=returned",
            "consumers v generation=8 project_id=q user_id=bob",
            "groups h",
            "inventories b VCPU used=7 marked",
            "resource_providers b generation=41 marked",
            'returns {"type":"claimed","provider":"uuid-b","on_behalf_of":"m"}',
        },
    ),
    "move to another destination": (
        both(moved("v", at("a")), moved("v", at("b"), step=3)),
        {
            "+ allocations m b VCPU used=3",
            "+ consumers m generation=2 project_id=q user_id=bob",
            '+ ledger 1 consumer=m holds=[[4,1,"",3]] ordinal=2 server_id=v turn=1 verb=claim_move',
            '+ ledger 2 consumer=v holds=[[1,1,"",1]] ordinal=2 server_id=v turn=1 verb=claim_move',
            '+ ledger 3 consumer=v holds=[[4,1,"",1]] ordinal=3 server_id=v turn=1 verb=claim_move',
            "allocations v b VCPU used=1",
            "claim_fence v ordinal=3 outcome=returned",
            "consumers v generation=9 project_id=q user_id=bob",
            "inventories a VCPU marked",
            "inventories b VCPU used=7 marked",
            "resource_providers a generation=12 marked",
            "resource_providers b generation=42 marked",
            'returns {"type":"claimed","provider":"uuid-b","on_behalf_of":"m"}',
        },
    ),
    "move, refused elsewhere, and another destination": (
        both(moved("v", at("a")), moved("v", at("x"), step=3), moved("v", at("b"), step=4)),
        {
            "+ allocations m b VCPU used=3",
            "+ consumers m generation=2 project_id=q user_id=bob",
            '+ ledger 1 consumer=m holds=[[4,1,"",3]] ordinal=2 server_id=v turn=1 verb=claim_move',
            '+ ledger 2 consumer=v holds=[[1,1,"",1]] ordinal=2 server_id=v turn=1 verb=claim_move',
            '+ ledger 3 consumer=v holds=[[4,1,"",1]] ordinal=4 server_id=v turn=1 verb=claim_move',
            "allocations v b VCPU used=1",
            "claim_fence v ordinal=4 outcome=returned",
            "consumers v generation=9 project_id=q user_id=bob",
            "inventories a VCPU marked",
            "inventories b VCPU used=7 marked",
            "resource_providers a generation=12 marked",
            "resource_providers b generation=42 marked",
            'returns {"type":"claimed","provider":"uuid-b","on_behalf_of":"m"}',
        },
    ),
    "move, refused elsewhere, and return": (
        both(moved("v", at("a")), moved("v", at("x"), step=3), done(claims.return_move, "v", "m")),
        {
            '+ ledger 1 consumer=m holds=[[4,1,"",3]] ordinal=2 server_id=v turn=1 verb=claim_move',
            '+ ledger 2 consumer=v holds=[[1,1,"",1]] ordinal=2 server_id=v turn=1 verb=claim_move',
            "+ ledger 3 consumer=m holds=[] ordinal=9 server_id=v turn=1 verb=return_move",
            '+ ledger 4 consumer=v holds=[[4,1,"",3]] ordinal=9 server_id=v turn=1 verb=return_move',
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
    "move, of a group, and return": (
        both(moved("v", at("a"), group=GroupRule("h", "affinity")), done(claims.return_move, "v", "m")),
        {
            '+ ledger 1 consumer=m holds=[[4,1,"",3]] ordinal=2 server_id=v turn=1 verb=claim_move',
            '+ ledger 2 consumer=v holds=[[1,1,"",1]] ordinal=2 server_id=v turn=1 verb=claim_move',
            "+ ledger 3 consumer=m holds=[] ordinal=9 server_id=v turn=1 verb=return_move",
            '+ ledger 4 consumer=v holds=[[4,1,"",3]] ordinal=9 server_id=v turn=1 verb=return_move',
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
    "move, of a group, and confirm": (
        both(moved("v", at("a"), group=GroupRule("h", "affinity")), done(claims.drop_move, "v", "m")),
        {
            "+ allocations v a VCPU used=1",
            "+ group_use h v a",
            '+ ledger 1 consumer=m holds=[[4,1,"",3]] ordinal=2 server_id=v turn=1 verb=claim_move',
            '+ ledger 2 consumer=v holds=[[1,1,"",1]] ordinal=2 server_id=v turn=1 verb=claim_move',
            "+ ledger 3 consumer=m holds=[] ordinal=9 server_id=v turn=1 verb=drop_move",
            "- allocations v b VCPU",
            "- group_use h v b",
            "claim_fence v ordinal=9 outcome=returned",
            "consumers v generation=8 project_id=q user_id=bob",
            "groups h",
            "inventories a VCPU used=4 marked",
            "inventories b VCPU used=3 marked",
            "resource_providers a generation=11 marked",
            "resource_providers b generation=42 marked",
            'returns {"type":"dropped","rows":1}',
        },
    ),
    "move, and the source is gone": (
        both(
            moved("v", at("a"), group=GroupRule("h", "affinity")),
            lambda store: claims.drop_source(store, "v", "m"),
        ),
        {
            "+ allocations v a VCPU used=1",
            "+ group_use h v a",
            '+ ledger 1 consumer=m holds=[[4,1,"",3]] ordinal=2 server_id=v turn=1 verb=claim_move',
            '+ ledger 2 consumer=v holds=[[1,1,"",1]] ordinal=2 server_id=v turn=1 verb=claim_move',
            "+ ledger 3 consumer=m holds=[] server_id=v verb=drop_source",
            "- allocations v b VCPU",
            "- group_use h v b",
            'claim_fence v ordinal=2 outcome={"type":"claimed","provider":"uuid-a","on_behalf_of":"m"}',
            "consumers v generation=8 project_id=q user_id=bob",
            "groups h",
            "inventories a VCPU used=4 marked",
            "inventories b VCPU used=3 marked",
            "resource_providers a generation=11 marked",
            "resource_providers b generation=42 marked",
            'returns {"type":"dropped","rows":1}',
        },
    ),
    "no move, and the source is gone": (
        lambda store: claims.drop_source(store, "v", "m"),
        {"groups h", 'returns {"type":"dropped","rows":0}'},
    ),
    "return no move": (
        done(claims.return_move, "v", "m"),
        {
            "claim_fence v ordinal=9 outcome=returned",
            "groups h",
            'returns {"type":"returned","returned":0,"dropped":0}',
        },
    ),
    "confirm no move": (
        done(claims.drop_move, "v", "m"),
        {"claim_fence v ordinal=9 outcome=returned", "groups h", 'returns {"type":"dropped","rows":0}'},
    ),
    "move of a server that holds nothing": (
        moved("new", at("a")),
        {
            "+ allocations new a VCPU used=1",
            "+ claim_fence new ordinal=2 outcome=returned turn=1",
            "+ consumers new generation=1 project_id=q user_id=bob",
            '+ ledger 1 consumer=new holds=[[1,1,"",1]] ordinal=2 server_id=new turn=1 verb=claim_move',
            "inventories a VCPU used=4 marked",
            "resource_providers a generation=11 marked",
            'returns {"type":"claimed","provider":"uuid-a","on_behalf_of":"m"}',
        },
    ),
    "move of a server that holds nothing, and return": (
        both(moved("new", at("a")), done(claims.return_move, "new", "m")),
        {
            "+ claim_fence new ordinal=9 outcome=returned turn=1",
            '+ ledger 1 consumer=new holds=[[1,1,"",1]] ordinal=2 server_id=new turn=1 verb=claim_move',
            "+ ledger 2 consumer=new holds=[] ordinal=9 server_id=new turn=1 verb=return_move",
            "inventories a VCPU marked",
            "resource_providers a generation=12 marked",
            'returns {"type":"returned","returned":0,"dropped":1}',
        },
    ),
    "move of a server that holds nothing, twice": (
        both(moved("new", at("a")), moved("new", at("b"), step=3)),
        {
            "+ allocations new b VCPU used=1",
            "+ claim_fence new ordinal=3 outcome=returned turn=1",
            "+ consumers new generation=2 project_id=q user_id=bob",
            '+ ledger 1 consumer=new holds=[[1,1,"",1]] ordinal=2 server_id=new turn=1 verb=claim_move',
            '+ ledger 2 consumer=new holds=[[4,1,"",1]] ordinal=3 server_id=new turn=1 verb=claim_move',
            "inventories a VCPU marked",
            "inventories b VCPU used=7 marked",
            "resource_providers a generation=12 marked",
            "resource_providers b generation=41 marked",
            'returns {"type":"claimed","provider":"uuid-b","on_behalf_of":"m"}',
        },
    ),
    "release": (
        done(claims.release, "s", ["s", "t"]),
        {
            "+ claim_fence s ordinal=9 outcome=returned turn=1",
            "+ ledger 1 consumer=s holds=[] ordinal=9 server_id=s turn=1 verb=release",
            "+ ledger 2 consumer=t holds=[] ordinal=9 server_id=s turn=1 verb=release",
            "- allocations s a VCPU",
            "- allocations s a1 DISK_GB",
            "- allocations s b VCPU e",
            "- allocations t a CUSTOM_IRON",
            "- allocations t a VCPU",
            "- consumers s",
            "- consumers t",
            "- group_use g s a",
            "- group_use h s a",
            "groups g",
            "groups h",
            "inventories a CUSTOM_IRON used=0 marked",
            "inventories a VCPU used=0 marked",
            "inventories a1 DISK_GB used=0 marked",
            "inventories b VCPU used=4 marked",
            "resource_providers a generation=11 marked",
            "resource_providers a1 generation=21 marked",
            "resource_providers b generation=41 marked",
            'returns {"type":"released","consumers":2,"rows":5}',
        },
    ),
    "release nothing": (
        done(claims.release, "new", ["new", "m"]),
        {"+ claim_fence new ordinal=9 outcome=returned turn=1", 'returns {"type":"released","consumers":0,"rows":0}'},
    ),
    "claim too late": (
        claimed("t", at("b"), step=0),
        {"Superseded: server t: placement has already seen turn 1 step 1, turn 1 step 0 comes too late"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_act_changes_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, CASES, name)
