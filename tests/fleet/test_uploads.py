"""Images of servers in a fleet: an agent, which has no database, sends the bytes to an API by HTTPS, with a token of
its step. Agent and API are killed in the middle."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fleet.fleet import Fleet
from tests.support.creates import IMAGE
from tests.support.program import until

MARKER = f"KILONOVA-DISK image:{IMAGE}".encode()


def image_of(fleet: Fleet, name: str) -> dict[str, Any] | None:
    found = fleet.http.ask("GET", f"/image/v2/images?name={name}")
    assert found.status == 200, found.body
    images: list[dict[str, Any]] = found.json["images"]
    return images[0] if images else None


def test_a_host_uploads_what_its_guest_wrote(fleet: Fleet) -> None:
    server = fleet.created()
    fleet.http.post(f"/simulated/servers/{server}/write", {"disk": "root", "text": "hello"})
    fleet.done(fleet.http.submit("snapshot", server=server, name="plain")["operation"])
    image = image_of(fleet, "plain")
    assert image is not None and (image["status"], image["size"]) == ("active", 4096)
    content = fleet.http.ask("GET", f"/image/v2/images/{image['id']}/file").body
    assert content.startswith(MARKER + b"+hello\n")
    assert fleet.http.server(server)["task_state"] is None
    assert fleet.accounting() == []


@pytest.mark.parametrize("role", ["api", "its host", "conductors"])
def test_killed_in_the_middle_of_an_upload(fleet: Fleet, role: str) -> None:
    name = role.replace(" ", "-")
    server = fleet.created()
    asked = fleet.http.submit("snapshot", server=server, name=name)["operation"]
    host = fleet.await_step(asked, "upload_image")
    for one in {"api": ["api"], "its host": [host], "conductors": ["conductor1", "conductor2"]}[role]:
        fleet.restart(one)
    shown = fleet.http.ended(asked)
    image = image_of(fleet, name)
    if role == "its host" and shown["state"] == "undone":  # on a busy machine its restart takes longer than it may
        assert shown["error"]["code"] == "host_down" and image is None, shown
        fleet.await_state(host, "up")
        return
    assert shown["state"] == "done", shown
    assert image is not None and image["status"] == "active"
    content = fleet.http.ask("GET", f"/image/v2/images/{image['id']}/file").body
    assert content.startswith(MARKER)


def test_the_host_dies_and_the_image_is_gone(fleet: Fleet) -> None:
    server = fleet.created()
    asked = fleet.http.submit("snapshot", server=server, name="never")["operation"]
    host = fleet.await_step(asked, "upload_image")
    fleet.kill9(host)
    shown = fleet.http.ended(asked)
    assert (shown["state"], shown["error"]["code"]) == ("undone", "host_down"), shown
    assert image_of(fleet, "never") is None
    fleet.start(host)
    fleet.await_state(host, "up")
    again = fleet.http.submit("snapshot", server=server, name="again")["operation"]
    fleet.done(again)
    until(lambda: image_of(fleet, "again"), 10, lambda: "the image")


def test_nobody_else_uploads(fleet: Fleet) -> None:
    """The door is open to everybody who reaches the API; only the token of a step opens it."""
    made = fleet.http.ask("POST", "/image/v2/images", {"disk_format": "raw", "container_format": "bare", "name": "own"})
    path = f"/kilonova/v1/image-bytes/{made.json['id']}?disk_format=raw"
    for token in ("", "x.y", "W10=.0000"):
        answer = fleet.http.ask("PUT", path, b"evil", {"X-Kilonova-Image-Token": token})
        assert (answer.status, answer.json["error"]["code"]) == (403, "bad_image_token")
        answer = fleet.http.ask("GET", path, headers={"X-Kilonova-Image-Token": token})
        assert (answer.status, answer.json["error"]["code"]) == (403, "bad_image_token"), "nor fetches"
    image = image_of(fleet, "own")
    assert image is not None and image["status"] == "queued"
