"""One live cloud for all conversations but those about cells, which have one of two cells; each on a port that was
chosen when the tests were collected.

In the files: $ENVIRON['ADMIN'], $ENVIRON['DEMO'], $ENVIRON['READER'], $ENVIRON['MANAGER'], $ENVIRON['SERVICE'] and
$ENVIRON['OTHER'] are tokens (of an administrator, a member, a reader and a manager of the member's project, a service,
a member of another project);
$ENVIRON['PROJECT'] is the member's project, $ENVIRON['OTHER_PROJECT'] and $ENVIRON['OTHER_USER'] are the other's;
$ENVIRON['IMAGE'] and $ENVIRON['NETWORK'] are ids of the first cloud's. $ENVIRON['CELLS_ADMIN'] and
$ENVIRON['CELLS_IMAGE'] are of the cloud of two cells.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conversations.two_cells import TwoCells
from tests.support.program import Cloud, Http
from tests.support.servers import free_port

PORT, CELLS_PORT = free_port(), free_port()


class Person:
    """Somebody with a token, asking over HTTP."""

    def __init__(self, http: Http, name: str, password: str, project: str) -> None:
        self.http = http
        user = {"name": name, "domain": {"id": "default"}, "password": password}
        scope = {"project": {"name": project, "domain": {"id": "default"}}}
        identity = {"methods": ["password"], "password": {"user": user}}
        found = http.ask("POST", "/identity/v3/auth/tokens", {"auth": {"identity": identity, "scope": scope}})
        assert found.status == 201, found.body
        self.token = found.headers["X-Subject-Token"]
        self.project_id = found.json["token"]["project"]["id"]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        found = self.http.ask(method, path, body, {"X-Auth-Token": self.token, "Content-Type": "application/json"})
        assert found.status < 300, (path, found.status, found.body)
        return found.json if found.body else None


def _add_user(admin: Person, name: str, project: str, role: str) -> str:
    """Its id."""
    user = {"user": {"name": name, "password": "secret", "domain_id": "default"}}
    made = admin.ask("POST", "/identity/v3/users", user)["user"]
    roles = {found["name"]: found["id"] for found in admin.ask("GET", "/identity/v3/roles")["roles"]}
    admin.ask("PUT", f"/identity/v3/projects/{project}/users/{made['id']}/roles/{roles[role]}")
    return str(made["id"])


@pytest.fixture(scope="session", autouse=True)
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    data = tmp_path_factory.mktemp("cloud") / "var"
    with Cloud(data, "--hosts", 2, port=PORT) as cloud:
        clouds = yaml.safe_load(Path(data / "clouds.yaml").read_text())["clouds"]
        admin = Person(cloud.http, "admin", clouds["kilonova"]["auth"]["password"], "admin")
        demo = Person(cloud.http, "demo", clouds["kilonova-demo"]["auth"]["password"], "demo")
        other = admin.ask("POST", "/identity/v3/projects", {"project": {"name": "other", "domain_id": "default"}})
        _add_user(admin, "reader", demo.project_id, "reader")
        _add_user(admin, "service", demo.project_id, "service")
        _add_user(admin, "manager", demo.project_id, "manager")
        other_user = _add_user(admin, "other", other["project"]["id"], "member")
        images = admin.ask("GET", "/image/v2/images")["images"]
        networks = admin.ask("GET", "/network/v2.0/networks")["networks"]
        os.environ |= {
            "ADMIN": admin.token,
            "DEMO": demo.token,
            "READER": Person(cloud.http, "reader", "secret", "demo").token,
            "MANAGER": Person(cloud.http, "manager", "secret", "demo").token,
            "SERVICE": Person(cloud.http, "service", "secret", "demo").token,
            "OTHER": Person(cloud.http, "other", "secret", "other").token,
            "PROJECT": demo.project_id,
            "OTHER_PROJECT": other["project"]["id"],
            "OTHER_USER": other_user,
            "IMAGE": next(image["id"] for image in images if image["name"] == "cirros-sim"),
            "NETWORK": next(network["id"] for network in networks if network["name"] == "shared"),
        }
        yield cloud


@pytest.fixture(scope="session", autouse=True)
def two_cells(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoCells]:
    with TwoCells(tmp_path_factory.mktemp("cells") / "var", CELLS_PORT) as cloud:
        admin = Person(Http(f"http://127.0.0.1:{CELLS_PORT}"), "admin", cloud.admin_password, "admin")
        image = admin.ask("GET", "/image/v2/images?name=cirros-sim")["images"][0]["id"]
        os.environ |= {"CELLS_ADMIN": admin.token, "CELLS_IMAGE": image}
        yield cloud
