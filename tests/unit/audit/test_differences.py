"""One change of records that agree, and exactly the differences that it makes, in their words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kilonova.audit.differences import AuditRecords, compare
from kilonova.domain.guest import CopyReport
from kilonova.domain.network import Vif
from kilonova.domain.server import to_json
from kilonova.domain.volume import ServerVolume

COPY, OLD = "copy 1 of server s on host1", "copy 0 of server s on host2"
OF_A = "attachment a of volume v-a"
DETACH = "detach the volume from the server"


def volumes(*attachments: str, **values: Any) -> str:
    return to_json([ServerVolume(id="b", volume_id=f"v-{one}", attachment_id=one, **values) for one in attachments])


def server(**values: Any) -> dict[str, Any]:
    vif = Vif(port_id="p", network_id="n", network_name="net", mac="")
    runs = {"host": "host1", "runner_host": "host1", "runner_copy": 1, "vm_state": "active"}
    return {"id": "s", **runs, "network_info": to_json([vif]), "volume_info": volumes("a"), **values}


def copy(number: int = 1, power: str = "on", **values: Any) -> CopyReport:
    return CopyReport(**{"server": "s", "copy": number, "power": power, "whole": True, "volumes": ("a",), **values})


@dataclass
class Cloud:
    """An active server on host1, with a port and a volume. Its older copy is still on host2, which is off."""

    server: dict[str, Any] = field(default_factory=server)
    here: list[CopyReport] | None = field(default_factory=lambda: [copy()])
    there: list[CopyReport] | None = field(default_factory=lambda: [copy(0, "off")])
    state: str = "whole"
    port: dict[str, Any] = field(default_factory=lambda: {"id": "p", "device_id": "s", "host": "host1"})
    attachment: dict[str, Any] = field(
        default_factory=lambda: {"id": "a", "volume_id": "v-a", "server_id": "s", "host": "host1"}
    )
    records: AuditRecords = field(default_factory=AuditRecords)

    def differences(self) -> set[str]:
        records = self.records
        rows: Any = (self.server, self.port, self.attachment)
        records.servers |= {row["id"]: row for row in rows[:1] if row}
        records.ports += [row for row in rows[1:2] if row]
        records.attachments += [row for row in rows[2:] if row]
        records.copies |= {("s", 1, "host1"): self.state, ("s", 0, "host2"): "leaving"} if self.server else {}
        holdings = {host: said for host, said in (("host1", self.here), ("host2", self.there)) if said is not None}
        found = compare(records, holdings)
        return {f"{one.kind} {one.server} {one.host or '-'}: {one.sentence}" for one in found}


def changed(**values: Any) -> Callable[[], Cloud]:
    """The cloud with these values; of its records, server, port and attachment only what is named."""

    def make() -> Cloud:
        cloud = Cloud()
        for name, value in values.items():
            mine = getattr(cloud, name)
            if isinstance(mine, AuditRecords):
                value = replace(mine, **value)
            elif isinstance(mine, dict) and value:
                value = {**mine, **value}
            setattr(cloud, name, value)
        return cloud

    return make


NOBODY: dict[str, Any] = {"server": {}, "port": {}, "attachment": {}, "here": [], "there": []}
UNPLACED = {"host": None, "runner_host": None, "runner_copy": None}
REPAIR = "it, or evacuate or rebuild the server"
ROOT_AND_ANOTHER = to_json(
    [
        ServerVolume(id="b", volume_id="v", attachment_id="a", is_root=True),
        ServerVolume(id="c", volume_id="w"),
    ]
)
COPIES: dict[str, tuple[Callable[[], Cloud], set[str]]] = {
    "all agrees": (changed(), set()),
    "of an unknown server": (
        changed(there=[copy(0, "off"), copy(3, server="t")]),
        {
            "unrecorded_copy t host2: copy 3 of server t on host2 is not recorded; "
            "restart the agent there so that the guest is checked"
        },
    ),
    "a third one, in quarantine": (
        changed(there=[copy(0, "off"), copy(3)], records={"excused": {("s", 3, "host2")}}),
        set(),
    ),
    "incomplete": (
        changed(here=[copy(whole=False)]),
        {f"damaged_copy s host1: {COPY} has no complete disk; restore {REPAIR}"},
    ),
    "incomplete, being made": (changed(here=[copy(whole=False)], state="making"), set()),
    "incomplete, of a server that boots from a volume": (
        changed(here=[copy(whole=False)], server={"volume_info": volumes("a", is_root=True)}),
        set(),
    ),
    "incomplete, of a server that has another volume, too": (
        changed(here=[copy(whole=False)], server={"volume_info": ROOT_AND_ANOTHER}),
        set(),
    ),
    "older one runs": (
        changed(there=[copy(0)]),
        {f"unpermitted_guest s host2: {OLD} runs; host1 has the permission to run it"},
    ),
    "older one runs on the same host": (
        changed(here=[copy(), copy(0)], records={"copies": {("s", 0, "host1"): "leaving"}}),
        {"unpermitted_guest s host1: copy 0 of server s on host1 runs; host1 has the permission to run it"},
    ),
    "older one on the same host, off": (
        changed(here=[copy(), copy(0, "off")], records={"copies": {("s", 0, "host1"): "leaving"}}),
        set(),
    ),
    "nobody may run it": (
        changed(server={"runner_host": None, "runner_copy": None}, attachment={"host": None}),
        {f"unpermitted_guest s host1: {COPY} runs; no host has the permission to run it"},
    ),
    "off": (changed(here=[copy(1, "off")]), {f"guest_off s host1: {COPY} is off, the server is ACTIVE; reboot it"}),
    "disk only": (
        changed(here=[copy(1, "absent")]),
        {f"guest_off s host1: {COPY} is off, the server is ACTIVE; reboot it"},
    ),
    "off, server stopped": (changed(here=[copy(1, "off")], server={"vm_state": "stopped"}), set()),
    "on, server stopped": (
        changed(server={"vm_state": "stopped"}),
        {f"guest_on s host1: {COPY} runs, the server is stopped; restart the agent there"},
    ),
    "on, server soft-deleted": (
        changed(server={"vm_state": "soft-delete"}),
        {f"guest_on s host1: {COPY} runs, the server is soft-delete; restart the agent there"},
    ),
    "on, server in error": (changed(server={"vm_state": "error"}), set()),
    "without its volume": (
        changed(here=[copy(volumes=())]),
        {f"guest_volumes s host1: {COPY} has the attachments none, the server a; reboot it hard"},
    ),
    "with other volumes": (
        changed(here=[copy(volumes=("c", "b"))]),
        {f"guest_volumes s host1: {COPY} has the attachments b, c, the server a; reboot it hard"},
    ),
    "older one with other volumes": (changed(there=[copy(0, "off", volumes=())]), set()),
    "without a definition": (
        changed(here=[copy(1, "absent", defined=False, volumes=())], server={"vm_state": "stopped"}),
        set(),
    ),
    "lost": (
        changed(here=[]),
        {
            "missing_copy s host1: copy 1 of server s is recorded on host1, which does not have it; "
            "adopt another copy, evacuate or rebuild the server"
        },
    ),
    "lost, on a host that did not answer": (changed(here=None), set()),
    "lost, being made": (changed(here=[], state="making"), set()),
    "lost, and owed": (changed(here=[], records={"excused": {("s", 1, "host1")}}), set()),
    "lost, and an operation is at work": (changed(here=[], records={"busy": {"s"}}), set()),
}
NOT_RESERVED = to_json([ServerVolume(id="b", volume_id="v", attachment_id=one) for one in ("a", "")])
PORTS_AND_VOLUMES: dict[str, tuple[Callable[[], Cloud], set[str]]] = {
    "port of nobody": (
        changed(**NOBODY | {"port": {"device_id": "t"}}),
        {"orphan_port t host1: port p is of server t, which does not exist; delete the port if unused"},
    ),
    "port of nobody, while a cell is away": (
        changed(**NOBODY | {"port": {"device_id": "t"}}, records={"complete": False}),
        set(),
    ),
    "port elsewhere": (
        changed(port={"host": "host2"}),
        {"port_elsewhere s host2: port p of server s is bound to host2, not to host1"},
    ),
    "port unbound": (
        changed(port={"host": ""}),
        {"port_elsewhere s -: port p of server s is bound to no host, not to host1"},
    ),
    "port unbound, of a server without a host": (
        changed(server=UNPLACED, port={"host": ""}, attachment={"host": ""}, here=None),
        set(),
    ),
    "port that its server does not have": (
        changed(port={}),
        {"missing_port s host1: server s: its record names port p, which is not its own"},
    ),
    "port that its server does not have, without a host": (
        changed(port={}, server=UNPLACED, attachment={"host": ""}, here=None),
        {"missing_port s -: server s: its record names port p, which is not its own"},
    ),
    "port that was just changed": (changed(port={}, records={"changed": {"s"}}), set()),
    "attachment of nobody": (
        changed(**NOBODY | {"attachment": {"server_id": "t"}}),
        {f"orphan_attachment t host1: {OF_A} is of server t, which does not exist; detach the volume if it is unused"},
    ),
    "attachment of nobody, while a cell is away": (
        changed(**NOBODY | {"attachment": {"server_id": "t"}}, records={"complete": False}),
        set(),
    ),
    "attachment elsewhere": (
        changed(attachment={"host": "host2"}),
        {f"attachment_elsewhere s host2: {OF_A} is connected to host2, server s runs on host1"},
    ),
    "attachment connected, of a server that runs nowhere": (
        changed(server=UNPLACED, port={"host": ""}, here=None),
        {f"attachment_elsewhere s host1: {OF_A} is connected to host1, server s runs on no host"},
    ),
    "attachment not connected": (changed(attachment={"host": ""}), set()),
    "attachment that does not exist": (
        changed(attachment={}),
        {f"missing_attachment s -: server s: its record names attachment a, which does not exist; {DETACH}"},
    ),
    "attachment that its server does not have": (
        changed(server={"volume_info": "[]"}, here=[copy(volumes=())]),
        {f"unrecorded_attachment s -: server s: attachment a is not in its record; {DETACH}"},
    ),
    "volume that is not reserved yet": (changed(server={"volume_info": NOT_RESERVED}), set()),
    "volume in use": (
        changed(records={"volumes": [{"id": "v", "status": "in-use"}, {"id": "w", "status": "error"}]}),
        {"volume_in_use  -: volume v is in use, and nothing is attached; reset its state"},
    ),
    "volume in use by somebody": (
        changed(records={"volumes": [{"id": "v", "status": "in-use"}], "attached": {"v"}}),
        set(),
    ),
    "server that is not reclaimed": (
        changed(records={"not_reclaimed": {"s"}}),
        {
            "not_reclaimed s -: server s was soft-deleted before the records were restored, and is not reclaimed; "
            "restore it, or delete it with --force"
        },
    ),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_compared_with_what_hosts_have(name: str) -> None:
    make, differences = COPIES[name]
    assert make().differences() == differences


@pytest.mark.parametrize("name", PORTS_AND_VOLUMES)
def test_ports_and_volumes_are_compared_with_the_records_of_their_servers(name: str) -> None:
    make, differences = PORTS_AND_VOLUMES[name]
    assert make().differences() == differences
