"""Traits: which there are, and which a provider has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import bindparam, delete, exists, select
from sqlalchemy.dialects.postgresql import insert as insert_unless_there

from kilonova.domain.errors import Conflict, Refused
from kilonova.placement import ledger, providers
from kilonova.placement.inventories import LOCK_PROVIDER
from kilonova.placement.names import is_standard_trait, standard_traits, unknown_traits
from kilonova.placement.providers import Provider
from kilonova.schema.tables.placement import provider_traits, resource_providers, traits
from kilonova.store.statements import Sql, in_list
from kilonova.world import Store, Tx

DISABLED = "COMPUTE_STATUS_DISABLED"
REPORTED = ("COMPUTE_", "HW_ARCH_")  # prefixes of the names that only a host's driver sets
REPORTED_BY_SOME = ("HW_CPU_X86_", "CUSTOM_KILONOVA_")  # the same, of a driver that reports one of these
READ_ALL = Sql(select(traits.c.name))
READ_IDS = Sql(select(traits.c.id, traits.c.name).where(in_list(traits.c.name, "names")))
# Locked so that no trait is deleted while another transaction is about to give it to a provider.
SHARE = Sql(select(traits.c.id).where(in_list(traits.c.name, "names")).order_by(traits.c.id).with_for_update(read=True))
LOCK = Sql(select(traits.c.id).where(traits.c.name == bindparam("name")).with_for_update())
INSERT = Sql(insert_unless_there(traits).values(name=bindparam("name")).on_conflict_do_nothing())
DELETE = Sql(delete(traits).where(traits.c.id == bindparam("trait")))
IS_USED = Sql(select(exists().where(provider_traits.c.trait_id == bindparam("trait")).label("used")))
READ_USED = Sql(select(traits.c.name).where(traits.c.id.in_(select(provider_traits.c.trait_id))))
READ_OF_PROVIDER = Sql(
    select(traits.c.id, traits.c.name)
    .join(provider_traits, provider_traits.c.trait_id == traits.c.id)
    .where(provider_traits.c.provider_id == bindparam("provider"))
    .order_by(traits.c.name)
)
HAS_TRAIT = Sql(
    select(traits.c.id)
    .join(provider_traits, provider_traits.c.trait_id == traits.c.id)
    .join(resource_providers, resource_providers.c.id == provider_traits.c.provider_id)
    .where(resource_providers.c.name == bindparam("provider"), traits.c.name == bindparam("trait"))
)
GIVE = Sql(
    insert_unless_there(provider_traits)
    .values(provider_id=bindparam("provider"), trait_id=bindparam("trait"))
    .on_conflict_do_nothing()
)
TAKE = Sql(
    delete(provider_traits).where(
        provider_traits.c.provider_id == bindparam("provider"), provider_traits.c.trait_id == bindparam("trait")
    )
)


async def trait_ids(tx: Tx, names: Iterable[str]) -> dict[str, int]:
    """Return the ids of existing names: standard, or created before. They stay until this transaction ends."""
    wanted = sorted(set(names))
    if unknown := await unknown_traits(tx, wanted):
        raise Refused("unknown_trait", f"No such trait {', '.join(unknown)[:300]}")
    ids = await _ids(tx, wanted)
    if missing := [name for name in wanted if name not in ids]:
        await tx.many(INSERT, [{"name": name} for name in missing])
        ids = await _ids(tx, wanted)  # another transaction may have inserted them first
    if len(await tx.all(SHARE, names=wanted)) < len(wanted):
        raise Conflict("a trait was deleted concurrently")
    return ids


async def _ids(tx: Tx, names: Sequence[str]) -> dict[str, int]:
    return {row["name"]: row["id"] for row in await tx.all(READ_IDS, names=names)}


# -- the traits themselves --------------------------------------------------------------------------------------------


async def has_trait(store: Store, provider: str, name: str) -> bool:
    """Return whether the provider of this name has the trait."""
    return await store.ask(HAS_TRAIT, provider=provider, trait=name) is not None


async def list_traits(store: Store, *, associated: bool | None = None) -> list[str]:
    """Return all traits, or only those that a provider has, or only those that none has."""

    async def body(tx: Tx) -> tuple[set[str], set[str]]:
        known = {row["name"] for row in await tx.all(READ_ALL)}
        used = {row["name"] for row in await tx.all(READ_USED)} if associated is not None else set[str]()
        return known, used

    known, used = await store.read(body)
    known |= standard_traits()
    return sorted(known if associated is None else used if associated else known - used)


async def is_known(store: Store, name: str) -> bool:
    async def body(tx: Tx) -> bool:
        return not await unknown_traits(tx, [name])

    return is_standard_trait(name) or await store.read(body, few=True)


async def create(store: Store, name: str) -> bool:
    """Create a trait. Return False if it exists."""

    async def body(tx: Tx) -> bool:
        return await tx.run(INSERT, name=name) > 0

    return not is_standard_trait(name) and await store.write(body)


async def delete_trait(store: Store, name: str) -> None:
    async def body(tx: Tx) -> None:
        row = await tx.one(LOCK, name=name)
        if row is None:
            raise missing(name)
        used = await tx.one(IS_USED, trait=row["id"])
        if used is not None and used["used"]:
            raise Refused("in_use", f"The trait {name} is in use by a resource provider.")
        await tx.run(DELETE, trait=row["id"])

    if is_standard_trait(name):
        raise Refused("standard_name", f"Cannot delete standard trait {name}.")
    await store.write(body)


def missing(name: str) -> Refused:
    return Refused("no_such_trait", f"No such trait(s): {name[:300]}.")


# -- of a host --------------------------------------------------------------------------------------------------------


async def settle_reported(tx: Tx, provider: int, ids: Mapping[str, int], *, wanted: Collection[str]) -> bool:
    """Set exactly the wanted ones of the traits that a host's driver reports; all others are clients' and stay. The
    caller holds the provider's row. Return whether it changed anything."""
    before = {row["name"]: row["id"] for row in await tx.all(READ_OF_PROVIDER, provider=provider)}
    some = (prefix for prefix in REPORTED_BY_SOME if any(name.startswith(prefix) for name in wanted))
    spoken_for = (*REPORTED, *some)
    gone = [id_ for name, id_ in before.items() if name.startswith(spoken_for) and name not in wanted]
    new = [ids[name] for name in wanted if name not in before]
    for statement, which in ((TAKE, gone), (GIVE, new)):
        if which:
            await tx.many(statement, [{"provider": provider, "trait": trait} for trait in sorted(which)])
    return bool(gone or new)


