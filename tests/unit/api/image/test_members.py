"""Sharing images with other projects, tags, schemas."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.image.asking import Glance
from tests.unit.api.image.conftest import Run


def test_a_shared_image_is_seen_at_once_and_listed_when_accepted(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.uploaded("alice", name="gift")
        path = f"/v2/images/{image['id']}/members"
        member = await glance.done("alice", "POST", path, {"member": "bolt"})
        assert member == {
            "member_id": "bolt",
            "image_id": image["id"],
            "status": "pending",
            "created_at": member["updated_at"],
            "updated_at": member["created_at"],
            "schema": "/v2/schemas/member",
        }
        assert await glance.show("bob", image["id"]) == image
        assert (await glance.ask("bob", "GET", f"/v2/images/{image['id']}/file")).content == b"bytes"
        assert await glance.names("bob") == []
        assert await glance.names("bob", "member_status=pending&visibility=shared") == ["gift"]
        assert await glance.names("bob", "member_status=all") == ["gift"]
        for status, listed in (("accepted", ["gift"]), ("rejected", []), ("accepted", ["gift"])):
            answered = await glance.done("bob", "PUT", f"{path}/bolt", {"status": status})
            assert answered["status"] == status and answered["updated_at"] > member["updated_at"]
            assert await glance.names("bob") == listed
        await glance.done("alice", "DELETE", f"{path}/bolt", status=204)
        assert await glance.names("bob", "member_status=all") == []
        assert (await glance.refused("bob", "GET", f"/v2/images/{image['id']}"))[0] == 404

    run_on_each(story)


def test_members_may_look_but_not_touch(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        path = f"/v2/images/{image['id']}"
        await glance.done("alice", "POST", f"{path}/members", {"member": "bolt"})
        assert (await glance.refused("bob", "DELETE", path))[0] == 403
        assert (await glance.patching("bob", image["id"], [])).status_code == 403
        assert (await glance.refused("bob", "POST", f"{path}/members", {"member": "coco"}))[0] == 403
        assert (await glance.refused("bob", "DELETE", f"{path}/members/bolt"))[0] == 403

    run(story)


def test_what_is_no_longer_shared_is_hidden_from_members(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice", name="gift")
        path = f"/v2/images/{image['id']}"
        await glance.done("alice", "POST", f"{path}/members", {"member": "bolt"})
        await glance.done("bob", "PUT", f"{path}/members/bolt", {"status": "accepted"})
        for visibility, status, listed in (("private", 404, []), ("shared", 200, ["gift"])):
            change = {"op": "replace", "path": "/visibility", "value": visibility}
            await glance.patched("alice", image["id"], change)
            assert (await glance.ask("bob", "GET", path)).status_code == status
            assert await glance.names("bob") == await glance.names("bob", "visibility=all") == listed

    run(story)


def test_only_the_member_answers(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        path = f"/v2/images/{image['id']}/members"
        for project in ("bolt", "coco"):
            await glance.done("alice", "POST", path, {"member": project})
        assert (await glance.refused("alice", "PUT", f"{path}/bolt", {"status": "accepted"}))[0] == 403
        assert (await glance.refused("carol", "PUT", f"{path}/bolt", {"status": "accepted"}))[0] == 404
        assert (await glance.refused("admin", "PUT", f"{path}/nobody", {"status": "accepted"}))[0] == 404
        assert (await glance.done("alice", "GET", f"{path}/bolt"))["status"] == "pending"
        assert (await glance.done("admin", "PUT", f"{path}/bolt", {"status": "rejected"}))["status"] == "rejected"

    run(story)


def test_owners_see_all_members_and_members_themselves(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        path = f"/v2/images/{image['id']}/members"
        for project in ("coco", "bolt"):
            await glance.done("alice", "POST", path, {"member": project})
        seen = {}
        for who in ("alice", "rita", "admin", "bob"):
            shown = await glance.done(who, "GET", path)
            assert shown["schema"] == "/v2/schemas/members"
            seen[who] = [member["member_id"] for member in shown["members"]]
        assert seen == {"alice": ["coco", "bolt"], "rita": ["coco", "bolt"], "admin": ["coco", "bolt"], "bob": ["bolt"]}
        assert (await glance.done("bob", "GET", f"{path}/bolt"))["member_id"] == "bolt"
        assert (await glance.refused("bob", "GET", f"{path}/coco"))[0] == 404
        assert (await glance.refused("alice", "GET", f"{path}/nobody"))[0] == 404
        assert (await glance.refused("alice", "DELETE", f"{path}/nobody"))[0] == 404

    run(story)


@pytest.mark.parametrize("visibility", ["private", "community", "public"])
def test_only_shared_images_have_members(run: Run, visibility: str) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("admin", visibility=visibility)
        path = f"/v2/images/{image['id']}/members"
        assert (await glance.refused("admin", "POST", path, {"member": "bolt"}))[0] == 403
        assert (await glance.refused("admin", "GET", path))[0] == 403
        assert (await glance.refused("admin", "GET", f"{path}/bolt"))[0] == 404
        assert (await glance.refused("admin", "PUT", f"{path}/bolt", {"status": "accepted"}))[0] == 403
        assert (await glance.refused("admin", "DELETE", f"{path}/bolt"))[0] == 403

    run(story)


@pytest.mark.parametrize(
    ("method", "below", "body"),
    [
        ("POST", "", None),
        ("POST", "", []),
        ("POST", "", {}),
        ("POST", "", {"member": ""}),
        ("POST", "", {"member": 5}),
        ("POST", "", {"member": "x" * 256}),
        ("PUT", "/bolt", None),
        ("PUT", "/bolt", {}),
        ("PUT", "/bolt", {"status": "perhaps"}),
        ("PUT", "/bolt", {"status": ["accepted"]}),
    ],
)
def test_bad_words_about_members(run: Run, method: str, below: str, body: Any) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        path = f"/v2/images/{image['id']}/members"
        await glance.done("alice", "POST", path, {"member": "bolt"})
        before = await glance.done("alice", "GET", path)
        assert (await glance.refused("bob" if below else "alice", method, path + below, body))[0] == 400
        assert await glance.done("alice", "GET", path) == before

    run(story)


def test_twice_and_too_many(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        path = f"/v2/images/{image['id']}/members"
        for number in range(128):
            await glance.done("alice", "POST", path, {"member": f"p{number}"})
        assert (await glance.refused("alice", "POST", path, {"member": "p5"}))[0] == 409
        assert (await glance.refused("alice", "POST", path, {"member": "one more"}))[0] == 413
        assert len((await glance.done("alice", "GET", path))["members"]) == 128

    run_on_each(story)


def test_tags_come_and_go(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        path = f"/v2/images/{image['id']}/tags"
        for tag in ("b", "a", "a", "with%2Fslash%20and%20%F0%9F%98%80"):
            await glance.done("alice", "PUT", f"{path}/{tag}", status=204)
        assert (await glance.show("alice", image["id"]))["tags"] == ["a", "b", "with/slash and 😀"]
        assert await glance.names("alice", "tag=with/slash+and+%F0%9F%98%80") == [None]
        await glance.done("alice", "DELETE", f"{path}/a", status=204)
        assert (await glance.refused("alice", "DELETE", f"{path}/a"))[0] == 404
        assert (await glance.refused("alice", "PUT", f"{path}/{'x' * 256}"))[0] == 400
        assert (await glance.show("alice", image["id"]))["tags"] == ["b", "with/slash and 😀"]
        for number in range(126):
            await glance.done("alice", "PUT", f"{path}/t{number}", status=204)
        assert (await glance.refused("alice", "PUT", f"{path}/more"))[0] == 413
        await glance.done("alice", "PUT", f"{path}/t5", status=204)

    run_on_each(story)


def test_schemas_are_told(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice", os_distro="x")
        for name in ("image", "images", "member", "members"):
            schema = await glance.done("rita", "GET", f"/v2/schemas/{name}")
            assert schema["name"] == name and schema["properties"]
        schema = await glance.done("rita", "GET", "/v2/schemas/image")
        assert set(image) - set(schema["properties"]) == {"os_distro"}
        assert schema["properties"]["size"]["readOnly"] is True
        assert (await glance.refused("rita", "GET", "/v2/schemas/nonsense"))[0] == 404
        assert (await glance.refused("", "GET", "/v2/schemas/image"))[0] == 401
        methods = await glance.done("rita", "GET", "/v2/info/import")
        assert methods["import-methods"]["value"] == []

    run(story)
