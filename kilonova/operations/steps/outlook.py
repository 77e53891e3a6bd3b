"""The outlook: the result of an operation's dry run, in one form for all operations on a server.

`host` and `ends` (the state) are the server's afterwards; `disks` have a fate each; `claims` is the new claim, by
provider; `left` stays on former hosts and `removed` is removed from hosts: each with `host`, `copies`, `claims`.

The fate of a disk: `kept` (its content stays), `reverted` (the disk from before the move; later writes are lost),
`re-created` (made from an image, or blank; its content is lost), `created` (there was none before), `lost` (there is
none afterwards).
"""

from __future__ import annotations

from collections.abc import Sequence

from kilonova.domain.json import Json, JsonObject
from kilonova.domain.owned import Shares, shares_of
from kilonova.domain.params import Params
from kilonova.domain.server import Flavor, Server, flavor_from
from kilonova.engine.context import AnyContext, Subject
from kilonova.operations.facts import MoveFacts, OpenMove, ResizeFacts
from kilonova.operations.steps.claim import claimed_by_name
from kilonova.schema.tables import cell
from kilonova.store import rows
from kilonova.world import Tx

DiskFate = dict[str, Json]


def outlook(
    host: str | None,
    ends: str,
    disks: Sequence[DiskFate],
    *,
    claims: Shares | None = None,
    left: Sequence[JsonObject] = (),
    removed: Sequence[JsonObject] = (),
) -> JsonObject:
    """`left`, `removed`: of `copy_on`."""
    return {
        "host": host,
        "ends": ends,
        "disks": [*disks],
        "claims": claims or {},
        "left": [*left],
        "removed": [*removed],
    }


def copy_on(host: str, copy: int | None, claims: Shares) -> JsonObject:
    return {"host": host, "copies": [] if copy is None else [copy], "claims": claims}


def share_of(server: Server) -> Shares:
    """Return the server's own allocations in placement."""
    return shares_of(server.host, server.flavor_document, server.claimed)


def outlook_of_move(
    subject: Subject[Params], facts: MoveFacts, ends: str, disks: Sequence[DiskFate], flavor: str
) -> JsonObject:
    """Return the outlook of a move to the best candidate, with this flavor; the source keeps its copy and claim.

    Without a candidate it has no disks.
    """
    server = subject.server
    assert server is not None
    best = facts.candidates[0] if facts.candidates else None
    left = copy_on(facts.source, facts.source_copy, share_of(server))
    if best is None:
        return outlook(None, ends, [], left=[left])
    claimed = shares_of(best.host, flavor, claimed_by_name(best))
    return outlook(best.host, ends, disks, claims=claimed, left=[left])


def source_of_move(facts: ResizeFacts) -> list[JsonObject]:
    """The copy and the claim that an open migration keeps at its source; nothing where that host was declared gone."""
    if facts.source_gone:
        return []
    held = shares_of(facts.source, facts.old_flavor, facts.source_claimed)
    return [copy_on(facts.source, facts.source_copy, held)]


def deleted_copies(server: Server, copies: Sequence[tuple[str, int]], moves: Sequence[OpenMove]) -> list[JsonObject]:
    """Return every copy: the current one with the server's claim, the source of each open migration with the
    migration's."""
    held: dict[tuple[str, int | None], Shares] = {}
    if server.host:
        held[server.host, server.copy] = share_of(server)
    for move in moves:
        if not move.source_gone:
            held[move.source_host, move.source_copy] = shares_of(move.source_host, move.old_flavor, move.old_claimed)
    places = dict.fromkeys([*((host, copy) for host, copy in copies), *held])
    return [copy_on(host, copy, held.get((host, copy), {})) for host, copy in places]


# -- disks --------------------------------------------------------------------------------------------------------


def root_disk(fate: str, image: str = "") -> DiskFate:
    return {"disk": "root", "fate": fate, **({"from_image": image} if image else {})}


def boots_from_volume(server: Server) -> bool:
    return server.details.volume_backed or any(one.is_root for one in server.volumes)


