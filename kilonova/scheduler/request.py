"""What is asked of the scheduler."""

from __future__ import annotations

import msgspec

from kilonova.placement.groups import GroupRule


class ResourceRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server needs, and where it may not or must go."""

    resources: dict[str, int]  # resource class: amount
    excluded: dict[str, str] = {}  # host: why not
    wanted_host: str | None = None
    group: GroupRule | None = None  # kept by the claim

    def without(self, host: str, why: str = "it is excluded by the request") -> ResourceRequest:
        return msgspec.structs.replace(self, excluded={**self.excluded, host: why})
