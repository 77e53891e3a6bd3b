"""The state of the cloud in words that a story can compare: records, claims, disks. `then:` and `check:` say at which
to look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kilonova.compute.drivers.simulated.secret_contents import SecretContents, contents_line
from kilonova.domain.cpus import format_cpus
from kilonova.domain.details import Details
from kilonova.domain.guest import GuestSpec
from kilonova.domain.hardware import HostClaim
from kilonova.domain.json import JsonObject, as_list, as_object, as_text, decoded, json_object
from kilonova.domain.server import Flavor, flavor_from
from kilonova.engine.course import problem_from
from kilonova.operations.whole_hosts.requests import CHECKS as WHOLE
from kilonova.sim.lab.records import Records, read_records
from kilonova.sim.stories.names import Names
from kilonova.sim.stories.trouble import StoryCloud
from kilonova.sim.stories.watch import StoryWatch
from kilonova.store.host_hardware import claim_from
from kilonova.world import Row

# Subjects that are compared completely: an entry that a story does not name must not exist.
ALL_OF_IT = ("claims", "used", "counts", "ports", "hardware", "volumes", "failed_builds", "images")


@dataclass
class Scene:
    """The state of the cloud as stories compare it: each public method is a word of `then:`."""

    cloud: StoryCloud
    watch: StoryWatch
    names: Names
    flavors: dict[str, Flavor]
    records: Records = field(init=False)

    def __post_init__(self) -> None:
        self.records = read_records(self.cloud)

    # -- records ------------------------------------------------------------------------------------------------

    def servers(self) -> dict[str, JsonObject]:
        """Return the servers; one that is in no database is missing, one that has no cell yet is `placing`."""
        servers: dict[str, JsonObject] = {}
        for row in self.records.table("build_requests"):
            behind = self.watch.operations.get(("control", row["operation_id"] or ""))
            waits_for = self.names.with_names(behind["waiting_for"] or "" if behind else "")
            servers[self.names.of(row["server_id"])] = {"status": "placing", "waits_for": waits_for}
        for row in self.records.table("servers"):
            if not row["hidden"]:
                servers[self.names.of(row["id"])] = self._server(row)
        return servers

    def _server(self, row: Row) -> JsonObject:
        runner = f"{row['runner_host']}/{row['runner_copy']}" if row["runner_host"] else None
        behind = self.watch.operations.get((row["database"], row["operation_id"] or ""))
        details = decoded(row["details"], Details)
        return {
            "name": row["name"],
            "image": row["image_ref"],
            "image_properties": details.image_properties,
            "key": details.key_name,
            "metadata": details.metadata,
            "status": row["vm_state"],
            "task": row["task_state"],
            "flavor": flavor_from(row["flavor"]).name,
            "host": row["host"],
            "runner": runner,
            "proof": self.names.with_names(as_text(json_object(row["runner_proof"]).get("why"))),
            "copy": row["copy"],
            "turn": row["turn"],
            "power": {0: "none", 1: "on", 4: "off"}[row["power_state"]],
            "cell": row["database"],
            "why_unplaced": row["cell0_failure"],
            "operation": behind["kind"] if behind else None,
            "waits_for": self.names.with_names(behind["waiting_for"] or "" if behind else ""),
        }

    def counts(self) -> dict[str, int]:
        """Return the number of servers in each state."""
        counts: dict[str, int] = {}
        for server in self.servers().values():
            status = as_text(server["status"])
            counts[status] = counts.get(status, 0) + 1
        return counts

    def operations(self) -> list[str]:
        """Return all operations, in the order in which they were accepted."""
        lines = []
        for row in self.watch.operations.values():
            problem = problem_from(row["error"])
            why = f" ({problem.step or row['kind']}: {problem.code})" if problem else ""
            lines.append(f"{row['kind']} {self.names.of(row['server_id'])}".strip() + f": {row['state']}{why}")
        return lines

    def accounts(self) -> list[str]:
        """Return the accounts of operations about whole hosts: the sentence, and the hosts' proofs."""
        operations = sorted(self.records.table("operations"), key=lambda row: (row["created_at"], row["id"]))
        accounts = [as_object(json_object(row["facts"]).get("account")) for row in operations if row["kind"] in WHOLE]
        return [self.names.with_names(as_text(one["sentence"]) + _proofs(one)) for one in accounts if one]

    def failures(self) -> list[str]:
        """Records of the failure watch."""
        failures = sorted(self.records.table("host_failures"), key=lambda row: (row["created_at"], row["id"]))
        return [f"{row['host']}: {row['state']}; {row['sentence']}".removesuffix("; ") for row in failures]

    def migrations(self) -> dict[str, list[str]]:
        migrations = sorted(self.records.table("migrations"), key=lambda row: row["number"])
        return self._by_server(
            (
                row["server_id"],
                f"{row['kind']} {row['source_host']}/{row['source_copy']} -> {row['dest_host']}/{row['dest_copy']}: "
                f"{row['status']}{' (open)' if row['open'] else ''}",
            )
            for row in migrations
        )

    def copies(self) -> dict[str, list[str]]:
        copies = sorted(self.records.table("copies"), key=lambda row: (row["copy"], row["host"]))
        return self._by_server((row["server_id"], f"{row['host']}/{row['copy']} {row['state']}") for row in copies)

    def debts(self) -> list[str]:
        return sorted(
            f"{d['host']} owes {self.names.of(d['server_id'])}/{d['copy']}" for d in self.records.table("debts")
        )

    def findings(self) -> list[str]:
        """Return the findings that are not settled."""
        findings = sorted(self.records.table("findings"), key=lambda row: (row["created_at"], row["id"]))
        return [
            f"{self.names.of(row['server_id'])}: {'undo ' if row['way'] == 'undo' else ''}{row['step']}"
            f"{' on ' + row['host'] if row['host'] else ''}: {row['reason']}"
            for row in findings
            if row["open"]
        ]

    def quarantine(self) -> list[str]:
        return sorted(
            f"{q['host']} {self.names.of(q['server_id'])}/{q['copy']}: {q['reason']}"
            for q in self.records.table("quarantine")
            if q["ended_at"] is None
        )

    def settled(self) -> list[str]:
        """Return the guests that left the quarantine by an operator's decision."""
        return sorted(
            f"{q['host']} {self.names.of(q['server_id'])}/{q['copy']}: {q['action']} by {q['action_by']}"
            for q in self.records.table("quarantine")
            if q["ended_at"] is not None
        )

    def actions(self) -> dict[str, list[str]]:
        actions = sorted(self.records.table("actions"), key=lambda row: (row["started_at"], row["number"]))
        return self._by_server(
            (row["server_id"], row["action"] + (f": {row['message']}" if row["message"] else "")) for row in actions
        )

    def events(self) -> dict[str, list[str]]:
        events = sorted(self.records.table("action_events"), key=lambda r: (r["started_at"], r["finished_at"] or 1e12))
        return self._by_server(
            (row["server_id"], f"{row['event']}{' on ' + row['host'] if row['host'] else ''}: {row['result']}")
            for row in events
        )

    def faults(self) -> dict[str, list[str]]:
        """Return the faults as the owner may read them."""
        faults = sorted(self.records.table("faults"), key=lambda row: row["number"])
        return self._by_server((row["server_id"], row["message"]) for row in faults)

    def fault_details(self) -> dict[str, list[str]]:
        """Return the details of faults, which only an administrator may read."""
        faults = sorted(self.records.table("faults"), key=lambda row: row["number"])
        return self._by_server((row["server_id"], self.names.with_names(row["details"] or "")) for row in faults)

    def verdicts(self) -> dict[str, list[str]]:
        """Return, for plans that found no host, the reason against each host: host, filter, number."""
        return self._by_server(
            (step["server_id"], f"{v['host']} {v['filter']}: {v['sentence']}")
            for step in self.records.table("steps")
            for v in _verdicts(step)
            if not v["passed"]
        )

    def ports(self) -> dict[str, list[str]]:
        """Return the ports by server: each with its address and its host. Unused ones are of `nobody`."""
        addresses = {row["port_id"]: row["address"] for row in self.records.table("fixed_ips")}
        ports = sorted(self.records.table("ports"), key=lambda row: (row["slot"], row["name"]))
        by_server: dict[str, list[str]] = {}
        for row in ports:
            states = [row["name"], addresses[row["id"]], f"on {row['host']}" if row["host"] else ""]
            by_server.setdefault(self.names.of(row["device_id"]) or "nobody", []).append(" ".join(filter(None, states)))
        return by_server

    def volumes(self) -> dict[str, list[str]]:
        """Return the volumes by server: each with its state, host and content. Unattached ones are of `nobody`."""
        attached = {row["volume_id"]: row for row in self.records.table("volume_attachments")}
        by_server: dict[str, list[str]] = {}
        for row in sorted(self.records.table("volumes"), key=lambda row: row["name"]):
            one = attached.get(row["id"])
            where = f"{one['status']} on {one['host']}" if one is not None else row["status"]
            whose = self.names.of(one["server_id"]) if one is not None else "nobody"
            by_server.setdefault(whose, []).append(f"{row['name']} {where} {row['marker']}".strip())
        return by_server

    def images(self) -> dict[str, str]:
        """Return the images that were made of servers: the state, and the content that a guest finds."""
        images = [row for row in self.records.table("images") if self.names.of(row["id"]) != row["id"]]
        return {row["name"]: f"{row['status']} {row['marker'] or ''}".strip() for row in images}

    def kept_snapshots(self) -> list[str]:
        """Return the snapshots of disks that hosts keep until they are uploaded."""
        hosts = [self.cloud.hardware.host(name) for name in self.cloud.hardware.hosts()]
        return [
            f"{host.name} {self.names.of(guest.server)}/{guest.copy}: {self.names.of(guest.snapshot.name)}"
            for host in hosts
            for guest in host.guests.values()
            if guest.snapshot is not None
        ]

    def volume_snapshots(self) -> list[str]:
        """Return the volume snapshots that images of servers name."""
        snapshots = [row for row in self.records.table("volume_snapshots") if "snapshot for" in (row["name"] or "")]
        return sorted(f"{row['name']} {row['status']} {row['marker']}".strip() for row in snapshots)

    # -- claims -------------------------------------------------------------------------------------------------

    def claims(self) -> dict[str, list[str]]:
        """Return the claims of every consumer: `small on host1`, with the evacuation that holds it, if any."""
        return {
            self.names.of(consumer): [
                f"{self._amount(amounts)} on {host}" + (f" for the {self.names.of(holder)}" if holder else "")
                for (host, holder), amounts in sorted(places.items())
            ]
            for consumer, places in sorted(self.records.held.items())
        }

    def _amount(self, amounts: dict[str, int]) -> str:
        name = next((name for name, flavor in self.flavors.items() if flavor.resources() == amounts), None)
        return name or " ".join(f"{key}={amounts[key]}" for key in sorted(amounts))

    def used(self) -> dict[str, int]:
        """Return the VCPU in use per host; memory and disk are claimed alike."""
        used: dict[str, int] = {}
        for places in self.records.held.values():
            for (host, _), amounts in places.items():
                used[host] = used.get(host, 0) + amounts.get("VCPU", 0)
        return used

    def hardware(self) -> dict[str, list[str]]:
        """Return each copy's claim on its host's hardware: `host1/1 cell 0 CPU 2-3, device 0000:81:00.1`."""
        copies = sorted(self.records.table("copies"), key=lambda row: (row["copy"], row["host"]))
        return self._by_server(
            (row["server_id"], f"{row['host']}/{row['copy']} {_held(claim)}")
            for row in copies
            if (claim := claim_from(row["claim"])) is not None
        )

    # -- the machine room ---------------------------------------------------------------------------------------

    def disks(self) -> dict[str, list[str]]:
        """Return every copy on a host: its power, and the content of its disk."""
        return self._by_server(
            (f.server, f"{f.host}/{f.copy} {f.power} {f.marker if f.whole else 'incomplete'}".strip())
            for f in sorted(self.cloud.hardware.survey(), key=lambda f: (f.copy, f.host))
        )

    def contents(self) -> dict[str, list[str]]:
        """Return the contents given to each guest that is defined on a host, as its console shows them."""
        return self._by_server(
            (spec.server, f"{host}/{spec.copy} {line.removeprefix('KILONOVA-CONTENTS ').strip()}")
            for host, spec, given in self._defined()
            if (line := contents_line(spec, given))
        )

    def nics(self) -> dict[str, list[str]]:
        """Return the network devices of each guest that is defined on a host, by their addresses, as in the host's
        definition."""
        return self._by_server(
            (spec.server, f"{host}/{spec.copy} {' '.join(one.address for one in port.addresses)}")
            for host, spec, _ in self._defined()
            for port in spec.ports
        )

    def _defined(self) -> list[tuple[str, GuestSpec, SecretContents]]:
        hosts = [self.cloud.hardware.host(name) for name in self.cloud.hardware.hosts()]
        specs = [(host.name, guest.spec, guest.given) for host in hosts for guest in host.guests.values() if guest.spec]
        return sorted(specs, key=lambda one: (one[1].copy, one[0]))

    def sizes(self) -> dict[str, list[str]]:
        """Return every copy on a host: the sizes of its disks, and the content of those beside the root disk."""
        copies = sorted(self.cloud.hardware.survey(), key=lambda f: (f.copy, f.host))
        lying = [(f, self.cloud.hardware.disk(self.cloud.hardware.host(f.host), f.server, f.copy)) for f in copies]
        return self._by_server(
            (f.server, " ".join([f"{f.host}/{f.copy}", *disk.described()])) for f, disk in lying if disk is not None
        )

    def usage(self) -> dict[str, int]:
        """Return the usage of all servers together."""
        rows = self.records.table("quota_usages")
        return {name: sum(row[name] for row in rows) for name in ("instances", "cores", "ram")}

    def hosts(self) -> dict[str, str]:
        self.watch.look()
        return dict(self.watch.hosts)

    def failed_builds(self) -> dict[str, int]:
        """Return, by host, the number of failed builds since the last one that worked."""
        return {row["name"]: row["failed_builds"] for row in self.records.table("hosts") if row["failed_builds"]}

    def refused(self) -> dict[str, str]:
        """Return the agents whose registration was refused, with the reason."""
        parts = {name: role.part for name, role in self.cloud.roles.items() if name in self.cloud.hardware.hosts()}
        return {name: part.refused for name, part in parts.items() if part is not None and part.refused}

    def _by_server(self, lines: Iterator[tuple[str, str]] | Any) -> dict[str, list[str]]:
        by_server: dict[str, list[str]] = {}
        for server_id, text in lines:
            by_server.setdefault(self.names.of(server_id), []).append(text)
        return by_server