def own_root(server: Server, fate: str, image: str = "") -> list[DiskFate]:
    """Return the root disk; none if the server boots from a volume."""
    return [] if boots_from_volume(server) else [root_disk(fate, image)]


def unchanged_volumes(server: Server) -> list[DiskFate]:
    """Return all volumes of the server, as disks that are kept."""
    return [{"disk": one.device, "fate": "kept", "volume": one.volume_id} for one in server.volumes]


def local_disks(flavor: Flavor, fate: str, swap: str = "re-created") -> list[DiskFate]:
    """The ephemeral disks, and the swap disk."""
    disks: list[DiskFate] = [
        {"disk": f"ephemeral{number}", "fate": fate} for number, _ in enumerate(flavor.ephemeral_disks)
    ]
    return [*disks, {"disk": "swap", "fate": swap}] if flavor.swap_disk_mb else disks


def all_disks(server: Server, fate: str, swap: str, image: str = "") -> list[DiskFate]:
    """Return all disks: one fate for the server's own disks, perhaps another for swap; volumes are kept."""
    return [*own_root(server, fate, image), *local_disks(server.flavor, fate, swap), *unchanged_volumes(server)]


def evacuated_disks(server: Server, *, is_shared: bool) -> list[DiskFate]:
    if is_shared:
        return all_disks(server, "kept", "kept")
    return all_disks(server, "re-created", "re-created", server.image_ref)


def resized_disks(server: Server, new: Flavor) -> list[DiskFate]:
    """Return each disk with its sizes before and after."""
    old = server.flavor
    root: list[DiskFate] = [{**disk, "gb": [old.disk_gb, new.disk_gb]} for disk in own_root(server, "kept")]
    return [*root, *_resized_local_disks(old, new), *unchanged_volumes(server)]


def _resized_local_disks(old: Flavor, new: Flavor) -> list[DiskFate]:
    before, disks = old.ephemeral_disks, list[DiskFate]()
    for number, size in enumerate(new.ephemeral_disks):
        was = before[number] if number < len(before) else 0
        disks.append({"disk": f"ephemeral{number}", "fate": "kept" if was else "created", "gb": [was, size]})
    if old.swap_disk_mb or new.swap_disk_mb:
        fate = "lost" if not new.swap_disk_mb else "re-created" if old.swap_disk_mb else "created"
        disks.append({"disk": "swap", "fate": fate, "mb": [old.swap_disk_mb, new.swap_disk_mb]})
    return disks


def reverted_disks(server: Server, old_flavor: str) -> list[DiskFate]:
    """Return the disks of the old copy; those that only the new copy has are lost."""
    back = local_disks(flavor_from(old_flavor), "reverted", "reverted")
    names = {disk["disk"] for disk in back}
    lost = [disk for disk in local_disks(server.flavor, "lost", "lost") if disk["disk"] not in names]
    return [*own_root(server, "reverted"), *back, *lost, *unchanged_volumes(server)]


def deleted_disks(server: Server) -> list[DiskFate]:
    """Return the disks of a deleted server. Without a host it has only volumes; those that are deleted with it are
    lost."""
    own = [*own_root(server, "lost"), *local_disks(server.flavor, "lost", "lost")] if server.host else []
    goes = {one.volume_id for one in server.volumes if one.delete_on_termination}
    volumes: list[DiskFate] = [
        {**disk, "fate": "lost" if disk["volume"] in goes else "kept"} for disk in unchanged_volumes(server)
    ]
    return [*own, *volumes]


async def share_storage(ctx: AnyContext, one: str, other: str) -> bool:
    """Return whether two hosts of the cell report the same storage."""

    async def body(tx: Tx) -> bool:
        hosts = [await rows.fetch(tx, cell.hosts, name=host) for host in (one, other)]
        first, second = (row["storage"] if row is not None else None for row in hosts)
        return bool(first) and first == second

    return await ctx.journal.read(body)
