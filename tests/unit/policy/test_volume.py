"""The rules of Volume are Cinder's, and each role gets what Cinder's defaults give it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kilonova.policy.enforcer import Policy
from kilonova.policy.volume import VOLUME
from tests.unit.policy.test_compute import ROLES, caller

PUBLISHED: dict[str, str] = json.loads((Path(__file__).parent / "cinder_defaults.json").read_text())["rules"]
# What these rules are for is not here.
LEFT_OUT = {
    *(rule for rule in PUBLISHED if "volume_type_encryption" in rule or "migrate_volume" in rule),
    *("volume:failover_host", "volume:freeze_host", "volume:thaw_host", "volume:update_volume_admin_metadata"),
    "volume_extension:volume_admin_actions:extend_volume_completion",
}


def test_the_rules_are_those_that_cinder_publishes() -> None:
    assert set(VOLUME) == set(PUBLISHED) - LEFT_OUT


@pytest.mark.parametrize("role", ROLES)
def test_each_role_gets_what_cinder_gives_it_in_its_own_and_in_another_project(role: str) -> None:
    policy, asking = Policy(), caller(role)
    for rule in VOLUME:
        needed = PUBLISHED[rule]
        for project in ("mine", "other"):
            expected = "admin" in ROLES[role] or (needed != "admin" and needed in ROLES[role] and project == "mine")
            assert policy.allows(rule, asking, project_id=project) is expected, (rule, project)
