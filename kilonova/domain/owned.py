"""The allocations that a server owns, by its own records. Audit, tests and simulation compare them
with placement's.

Owned = what the server was given for its host: its flavor on the host's own provider, unless its record says otherwise
      + what it was given for the source of each open resize or migration (held by the migration), unless the source was
        declared gone
      + what it was given for the source of each evacuation not yet completed (held by the server, for the evacuation)
      + what a step that was abandoned left, until an operator settles it (law 17): that may still be held, or not

It holds for a server at rest: between an operation's claim and its change of `host` the two may differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from kilonova.domain.server import flavor_from

ProviderHolder = tuple[str, str]  # provider's name (a host's own has the host's), holder ("" = the consumer itself)
Owned = dict[str, dict[ProviderHolder, dict[str, int]]]  # consumer → provider and holder → resource class → amount
Shares = Mapping[str, Mapping[str, int]]  # provider's name → resource class → amount


class OwnerRow(Protocol):
    """A row of a cell's servers or migrations."""

    def __getitem__(self, key: str, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class OwningServer:
    id: str
    shares: Shares  # none: never placed, buried, or offloaded


@dataclass(frozen=True, slots=True)
class OpenMigration:
    """A resize or cold migration that is neither confirmed nor reverted."""

    id: str
    source: Shares


@dataclass(frozen=True, slots=True)
class OpenEvacuation:
    """An evacuation whose source is not yet clean, deleted or declared gone."""

    id: str
    source: Shares


class Share(msgspec.Struct, frozen=True):
    """The share of one consumer in an abandoned step's remains."""

    consumer: str
    provider: str
    resources: dict[str, int]
    holder: str = ""


def shares_in(held: Owned) -> list[Share]:
    return [
        Share(consumer, provider, resources, holder)
        for consumer, allocations in sorted(held.items())
        for (provider, holder), resources in sorted(allocations.items())
    ]


def left_by(findings: Iterable[OwnerRow]) -> Owned:
    """Return the allocations that abandoned steps left in placement, by the findings that are not settled."""
    left: Owned = {}
    for finding in findings:
        for share in msgspec.json.decode(finding["holds"], type=list[Share]):
            left.setdefault(share.consumer, {})[share.provider, share.holder] = share.resources
    return left


def may_hold(
    held: Mapping[ProviderHolder, Any], expected: Mapping[ProviderHolder, Any], left: Mapping[ProviderHolder, Any]
) -> bool:
    """Return whether all that a consumer holds is its own, or was left to it by an abandoned step."""
    return all(amounts in (expected.get(key), left.get(key)) for key, amounts in held.items())


def owned(
    server: OwningServer,
    open_migrations: Iterable[OpenMigration] = (),
    open_evacuations: Iterable[OpenEvacuation] = (),
) -> Owned:
    expected: Owned = {}
    _add(expected, server.id, "", server.shares)
    for migration in open_migrations:
        _add(expected, migration.id, "", migration.source)
    for evacuation in open_evacuations:
        _add(expected, server.id, evacuation.id, evacuation.source)
    return expected


def _add(expected: Owned, consumer: str, holder: str, shares: Shares) -> None:
    for provider, resources in shares.items():
        if resources:
            expected.setdefault(consumer, {})[provider, holder] = dict(resources)


def shares_of(host: str | None, flavor: str, claimed: str | None) -> Shares:
    """Return the shares at a host by the records; `claimed` is None if it is the flavor on the host's provider."""
    if host is None:
        return {}
    recorded = msgspec.json.decode(claimed, type=dict[str, dict[str, int]]) if claimed else {}
    return recorded or {host: flavor_from(flavor).resources()}


def flavors_left(migrations: Iterable[OwnerRow]) -> dict[tuple[str, str, int], str]:
    """The flavor of each copy that an open move left on its source, by server, host and copy; all others have their
    server's flavor."""
    return {
        (row["server_id"], row["source_host"], row["source_copy"]): row["old_flavor"]
        for row in migrations
        if row["open"]
    }


def owned_by(server: OwnerRow, open_migrations: Iterable[OwnerRow]) -> Owned:
    """`owned` of rows as a cell has them."""
    moves, evacuations = [], []
    for row in open_migrations:
        if row["source_gone"]:
            continue
        source = shares_of(row["source_host"], row["old_flavor"], row["old_claimed"])
        if row["kind"] == "evacuation":
            evacuations.append(OpenEvacuation(row["id"], source))
        else:
            moves.append(OpenMigration(row["id"], source))
    own = shares_of(server["host"], server["flavor"], server["claimed"])
    return owned(OwningServer(server["id"], own), moves, evacuations)