def _held(claim: HostClaim) -> str:
    cells = [f"cell {cell.cell} CPU {format_cpus(cell.host_cpus) or 'any'}" for cell in claim.cells]
    return ", ".join([*cells, *(f"device {address}" for address in claim.addresses)])


SUBJECTS = [name for name in vars(Scene) if not name.startswith("_") and callable(getattr(Scene, name))]


def differences(expected: Mapping[str, object], scene: Scene) -> list[str]:
    """Return a sentence per difference. Only the named entries are compared, except for subjects that are compared
    completely."""
    sentences: list[str] = []
    for key, wanted in expected.items():
        actual = getattr(scene, key)()
        if key in ALL_OF_IT and isinstance(wanted, dict):
            wanted = {**dict.fromkeys(actual), **wanted}
        sentences += _compare(key, wanted, actual)
    return sentences


def _compare(path: str, wanted: Any, actual: Any) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(actual, dict):
        for key, value in wanted.items():
            yield from _compare(f"{path} {key}", value, actual.get(str(key)))
    elif isinstance(wanted, list):
        entries = actual or []
        if len(wanted) != len(entries) or not all(_is_as(w, f) for w, f in zip(wanted, entries, strict=True)):
            yield f"{path}: expected {wanted}, found {entries}"
    elif not _is_as(wanted, actual):
        yield f"{path}: expected {wanted}, found {actual}"


def _is_as(wanted: Any, actual: Any) -> bool:
    """Compare two values. A text that ends in … is a prefix."""
    if isinstance(wanted, str) and wanted.endswith("…"):
        return isinstance(actual, str) and actual.startswith(wanted[:-1])
    if wanted is None or actual is None:
        return wanted in (None, "none", []) and actual in (None, "", [], {})
    return str(wanted) == str(actual)


def _verdicts(step: Row) -> list[JsonObject]:
    """Return the verdict on each host of a step that found none."""
    problem = problem_from(step["error"])
    decision = as_object(problem.details).get("decision") if problem else None
    return [as_object(verdict) for verdict in as_list(as_object(decision).get("verdicts"))]


def _proofs(account: JsonObject) -> str:
    """Return the proofs of dead hosts."""
    states = [as_text(as_object(proof)["proven_by"]) for proof in as_object(account["proof"]).values()]
    proofs = sorted(text for text in states if text)
    return f" ({', '.join(proofs)})" if proofs else ""
