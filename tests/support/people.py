"""Somebody with a token, who asks a cloud of this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.embedded import Answered, Asked, Embedded

PASSWORD = "secret-1"
TOKENS = "/identity/v3/auth/tokens"


@dataclass
class Person:
    cloud: Embedded
    name: str
    password: str
    project: str
    token: str = ""
    user_id: str = ""
    project_id: str = ""

    def log_in(self) -> Person:
        domain = {"id": "default"}
        user = {"name": self.name, "domain": domain, "password": self.password}
        auth = {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": self.project, "domain": domain}},
        }
        found = self.ask("POST", TOKENS, {"auth": auth})
        assert found.status == 201, found.text
        self.token = found.headers["x-subject-token"]
        token = found.json["token"]
        self.user_id, self.project_id = token["user"]["id"], token["project"]["id"]
        return self

    def again(self) -> str:
        """Another token of the same person."""
        user = {"id": self.user_id, "password": self.password}
        auth = {"identity": {"methods": ["password"], "password": {"user": user}}}
        return self.ask("POST", TOKENS, {"auth": auth}).headers["x-subject-token"]

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, query: str = ""
    ) -> Answered:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        given = {"content-type": "application/json", "x-auth-token": self.token, **(headers or {})}
        named = [(name.encode(), value.encode()) for name, value in given.items()]
        return self.cloud.ask(Asked(method, path, query, named, content))

    def done(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """What it was answered, which must be good news."""
        found = self.ask(method, path, body, headers)
        assert found.status < 300, f"{method} {path} {body}: {found.status} {found.text}"
        return found.json if found.body else found


def administrator(cloud: Embedded) -> Person:
    return Person(cloud, "admin", cloud.admin_password, "admin").log_in()


def new_person(admin: Person, name: str, project: str, *roles: str) -> Person:
    """With these roles on the project of that name, which is made if need be."""
    found = admin.done("GET", "/identity/v3/projects")["projects"]
    project_id = next((each["id"] for each in found if each["name"] == project), "")
    if not project_id:
        made = admin.done("POST", "/identity/v3/projects", {"project": {"name": project, "domain_id": "default"}})
        project_id = made["project"]["id"]
    user = {"name": name, "password": PASSWORD, "domain_id": "default"}
    user_id = admin.done("POST", "/identity/v3/users", {"user": user})["user"]["id"]
    for role in roles:
        _give(admin, user_id, project_id, role)
    return Person(admin.cloud, name, PASSWORD, project).log_in()


def with_role(admin: Person, role: str) -> Person:
    """The administrator, with one more role on its own project."""
    _give(admin, admin.user_id, admin.project_id, role)
    return admin.log_in()


def _give(admin: Person, user_id: str, project_id: str, role: str) -> None:
    known = {found["name"]: found["id"] for found in admin.done("GET", "/identity/v3/roles")["roles"]}
    admin.done("PUT", f"/identity/v3/projects/{project_id}/users/{user_id}/roles/{known[role]}")
