"""Server groups: the claims keep to their policies, and placement's counts agree with the claims."""

from __future__ import annotations

from collections.abc import Iterator

from kilonova.sim.lab.records import Records

Use = set[tuple[str, str, str]]  # group, server, host


def at_any_time(records: Records) -> Iterator[str]:
    """Yield violated policies. A server counts on every host where it, or a migration of it, has a claim; the share
    that is held for an evacuation does not count."""
    for group in records.table("server_groups"):
        if group["policy"] == "anti-affinity":
            hosts = {server: _hosts(records, server) for server in _members(records, group["id"])}
            yield from _apart(group["id"], hosts, group["max_server_per_host"] or 1)


def at_rest(records: Records) -> Iterator[str]:
    for group in records.table("server_groups"):
        members = _members(records, group["id"])
        hosts = {server: _hosts(records, server) for server in members}
        if group["policy"] == "affinity" and len(set().union(*hosts.values())) > 1 and not _moved(records, members):
            yield f"affinity group {group['id']} is spread: {hosts}"
    yield from _members_live(records)
    yield from _counts(records)


def _members_live(records: Records) -> Iterator[str]:
    servers = {row["id"] for row in records.table("servers") if not row["deleted"]}
    for row in records.table("server_group_members"):
        if row["server_id"] not in servers:
            yield f"server {row['server_id']} is gone and still in the group {row['group_id']}"


def _counts(records: Records) -> Iterator[str]:
    """Yield wrong counts of members per host, which bind the next claim. The counts of a deleted group do not
    matter."""
    roots = {row["id"]: row["name"] for row in records.table("resource_providers")}
    there = {row["id"] for row in records.table("server_groups")}
    counted: Use = {
        (row["group_id"], row["server_id"], roots[row["root_id"]])
        for row in records.table("group_use")
        if row["group_id"] in there
    }
    true: Use = {
        (row["group_id"], row["server_id"], host)
        for row in records.table("server_group_members")
        for host in _hosts(records, row["server_id"])
    }
    for group, server, host in sorted(counted ^ true):
        says = "is counted" if (group, server, host) in counted else "is not counted"
        yield f"server {server} of the group {group} {says} on {host}"


def _apart(group: str, hosts: dict[str, set[str]], most: int) -> Iterator[str]:
    for host in sorted(set().union(*hosts.values())):
        there = sorted(server for server, places in hosts.items() if host in places)
        if len(there) > most:
            yield f"anti-affinity group {group} has {there} on {host} and allows {most}"


def _members(records: Records, group: str) -> list[str]:
    return [row["server_id"] for row in records.table("server_group_members") if row["group_id"] == group]


def _hosts(records: Records, server: str) -> set[str]:
    moves = [row["id"] for row in records.table("migrations") if row["server_id"] == server]
    return {host for consumer in (server, *moves) for host, holder in records.held.get(consumer, {}) if not holder}


def _moved(records: Records, servers: list[str]) -> bool:
    """Return True if a member may be on two hosts until a move is confirmed, or may live on alone on a host that
    died."""
    return any(
        row["server_id"] in servers and (row["open"] or row["kind"] == "evacuation")
        for row in records.table("migrations")
    )
