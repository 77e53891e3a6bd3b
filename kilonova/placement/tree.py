"""Trees of providers: one is put below another, or becomes a root; the root of everything below it changes with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, select, update

from kilonova.domain.errors import Refused
from kilonova.schema.tables.placement import resource_providers
from kilonova.store.statements import Sql, in_list
from kilonova.world import Tx


class _AsItIs:
    """The type of the one value that says "leave the parent alone"; None says "no parent"."""


AS_IT_IS: Final = _AsItIs()
NewParent = str | _AsItIs | None

_COLUMNS = (resource_providers.c.id, resource_providers.c.uuid, resource_providers.c.root_id)
READ_ROOTS = Sql(select(*_COLUMNS).where(in_list(resource_providers.c.uuid, "uuids")))
LOCK_TREES = Sql(
    select(*_COLUMNS, resource_providers.c.parent_id)
    .where(in_list(resource_providers.c.root_id, "roots"))
    .order_by(resource_providers.c.id)
    .with_for_update()
)
READ_PARENT = Sql(select(*_COLUMNS).where(resource_providers.c.uuid == bindparam("uuid")))
READ_TREE_OF = Sql(
    select(resource_providers.c.id, resource_providers.c.parent_id, resource_providers.c.root_id).where(
        resource_providers.c.root_id.in_(
            select(resource_providers.c.root_id).where(resource_providers.c.id == bindparam("provider"))
        )
    )
)
SET_PARENT = Sql(
    update(resource_providers)
    .where(resource_providers.c.id == bindparam("provider"))
    .values(parent_id=bindparam("new_parent"))
)
SET_ROOT = Sql(
    update(resource_providers)
    .where(in_list(resource_providers.c.id, "ids"))
    .values(root_id=bindparam("new_root"), mark=bindparam("mark"), updated_at=bindparam("updated_at"))
)


async def lock_trees(tx: Tx, uuids: Sequence[str]) -> None:
    """Lock every provider in the trees of these. Afterwards none can be added: that locks the parent first.

    Read again until nothing is new: a child may have been added, or a tree moved, while this call waited.
    """
    before: set[tuple[int, int]] = set()
    while True:
        roots = sorted({row["root_id"] for row in await tx.all(READ_ROOTS, uuids=list(uuids))})
        locked = {(row["id"], row["root_id"]) for row in await tx.all(LOCK_TREES, roots=roots)}
        if locked == before:
            return
        before = locked


async def put_below(tx: Tx, provider: int, parent: NewParent, *, may_move: bool) -> None:
    """Set the parent of a provider. The caller has locked the trees."""
    family = await tx.all(READ_TREE_OF, provider=provider)
    parents: dict[int, int | None] = {row["id"]: row["parent_id"] for row in family}
    if parent is None:
        if parents[provider] is None:
            return
        if not may_move:
            raise _refused("un-parenting a provider is not currently allowed.")
        await _set_parent(tx, provider, None, provider, parents)
        return
    above = await tx.one(READ_PARENT, uuid=parent)
    if above is None:
        raise no_parent(str(parent))
    if parents[provider] == above["id"]:
        return
    if parents[provider] is not None and not may_move:
        raise _refused("re-parenting a provider is not currently allowed.")
    if above["id"] in below(provider, parents):
        raise _refused("creating loop in the provider tree is not allowed.")
    await _set_parent(tx, provider, above["id"], above["root_id"], parents)


def below(provider: int, parents: dict[int, int | None]) -> set[int]:
    """Return the provider and all its descendants."""
    children: dict[int | None, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    descendants, waiting = set[int](), [provider]
    while waiting:
        one = waiting.pop()
        descendants.add(one)
        waiting += children.get(one, [])
    return descendants


def no_parent(uuid: str) -> Refused:
    return _refused(f"parent provider UUID does not exist: {uuid[:60]}")


def _refused(why: str) -> Refused:
    return Refused("bad_parent", why)


async def _set_parent(tx: Tx, provider: int, parent: int | None, root: int, parents: dict[int, int | None]) -> None:
    ids = sorted(below(provider, parents))
    await tx.run(SET_PARENT, provider=provider, new_parent=parent)
    await tx.run(SET_ROOT, ids=ids, new_root=root, mark=await tx.mark(), updated_at=await tx.now())
