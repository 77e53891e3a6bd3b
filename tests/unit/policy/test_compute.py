"""The table of rules is Nova's, and each role gets what Nova's table gives it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.policy.compute import COMPUTE
from kilonova.policy.enforcer import Policy
from kilonova.policy.rules import BASE, DEFAULTS, OWN

PUBLISHED: dict[str, str] = json.loads((Path(__file__).parent / "nova_defaults.json").read_text())["rules"]

ROLES = {  # with those they imply
    "admin": {"admin", "manager", "member", "reader"},
    "manager": {"manager", "member", "reader"},
    "member": {"member", "reader"},
    "reader": {"reader"},
    "service": {"service"},
    "none": set[str](),
}


def caller(role: str) -> Caller:
    mine = IdentityRef("mine", "mine", "default", "Default")
    return Caller(user=IdentityRef("me", "me"), project=mine, roles=tuple(sorted(ROLES[role])))


def may(rule: str, role: str, own_project: bool, own_user: bool) -> bool:
    """Nova's published words, understood without its library."""
    check, roles = PUBLISHED[rule], ROLES[role]
    admin = "admin" in roles
    meaning = {
        "@": True,
        "!": False,
        "role:admin": admin,
        "is_admin:True": admin,
        "rule:context_is_admin": admin,
        "role:service": "service" in roles,
        "rule:service_or_admin": admin or "service" in roles,
        "rule:service_api or rule:context_is_admin": admin or "service" in roles,
        "is_admin:True or project_id:%(project_id)s": admin or own_project,
        "(rule:context_is_admin) or user_id:%(user_id)s": admin or own_user,
    }
    for word in ("manager", "member", "reader"):
        plain = word in roles and own_project
        meaning[f"role:{word} and project_id:%(project_id)s"] = plain
        meaning[f"rule:project_{word}_api or rule:context_is_admin"] = plain or admin
        meaning[f"rule:project_{word}_or_admin"] = plain or admin
    return meaning[check]


def test_the_rules_and_their_defaults_are_those_that_nova_publishes() -> None:
    assert {**BASE, **COMPUTE} == PUBLISHED
    assert not set(OWN) & set(PUBLISHED)


@pytest.mark.parametrize("role", ROLES)
def test_each_role_gets_what_nova_gives_it_in_its_own_and_in_another_project(role: str) -> None:
    policy, asking = Policy(), caller(role)
    wrong = []
    for rule in PUBLISHED:
        for project, user in (("mine", "me"), ("mine", "other"), ("other", "me"), ("other", "other")):
            expected = may(rule, role, project == "mine", user == "me")
            for _ in range(2):  # the second answer is a kept one
                if policy.allows(rule, asking, project_id=project, user_id=user) is not expected:
                    wrong.append((rule, project, user, expected))
    assert wrong == []


@pytest.mark.parametrize("scope", ["unscoped", "domain", "system"])
def test_a_token_without_a_project_is_good_for_nothing_in_compute(scope: str) -> None:
    named = IdentityRef("default", "Default")
    asking = Caller(
        user=IdentityRef("root", "root"),
        roles=tuple(sorted(ROLES["admin"])),
        domain=named if scope == "domain" else None,
        system=scope == "system",
    )
    policy = Policy()
    assert [rule for rule in PUBLISHED if policy.allows(rule, asking)] == []


def test_our_own_rest_is_for_administrators_but_for_the_operations_on_own_servers() -> None:
    policy = Policy()
    reads = ["kilonova:operations:list", "kilonova:operations:show"]
    cancels = [*reads, "kilonova:operations:cancel"]
    others = {"manager": cancels, "member": cancels, "reader": reads}
    for role in ROLES:
        allowed = [rule for rule in OWN if policy.allows(rule, caller(role))]
        assert allowed == (list(OWN) if role == "admin" else others.get(role, [])), role
        theirs = [rule for rule in OWN if policy.allows(rule, caller(role), project_id="of-others")]
        assert theirs == (list(OWN) if role == "admin" else []), role


def test_a_rule_that_does_not_exist_is_a_mistake_of_the_program() -> None:
    with pytest.raises(KeyError, match="os_compute_api:servers:crate"):
        Policy().allows("os_compute_api:servers:crate", caller("admin"))
    assert "os_compute_api:servers:create" in DEFAULTS
