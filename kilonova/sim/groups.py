"""Server groups: whether what is claimed keeps to their policies."""

from __future__ import annotations

from collections.abc import Iterator

from kilonova.sim.records import Records


def kept(records: Records) -> Iterator[str]:
    """A server counts on every host where it, or a migration of it, holds something; what is kept there for an
    evacuation does not bind."""
    for group in records.table("server_groups"):
        members = [row["server_id"] for row in records.table("server_group_members") if row["group_id"] == group["id"]]
        hosts = {server: _hosts(records, server) for server in members}
        if group["policy"] == "anti-affinity":
            yield from _apart(group["id"], hosts, group["max_server_per_host"] or 1)
        elif group["policy"] == "affinity" and len(set().union(*hosts.values())) > 1 and not _moving(records, members):
            yield f"affinity group {group['id']} is spread: {hosts}"


def _apart(group: str, hosts: dict[str, set[str]], most: int) -> Iterator[str]:
    for host in sorted(set().union(*hosts.values())):
        there = sorted(server for server, places in hosts.items() if host in places)
        if len(there) > most:
            yield f"anti-affinity group {group} has {there} on {host} and allows {most}"


def _hosts(records: Records, server: str) -> set[str]:
    moves = [row["id"] for row in records.table("migrations") if row["server_id"] == server]
    return {host for consumer in (server, *moves) for host, holder in records.held.get(consumer, {}) if not holder}


def _moving(records: Records, servers: list[str]) -> bool:
    """On two hosts until it is confirmed."""
    return any(row["open"] and row["server_id"] in servers for row in records.table("migrations"))
