"""The domain's refusals as Placement's status codes, and as the codes that its errors carry from 1.23 on."""

from __future__ import annotations

PREFIX = "placement."
UNDEFINED = "placement.undefined_code"
CONCURRENT_UPDATE = "placement.concurrent_update"
INVENTORY_IN_USE = "placement.inventory.inuse"
DUPLICATE_NAME = "placement.duplicate_name"
PROVIDER_IN_USE = "placement.resource_provider.inuse"
CANNOT_DELETE_PARENT = "placement.resource_provider.cannot_delete_parent"
PROVIDER_NOT_FOUND = "placement.resource_provider.not_found"

# A missing resource in the address is 404, one in the body 400, a conflict with existing records 409.
STATUS = {
    "no_such_provider": 404,
    "no_such_trait": 404,
    "no_such_class": 404,
    "no_such_inventory": 404,
    "no_allocations": 404,
    "bad_inventory": 400,
    "bad_parent": 400,
    "standard_name": 400,
    "unknown_class": 400,
    "unknown_trait": 400,
    "unknown_provider": 400,
    "unknown_reshaped_provider": 400,
    "missing_inventory": 400,
    "generation_conflict": 409,
    "class_exists": 409,
    "in_use": 409,
}
_CODES = {
    "conflict": CONCURRENT_UPDATE,
    "generation_conflict": CONCURRENT_UPDATE,
    "inventory_exists": CONCURRENT_UPDATE,
    "one_inventory_in_use": CONCURRENT_UPDATE,  # of DELETE on one class; the original says so
    "inventory_in_use": INVENTORY_IN_USE,
    "duplicate_name": DUPLICATE_NAME,
    "provider_in_use": PROVIDER_IN_USE,
    "provider_has_children": CANNOT_DELETE_PARENT,
    "unknown_reshaped_provider": PROVIDER_NOT_FOUND,
}


def code_of(code: str) -> str:
    """Empty when Placement has none for it."""
    return code if code.startswith(PREFIX) else _CODES.get(code, "")
