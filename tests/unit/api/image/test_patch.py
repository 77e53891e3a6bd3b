"""Changing images, in both writings of JSON patch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.image.asking import NEW, OLD, Glance
from tests.unit.api.image.conftest import Run


def change(op: str, path: str, *value: Any) -> dict[str, Any]:
    return {"op": op, "path": path, **({"value": value[0]} if value else {})}


def test_attributes_properties_and_tags_are_changed_at_once(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice", name="old", os_distro="cirros", os_version="1", tags=["a"])
        changed = await glance.patched(
            "alice",
            image["id"],
            change("replace", "/name", "new"),
            change("add", "/min_ram", 64),
            change("replace", "/os_hidden", True),
            change("replace", "/protected", True),
            change("replace", "/visibility", "private"),
            change("replace", "/disk_format", "qcow2"),
            change("replace", "/tags", ["c", "b", "c"]),
            change("add", "/hw_rng", "yes"),
            change("replace", "/os_distro", "debian"),
            change("remove", "/os_version"),
            change("add", "/a~1b~0c", "escaped"),
        )
        assert changed == await glance.show("alice", image["id"])
        assert changed["updated_at"] > image["updated_at"] and changed["created_at"] == image["created_at"]
        differs = {name for name in {*image, *changed} if image.get(name) != changed.get(name)}
        assert {name: changed.get(name) for name in differs - {"updated_at"}} == {
            "name": "new",
            "min_ram": 64,
            "os_hidden": True,
            "protected": True,
            "visibility": "private",
            "disk_format": "qcow2",
            "tags": ["b", "c"],
            "hw_rng": "yes",
            "os_distro": "debian",
            "os_version": None,
            "a/b~c": "escaped",
        }

    run_on_each(story)


def test_the_old_writing(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice", name="old", os_version="1")
        changed = await glance.patched(
            "alice",
            image["id"],
            {"replace": "/name", "value": "new"},
            {"add": "/os_distro", "value": "cirros"},
            {"remove": "/os_version"},
            kind=OLD,
        )
        assert (changed["name"], changed["os_distro"], "os_version" in changed) == ("new", "cirros", False)
        for path in ("/os_distro", "/name"):  # here `add` does not replace
            answer = await glance.patching("alice", image["id"], [{"add": path, "value": "x"}], OLD)
            assert answer.status_code == 409

    run(story)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ([change("replace", f"/{name}", value)], 403)
        for name, value in {
            "id": "00000000-0000-0000-0000-000000000000",
            "status": "active",
            "size": 1,
            "virtual_size": 1,
            "checksum": "x",
            "os_hash_algo": "md5",
            "os_hash_value": "x",
            "created_at": "2020-01-01T00:00:00Z",
            "updated_at": "2020-01-01T00:00:00Z",
            "self": "x",
            "file": "x",
            "schema": "x",
            "direct_url": "x",
            "stores": "x",
            "locations": [],
            "location": "x",
            "deleted": "x",
            "deleted_at": "x",
            "os_glance_import_task": "x",
        }.items()
    ]
    + [
        ([change("add", "/locations/-", {"url": "http://x"})], 403),
        ([change("remove", "/name")], 403),
        ([change("remove", "/tags")], 403),
        ([change("replace", "/owner", "bolt")], 403),
        ([change("add", "/owner", "bolt")], 403),
        ([change("replace", "/visibility", "public")], 403),
        ([change("replace", "/missing", "x")], 409),
        ([change("remove", "/missing")], 409),
        ([change("replace", "/name", 5)], 400),
        ([change("replace", "/name", "x" * 256)], 400),
        ([change("replace", "/visibility", "secret")], 400),
        ([change("replace", "/min_disk", -1)], 400),
        ([change("replace", "/min_disk", 2**70)], 400),
        ([change("replace", "/tags", "a")], 400),
        ([change("add", "/os_distro", {"a": 1})], 400),
        ([change("add", "/os_distro", None)], 400),
        ([change("add", "/os_distro", "x" * 65536)], 400),
        ([change("add", f"/{'x' * 256}", "y")], 400),
        ([change("add", "/os_distro")], 400),
        ([change("move", "/name", "x")], 400),
        ([change("add", "name", "x")], 400),
        ([change("add", "", "x")], 400),
        ([change("add", "/", "x")], 400),
        ([change("add", "//", "x")], 400),
        ([change("add", "/a/b", "x")], 400),
        ([change("add", "/a/", "x")], 400),
        ([change("add", "/tags/-", "x")], 400),
        ([change("add", "/a~2", "x")], 400),
        ([change("add", "/a~", "x")], 400),
        ([{"op": "add", "path": 5, "value": "x"}], 400),
        ([{"op": ["add"], "path": "/a", "value": "x"}], 400),
        ([{"path": "/a", "value": "x"}], 400),
        ([{"op": "add", "value": "x"}], 400),
        (["add"], 400),
        ({"op": "add"}, 400),
        ([change("add", f"/p{number}", "") for number in range(129)], 413),
        ([change("add", "/a", "")] * 1001, 413),
    ],
)
def test_changes_that_cannot_be_made_change_nothing(run: Run, changes: Any, status: int) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice", name="old")
        good = [change("replace", "/name", "new")]
        answer = await glance.patching("alice", image["id"], good + changes if isinstance(changes, list) else changes)
        assert answer.status_code == status, answer.text
        assert await glance.show("alice", image["id"]) == image

    run(story)


@pytest.mark.parametrize(
    "body", [b"", b"[", b"\xff", b"[" * 50000, b'[{"op": "add", "path": "/a\\u0000", "value": ""}]']
)
def test_what_is_no_json(run: Run, body: bytes) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        assert (await glance.patching("alice", image["id"], body)).status_code == 400

    run(story)


@pytest.mark.parametrize(
    "old", [[{"add": "/a", "remove": "/b", "value": "x"}], [{"value": "x"}], [{"add": 5, "value": "x"}]]
)
def test_bad_changes_in_the_old_writing(run: Run, old: Any) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        assert (await glance.patching("alice", image["id"], old, OLD)).status_code == 400

    run(story)


def test_other_kinds_of_body_are_refused_with_a_hint(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        for kind in ("application/json", "application/json-patch+json", "text/plain"):
            answer = await glance.patching("alice", image["id"], [], kind)
            assert answer.status_code == 415 and answer.headers["Accept-Patch"] == f"{OLD}, {NEW}"
        assert (await glance.patching("alice", image["id"], b"x" * 1_100_000)).status_code == 413

    run(story)


def test_administrators_publish_and_give_away(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        path = image["id"]
        assert (await glance.patched("alice", path, change("replace", "/visibility", "community")))[
            "visibility"
        ] == "community"
        assert (await glance.patched("admin", path, change("replace", "/visibility", "public")))[
            "visibility"
        ] == "public"
        assert (await glance.patched("alice", path, change("replace", "/name", "mine")))["name"] == "mine"
        assert (await glance.patched("admin", path, change("replace", "/owner", "bolt")))["owner"] == "bolt"
        assert (await glance.patching("alice", path, [change("replace", "/name", "still mine")])).status_code == 403
        assert (await glance.patched("bob", path, change("replace", "/visibility", "private")))["owner"] == "bolt"
        assert (await glance.patching("alice", path, [])).status_code == 404

    run(story)


def test_formats_stay_once_there_is_data(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.uploaded("alice")
        for name, value in (("disk_format", "qcow2"), ("container_format", "ovf")):
            assert (
                await glance.patching("alice", image["id"], [change("replace", f"/{name}", value)])
            ).status_code == 403
        assert await glance.show("alice", image["id"]) == image

    run(story)


def test_no_change_is_none(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice", name="web")
        assert await glance.patched("alice", image["id"]) == image
        assert await glance.patched("alice", image["id"], change("replace", "/name", "web")) == image

    run(story)
