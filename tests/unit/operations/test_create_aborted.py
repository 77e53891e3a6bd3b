"""Builds that no other host would do better: one attempt, nothing held afterwards, and only the owner's words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Failed
from kilonova.services.volume.servers import ServerVolumes
from tests.support.embedded import Embedded
from tests.support.people import Person, administrator, new_person

LATEST = {"openstack-api-version": "compute 2.104"}
NO_VOLUMES = "Failed to attach the volume(s), not rescheduling."
NOT_BUILT = "Failed to build the server, not rescheduling."


@dataclass
class Place:
    cloud: Embedded
    admin: Person
    ann: Person

    @property
    def volumes(self) -> str:
        return f"/volume/v3/{self.ann.project_id}/volumes"

    def volume(self) -> str:
        made = self.ann.done("POST", self.volumes, {"volume": {"size": 1}})["volume"]["id"]
        self.cloud.until(lambda: self.statuses().get(made) == "available", "the volume is there")
        return str(made)

    def statuses(self) -> dict[str, str]:
        return {one["id"]: one["status"] for one in self.ann.done("GET", f"{self.volumes}/detail")["volumes"]}

    def limit_volumes(self, most: int) -> None:
        path = f"/volume/v3/{self.admin.project_id}/os-quota-sets/{self.ann.project_id}"
        self.admin.done("PUT", path, {"quota_set": {"volumes": most}})

    def fail(self, how: str) -> None:
        for host in ("host1", "host2"):
            order = {"fail": {"verb": "ensure_defined", "times": 1, "how": how}}
            self.admin.done("POST", f"/kilonova/v1/simulated/hosts/{host}", order)

    def create(self, *devices: dict[str, Any], by: Person | None = None, **more: Any) -> str:
        image = self.ann.done("GET", "/image/v2/images")["images"][0]["id"]
        root = {"source_type": "image", "destination_type": "local", "uuid": image, "boot_index": 0}
        server = {"name": "a", "flavorRef": "1", "imageRef": image, "networks": "auto", **more}
        server["block_device_mapping_v2"] = [root, *devices]
        made = (by or self.ann).done("POST", "/compute/v2.1/servers", {"server": server}, LATEST)
        return str(made["server"]["id"])

    def ended(self, server: str) -> dict[str, Any]:
        def look() -> Any:
            found = self.admin.done("GET", f"/compute/v2.1/servers/{server}", headers=LATEST)["server"]
            return found if found["status"] != "BUILD" else None

        return dict(self.cloud.until(look, f"{server} is built or not"))

    def aborted(self, server: str, words: str) -> None:
        """After one attempt, in its cell, without a host, holding nothing."""
        found = self.ended(server)
        told = (
            found["status"],
            found["fault"]["message"],
            found["OS-EXT-SRV-ATTR:host"],
            found["OS-EXT-STS:task_state"],
        )
        assert told == ("ERROR", words, None, None)
        seen = self.ann.done("GET", f"/compute/v2.1/servers/{server}", headers=LATEST)["server"]["fault"]
        assert "details" not in seen, "what went wrong inside is the administrator's"
        assert self.admin.done("GET", f"/placement/allocations/{server}")["allocations"] == {}
        records = self.cloud.records()
        assert not [row for row in records["control.ports"] if row["device_id"] == server]
        assert not [row for row in records["control.volume_attachments"] if row["server_id"] == server]
        chosen = [row for row in records["cell1.steps"] if row["server_id"] == server and "select" in row["name"]]
        assert not chosen, "no other host was looked for"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Embedded(tmp_path / "var", "simulated.hosts=2") as cloud:
        admin = administrator(cloud)
        yield Place(cloud, admin, new_person(admin, "ann", "first", "member"))


def new(*, goes: bool) -> dict[str, Any]:
    return {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "delete_on_termination": goes}


def there(volume: str, *, goes: bool = False) -> dict[str, Any]:
    return {"source_type": "volume", "destination_type": "volume", "uuid": volume, "delete_on_termination": goes}


def test_the_quota_of_volumes_ends_it_and_what_was_made_goes_if_it_should(place: Place) -> None:
    place.limit_volumes(1)
    place.aborted(place.create(new(goes=True), new(goes=True)), NO_VOLUMES)
    place.cloud.until(lambda: place.statuses() == {}, "the one that was made is deleted")
    place.aborted(place.create(new(goes=False), new(goes=False)), NO_VOLUMES)
    place.cloud.until(lambda: list(place.statuses().values()) == ["available"], "the one that was made stays")


def test_what_was_made_goes_also_when_the_last_step_fails(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """By then the first of them is no longer noted as one that goes: the server's record would have said so."""
    noted: list[str] = []
    note = ServerVolumes.set_delete_on_termination

    async def noting(self: ServerVolumes, fence: Any, *, attachment_id: str, delete: bool) -> None:
        if noted:
            raise Failed("volume_lost", "told to fail", final=True)
        noted.append(attachment_id)
        await note(self, fence, attachment_id=attachment_id, delete=delete)

    monkeypatch.setattr(ServerVolumes, "set_delete_on_termination", noting)
    assert place.ended(place.create(new(goes=True), new(goes=True)))["status"] == "ERROR"
    assert noted
    place.cloud.until(lambda: place.statuses() == {}, "both are deleted")


def test_a_host_that_refuses_gives_the_volumes_back(place: Place) -> None:
    """One that was there before stays even if it should go with the server: the server never came to have it."""
    volume = place.volume()
    place.fail("refuse")
    place.aborted(place.create(there(volume, goes=True), new(goes=True)), NOT_BUILT)
    place.cloud.until(lambda: place.statuses() == {volume: "available"}, "the other one is deleted")


def test_a_host_that_fails_is_followed_by_another_with_the_same_volumes(place: Place) -> None:
    volume = place.volume()
    order = {"fail": {"verb": "ensure_defined", "times": 1, "how": "error"}}
    place.admin.done("POST", "/kilonova/v1/simulated/hosts/host1", order)
    found = place.ended(place.create(there(volume), new(goes=True)))
    assert (found["status"], found["OS-EXT-SRV-ATTR:host"]) == ("ACTIVE", "host2")
    assert sorted(place.statuses().values()) == ["in-use", "in-use"]


def test_a_forced_host_that_fails_is_the_only_one_that_is_tried(place: Place) -> None:
    order = {"fail": {"verb": "ensure_defined", "times": 1, "how": "error"}}
    place.admin.done("POST", "/kilonova/v1/simulated/hosts/host1", order)
    server = place.create(by=place.admin, availability_zone="nova:host1")
    found = place.ended(server)
    assert (found["status"], found["OS-EXT-SRV-ATTR:host"]) == ("ERROR", None)
    told = place.admin.done("GET", f"/kilonova/v1/servers/{server}/explain")
    (first,) = told["earlier"]
    assert first["decision"]["chosen"]["host"] == "host1" and first["problem"]["step"] == "build_and_run_instance"
    rejected = {one["host"]: one["filter"] for one in told["decision"]["verdicts"]}
    assert told["decision"]["chosen"] is None and rejected == {"host1": "excluded", "host2": "wanted_host"}
