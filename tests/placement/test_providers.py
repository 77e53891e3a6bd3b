"""Providers and their trees: what each write changes, to the row; neighbours stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.placement import providers, removal
from kilonova.placement.providers import Provider
from kilonova.placement.tree import AS_IT_IS, NewParent
from kilonova.world import Store
from tests.placement.neighbourhood import Act, Cases, assert_changes, one_after_the_other, uuid


def shown(provider: Provider) -> str:
    return " ".join(
        [provider.uuid, provider.name, str(provider.generation), str(provider.parent_uuid), provider.root_uuid]
    )


def created(name: str, parent: str | None, number: str = "") -> Act:
    async def act(store: Store) -> str:
        return shown(await providers.create(store, uuid(number or name), name, parent))

    return act


def changed(provider: str, name: str, parent: NewParent = AS_IT_IS, *, may_move: bool = True) -> Act:
    async def act(store: Store) -> str:
        return shown(await providers.change(store, uuid(provider), name, parent, may_move=may_move))

    return act


async def found(store: Store, name: str) -> str:
    return shown(await providers.read(store, uuid(name)))


def removed(name: str) -> Act:
    return lambda store: removal.remove_provider(store, uuid(name))


WRITES: Cases = {
    "create a root": (
        created("new", None),
        {
            "+ resource_providers new accepting=1 generation=0 name=new root_id=new",
            'returns "uuid-new new 0 None uuid-new"',
        },
    ),
    "create a child": (
        created("new", uuid("a1")),
        {
            "+ resource_providers new accepting=1 generation=0 name=new parent_id=2 root_id=a",
            'returns "uuid-new new 0 uuid-a1 uuid-a"',
        },
    ),
    "create its own child": (
        created("new", uuid("new")),
        {"refused bad_parent: parent provider UUID cannot be same as UUID; leave the parent out for a root"},
    ),
    "create a child of nobody": (created("new", "x"), {"refused bad_parent: parent provider UUID does not exist: x"}),
    "create with a name that is taken": (
        created("a", None, "new"),
        {"refused duplicate_name: Conflicting resource provider name: a already exists."},
    ),
    "create with a uuid that is taken": (
        created("new", None, "b"),
        {"refused duplicate_name: Conflicting resource provider uuid: uuid-b already exists."},
    ),
    "create with both taken, by others": (
        created("a", None, "b"),
        {"refused duplicate_name: Conflicting resource provider uuid: uuid-b, name: a already exists."},
    ),
    "rename": (
        changed("a1", "new"),
        {"resource_providers a1 name=new marked", 'returns "uuid-a1 new 20 uuid-a uuid-a"'},
    ),
    "rename to itself": (
        changed("a1", "a1"),
        {"resource_providers a1 marked", 'returns "uuid-a1 a1 20 uuid-a uuid-a"'},
    ),
    "rename to another": (
        changed("a1", "b"),
        {"refused duplicate_name: Conflicting resource provider b already exists."},
    ),
    "rename nobody": (changed("x", "new"), {"refused no_such_provider: No resource provider with uuid uuid-x found"}),
    "put below the other tree": (
        changed("a1", "a1", uuid("b1")),
        {
            "resource_providers a1 parent_id=5 root_id=b marked",
            "resource_providers a2 root_id=b marked",
            'returns "uuid-a1 a1 20 uuid-b1 uuid-b"',
        },
    ),
    "put a whole tree below the other": (
        changed("b", "new", uuid("a2")),
        {
            "resource_providers b name=new parent_id=3 root_id=a marked",
            "resource_providers b1 root_id=a marked",
            'returns "uuid-b new 40 uuid-a2 uuid-a"',
        },
    ),
    "put one that had no parent below the other": (
        changed("b", "b", uuid("a"), may_move=False),
        {
            "resource_providers b parent_id=1 root_id=a marked",
            "resource_providers b1 root_id=a marked",
            'returns "uuid-b b 40 uuid-a uuid-a"',
        },
    ),
    "put below the same": (
        changed("a1", "a1", uuid("a"), may_move=False),
        {"resource_providers a1 marked", 'returns "uuid-a1 a1 20 uuid-a uuid-a"'},
    ),
    "put below itself": (
        changed("a1", "a1", uuid("a1")),
        {"refused bad_parent: creating loop in the provider tree is not allowed."},
    ),
    "put below its child": (
        changed("a", "a", uuid("a2")),
        {"refused bad_parent: creating loop in the provider tree is not allowed."},
    ),
    "put below nobody": (changed("a1", "a1", "x"), {"refused bad_parent: parent provider UUID does not exist: x"}),
    "move, which older clients may not": (
        changed("a1", "a1", uuid("b"), may_move=False),
        {"refused bad_parent: re-parenting a provider is not currently allowed."},
    ),
    "make a root": (
        changed("a1", "a1", None),
        {
            "resource_providers a1 parent_id=None root_id=a1 marked",
            "resource_providers a2 root_id=a1 marked",
            'returns "uuid-a1 a1 20 None uuid-a1"',
        },
    ),
    "make a root of a root": (
        changed("a", "a", None, may_move=False),
        {"resource_providers a marked", 'returns "uuid-a a 10 None uuid-a"'},
    ),
    "make a root, which older clients may not": (
        changed("a1", "a1", None, may_move=False),
        {"refused bad_parent: un-parenting a provider is not currently allowed."},
    ),
    "remove": (removed("a2"), {"+ removed_providers a2", "- resource_providers a2", "returns true"}),
    "remove one with claims": (
        removed("b1"),
        {"refused provider_in_use: provider uuid-b1 still holds claims of 1 consumers"},
    ),
    "remove one with children": (
        removed("b"),
        {"refused provider_has_children: provider uuid-b has 1 providers below it"},
    ),
    "remove nobody": (removed("x"), {"returns false"}),
    "remove and create": (
        one_after_the_other(removed("a2"), created("a2", None), removed("a2")),
        {"+ removed_providers a2", "- resource_providers a2", "returns true"},
    ),
}
READS: Cases = {
    "a root": (lambda store: found(store, "a"), {'returns "uuid-a a 10 None uuid-a"'}),
    "a child": (lambda store: found(store, "a2"), {'returns "uuid-a2 a2 30 uuid-a1 uuid-a"'}),
    "nobody": (
        lambda store: found(store, "x"),
        {"refused no_such_provider: No resource provider with uuid uuid-x found"},
    ),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_sees_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, READS, name)


@pytest.mark.parametrize("name", WRITES)
def test_a_write_changes_these_rows_and_no_others(tmp_path: Path, name: str) -> None:
    assert_changes(tmp_path, WRITES, name)
