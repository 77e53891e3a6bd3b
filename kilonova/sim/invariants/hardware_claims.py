"""The invariants of hosts' hardware: no CPU is pinned twice and no device given twice, whichever process crashes; and
at rest every claim belongs to a copy, on the host as in the records."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kilonova.compute.drivers.simulated.topology import hardware_of
from kilonova.compute.host_claims import PREFIX
from kilonova.domain.hardware import HostClaim, HostHardware, conflicts
from kilonova.domain.owned import flavors_left
from kilonova.domain.server import flavor_from
from kilonova.sim.lab.cloud import SimCloud
from kilonova.sim.lab.records import Records
from kilonova.store.host_hardware import claim_from

Held = dict[tuple[str, int], HostClaim]  # by server and copy


def at_any_time(cloud: SimCloud) -> Iterator[str]:
    """Yield hardware that is given twice. It needs no records, so it can be checked after every act."""
    for host in cloud.hardware.hosts():
        hardware = _hardware(cloud, host)
        for held in (_claims_of(cloud, host), _defined(cloud, host)):
            claims = [(server, claim) for (server, _), claim in sorted(held.items(), key=lambda item: item[0])]
            yield from (f"{host}: {twice}" for twice in conflicts(hardware, claims))


def at_rest(records: Records, cloud: SimCloud) -> Iterator[str]:
    """Yield wrong claims: every copy that requests hardware has it; no other copy has, except those in quarantine,
    which may be adopted."""
    own = {row["id"]: row["flavor"] for row in records.table("servers")}
    left = flavors_left(records.table("migrations"))
    quarantined: dict[str, set[tuple[str, int]]] = {}
    for row in records.table("quarantine"):
        if row["ended_at"] is None:
            quarantined.setdefault(row["host"], set()).add((row["server_id"], row["copy"]))
    for host in cloud.hardware.hosts():
        claims, defined = _claims_of(cloud, host), _defined(cloud, host)
        copies = {(c["server_id"], c["copy"]): c for c in records.table("copies") if c["host"] == host}
        expected = {
            (server, copy)
            for server, copy in copies
            if server in own and _requests(left.get((server, host, copy), own[server]))
        }
        expected |= claims.keys() & quarantined.get(host, set())
        for server, copy in sorted(claims.keys() ^ expected):
            where = "the host holds hardware for" if (server, copy) in claims else "the host holds nothing for"
            yield f"{host}: {where} copy {copy} of {server}"
        for key in sorted(claims.keys() & expected & copies.keys()):
            if claim_from(copies[key]["claim"]) != claims[key]:
                yield f"{host}: copy {key[1]} of {key[0]} holds {claims[key]}, recorded is {copies[key]['claim']}"
        for key in sorted(defined):
            if defined[key] != claims.get(key):
                yield f"{host}: copy {key[1]} of {key[0]} is defined with {defined[key]}, kept is {claims.get(key)}"


def _requests(flavor: str) -> bool:
    request = flavor_from(flavor).hardware
    return request is not None and request.needs_claim


def _hardware(cloud: SimCloud, host: str) -> HostHardware:
    machine = cloud.hardware.host(host)
    return hardware_of(machine.topology, machine.vcpus, machine.memory_mb, cloud.shape.offer)


def _claims_of(cloud: SimCloud, host: str) -> Held:
    """Return the claims in the host's memory."""
    held: Held = {}
    for name, value in cloud.hardware.recall(host).items():
        if name.startswith(PREFIX):
            server, _, copy = name.removeprefix(PREFIX).rpartition("/")
            held[server, int(copy)] = msgspec.convert(value, HostClaim)
    return held


def _defined(cloud: SimCloud, host: str) -> Held:
    """Return the claims of the host's defined guests."""
    guests = cloud.hardware.host(host).guests
    return {key: guest.spec.claim for key, guest in guests.items() if guest.spec is not None and guest.spec.claim}
