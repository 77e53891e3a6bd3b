"""Features: what a flavor or an image asks for by a word of its own, and the trait that hosts say it with."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kilonova.scheduler.demand import Demand
from kilonova.scheduler.request import ResourceRequest
from kilonova.services.compute.aggregates import Aggregate
from kilonova.settings import Settings

TRUE = ("1", "t", "true", "on", "y", "yes")


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    spec: str  # key of a flavor's extra specs
    image: str = ""  # property of an image
    trait: str  # one that ends with an underscore goes on with the value
    values: tuple[str, ...] = ()  # the only ones that matter; none: any
    option: str = ""

    @property
    def for_rebuild(self) -> bool:
        return bool(self.image)

    def demand(self, request: ResourceRequest, aggregates: Iterable[Aggregate], settings: Settings) -> Demand | None:
        given = request.flavor.extra_specs.get(self.spec) or request.image.properties.get(self.image, "")
        if not given or (self.values and given.lower() not in self.values):
            return None
        trait = self.trait + given.upper() if self.trait.endswith("_") else self.trait
        why, remedy = f"does not offer {self.spec}={given}", f"a request without {self.spec}"
        return Demand(name=self.name, required=frozenset([trait]), why=why, remedy=remedy)


FEATURES = (
    Feature(name="accelerators_filter", spec="accel:device_profile", trait="COMPUTE_ACCELERATORS"),
    Feature(
        name="packed_virtqueue_filter",
        spec="hw:virtio_packed_ring",
        image="hw_virtio_packed_ring",
        trait="COMPUTE_NET_VIRTIO_PACKED",
        values=TRUE,
    ),
    Feature(
        name="ephemeral_encryption_filter",
        spec="hw:ephemeral_encryption",
        image="hw_ephemeral_encryption",
        trait="COMPUTE_EPHEMERAL_ENCRYPTION",
        values=TRUE,
    ),
    Feature(
        name="virtio_sound_filter",
        spec="hw:sound_model",
        image="hw_sound_model",
        trait="COMPUTE_SOUND_MODEL_",
        values=("virtio",),
    ),
    Feature(
        name="tpm_secret_security_filter",
        spec="hw:tpm_secret_security",
        trait="COMPUTE_SECURITY_TPM_SECRET_SECURITY_",
    ),
)
