"""The limited resources, and their default limits; -1 means no limit."""

from __future__ import annotations

from kilonova.records.quotas import UNLIMITED as UNLIMITED
from kilonova.records.quotas import Limits as Limits
from kilonova.settings import QuotaOptions

COUNTED = ("instances", "cores", "ram")  # from the mappings; the others are checked where they are created
OF_A_PROJECT = ("fixed_ips", "floating_ips")  # never for one user alone

# In the order in which the API shows them. The network's own are its business; old versions still show them.
RESOURCES = (
    "cores",
    "fixed_ips",
    "floating_ips",
    "injected_file_content_bytes",
    "injected_file_path_bytes",
    "injected_files",
    "instances",
    "key_pairs",
    "metadata_items",
    "ram",
    "security_group_rules",
    "security_groups",
    "server_group_members",
    "server_groups",
)

EVERYTHING: Limits = {}  # for simulations and measurements: nothing is ever refused


def default_limits(options: QuotaOptions) -> Limits:
    """Return what a project may have by default, by resource. One has another name here than in the configuration."""
    return {
        "instances": options.instances,
        "cores": options.cores,
        "ram": options.ram,
        "metadata_items": options.metadata_items,
        "injected_files": options.injected_files,
        "injected_file_content_bytes": options.injected_file_content_bytes,
        "injected_file_path_bytes": options.injected_file_path_length,
        "key_pairs": options.key_pairs,
        "server_groups": options.server_groups,
        "server_group_members": options.server_group_members,
    }


def filled(limits: Limits) -> dict[str, int]:
    return {resource: limits.get(resource, UNLIMITED) for resource in RESOURCES}
