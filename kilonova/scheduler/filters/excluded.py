"""Excluded: hosts the request may not use, each with its reason (an evacuation's source, a host that failed before)."""

from __future__ import annotations

import numpy as np

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.hosts import Field
from kilonova.scheduler.request import ResourceRequest


class Excluded:
    name = "excluded"

    def passes(self, field: Field, request: ResourceRequest) -> Bools:
        if not request.excluded:
            return np.ones(len(field), dtype=np.bool_)
        return np.array([name not in request.excluded for name in field.names], dtype=np.bool_)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        return request.excluded.get(field.names[at], "not excluded")
