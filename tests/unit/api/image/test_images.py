"""Creating, showing, deleting images, and who may."""

from __future__ import annotations

import pytest

from tests.unit.api.image.asking import FORMATS, URL, Glance
from tests.unit.api.image.conftest import Run

ID = "12345678-1234-4321-abcd-1234567890ab"


def test_versions_are_told_to_anybody_with_addresses_that_can_be_reached(run: Run) -> None:
    async def story(glance: Glance) -> None:
        for path, status in (("", 300), ("/", 300), ("/versions", 200)):
            versions = (await glance.done("", "GET", path, status=status))["versions"]
            assert [version["status"] for version in versions].count("CURRENT") == 1
            assert "v2.0" in {version["id"] for version in versions}
            assert {link["href"] for version in versions for link in version["links"]} == {f"{URL}/image/v2/"}

    run(story)


def test_everything_else_needs_a_token(run: Run) -> None:
    async def story(glance: Glance) -> None:
        for who in ("", "wrong"):
            answer = await glance.ask(who, "GET", "/v2/images")
            assert answer.status_code == 401 and "Keystone" in answer.headers["WWW-Authenticate"]

    run(story)


def test_a_new_image_is_queued_shared_and_of_the_callers_project(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        answer = await glance.ask("alice", "POST", "/v2/images", {"name": "web", "os_distro": "cirros", **FORMATS})
        image = answer.json()
        assert answer.status_code == 201
        assert answer.headers["Location"] == f"{URL}/image/v2/images/{image['id']}"
        assert answer.headers["x-openstack-request-id"].startswith("req-")
        assert image == {
            "id": image["id"],
            "name": "web",
            "os_distro": "cirros",
            "status": "queued",
            "visibility": "shared",
            "owner": "acme",
            "protected": False,
            "os_hidden": False,
            "min_disk": 0,
            "min_ram": 0,
            "container_format": "bare",
            "disk_format": "raw",
            "size": None,
            "virtual_size": None,
            "checksum": None,
            "os_hash_algo": None,
            "os_hash_value": None,
            "created_at": image["updated_at"],
            "updated_at": image["created_at"],
            "tags": [],
            "self": f"/v2/images/{image['id']}",
            "file": f"/v2/images/{image['id']}/file",
            "schema": "/v2/schemas/image",
        }
        assert image["created_at"].startswith("2023-11-14T22:13:") and image["created_at"].endswith("Z")
        assert await glance.show("alice", image["id"]) == image

    run_on_each(story)


def test_all_that_can_be_said_at_creation_is_kept(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        wanted = {
            "id": ID,
            "name": None,
            "visibility": "private",
            "owner": "bolt",
            "protected": True,
            "os_hidden": True,
            "min_disk": 3,
            "min_ram": 1024.0,
            "container_format": "ovf",
            "disk_format": "qcow2",
            "tags": ["b", "a", "b"],
            "owner_specified.openstack.md5": "",
            "ключ": "значение",
        }
        await glance.done("admin", "POST", "/v2/images", wanted, 201)
        shown = await glance.show("bob", ID)
        assert {name: shown[name] for name in wanted} == {**wanted, "tags": ["a", "b"]}
        assert isinstance(shown["min_ram"], int)
        assert await glance.refused("admin", "POST", "/v2/images", {"id": ID}) == (
            409,
            f"Image ID {ID} already exists!",
        )

    run_on_each(story)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ([], 400),
        ({"name": "x" * 256}, 400),
        ({"name": 5}, 400),
        ({"id": "not-a-uuid"}, 400),
        ({"id": None}, 400),
        ({"visibility": "secret"}, 400),
        ({"container_format": "box"}, 400),
        ({"disk_format": "floppy"}, 400),
        ({"min_ram": -1}, 400),
        ({"min_disk": 2**31}, 400),
        ({"min_disk": 1e300}, 400),
        ({"min_disk": "1"}, 400),
        ({"protected": "yes"}, 400),
        ({"tags": "a"}, 400),
        ({"tags": ["x" * 256]}, 400),
        ({"os_distro": 7}, 400),
        ({"os_distro": None}, 400),
        ({"x" * 256: "long"}, 400),
        ({"": "empty"}, 400),
        ({"long": "x" * 65536}, 400),
        ({"nul": "a\x00"}, 400),
        ({"self": "/x"}, 403),
        ({"file": "/x"}, 403),
        ({"schema": "/x"}, 403),
        ({"stores": "x"}, 403),
        ({"direct_url": "x"}, 403),
        ({"locations": []}, 403),
        ({"status": "active"}, 403),
        ({"size": 5}, 403),
        ({"checksum": "x"}, 403),
        ({"os_hash_value": "x"}, 403),
        ({"created_at": "2020-01-01T00:00:00Z"}, 403),
        ({"deleted": "x"}, 403),
        ({"location": "x"}, 403),
        ({"os_glance_foo": "x"}, 403),
        ({"owner": "bolt"}, 403),
        ({"owner": None}, 403),
        ({"visibility": "public"}, 403),
        ({f"p{number}": "" for number in range(129)}, 413),
        ({"tags": [f"t{number}" for number in range(129)]}, 413),
        (b"{", 400),
        (b"[" * 20000, 400),
        (b'{"name": "\\ud800"}', 400),
        (b" " * 200_000, 413),
    ],
)
def test_what_cannot_be_created_changes_nothing(run: Run, body: object, status: int) -> None:
    async def story(glance: Glance) -> None:
        headers = {"Content_Type": "application/json"} if isinstance(body, bytes) else {}
        assert (await glance.refused("alice", "POST", "/v2/images", body, **headers))[0] == status
        assert await glance.names("admin") == []

    run(story)


