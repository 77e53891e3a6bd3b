"""The rules and their defaults: the names of Nova, Neutron, Cinder, Placement, Keystone and Glance, and our own for
features that none of them has."""

from __future__ import annotations

from kilonova.policy.compute import COMPUTE
from kilonova.policy.identity import IDENTITY, IDENTITY_BASE
from kilonova.policy.image import IMAGE
from kilonova.policy.network import NETWORK
from kilonova.policy.placement import PLACEMENT, PLACEMENT_BASE
from kilonova.policy.volume import VOLUME

BASE = {
    "context_is_admin": "role:admin",
    "admin_api": "is_admin:True",  # old names, still met in operators' files
    "admin_or_owner": "is_admin:True or project_id:%(project_id)s",
    "project_reader_api": "role:reader and project_id:%(project_id)s",
    "project_member_api": "role:member and project_id:%(project_id)s",
    "project_manager_api": "role:manager and project_id:%(project_id)s",
    "project_reader_or_admin": "rule:project_reader_api or rule:context_is_admin",
    "project_member_or_admin": "rule:project_member_api or rule:context_is_admin",
    "project_manager_or_admin": "rule:project_manager_api or rule:context_is_admin",
    "service_api": "role:service",
    "service_or_admin": "rule:service_api or rule:context_is_admin",
}

OWN = {
    "kilonova:operations": "rule:context_is_admin",
    "kilonova:operations:list": "rule:project_reader_or_admin",
    "kilonova:operations:show": "rule:project_reader_or_admin",
    "kilonova:operations:cancel": "rule:project_member_or_admin",
    "kilonova:operations:resume": "rule:context_is_admin",
    "kilonova:operations:abandon": "rule:context_is_admin",
    "kilonova:findings": "rule:context_is_admin",
    "kilonova:audits": "rule:context_is_admin",
    "kilonova:plans": "rule:context_is_admin",
    "kilonova:servers": "rule:context_is_admin",
    "kilonova:servers:show:would_fit": "rule:context_is_admin",
    "kilonova:hosts": "rule:context_is_admin",
    "kilonova:ha": "rule:context_is_admin",
    "kilonova:cells": "rule:context_is_admin",
    "kilonova:image_quotas": "rule:context_is_admin",
    "kilonova:simulated": "rule:context_is_admin",
    "kilonova:token_keys": "rule:context_is_admin",
}

_SERVICES = (COMPUTE, NETWORK, VOLUME, PLACEMENT, IDENTITY, IMAGE, OWN)
DEFAULTS: dict[str, str] = {
    **BASE,
    **PLACEMENT_BASE,
    **IDENTITY_BASE,
    **{k: v for rules in _SERVICES for k, v in rules.items()},
}

# Rules that also hold for tokens without a project.
SCOPE_FREE = frozenset((*OWN, *IDENTITY))
