"""A create through our own REST: its dry run (/plans) changes nothing, and both are refused as POST /servers is."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.embedded import Embedded
from tests.support.people import Person, administrator, new_person

PLANS, OPERATIONS, SERVERS = "/kilonova/v1/plans", "/kilonova/v1/operations", "/compute/v2.1/servers"
LATEST = {"openstack-api-version": "compute 2.104"}
MISSING = "11111111-2222-4333-8444-555555555555"
GIB = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}


@dataclass
class Place:
    cloud: Embedded
    admin: Person
    member: Person
    image: str
    network: str
    group: str
    volume: str

    def body(self, hints: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        server = {"name": "web", "flavorRef": "1", "imageRef": self.image, "networks": [{"uuid": self.network}], **more}
        wanted = {name: value for name, value in server.items() if value is not None}
        return {"server": wanted, **({"os:scheduler_hints": hints} if hints else {})}

    def plan(self, who: Person, body: dict[str, Any]) -> dict[str, Any]:
        """Nothing of it may be left in any database."""
        before = self.cloud.records()
        found = who.done("POST", PLANS, {"operation": "create", **body}, LATEST)["plan"]
        assert self.cloud.records() == before
        return dict(found)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    options = ("simulated.hosts=3", "quota.instances=5", "quota.server_group_members=2")
    with tempfile.TemporaryDirectory(prefix="kilonova-plan-") as path, Embedded(_data(path), *options) as cloud:
        admin = administrator(cloud)
        member = new_person(admin, "ann", "first", "member")
        yield Place(
            cloud,
            admin,
            member,
            image=admin.done("GET", "/image/v2/images")["images"][0]["id"],
            network=_network(admin),
            group=_group(member),
            volume=_volume(member),
        )


def _data(path: str) -> Path:
    """A data directory whose policy lets members ask for operations: one person can use all three ways."""
    data = Path(path) / "var"
    data.mkdir(mode=0o700)
    (data / "policy.yaml").write_text('"kilonova:operations": "rule:project_member_or_admin"\n')
    return data


def _network(admin: Person) -> str:
    found = admin.done("GET", "/network/v2.0/networks")["networks"]
    return next(str(network["id"]) for network in found if network["name"] == "shared")


def _group(member: Person) -> str:
    wish = {"name": "apart", "policy": "anti-affinity"}
    made = member.done("POST", "/compute/v2.1/os-server-groups", {"server_group": wish}, LATEST)
    return str(made["server_group"]["id"])


def _volume(member: Person) -> str:
    made = member.done("POST", f"/volume/v3/{member.project_id}/volumes", {"volume": {"size": 1}})["volume"]
    path = f"/volume/v3/{member.project_id}/volumes/{made['id']}"
    member.cloud.until(lambda: member.done("GET", path)["volume"]["status"] == "available", "the volume is there")
    return str(made["id"])


def test_the_administrator_is_told_everything(place: Place) -> None:
    told = place.plan(place.admin, place.body())
    (server,) = told["servers"]
    assert server["name"] == "web" and server["cell"] == "cell1"
    assert {server["host"], *server["alternates"]} == {"host1", "host2", "host3"}
    assert server["claims"] == {server["host"]: GIB} and server["resources"] == GIB
    assert told["decision"]["chosen"]["host"] == server["host"] and told["problem"] is None
    assert told["ports"] == [{"network_id": place.network}] and told["volumes"] == []
    assert told["quota"]["instances"] == {"limit": 5, "used": 0, "asked": 1, "left": 4}
    names = [step["name"] for step in told["steps"]]
    assert names[:2] == ["select_destinations", "claim"] and names[-2:] == [
        "build_and_run_instance",
        "complete_volumes",
    ]


def test_the_owner_is_told_what_it_takes_but_not_where(place: Place) -> None:
    told = place.plan(place.member, place.body())
    assert told["servers"] == [{"name": "web", "resources": GIB}]
    assert told["decision"] is None and told["problem"] is None
    assert "host1" not in str(told) and "cell1" not in str(told)


def test_several_are_placed_together_as_many_as_the_quota_has_room_for(place: Place) -> None:
    told = place.plan(place.admin, place.body({"different_host": [MISSING]}, min_count=2, max_count=9))
    assert [server["name"] for server in told["servers"]] == [f"web-{n}" for n in range(1, 6)]
    assert all(server["host"] for server in told["servers"])
    assert told["quota"]["instances"]["left"] == 0
    assert [step["name"] for step in told["steps"]][:3] == ["select_destinations", "claim", "start_placing"]


def test_numbers_may_be_strings_and_floats_without_a_fraction(place: Place) -> None:
    told = place.plan(place.member, place.body(min_count="2", max_count=3.0, config_drive="yes"))
    assert [server["name"] for server in told["servers"]] == ["web-1", "web-2", "web-3"]


def test_a_group_binds_the_plan_though_nobody_joins_it(place: Place) -> None:
    told = place.plan(place.member, place.body({"group": place.group}, min_count=2))
    assert len(told["servers"]) == 2 and told["problem"] is None
    members = place.member.done("GET", f"/compute/v2.1/os-server-groups/{place.group}")["server_group"]["members"]
    assert members == []


def test_ports_and_volumes_are_named_and_stay_free(place: Place) -> None:
    device = {"source_type": "volume", "destination_type": "volume", "uuid": place.volume, "boot_index": -1}
    root = {"source_type": "image", "destination_type": "local", "uuid": place.image, "boot_index": 0}
    told = place.plan(place.member, place.body(block_device_mapping_v2=[root, device]))
    assert [volume["volume_id"] for volume in told["volumes"]] == [place.volume]
    shown = place.member.done("GET", f"/volume/v3/{place.member.project_id}/volumes/{place.volume}")["volume"]
    assert shown["status"] == "available"


def test_when_nothing_fits_the_reason_is_the_administrators(place: Place) -> None:
    place.admin.done("POST", "/compute/v2.1/flavors", {"flavor": _HUGE})
    asked = place.body(flavorRef="huge")
    told = place.plan(place.admin, asked)
    assert told["problem"]["code"] == "no_valid_host" and "0 of 3 hosts fit" in told["problem"]["message"]
    assert told["servers"][0]["host"] is None
    assert told["decision"]["changes"], "the smallest change that would let it fit"
    assert {verdict["host"] for verdict in told["decision"]["verdicts"]} == {"host1", "host2", "host3"}
    safe = place.plan(place.member, asked)
    assert safe["problem"] == {"code": "no_valid_host", "message": "No valid host was found."}
    assert safe["decision"] is None


_HUGE = {"id": "huge", "name": "huge", "vcpus": 1, "ram": 512, "disk": 99999, "swap": 0}


def test_the_default_security_group_is_not_made(place: Place) -> None:
    stranger = new_person(place.admin, "bob", "second", "member")
    assert place.plan(stranger, place.body(security_groups=[{"name": "default"}]))["problem"] is None


REFUSED: dict[str, dict[str, Any]] = {
    "no name": {"name": ""},
    "unknown field": {"colour": "red"},
    "flavor": {"flavorRef": "none"},
    "image": {"imageRef": MISSING},
    "network": {"networks": [{"uuid": MISSING}]},
    "port": {"networks": [{"port": MISSING}]},
    "key": {"key_name": "none"},
    "zone": {"availability_zone": "mars"},
    "forced host": {"availability_zone": "nova:host1"},
    "wanted host": {"host": "host1"},
    "counts": {"min_count": 3, "max_count": 2},
    "quota": {"min_count": 6},
    "security group": {"security_groups": [{"name": "none"}]},
    "user data": {"user_data": "*"},
    "tags": {"tags": ["a/b"]},
    "host name of several": {"hostname": "web", "min_count": 2},
    "certificates": {"trusted_image_certificates": ["x"], "imageRef": MISSING},
    "devices": {"block_device_mapping_v2": [{"boot_index": 0, "uuid": "IMAGE", "source_type": "image"}]},
    "size": {"user_data": "x" * 120_000},
    "metadata": {"metadata": {str(n): "x" for n in range(129)}},
    "volume": {"block_device_mapping_v2": [{"boot_index": 0, "uuid": MISSING, "source_type": "volume"}]},
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_a_create_and_its_dry_run_are_refused_as_by_compute(place: Place, change: dict[str, Any]) -> None:
    _refused_alike(place, place.body(**change))


@pytest.mark.parametrize("hints", [{"group": MISSING}, {"group": "GROUP"}], ids=["unknown", "full"])
def test_a_group_refuses_alike(place: Place, hints: dict[str, str]) -> None:
    named = {"group": place.group} if hints["group"] == "GROUP" else hints
    _refused_alike(place, place.body(named, min_count=3))


def test_a_file_that_is_no_base64_is_refused_before_anything_is_made(place: Place) -> None:
    """Nova finds it on the host and leaves a server in ERROR."""
    files = [{"path": "/etc/motd", "contents": "*"}]
    _refused_alike(place, place.body(personality=files), {"openstack-api-version": "compute 2.56"})


def _refused_alike(place: Place, body: dict[str, Any], version: dict[str, str] = LATEST) -> None:
    before = place.cloud.records()
    real = place.member.ask("POST", SERVERS, body, version)
    dry = place.member.ask("POST", PLANS, {"operation": "create", **body}, version)
    own = place.member.ask("POST", OPERATIONS, {"operation": "create", **body}, version)
    (fault,) = real.json.values()
    assert real.status in (400, 403, 404, 409, 413), real.text
    for answer in (dry, own):
        assert (answer.status, answer.json["error"]["message"]) == (real.status, fault["message"])
    assert place.cloud.records() == before


def test_the_microversion_is_that_of_the_request(place: Place) -> None:
    files = [{"path": "/etc/motd", "contents": base64.b64encode(b"hello").decode()}]
    asked = {"operation": "create", **place.body(personality=files)}
    assert place.member.ask("POST", PLANS, asked, {"openstack-api-version": "compute 2.56"}).status == 200
    for path in (PLANS, OPERATIONS):
        assert place.member.ask("POST", path, asked, {"openstack-api-version": "compute 2.57"}).status == 400
        assert place.member.ask("POST", path, asked, {"openstack-api-version": "compute 9.9"}).status == 406


def test_several_servers_are_created_with_all_that_a_body_can_say(place: Place) -> None:
    body = {"operation": "create", **place.body(min_count=2, metadata={"a": "b"}, adminPass="sesame")}
    made = place.member.done("POST", OPERATIONS, body, LATEST)
    assert (len(made["servers"]), made["server"], made["adminPass"]) == (2, made["servers"][0], "sesame")
    for number, server in enumerate(made["servers"], 1):
        shown = place.member.done("GET", f"{SERVERS}/{server}", headers=LATEST)["server"]
        assert (shown["name"], shown["metadata"]) == (f"web-{number}", {"a": "b"})
        assert place.member.ask("DELETE", f"{SERVERS}/{server}").status == 204
    gone = "the servers are gone"
    place.cloud.until(lambda: place.member.done("GET", SERVERS)["servers"] == [], gone)


def test_nobody_creates_or_plans_who_may_not(place: Place) -> None:
    reader = new_person(place.admin, "eve", "first", "reader")
    for path in (PLANS, OPERATIONS):
        refused = reader.ask("POST", path, {"operation": "create", **place.body()}, LATEST)
        assert (refused.status, refused.json["error"]["code"]) == (403, "forbidden")
    other = place.member.ask("POST", PLANS, {"operation": "delete", "server": MISSING})
    assert other.status == 403, "the other plans are the administrator's"
