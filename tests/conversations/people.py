"""Who takes part in the conversations: what their files read from the environment.

$ENVIRON['ADMIN'], $ENVIRON['DEMO'], $ENVIRON['READER'], $ENVIRON['MANAGER'], $ENVIRON['SERVICE'] and
$ENVIRON['OTHER'] are tokens (of an administrator, a member, a reader and a manager of the member's project, a service,
a member of another project); $ENVIRON['PROJECT'] is the member's project, $ENVIRON['OTHER_PROJECT'] and
$ENVIRON['OTHER_USER'] are the other's; $ENVIRON['IMAGE'] and $ENVIRON['NETWORK'] are ids of the first cloud's.
$ENVIRON['CELLS_ADMIN'] and $ENVIRON['CELLS_IMAGE'] are of the cloud of two cells.
"""

from __future__ import annotations

from typing import Any

from tests.conversations.two_cells import TwoCells
from tests.support.program import Http


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


def of_one_cell(http: Http, admin_password: str, demo_password: str) -> dict[str, str]:
    """Make the people of a new cloud."""
    admin = Person(http, "admin", admin_password, "admin")
    demo = Person(http, "demo", demo_password, "demo")
    other = admin.ask("POST", "/identity/v3/projects", {"project": {"name": "other", "domain_id": "default"}})
    _add_user(admin, "reader", demo.project_id, "reader")
    _add_user(admin, "service", demo.project_id, "service")
    _add_user(admin, "manager", demo.project_id, "manager")
    other_user = _add_user(admin, "other", other["project"]["id"], "member")
    images = admin.ask("GET", "/image/v2/images")["images"]
    networks = admin.ask("GET", "/network/v2.0/networks")["networks"]
    return {
        "ADMIN": admin.token,
        "DEMO": demo.token,
        "READER": Person(http, "reader", "secret", "demo").token,
        "MANAGER": Person(http, "manager", "secret", "demo").token,
        "SERVICE": Person(http, "service", "secret", "demo").token,
        "OTHER": Person(http, "other", "secret", "other").token,
        "PROJECT": demo.project_id,
        "OTHER_PROJECT": other["project"]["id"],
        "OTHER_USER": other_user,
        "IMAGE": next(image["id"] for image in images if image["name"] == "cirros-sim"),
        "NETWORK": next(network["id"] for network in networks if network["name"] == "shared"),
    }


def of_two_cells(http: Http, cloud: TwoCells) -> dict[str, str]:
    admin = Person(http, "admin", cloud.admin_password, "admin")
    image = admin.ask("GET", "/image/v2/images?name=cirros-sim")["images"][0]["id"]
    return {"CELLS_ADMIN": admin.token, "CELLS_IMAGE": image}
