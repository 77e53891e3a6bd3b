"""Bodies of a create, as POST /servers and POST /kilonova/v1/operations take them: a small server without networks."""

from __future__ import annotations

from typing import Any

from kilonova.services.image.seeds import id_of

IMAGE = id_of("cirros-sim")
TINY = "1"  # the flavor m1.tiny: 1 VCPU, 512 MB, 1 GB
NEWEST = {"OpenStack-API-Version": "compute 2.105"}


def server_body(name: str = "web", flavor: str = TINY, image: str = IMAGE, **more: Any) -> dict[str, Any]:
    """The body of POST /servers."""
    return {"server": {"name": name, "flavorRef": flavor, "imageRef": image, "networks": "none", **more}}


def create_body(name: str = "web", **given: Any) -> dict[str, Any]:
    """The body of POST /operations."""
    return {"operation": "create", **server_body(name, **given)}


def flavor_body(name: str, vcpus: int, ram: int = 512, disk: int = 1) -> dict[str, Any]:
    """The body of POST /flavors; the id is the name."""
    return {"flavor": {"id": name, "name": name, "vcpus": vcpus, "ram": ram, "disk": disk}}
