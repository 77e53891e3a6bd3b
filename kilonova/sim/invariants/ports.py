"""The invariants of ports: they belong to servers that live, are bound where those are, and no address is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from kilonova.domain.json import Json, JsonObject, as_list, decoded, json_object
from kilonova.sim.lab.records import Records
from kilonova.world import Row


def at_any_time(records: Records) -> Iterator[str]:
    """Yield ports of deleted servers: a server is deleted after its ports, and a late new one is refused."""
    deleted = {row["id"] for row in records.table("servers") if row["deleted"]}
    for port in records.table("ports"):
        if port["device_id"] in deleted:
            yield f"port {_name(port)} is of {port['device_id']}, which is deleted"
    yield from _addresses(records)


def at_rest(records: Records) -> Iterator[str]:
    servers = {row["id"]: row for row in records.table("servers") if not row["deleted"]}
    for port in records.table("ports"):
        if not port["device_id"]:
            yield from _free(port)
        elif port["device_id"] not in servers:
            yield f"port {_name(port)} is of {port['device_id']}, which is nowhere"
    built = [row for row in records.table("operations") if row["kind"] == "build"]  # they all ask for the same ports
    networks = {row["server_id"]: as_list(json_object(row["params"]).get("networks")) for row in built}
    for server in servers.values():
        yield from _of_server(records, server, networks.get(server["id"], []))


def _free(port: Row) -> Iterator[str]:
    """Yield the traces on a port that a server gave back."""
    if port["created_here"]:
        yield f"port {_name(port)} was made for a server and is left"
    if port["host"] or port["slot"] != -1 or port["device_owner"]:
        yield f"port {_name(port)} is of nobody, but bound to {port['host'] or 'no host'}, slot {port['slot']}"


def _of_server(records: Records, server: Row, requested: Sequence[Json]) -> Iterator[str]:
    """Check that the server has all requested ports, or none without a host; bound there; and as its record says."""
    vifs = records.vifs.get(server["id"], [])
    wanted = len(requested) if server["host"] else 0
    if len(vifs) != wanted:
        yield f"server {server['id']} ({server['vm_state']}) has {len(vifs)} ports, should have {wanted}"
    for vif in vifs:
        if vif.host != server["host"]:
            yield f"port {vif.port_id} is bound to {vif.host}, its server {server['id']} is on {server['host']}"
    recorded, true = decoded(server["network_info"], list[JsonObject]), msgspec.to_builtins(vifs)
    if recorded != true:
        yield f"server {server['id']}: its record has the ports {recorded}, the network {true}"


def _addresses(records: Records) -> Iterator[str]:
    """Check that each address is free or belongs to one port, once."""
    taken = Counter(row["address"] for row in records.table("fixed_ips"))
    ports = {row["id"] for row in records.table("ports")}
    for row in records.table("fixed_ips"):
        if row["port_id"] not in ports:
            yield f"address {row['address']} is of port {row['port_id']}, which does not exist"
    for address, times in taken.items():
        if times > 1:
            yield f"address {address} is given {times} times"
    free = sum(int(row["last"], 16) - int(row["first"], 16) + 1 for row in records.table("network_free_ranges"))
    size = sum(_size(decoded(row["pools"], list[dict[str, str]])) for row in records.table("subnets"))
    if free + len(taken) != size:
        yield f"{free} addresses are free and {len(taken)} taken, of {size}"


def _size(pools: list[dict[str, str]]) -> int:
    """A simulated pool lies within the last octet."""
    return sum(int(pool["end"].rpartition(".")[2]) - int(pool["start"].rpartition(".")[2]) + 1 for pool in pools)


def _name(port: Row) -> str:
    return str(port["name"] or port["id"])
