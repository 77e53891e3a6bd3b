"""Differences of hosts, ports and volumes from the servers' own records.

Nothing of it is repaired: a user's data is never deleted because a record is missing. Each sentence says what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from kilonova.domain.guest import CopyReport
from kilonova.domain.network import vifs_from
from kilonova.domain.server import ACTIVE, SOFT_DELETED, STOPPED
from kilonova.domain.volume import server_volumes
from kilonova.world import Row

KINDS = {
    "unrecorded_copy": "a host has a copy of a guest that is neither recorded nor in quarantine",
    "missing_copy": "a copy is recorded on a host that does not have it",
    "damaged_copy": "a copy is recorded as whole, and its host has no complete disk of it",
    "unpermitted_guest": "a host runs a guest without the permission to run it",
    "guest_off": "a server is ACTIVE and its guest is off",
    "guest_on": "a server is stopped or soft-deleted and its guest runs",
    "not_reclaimed": "a server was soft-deleted before its records were restored, and is not reclaimed",
    "guest_volumes": "a guest is defined with other volumes than its server has",
    "orphan_port": "a port is of a server that does not exist",
    "port_elsewhere": "a port is bound to another host than its server's",
    "missing_port": "a server's record names a port that is not its own",
    "orphan_attachment": "compute's attachment is of a server that does not exist",
    "attachment_elsewhere": "an attachment is connected to another host than its server's",
    "missing_attachment": "a server's record names an attachment that does not exist",
    "unrecorded_attachment": "compute's attachment is not in its server's record",
    "volume_in_use": "a volume is in use, and nothing is attached",
}
Holdings = Mapping[str, Sequence[CopyReport]]  # host → its copies now; a host that did not answer is not in it


class Difference(msgspec.Struct, frozen=True, order=True):
    kind: str  # one of KINDS
    server: str
    host: str
    sentence: str


@dataclass
class AuditRecords:
    """The records to compare, from control and the cells that answered."""

    servers: dict[str, Row] = field(default_factory=dict)  # not deleted
    copies: dict[tuple[str, int, str], str] = field(default_factory=dict)  # server, copy, host → state
    excused: set[tuple[str, int, str]] = field(default_factory=set)  # in quarantine, or owed
    hosts: dict[str, str] = field(default_factory=dict)  # host → cell; those that should answer
    ports: list[Row] = field(default_factory=list)  # of servers, by compute
    changed: set[str] = field(default_factory=set)  # servers whose ports were changed through the Network API
    attachments: list[Row] = field(default_factory=list)  # compute's own
    volumes: list[Row] = field(default_factory=list)
    attached: set[str] = field(default_factory=set)  # volumes of any attachment
    busy: set[str] = field(default_factory=set)  # servers that an operation is at work on, or left something of
    turns: dict[str, int] = field(default_factory=dict)
    not_reclaimed: set[str] = field(default_factory=set)  # soft-deleted servers that reclaiming leaves (law 15)
    complete: bool = True  # every cell answered


def compare(records: AuditRecords, holdings: Holdings) -> set[Difference]:
    """Return the differences. Servers with a live operation are skipped."""
    differences = {*_copies(records, holdings), *_missing(records, holdings)}
    differences |= {*_ports(records), *_attachments(records), *_volumes(records), *_not_reclaimed(records)}
    return {one for one in differences if one.server not in records.busy}


def _copies(records: AuditRecords, holdings: Holdings) -> Iterator[Difference]:
    for host, reports in holdings.items():
        for report in reports:
            key = (report.server, report.copy, host)
            if key in records.excused:
                continue
            what = f"copy {report.copy} of server {report.server} on {host}"
            server, state = records.servers.get(report.server), records.copies.get(key)
            if state is None:
                text = f"{what} is not recorded; restart the agent there so that the guest is checked"
                yield Difference("unrecorded_copy", report.server, host, text)
            if server is None:
                continue
            is_runner = (server["runner_host"], server["runner_copy"]) == (host, report.copy)
            if state == "whole" and not report.whole and not _boots_from_volume(server):
                text = f"{what} has no complete disk; restore it, or evacuate or rebuild the server"
                yield Difference("damaged_copy", report.server, host, text)
            if report.power == "on" and not is_runner:
                text = f"{what} runs; {server['runner_host'] or 'no host'} has the permission to run it"
                yield Difference("unpermitted_guest", report.server, host, text)
            if is_runner:
                yield from _runner(server, report, host, what)


def _runner(server: Row, report: CopyReport, host: str, what: str) -> Iterator[Difference]:
    state = server["vm_state"]
    if state == ACTIVE and report.power != "on":
        yield Difference("guest_off", report.server, host, f"{what} is off, the server is ACTIVE; reboot it")
    if state in (STOPPED, SOFT_DELETED) and report.power == "on":
        text = f"{what} runs, the server is {state}; restart the agent there"
        yield Difference("guest_on", report.server, host, text)
    recorded = {one.attachment_id for one in server_volumes(server["volume_info"]) if one.attachment_id}
    if report.defined and set(report.volumes) != recorded:
        text = f"{what} has the attachments {_named(report.volumes)}, the server {_named(recorded)}; reboot it hard"
        yield Difference("guest_volumes", report.server, host, text)


def _missing(records: AuditRecords, holdings: Holdings) -> Iterator[Difference]:
    there = {(one.server, one.copy, host) for host, reports in holdings.items() for one in reports}
    for key, state in records.copies.items():
        server, copy, host = key
        if host in holdings and key not in there and key not in records.excused and state != "making":
            text = f"copy {copy} of server {server} is recorded on {host}, which does not have it"
            text += "; adopt another copy, evacuate or rebuild the server"
            yield Difference("missing_copy", server, host, text)


def _ports(records: AuditRecords) -> Iterator[Difference]:
    own: dict[str, set[str]] = {}
    for port in records.ports:
        server_id, host = port["device_id"], port["host"]
        own.setdefault(server_id, set()).add(port["id"])
        server = records.servers.get(server_id)
        if server is None:
            if records.complete:
                text = f"port {port['id']} is of server {server_id}, which does not exist; delete the port if unused"
                yield Difference("orphan_port", server_id, host, text)
        elif host != (server["host"] or ""):
            text = f"port {port['id']} of server {server_id} is bound to {host or 'no host'}, not to {server['host']}"
            yield Difference("port_elsewhere", server_id, host, text)
    for server in records.servers.values():
        recorded = {vif.port_id for vif in vifs_from(server["network_info"])}
        for port_id in sorted(recorded - own.get(server["id"], set())):
            if server["id"] not in records.changed:
                text = f"server {server['id']}: its record names port {port_id}, which is not its own"
                yield Difference("missing_port", server["id"], server["host"] or "", text)


def _attachments(records: AuditRecords) -> Iterator[Difference]:
    true: dict[str, set[str]] = {}
    for one in records.attachments:
        server_id, host = one["server_id"] or "", one["host"] or ""
        true.setdefault(server_id, set()).add(one["id"])
        server, what = records.servers.get(server_id), f"attachment {one['id']} of volume {one['volume_id']}"
        if server is None:
            if records.complete:
                text = f"{what} is of server {server_id}, which does not exist; detach the volume if it is unused"
                yield Difference("orphan_attachment", server_id, host, text)
        elif host and host != server["runner_host"]:
            text = f"{what} is connected to {host}, server {server_id} runs on {server['runner_host'] or 'no host'}"
            yield Difference("attachment_elsewhere", server_id, host, text)
    for server in records.servers.values():
        recorded = {one.attachment_id for one in server_volumes(server["volume_info"]) if one.attachment_id}
        for attachment in sorted(recorded - true.get(server["id"], set())):
            text = f"server {server['id']}: its record names attachment {attachment}, which does not exist"
            yield Difference("missing_attachment", server["id"], "", f"{text}; detach the volume from the server")
        for attachment in sorted(true.get(server["id"], set()) - recorded):
            text = f"server {server['id']}: attachment {attachment} is not in its record"
            yield Difference("unrecorded_attachment", server["id"], "", f"{text}; detach the volume from the server")


def _volumes(records: AuditRecords) -> Iterator[Difference]:
    for volume in records.volumes:
        if volume["status"] == "in-use" and volume["id"] not in records.attached:
            text = f"volume {volume['id']} is in use, and nothing is attached; reset its state"
            yield Difference("volume_in_use", "", "", text)


def _not_reclaimed(records: AuditRecords) -> Iterator[Difference]:
    for server in records.not_reclaimed:
        text = f"server {server} was soft-deleted before the records were restored, and is not reclaimed"
        yield Difference("not_reclaimed", server, "", f"{text}; restore it, or delete it with --force")


def _boots_from_volume(server: Row) -> bool:
    return any(one.is_root for one in server_volumes(server["volume_info"]))


def _named(attachments: Sequence[str] | set[str]) -> str:
    return ", ".join(sorted(attachments)) or "none"
