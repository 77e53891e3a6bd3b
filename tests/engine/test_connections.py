"""What a host gets for its guest besides the definition: its own connections only, its ports, and its image."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.domain.guest import GuestSpec, GuestVolume
from kilonova.domain.image_bytes import ImageContent
from kilonova.domain.messages import StepOrder
from kilonova.engine.connections import with_devices
from kilonova.engine.model import IMAGE_TOKEN

ROOT = GuestVolume(attachment="root", volume="v1", device="/dev/vda", is_root=True)
DATA = GuestVolume(attachment="data", volume="v2", device="/dev/vdb")
GUEST = GuestSpec(server="s", copy=1, name="n", vcpus=1, memory_mb=1, disk_gb=1, image="i", volumes=[ROOT, DATA])
HERE, THERE = ({"data": {"host": host, "secret": f"of {host}"}} for host in ("host1", "host2"))
CONTENT = object()


def world(connections: dict[str, Any], *, services: bool = True) -> tuple[Any, list[Any]]:
    asked = list[Any]()

    async def connection(attachment: str) -> Any:
        if attachment not in connections:
            raise Refused("not_found", "no such attachment")
        return connections[attachment]

    async def guest_ports(servers: list[str], *, members: bool) -> Any:
        asked.append((list(servers), members))
        return {"s": ["a port"], "t": ["another's"]}

    async def content(image: str) -> Any:
        asked.append(image)
        return CONTENT

    if not services:
        return SimpleNamespace(volume=None, network=None, image=None), asked
    parts = {
        "volume": {"connection": connection},
        "network": {"guest_ports": guest_ports},
        "image": {"content": content},
    }
    return SimpleNamespace(**{name: SimpleNamespace(**part) for name, part in parts.items()}), asked


def order(**values: Any) -> StepOrder:
    names = {"journal": "cell1", "operation": "o", "kind": "create", "name": "build", "way": "do"}
    return StepOrder(**{**names, "ordinal": 1, "server": "s", "turn": 1, "copy": 1, "guest": GUEST, **values})


def sent(given: Any, the_order: StepOrder, **options: bool) -> Any:
    defaults = {"has_ports": False, "filters": False}
    return asyncio.run(with_devices(given, the_order, "host1", **{**defaults, **options}))  # type: ignore[arg-type]


def test_a_host_gets_its_own_connections_and_never_anothers_secret() -> None:
    given, _ = world({"root": HERE, "data": THERE})
    volumes = sent(given, order()).guest.volumes
    assert [(one.attachment, one.connection) for one in volumes] == [("root", HERE), ("data", {})]


@pytest.mark.parametrize("connection", [{}, {"data": {}}])
def test_a_volume_that_is_not_connected_has_none(connection: dict[str, Any]) -> None:
    given, _ = world({"root": connection, "data": connection})
    assert [one.connection for one in sent(given, order()).guest.volumes] == [{}, {}]


def test_a_guest_goes_without_a_volume_whose_attachment_was_removed_but_for_its_root_disk() -> None:
    given, _ = world({})
    assert sent(given, order()).guest.volumes == [ROOT]


@pytest.mark.parametrize("filters", [True, False])
@pytest.mark.parametrize("has_ports", [True, False])
def test_ports_are_read_if_the_server_has_some(filters: bool, has_ports: bool) -> None:
    """With the members of its groups if its host filters traffic."""
    given, asked = world({})
    guest = sent(given, order(), has_ports=has_ports, filters=filters).guest
    assert guest.ports == ["a port"] * has_ports and asked == [(["s"], filters)] * has_ports


def test_a_host_gets_the_image_that_it_has_a_token_for() -> None:
    given, asked = world({})
    image = sent(given, order(secrets={IMAGE_TOKEN: "token"})).image
    assert (image.image, image.token, image.content) == ("i", "token", CONTENT)
    assert sent(given, order(secrets={"another": "token"})).image is None
    assert asked == ["i"]


def test_without_services_a_guest_is_sent_as_it_is() -> None:
    given, _ = world({}, services=False)
    plain = sent(given, order(secrets={IMAGE_TOKEN: "token"}), has_ports=True)
    assert (plain.guest, plain.image) == (GUEST, None)


def test_an_order_without_a_guest_needs_nothing() -> None:
    given, asked = world({})
    plain = order(guest=None, secrets={IMAGE_TOKEN: "token"})
    assert sent(given, plain, has_ports=True) == plain and not asked
    assert ImageContent is not None
