"""What a server owns in placement, told from its own records (DESIGN section 5). Audit, tests and simulation compare
it with what placement says.

Owned = the server's flavor on its host
      + the old flavor on the source of each open resize or migration (held by the migration)
      + the flavor on the source of each evacuation not yet completed (held by the server, for the evacuation)

It speaks about a server at rest: between an operation's claim and its change of `host` the two may differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Place = tuple[str, str]  # host, holder ("" = the consumer itself)
Owned = dict[str, dict[Place, dict[str, int]]]  # consumer → place → resource class → amount


@dataclass(frozen=True, slots=True)
class Size:
    """The part of a flavor that is claimed. `disk_gb` is root + ephemeral + swap rounded up."""

    vcpus: int
    memory_mb: int
    disk_gb: int

    def resources(self) -> dict[str, int]:
        """By resource class; what is zero is not claimed at all."""
        amounts = {"VCPU": self.vcpus, "MEMORY_MB": self.memory_mb, "DISK_GB": self.disk_gb}
        return {name: amount for name, amount in amounts.items() if amount}


@dataclass(frozen=True, slots=True)
class OwningServer:
    id: str
    host: str | None  # None: never placed, buried, or offloaded
    size: Size


@dataclass(frozen=True, slots=True)
class OpenMigration:
    """A resize or cold migration that is neither confirmed nor reverted."""

    id: str
    source_host: str
    old_size: Size


@dataclass(frozen=True, slots=True)
class OpenEvacuation:
    """An evacuation whose source is not yet clean, deleted or declared gone."""

    id: str
    source_host: str
    size: Size


def owned(
    server: OwningServer,
    open_migrations: Iterable[OpenMigration] = (),
    open_evacuations: Iterable[OpenEvacuation] = (),
) -> Owned:
    shares: Owned = {}
    if server.host is not None:
        _add(shares, server.id, (server.host, ""), server.size)
    for migration in open_migrations:
        _add(shares, migration.id, (migration.source_host, ""), migration.old_size)
    for evacuation in open_evacuations:
        _add(shares, server.id, (evacuation.source_host, evacuation.id), evacuation.size)
    return shares


def _add(shares: Owned, consumer: str, place: Place, size: Size) -> None:
    resources = size.resources()
    if resources:
        shares.setdefault(consumer, {})[place] = resources
