"""What the owner of a server that did not fit reads, and what an administrator reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.embedded import Embedded
from tests.support.people import Person, administrator, new_person

WIDE = {"id": "wide", "name": "wide", "vcpus": 100, "ram": 512, "disk": 1}


def created(who: Person, **more: Any) -> str:
    image = who.done("GET", "/image/v2/images")["images"][0]["id"]
    server = {"name": "s", "flavorRef": "wide", "imageRef": image, "networks": "none", **more}
    made = who.done("POST", "/compute/v2.1/servers", {"server": server}, {"openstack-api-version": "compute 2.37"})
    return str(made["server"]["id"])


def fault(cloud: Embedded, who: Person, server: str) -> dict[str, Any]:
    def shown() -> dict[str, Any]:
        return dict(who.done("GET", f"/compute/v2.1/servers/{server}")["server"])

    cloud.until(lambda: shown()["status"] == "ERROR", "it did not fit")
    return dict(shown()["fault"])


def test_the_owner_reads_the_class_and_the_own_number(tmp_path: Path) -> None:
    with Embedded(tmp_path / "var") as cloud:
        admin = administrator(cloud)
        admin.done("POST", "/compute/v2.1/flavors", {"flavor": WIDE})
        admin.done("PUT", f"/compute/v2.1/os-quota-sets/{admin.project_id}", {"quota_set": {"cores": -1}})
        member = new_person(admin, "ann", "admin", "member")
        server = created(member)
        own = fault(cloud, member, server)
        assert own["message"] == "No valid host was found. No host has 100 VCPU free."
        assert "details" not in own
        whole = fault(cloud, admin, server)
        assert whole["message"] == f"{own['message']} It would fit with a flavor with at most 64 VCPU."
        assert "host1  capacity: needs 100 VCPU, 64 free of 64" in whole["details"].splitlines()


def test_each_server_of_several_has_its_own_decision(tmp_path: Path) -> None:
    with Embedded(tmp_path / "var") as cloud:
        admin = administrator(cloud)
        admin.done("PUT", f"/compute/v2.1/os-quota-sets/{admin.project_id}", {"quota_set": {"cores": -1}})
        created(admin, flavorRef="1", min_count=3)
        servers = admin.done("GET", "/compute/v2.1/servers/detail")["servers"]
        cloud.until(lambda: all(one["status"] == "ACTIVE" for one in listed(admin)), "all three run")
        for one in listed(admin):
            told = admin.done("GET", f"/kilonova/v1/servers/{one['id']}/explain")
            assert told["decision"]["chosen"]["host"] == one["OS-EXT-SRV-ATTR:host"]
        assert len(servers) == 3


def listed(admin: Person) -> list[dict[str, Any]]:
    return list(admin.done("GET", "/compute/v2.1/servers/detail")["servers"])
