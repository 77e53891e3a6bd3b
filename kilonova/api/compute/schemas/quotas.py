"""Quotas of projects, of users and of the default class: old versions know resources that are others' business now."""

from __future__ import annotations

from kilonova.api.compute.schemas.queries import query
from kilonova.api.compute.schemas.types import BOOLEAN, MAX_INT, closed, texts, wrapped
from kilonova.api.forms import Forms, Schema
from kilonova.api.routes import Version
from kilonova.quota.resources import RESOURCES

LIMIT: Schema = {
    "type": ["integer", "string"],
    "pattern": "^-?[0-9]+$",
    "maxLength": 20,
    "minimum": -1,
    "maximum": MAX_INT,
}
OF_NETWORK = ("fixed_ips", "floating_ips", "security_group_rules", "security_groups")
OF_FILES = ("injected_files", "injected_file_content_bytes", "injected_file_path_bytes")


def known(version: Version, network_until: Version) -> list[str]:
    """Return the resources that a version knows. `network_until`: the version without network resources."""
    gone = (OF_NETWORK if version >= network_until else ()) + (OF_FILES if version >= (2, 57) else ())
    return [resource for resource in RESOURCES if resource not in gone]


def _limits(version: Version, network_until: Version) -> Schema:
    return {resource: LIMIT for resource in known(version, network_until)}


PROJECT_UNTIL: Version = (2, 36)
CLASS_UNTIL: Version = (2, 50)

SET = Forms(
    {
        version: wrapped("quota_set", closed({**_limits(version, PROJECT_UNTIL), "force": BOOLEAN}))
        for version in [(2, 1), PROJECT_UNTIL, (2, 57)]
    }
)
SET_CLASS = Forms(
    {
        version: wrapped("quota_class_set", closed(_limits(version, CLASS_UNTIL)))
        for version in [(2, 1), CLASS_UNTIL, (2, 57)]
    }
)
USER = Forms({(2, 1): query({"user_id": texts()}, open=True), (2, 75): query({"user_id": texts()}, open=False)})
LIMITS = Forms({(2, 1): query({"tenant_id": texts()}, open=True), (2, 75): query({"tenant_id": texts()}, open=False)})
