"""From 2.102 no route of Compute passes over a query parameter that it does not know."""

from __future__ import annotations

import pytest

from kilonova.api.compute.routes import LEGACY_ROUTES, ROUTES
from kilonova.api.routes import PUBLIC, Route
from kilonova.domain.errors import Refused
from tests.unit.api.compute.cloud import LATEST, Cloud, run

# Versions need no token and are for clients of any age; the other one Nova never closed.
OPEN = {"/", "/os-quota-sets/{project}/defaults"}
EARLIER = {  # closed in 2.99 or before
    "/os-console-auth-tokens/{token}",
    "/os-server-groups",
    "/servers/{server}/os-volume_attachments",
    *("/servers", "/servers/detail", "/servers/{server}", "/flavors", "/flavors/detail", "/os-keypairs"),
    *("/os-keypairs/{name}", "/os-quota-sets/{project}", "/os-quota-sets/{project}/detail", "/limits", "/os-services"),
    *("/os-hypervisors", "/os-hypervisors/detail", "/os-hypervisors/{hypervisor}"),
    *("/servers/{server}/os-instance-actions", "/os-migrations"),
    *("/os-volumes_boot", "/os-volumes_boot/detail", "/os-volumes_boot/{server}"),
}


def refuses(route: Route, version: tuple[int, int]) -> bool:
    assert route.query is not None, f"{route.method} {route.path} takes anything"
    try:
        route.query.check({"colour": ["red"]}, version)
    except Refused as why:
        assert why.status == 400
        return True
    return False


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path} {route.action}")
def test_each_route_is_closed_from_2_102(route: Route) -> None:
    if route.answers((2, 102)):
        assert refuses(route, (2, 102)) is (route.path not in OPEN)
    if route.path not in EARLIER:
        assert not refuses(route, (2, 101))
    assert not refuses(route, (2, 1)), "old clients are not disturbed"


def test_the_old_prefix_has_the_same_table() -> None:
    assert {route.path for route in LEGACY_ROUTES} == {route.path for route in ROUTES}
    assert all(route.query is not None for route in LEGACY_ROUTES if route.rule != PUBLIC)


def test_what_is_refused_over_http() -> None:
    async def story(cloud: Cloud) -> None:
        server = "/servers/00000000-0000-4000-8000-000000000000"
        asked = [("GET", server), ("DELETE", server), ("GET", f"{server}/ips"), ("GET", f"{server}/tags")]
        asked += [("GET", f"{server}/metadata"), ("GET", f"{server}/os-instance-actions/req-1")]
        for method, path in asked:
            told = await cloud.refuses("member", method, f"{path}?colour=red", at=LATEST)
            assert "query parameters" in told and "colour" in told
            await cloud.refuses("member", method, path, at=LATEST, status=404)
        for at, status in (("2.74", 404), ("2.75", 400)):
            await cloud.refuses("member", "GET", f"{server}?colour=red", at=at, status=status)
        for at, status in (("2.101", 404), ("2.102", 400)):
            await cloud.refuses("member", "GET", f"{server}/metadata?colour=red", at=at, status=status)
        await cloud.get("member", "/?colour=red", at=LATEST)

    run(story)