def test_a_body_of_another_kind_is_refused(run: Run) -> None:
    async def story(glance: Glance) -> None:
        status, _ = await glance.refused("alice", "POST", "/v2/images", b"name: web", Content_Type="text/yaml")
        assert status == 415
        assert (await glance.refused("alice", "POST", "/v2/images"))[0] == 400

    run(story)


@pytest.mark.parametrize("visibility", ["private", "shared"])
def test_another_projects_image_does_not_exist(run: Run, visibility: str) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.uploaded("alice", visibility=visibility)
        path, missing = f"/v2/images/{image['id']}", "/v2/images/00000000-0000-0000-0000-000000000000"
        patch = {"Content_Type": "application/openstack-images-v2.1-json-patch"}
        for method, below, body, headers in (
            ("GET", "", None, {}),
            ("DELETE", "", None, {}),
            ("PATCH", "", [{"op": "add", "path": "/name", "value": "stolen"}], patch),
            ("GET", "/file", None, {}),
            ("PUT", "/file", b"x", {"Content_Type": "application/octet-stream"}),
            ("PUT", "/tags/mine", None, {}),
            ("DELETE", "/tags/mine", None, {}),
            ("POST", "/actions/deactivate", None, {}),
            ("POST", "/actions/reactivate", None, {}),
            ("GET", "/members", None, {}),
            ("POST", "/members", {"member": "bolt"}, {}),
            ("GET", "/members/bolt", None, {}),
            ("PUT", "/members/bolt", {"status": "accepted"}, {}),
            ("DELETE", "/members/bolt", None, {}),
        ):
            told = await glance.refused("bob", method, path + below, body, **headers)
            really = await glance.refused("bob", method, missing + below, body, **headers)
            assert told[0] == 404 and told[1].replace(path[11:], "") == really[1].replace(missing[11:], "")
        assert await glance.show("alice", image["id"]) == image
        assert await glance.show("admin", image["id"]) == image

    run(story)


def test_public_and_community_images_are_seen_and_not_changed_by_others(run: Run) -> None:
    async def story(glance: Glance) -> None:
        public = await glance.uploaded("admin", visibility="public")
        community = await glance.uploaded("alice", visibility="community")
        for image in (public, community):
            path = f"/v2/images/{image['id']}"
            assert await glance.show("bob", image["id"]) == image
            assert (await glance.ask("bob", "GET", f"{path}/file")).content == b"bytes"
            assert (await glance.refused("bob", "DELETE", path))[0] == 403
            assert (await glance.patching("bob", image["id"], [])).status_code == 403
            assert (await glance.refused("bob", "PUT", f"{path}/tags/mine"))[0] == 403
            assert (await glance.refused("bob", "POST", f"{path}/actions/deactivate"))[0] == 403
            assert await glance.show("admin", image["id"]) == image

    run(story)


