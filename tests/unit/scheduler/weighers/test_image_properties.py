"""ImagePropertiesWeigher."""

from __future__ import annotations

import numpy as np

from kilonova.scheduler.request import Image
from kilonova.scheduler.weighers.image_properties import ImagePropertiesWeigher
from tests.unit.scheduler.worlds import asked, big, field_of, settings

LINUX = asked(image=Image("i", "", {"os_distro": "linux", "hw_disk_bus": "virtio"}))


def values(by: object) -> list[float] | None:
    field = field_of({"a": big(), "b": big()})
    field.hosts.image_values = {"a": {("os_distro", "linux"): 2}, "b": {("hw_disk_bus", "virtio"): 3}}
    found = ImagePropertiesWeigher(by).values(field, LINUX, np.arange(2))  # type: ignore[arg-type]
    return None if found is None else [float(value) for value in found]


def test_servers_that_are_alike() -> None:
    assert values(settings()) == [2.0, 3.0]
    assert values(settings(image_props_weight_setting=("os_distro=4",))) == [8.0, 0.0]
    assert values(settings(image_props_weight_setting=("unknown=1",))) is None
