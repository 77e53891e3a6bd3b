"""Rules of Identity and Image can be changed by an operator like all others, with Keystone's and Glance's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.api.identity.rules import name_of
from kilonova.policy.identity import IDENTITY
from tests.support.embedded import Embedded
from tests.support.people import administrator, new_person

POLICY = """
"identity:create_project": "role:member"
"identity:list_users": "role:admin or rule:curious"
"curious": "role:member and project_id:%(target.project.id)s"
"add_image": "role:admin"
"get_images": "role:member"
"""
IMAGE = {"name": "mine", "disk_format": "raw", "container_format": "bare"}


def test_an_operators_rules_count(tmp_path: Path) -> None:
    data = tmp_path / "var"
    data.mkdir()
    (data / "policy.yaml").write_text(POLICY)
    with Embedded(data, "simulated.hosts=1") as cloud:
        admin = administrator(cloud)
        ann = new_person(admin, "ann", "acme", "member", "reader")
        rex = new_person(admin, "rex", "acme", "reader")
        project = {"project": {"name": "new", "domain_id": "default"}}
        refused = rex.ask("POST", "/identity/v3/projects", project)
        assert (refused.status, "identity:create_project" in refused.text) == (403, True)
        made = ann.done("POST", "/identity/v3/projects", project)["project"]["id"]
        assert ann.ask("DELETE", f"/identity/v3/projects/{made}").status == 403, "others keep their default"
        assert ann.ask("GET", "/identity/v3/users").status == 403
        assert ann.ask("POST", "/image/v2/images", IMAGE).status == 403
        admin.done("POST", "/image/v2/images", IMAGE)
        assert (rex.ask("GET", "/image/v2/images").status, ann.ask("GET", "/image/v2/images").status) == (403, 200)


@pytest.mark.parametrize(
    ("rule", "method", "path", "name"),
    [
        ("manage_projects", "POST", "/projects", "create_project"),
        ("manage_domains", "POST", "/projects", "create_domain"),
        ("manage_projects", "DELETE", "/projects/{project}/tags/{tag}", "update_project"),
        ("manage_grants", "DELETE", "/projects/{project}/users/{user}/roles/{role}", "revoke_grant"),
        ("list_grants", "HEAD", "/domains/{domain}/groups/{group}/roles/{role}", "check_grant"),
        ("list_grants", "GET", "/projects/{project}/users/{user}/roles", "list_grants"),
        ("list_system_grants", "GET", "/system/users/{user}/roles", "list_system_grants_for_user"),
        ("manage_system_grants", "PUT", "/system/groups/{group}/roles/{role}", "create_system_grant_for_group"),
        ("manage_members", "PUT", "/groups/{group}/users/{user}", "add_user_to_group"),
        ("get_members", "GET", "/groups/{group}/users", "list_users_in_group"),
        ("get_implied_roles", "GET", "/role_inferences", "list_role_inference_rules"),
        ("get_implied_roles", "HEAD", "/roles/{role}/implies/{implied}", "get_implied_role"),
        ("manage_roles", "PUT", "/roles/{role}/implies/{implied}", "create_implied_role"),
        ("list_catalog", "GET", "/endpoints", "list_endpoints"),
        ("manage_catalog", "PATCH", "/services/{id}", "update_service"),
        ("list_regions", "GET", "/regions/{id}", "get_region"),
        ("get_policy", "GET", "/policies", "list_policies"),
        ("manage_credentials", "DELETE", "/credentials/{id}", "delete_credential"),
        ("get_user", "GET", "/users/{user}", "get_user"),
    ],
)
def test_requests_ask_keystones_rules(rule: str, method: str, path: str, name: str) -> None:
    assert name_of(rule, method, path) == name and f"identity:{name}" in IDENTITY
