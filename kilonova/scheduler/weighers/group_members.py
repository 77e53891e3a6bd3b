"""How many servers of the request's group are on each host, for the two weighers that ask."""

from __future__ import annotations

import numpy as np

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest


def group_members(policy: str, field: Field, request: ResourceRequest, hosts: Ints) -> Ints | None:
    """None: it is in no group of that policy, or the group has nobody yet."""
    if request.group is None or request.group.policy != policy or not field.around.members:
        return None
    there = [field.around.others(field.provider(at), request.server) for at in hosts.tolist()]
    return np.array(there, dtype=np.int64)