async def set_disabled(store: Store, uuid: str, disabled: bool) -> None:
    """Set or remove the trait by which candidates exclude a host that an administrator disabled. A provider that does
    not exist yet gets the trait when its host registers."""

    async def body(tx: Tx) -> None:
        ids = await trait_ids(tx, [DISABLED])
        if await tx.one(LOCK_PROVIDER, uuid=uuid) is None:
            return
        provider = await providers.find(tx, uuid)
        has = any(row["name"] == DISABLED for row in await tx.all(READ_OF_PROVIDER, provider=provider.id))
        if has == disabled:
            return
        mark, now = await tx.mark(), await tx.now()
        await tx.run(ledger.TOUCH_PROVIDER, provider=provider.id, raised=1, mark=mark, updated_at=now)
        await tx.run(GIVE if disabled else TAKE, provider=provider.id, trait=ids[DISABLED])

    await store.write(body)


# -- of a provider ----------------------------------------------------------------------------------------------------


async def of_provider(store: Store, uuid: str) -> tuple[Provider, list[str]]:
    async def body(tx: Tx) -> tuple[Provider, list[str]]:
        provider = await providers.find(tx, uuid)
        return provider, [row["name"] for row in await tx.all(READ_OF_PROVIDER, provider=provider.id)]

    return await store.read(body, few=True)


async def set_traits(store: Store, uuid: str, generation: int | None, names: Sequence[str]) -> int:
    """Set the provider's traits. Return its generation, which rises if anything changes."""

    async def body(tx: Tx) -> int:
        await providers.find(tx, uuid)  # an unknown provider is reported before an unknown trait
        ids = await trait_ids(tx, names)
        provider = await providers.lock(tx, uuid, generation)
        before = {row["id"] for row in await tx.all(READ_OF_PROVIDER, provider=provider.id)}
        wanted = set(ids.values())
        if before == wanted:
            return provider.generation
        mark, now = await tx.mark(), await tx.now()
        await tx.run(ledger.TOUCH_PROVIDER, provider=provider.id, raised=1, mark=mark, updated_at=now)
        for statement, which in ((TAKE, before - wanted), (GIVE, wanted - before)):
            if which:
                await tx.many(statement, [{"provider": provider.id, "trait": trait} for trait in sorted(which)])
        return provider.generation + 1

    return await store.write(body)
