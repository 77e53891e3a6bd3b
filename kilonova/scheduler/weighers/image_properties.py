"""Image properties: hosts whose servers have the same properties first, e.g. all of one operating system together."""

from __future__ import annotations

import numpy as np

from kilonova.placement.snapshot import Ints
from kilonova.scheduler.field import Field
from kilonova.scheduler.request import ResourceRequest
from kilonova.scheduler.weighers.base import Floats, Weigher
from kilonova.scheduler.weighers.ratios import ratios


class ImagePropertiesWeigher(Weigher):
    name = "ImagePropertiesWeigher"
    option = "image_props_weight_multiplier"

    def values(self, field: Field, request: ResourceRequest, hosts: Ints) -> Floats | Ints | None:
        own = request.image.properties
        weights = ratios(self.settings.filter_scheduler.image_props_weight_setting) or dict.fromkeys(own, 1.0)
        asked = {name: (own[name], weight) for name, weight in weights.items() if name in own}
        if not asked or not field.hosts.image_values:
            return None

        def shared(host: str) -> float:
            there = field.hosts.image_values.get(host, {})
            return sum(weight * there.get((name, value), 0) for name, (value, weight) in asked.items())

        return np.array([shared(field.names[at]) for at in hosts.tolist()], dtype=np.float64)
