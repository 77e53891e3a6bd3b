"""Wanted host: when the request names one, no other will do."""

from __future__ import annotations

import numpy as np

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.hosts import Field
from kilonova.scheduler.request import ResourceRequest


class WantedHost:
    name = "wanted_host"

    def passes(self, field: Field, request: ResourceRequest) -> Bools:
        if request.wanted_host is None:
            return np.ones(len(field), dtype=np.bool_)
        return np.array([name == request.wanted_host for name in field.names], dtype=np.bool_)

    def sentence(self, field: Field, request: ResourceRequest, at: int) -> str:
        if request.wanted_host is None:
            return "no host was asked for"
        here = field.names[at] == request.wanted_host
        return "it was asked for" if here else f"host {request.wanted_host} was asked for"
