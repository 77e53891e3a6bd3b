"""The table of rules is Placement's, and each role gets what Placement gives it; the profiles change what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kilonova.domain.caller import Caller, IdentityRef
from kilonova.policy.enforcer import Policy
from kilonova.policy.placement import PLACEMENT, PROFILES, rules_of
from kilonova.policy.rules import DEFAULTS

PUBLISHED: dict[str, str] = json.loads((Path(__file__).parent / "placement_defaults.json").read_text())["rules"]
RESHAPE, USAGES = "placement:reshaper:reshape", "placement:usages"


def caller(*roles: str, system: bool = False) -> Caller:
    project = None if system else IdentityRef("mine", "mine")
    return Caller(user=IdentityRef("me", "me"), project=project, system=system, roles=tuple(sorted(roles)))


def allowed(profile: str, asking: Caller, project: str = "other") -> set[str]:
    policy = Policy(rules_of(profile, DEFAULTS))
    return {rule for rule in PLACEMENT if policy.allows(rule, asking, project_id=project)}


def test_the_rules_and_their_defaults_are_those_that_placement_publishes() -> None:
    named = {rule: check for rule, check in PUBLISHED.items() if rule.startswith("placement:")}
    assert named == PLACEMENT
    shared = PUBLISHED.keys() - named.keys() - {"admin_api"}  # Nova's word for the same
    assert {rule: DEFAULTS[rule] for rule in shared} == {rule: PUBLISHED[rule] for rule in shared}


def test_by_default_services_may_do_everything_and_administrators_all_but_reshape() -> None:
    assert allowed("secure-rbac", caller("service")) == set(PLACEMENT)
    assert allowed("secure-rbac", caller("admin", "member", "reader")) == set(PLACEMENT) - {RESHAPE}
    assert allowed("secure-rbac", caller("member", "reader")) == set()
    assert allowed("secure-rbac", caller("member", "reader"), project="mine") == {USAGES}
    assert allowed("secure-rbac", caller(), project="mine") == set()


@pytest.mark.parametrize("profile", ["default", "legacy-rbac", "cors"])
def test_in_the_older_profiles_administrators_may_reshape_too(profile: str) -> None:
    assert allowed(profile, caller("admin")) == set(PLACEMENT)
    assert allowed(profile, caller("member", "reader")) == set()


def test_the_open_policy_is_open() -> None:
    assert allowed("open-policy", caller()) == set(PLACEMENT)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_token_of_the_system_is_good_for_nothing(profile: str) -> None:
    assert allowed(profile, caller("admin", "service", system=True)) == set()