def test_readers_look_and_do_not_touch(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.uploaded("alice")
        path = f"/v2/images/{image['id']}"
        assert await glance.show("rita", image["id"]) == image
        assert await glance.names("rita") == [None]
        assert (await glance.done("rita", "GET", f"{path}/members"))["members"] == []
        assert (await glance.refused("rita", "POST", "/v2/images", {}))[0] == 403
        assert (await glance.refused("rita", "DELETE", path))[0] == 403
        assert (await glance.patching("rita", image["id"], [])).status_code == 403
        assert (await glance.refused("rita", "GET", f"{path}/file"))[0] == 403
        status, _ = await glance.refused("rita", "PUT", f"{path}/file", b"x", Content_Type="application/octet-stream")
        assert status == 403
        assert (await glance.refused("rita", "PUT", f"{path}/tags/a"))[0] == 403
        assert (await glance.refused("rita", "POST", f"{path}/members", {"member": "bolt"}))[0] == 403
        assert (await glance.refused("rita", "POST", f"{path}/actions/deactivate"))[0] == 403
        assert await glance.show("alice", image["id"]) == image

    run(story)


@pytest.mark.parametrize("who", ["nobody", "operator"])
def test_a_token_without_a_project_is_for_nothing_here(run: Run, who: str) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("admin", visibility="public")
        assert (await glance.refused(who, "GET", "/v2/images"))[0] == 403
        assert (await glance.refused(who, "GET", f"/v2/images/{image['id']}"))[0] == 403
        assert (await glance.refused(who, "POST", "/v2/images", {}))[0] == 403
        assert (await glance.refused(who, "DELETE", f"/v2/images/{image['id']}"))[0] == 403

    run(story)


def test_without_a_role_images_are_hidden(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("alice")
        assert (await glance.refused("guest", "GET", f"/v2/images/{image['id']}"))[0] == 404
        assert (await glance.refused("guest", "DELETE", f"/v2/images/{image['id']}"))[0] == 404
        assert (await glance.refused("guest", "GET", "/v2/images"))[0] == 403
        assert (await glance.refused("guest", "POST", "/v2/images", {}))[0] == 403

    run(story)


def test_a_deleted_image_is_gone_with_its_file(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.uploaded("alice", tags=["a"], os_distro="cirros")
        other = await glance.uploaded("alice")
        assert len(glance.files()) == 2
        path = f"/v2/images/{image['id']}"
        await glance.done("alice", "POST", f"{path}/members", {"member": "bolt"})
        await glance.done("alice", "DELETE", path, status=204)
        assert len(glance.files()) == 1
        assert (await glance.refused("alice", "GET", path))[0] == 404
        assert (await glance.refused("alice", "DELETE", path))[0] == 404
        assert (await glance.ask("alice", "GET", f"/v2/images/{other['id']}/file")).content == b"bytes"

    run_on_each(story)


def test_the_id_of_a_deleted_image_is_never_given_again(run_on_each: Run) -> None:
    """Else somebody could put another image in the place of the one that others still name (OSSN-0075)."""

    async def story(glance: Glance) -> None:
        uploaded = await glance.uploaded("alice", visibility="community")
        queued = await glance.create("alice")
        chosen = await glance.create("alice", id=ID)
        for image in (uploaded, queued, chosen):
            path = f"/v2/images/{image['id']}"
            await glance.done("alice", "DELETE", path, status=204)
            for who in ("bob", "alice", "admin"):
                status, text = await glance.refused(who, "POST", "/v2/images", {"id": image["id"]})
                assert status == 409 and "already exists" in text
                assert (await glance.refused(who, "GET", path))[0] == 404

    run_on_each(story)


def test_a_refused_image_does_not_take_its_id(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        too_many = {"id": ID, "tags": [str(number) for number in range(129)]}
        assert (await glance.refused("alice", "POST", "/v2/images", too_many))[0] == 413
        assert (await glance.create("alice", id=ID))["id"] == ID

    run_on_each(story)


def test_a_protected_image_stays_until_it_is_not(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.uploaded("alice", protected=True)
        for who in ("alice", "admin"):
            status, text = await glance.refused(who, "DELETE", f"/v2/images/{image['id']}")
            assert status == 403 and "protected" in text
        assert len(glance.files()) == 1
        await glance.patched("alice", image["id"], {"op": "replace", "path": "/protected", "value": False})
        await glance.done("alice", "DELETE", f"/v2/images/{image['id']}", status=204)
        assert glance.files() == []

    run(story)


def test_a_deactivated_image_is_read_by_administrators_only(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.uploaded("alice")
        path = f"/v2/images/{image['id']}"
        for _ in range(2):  # twice is as once
            await glance.done("alice", "POST", f"{path}/actions/deactivate", status=204)
            assert (await glance.show("alice", image["id"]))["status"] == "deactivated"
        assert (await glance.refused("alice", "GET", f"{path}/file"))[0] == 403
        assert (await glance.ask("admin", "GET", f"{path}/file")).content == b"bytes"
        for _ in range(2):
            await glance.done("alice", "POST", f"{path}/actions/reactivate", status=204)
        assert (await glance.ask("alice", "GET", f"{path}/file")).content == b"bytes"
        queued = await glance.create("alice")
        for action in ("deactivate", "reactivate"):
            assert (await glance.refused("alice", "POST", f"/v2/images/{queued['id']}/actions/{action}"))[0] == 403
        assert (await glance.show("alice", queued["id"]))["status"] == "queued"

    run(story)


def test_addresses_that_are_none(run: Run) -> None:
    async def story(glance: Glance) -> None:
        await glance.create("alice")
        assert (await glance.refused("alice", "GET", "/v2/images/"))[0] == 404  # an id was left out
        assert (await glance.refused("alice", "DELETE", "/v2/images/"))[0] == 404
        assert (await glance.refused("alice", "GET", "/v2/tasks"))[0] == 404
        assert (await glance.refused("alice", "GET", "/v2/info/stores"))[0] == 404
        assert (await glance.refused("alice", "GET", "/v3/images"))[0] == 404
        answer = await glance.ask("alice", "PUT", "/v2/images")
        assert answer.status_code == 405 and answer.headers["Allow"] == "GET, POST"
        assert (await glance.refused("alice", "GET", "/v2/images/%00"))[0] == 400
        for strange in ("%2e%2e%2fcontrol.db", "a" * 5000, "%F0%9F%98%80", "'; DROP TABLE images"):
            assert (await glance.refused("alice", "GET", f"/v2/images/{strange}"))[0] == 404
            assert (await glance.refused("alice", "GET", f"/v2/images/{strange}/file"))[0] == 404

    run(story)
