"""The first candidate with capacity: looked at before anything is written, so a refused one leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from sqlalchemy import or_, select

from kilonova.placement.groups import GroupPlacement
from kilonova.placement.ledger import CONSUMER, Rows, Slot
from kilonova.placement.outcomes import Refusal
from kilonova.placement.refusals import over_capacity, unit_fault
from kilonova.schema.tables.placement import inventories, resource_classes, resource_providers
from kilonova.store.statements import Sql, in_list
from kilonova.world import Tx

READ_CAPACITIES = Sql(
    select(
        resource_providers.c.id,
        resource_providers.c.uuid,
        resource_providers.c.root_id,
        resource_providers.c.accepting,
        resource_classes.c.name,
        inventories.c.class_id,
        inventories.c.capacity,
        inventories.c.used,
        inventories.c.min_unit,
        inventories.c.max_unit,
        inventories.c.step_size,
    )
    .select_from(resource_providers)
    .outerjoin(inventories, inventories.c.provider_id == resource_providers.c.id)
    .outerjoin(resource_classes, resource_classes.c.id == inventories.c.class_id)
    .where(in_list(resource_providers.c.uuid, "uuids"))
)
LOCK_PROVIDERS = Sql(
    select(resource_providers.c.id)
    .where(or_(in_list(resource_providers.c.uuid, "uuids"), in_list(resource_providers.c.id, "ids")))
    .order_by(resource_providers.c.id)
    .with_for_update()
)


class HostCandidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A host, by its root provider, what the server would hold there, and what of other providers: those of its tree,
    or that share with it."""

    provider: str
    resources: dict[str, int]
    others: dict[str, dict[str, int]] = {}  # by provider

    def parts(self) -> dict[str, dict[str, int]]:
        """Return the resources by provider, the host's own first. 0 GB of a flavor without a disk is left out."""
        both = {self.provider: self.resources, **self.others}
        return {uuid: {name: n for name, n in resources.items() if n} for uuid, resources in both.items()}


@dataclass(slots=True, frozen=True)
class ClassCapacity:
    """The capacity and use of one resource class of a provider."""

    class_id: int
    capacity: int
    used: int
    min_unit: int
    max_unit: int
    step_size: int


@dataclass(slots=True)
class ProviderCapacity:
    provider: int
    uuid: str
    root: int
    accepting: bool
    classes: dict[str, ClassCapacity] = field(default_factory=dict)


@dataclass(slots=True)
class CandidateChoice:
    """The candidate taken (None: none fits), what it would hold, and why those before it were not."""

    capacity: ProviderCapacity | None = None
    rows: Rows = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)


async def choose(
    tx: Tx,
    candidates: Sequence[HostCandidate],
    standing: GroupPlacement,
    *,
    own: Rows,
    lock: Iterable[int] | None = None,
) -> CandidateChoice:
    """Try the candidates in order. `own` is given back by this claim, so it counts as free on its provider.

    With `lock`, all candidates and those providers are locked first, in the ledger's order: no other claim can take
    the capacity between this read and the write.
    """
    uuids = list(dict.fromkeys(uuid for candidate in candidates for uuid in candidate.parts()))
    if lock is not None:
        await tx.all(LOCK_PROVIDERS, uuids=uuids, ids=sorted(lock))
    capacities = await read_capacities(tx, uuids)
    return first_fitting(candidates, capacities, standing, own)


def first_fitting(
    candidates: Sequence[HostCandidate],
    capacities: Mapping[str, ProviderCapacity],
    standing: GroupPlacement,
    own: Rows | None = None,
) -> CandidateChoice:
    credit = {(provider, class_): amount for (provider, class_, _), amount in (own or {}).items()}
    choice = CandidateChoice()
    for candidate in candidates:
        refusal = _refusal(candidate, capacities, standing, credit)
        if refusal is None:
            choice.capacity, choice.rows = capacities[candidate.provider], _rows(candidate, capacities)
            break
        choice.refused.append(refusal)
    return choice


async def read_capacities(tx: Tx, uuids: Sequence[str]) -> dict[str, ProviderCapacity]:
    capacities: dict[str, ProviderCapacity] = {}
    for row in await tx.all(READ_CAPACITIES, uuids=uuids):
        capacity = capacities.get(row["uuid"])
        if capacity is None:
            capacity = capacities[row["uuid"]] = ProviderCapacity(
                row["id"], row["uuid"], row["root_id"], bool(row["accepting"])
            )
        if row["name"] is not None:
            units = (row["min_unit"], row["max_unit"], row["step_size"])
            capacity.classes[row["name"]] = ClassCapacity(row["class_id"], row["capacity"], row["used"], *units)
    return capacities


def _rows(candidate: HostCandidate, capacities: Mapping[str, ProviderCapacity]) -> Rows:
    return {
        (capacities[uuid].provider, capacities[uuid].classes[name].class_id, CONSUMER): amount
        for uuid, resources in candidate.parts().items()
        for name, amount in resources.items()
    }


def _refusal(
    candidate: HostCandidate,
    capacities: Mapping[str, ProviderCapacity],
    standing: GroupPlacement,
    credit: Mapping[Slot, int],
) -> Refusal | None:
    parts = candidate.parts()
    for uuid in parts:
        if uuid not in capacities:
            return Refusal(uuid, "no_such_provider", f"there is no provider {uuid}")
    host = capacities[candidate.provider]
    against = standing.refusal(host.root)
    if against:
        return Refusal(host.uuid, "group", f"provider {host.uuid}: {against}")
    raised = []
    for uuid, resources in parts.items():
        for name, amount in sorted(resources.items()):
            more, refusal = _look(capacities[uuid], name, amount, credit)
            if refusal is not None:
                return refusal
            raised += [host, capacities[uuid]] if more > 0 else []
    return next((_closed(capacity) for capacity in raised if not capacity.accepting), None)


def _look(capacity: ProviderCapacity, name: str, amount: int, credit: Mapping[Slot, int]) -> tuple[int, Refusal | None]:
    """Return by how much its use would rise, and why it cannot."""
    of_class = capacity.classes.get(name)
    if of_class is None:
        return amount, Refusal(capacity.uuid, "no_inventory", f"provider {capacity.uuid} has no {name}", name, amount)
    more = amount - credit.get((capacity.provider, of_class.class_id), 0)
    return more, _shortage(capacity.uuid, name, amount, more, of_class) if more > 0 else None


def _closed(capacity: ProviderCapacity) -> Refusal:
    return Refusal(capacity.uuid, "not_accepting", f"provider {capacity.uuid} accepts no new claims")


def _shortage(uuid: str, name: str, amount: int, more: int, of_class: ClassCapacity) -> Refusal | None:
    numbers = (name, amount, of_class.used, of_class.capacity)
    if of_class.used + more > of_class.capacity:
        return Refusal(
            uuid, "over_capacity", over_capacity(uuid, name, more, of_class.used, of_class.capacity), *numbers
        )
    fault = unit_fault(amount, of_class.min_unit, of_class.max_unit, of_class.step_size)
    if fault:
        return Refusal(uuid, "wrong_unit", f"provider {uuid}: {name} {fault}", *numbers)
    return None
