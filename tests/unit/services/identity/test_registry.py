"""What an operator registers beside the cloud's own services, and the catalog that tokens show."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.services.identity.catalog import INTERFACES, OWN, REGION, catalog, filled, own_endpoints, own_services
from kilonova.services.identity.records import Record
from tests.unit.services.identity.home import Home, at_home

URL = "https://cloud"
OWN_ID = str(own_services()[0]["id"])
OWN_ENDPOINT = str(own_endpoints(URL)[0]["id"])


async def some(home: Home) -> dict[str, str]:
    """Two services with endpoints, in a tree of regions."""
    identity, ids = home.identity, dict[str, str]()
    for name, above in (("north", None), ("polar", "north"), ("south", REGION)):
        await identity.regions.create({"id": name, "parent_region_id": above}, name)
    for type_ in ("dns", "metering"):
        ids[type_] = str((await identity.services.create({"type": type_}))["id"])
        for interface in ("public", "admin"):
            request = {"service_id": ids[type_], "interface": interface, "url": f"http://{type_}", "region_id": "polar"}
            ids[f"{type_} {interface}"] = str((await identity.endpoints.create(request))["id"])
    return ids


def test_what_is_registered() -> None:
    async def story(home: Home) -> None:
        identity = home.identity
        service = await identity.services.create({"type": "dns", "name": None, "description": None, "owner": "me"})
        expected = {"id": service["id"], "type": "dns", "name": "", "description": "", "enabled": True, "owner": "me"}
        assert service == expected == await identity.services.look_up(str(service["id"]), URL)
        named = await identity.services.create({"type": "dns", "name": "n", "description": "d"})
        assert (named["name"], named["description"]) == ("n", "d")
        cleared = await identity.services.change(str(named["id"]), {"name": None, "owner": None})
        assert (cleared["name"], cleared["description"], cleared["owner"]) == ("", "d", None)
        region = await identity.regions.create({"description": None}, "north")
        assert region == {"id": "north", "description": "", "parent_region_id": None}
        endpoint = await identity.endpoints.create({"service_id": service["id"], "interface": "public", "url": "u"})
        expected = {"id": endpoint["id"], "service_id": service["id"], "interface": "public", "url": "u"}
        assert endpoint == expected | {"region_id": None, "enabled": True}
        moved = await identity.endpoints.change(str(endpoint["id"]), {"region": "north", "enabled": False})
        assert moved == endpoint | {"region_id": "north", "enabled": False}
        assert await identity.services.look_up(OWN_ID, URL) == own_services()[0]
        assert await identity.endpoints.look_up(OWN_ENDPOINT, URL) == own_endpoints(URL)[0]
        assert await identity.regions.look_up("nowhere", URL) is None

    at_home(story)


def test_lists_have_ours_first_and_are_filtered_alike() -> None:
    async def story(home: Home) -> None:
        ids, identity = await some(home), home.identity
        services = await identity.services.list({}, URL)
        assert services[: len(OWN)] == list(own_services())
        assert {one["id"] for one in services[len(OWN) :]} == {ids["dns"], ids["metering"]}
        assert [one["id"] for one in await identity.services.list({"type": "dns"}, URL)] == [ids["dns"]]
        assert [one["name"] for one in await identity.services.list({"type": "compute"}, URL)] == ["nova"]
        of_dns = await identity.endpoints.list({"service_id": ids["dns"], "interface": "admin"}, URL)
        assert [one["id"] for one in of_dns] == [ids["dns admin"]]
        ours = await identity.endpoints.list({"service_id": OWN_ID}, URL)
        assert {one["interface"] for one in ours} == {*INTERFACES} and len(ours) == len(INTERFACES)
        assert [one["id"] for one in await identity.regions.list({}, URL)] == [REGION, "north", "polar", "south"]
        below = await identity.regions.list({"parent_region_id": "north"}, URL)
        assert [one["id"] for one in below] == ["polar"]

    at_home(story)


def test_regions_that_an_endpoint_names_are_made_on_the_way() -> None:
    async def story(home: Home) -> None:
        ids, identity = await some(home), home.identity
        before = await home.everything()
        good = {"service_id": ids["dns"], "interface": "internal", "url": "u"}
        for given, region in (
            ({"region": "west"}, "west"),
            ({"region": "west"}, "west"),
            ({"region": REGION}, REGION),
            ({"region_id": REGION}, REGION),
            ({"region_id": "north", "region": "other"}, "north"),
            ({"region": None}, None),
            ({}, None),
        ):
            made = await identity.endpoints.create({**good, **given})
            assert made["region_id"] == region and "region" not in made
        after = await home.everything()
        new = [row for row in after["catalog_regions"] if row not in before["catalog_regions"]]
        assert new == [{"id": "west", "parent_region_id": None, "description": "", "extra": "{}"}]

    at_home(story)


def test_what_goes_with_what() -> None:
    async def story(home: Home) -> None:
        ids, identity = await some(home), home.identity
        await identity.regions.delete("south")  # others are in use
        before = await home.everything()
        await identity.services.delete(ids["dns"])
        after = before | {
            "catalog_services": [row for row in before["catalog_services"] if row["id"] != ids["dns"]],
            "catalog_endpoints": [row for row in before["catalog_endpoints"] if row["service_id"] != ids["dns"]],
        }
        assert await home.everything() == after != before
        await identity.endpoints.delete(ids["metering admin"])
        await identity.endpoints.delete(ids["metering public"])
        for region in ("polar", "north"):
            await identity.regions.delete(region)
        assert [one["id"] for one in await identity.regions.list({}, URL)] == [REGION]

    at_home(story)


Act = Callable[[Any, dict[str, str]], Awaitable[object]]
REFUSED: dict[str, tuple[Act, str, str]] = {
    "change our service": (
        lambda it, ids: it.services.change(OWN_ID, {}),
        "forbidden",
        "This service is Kilonova's own",
    ),
    "delete our service": (lambda it, ids: it.services.delete(OWN_ID), "forbidden", "This service is Kilonova's own"),
    "change our endpoint": (lambda it, ids: it.endpoints.change(OWN_ENDPOINT, {}), "forbidden", "This endpoint is Kil"),
    "delete our endpoint": (
        lambda it, ids: it.endpoints.delete(OWN_ENDPOINT),
        "forbidden",
        "This endpoint is Kilonova",
    ),
    "change our region": (lambda it, ids: it.regions.change(REGION, {}), "forbidden", "This region is Kilonova's own"),
    "delete our region": (lambda it, ids: it.regions.delete(REGION), "forbidden", "This region is Kilonova's own"),
    "change none": (lambda it, ids: it.services.change("x", {}), "not_found", "Could not find service: x."),
    "delete none": (lambda it, ids: it.endpoints.delete("x"), "not_found", "Could not find endpoint: x."),
    "endpoint of ours": (
        lambda it, ids: it.endpoints.create({"service_id": OWN_ID, "interface": "public", "url": "u"}),
        "forbidden",
        "is Kilonova's own and needs no endpoint.",
    ),
    "endpoint of none": (
        lambda it, ids: it.endpoints.create({"service_id": "x", "interface": "public", "url": "u"}),
        "bad_request",
        "Could not find service: x.",
    ),
    "to none": (
        lambda it, ids: it.endpoints.change(ids["dns admin"], {"service_id": "x"}),
        "bad_request",
        "Could not find service: x.",
    ),
    "endpoint nowhere": (
        lambda it, ids: it.endpoints.change(ids["dns admin"], {"region_id": "nowhere"}),
        "bad_request",
        "Could not find region: nowhere.",
    ),
    "our region again": (lambda it, ids: it.regions.create({}, REGION), "exists", "already a region RegionOne."),
    "region again": (lambda it, ids: it.regions.create({}, "north"), "exists", "There is already a region north."),
    "region below none": (
        lambda it, ids: it.regions.create({"parent_region_id": "nowhere"}, "new"),
        "not_found",
        "Could not find region: nowhere.",
    ),
    "region below itself": (
        lambda it, ids: it.regions.change("north", {"parent_region_id": "north"}),
        "bad_request",
        "Region north would be its own parent.",
    ),
    "region below its child": (
        lambda it, ids: it.regions.change("north", {"parent_region_id": "polar"}),
        "bad_request",
        "Region north would be its own parent.",
    ),
    "region with regions": (lambda it, ids: it.regions.delete("north"), "forbidden", "has regions or endpoints in it"),
    "region with endpoints": (
        lambda it, ids: it.regions.delete("polar"),
        "forbidden",
        "has regions or endpoints in it",
    ),
}


def test_what_is_refused_changes_nothing() -> None:
    async def story(home: Home) -> None:
        ids = await some(home)
        before = await home.everything()
        for name, (act, code, text) in REFUSED.items():
            with pytest.raises(Refused, match=text) as why:
                await act(home.identity, ids)
            assert (why.value.code, await home.everything()) == (code, before), name
        await home.identity.regions.change("north", {"parent_region_id": "south"})
        assert (await home.identity.regions.change("polar", {"parent_region_id": None}))["parent_region_id"] is None

    at_home(story)


async def shown(home: Home, project: str = "") -> dict[str, set[tuple[str, str]]]:
    """The catalog's endpoints but for our own, by type."""
    await home.identity.look()
    entries = catalog(home.identity.snapshot, URL, project)
    assert [entry["type"] for entry in entries[: len(OWN)]] == [type_ for type_, _, _ in OWN]
    endpoints: dict[str, set[tuple[str, str]]] = {}
    for entry in entries[len(OWN) :]:
        records: list[Record] = entry["endpoints"]  # type: ignore[assignment]
        assert all(one["region"] == one["region_id"] for one in records)
        endpoints[str(entry["type"])] = {(str(one["interface"]), str(one["url"])) for one in records}
    return endpoints


def test_the_catalog_has_what_is_enabled_and_can_be_reached() -> None:
    async def story(home: Home) -> None:
        ids, identity = await some(home), home.identity
        both = {("public", "http://dns"), ("admin", "http://dns")}
        metering = {("public", "http://metering"), ("admin", "http://metering")}
        assert await shown(home) == {"dns": both, "metering": metering}
        await identity.endpoints.change(ids["dns admin"], {"url": "http://dns/%(project_id)s"})
        assert await shown(home) == {"dns": {("public", "http://dns")}, "metering": metering}
        assert (await shown(home, "p"))["dns"] == {("public", "http://dns"), ("admin", "http://dns/p")}
        await identity.endpoints.change(ids["dns public"], {"enabled": False})
        assert await shown(home) == {"metering": metering}, "a service without an endpoint is left out"
        await identity.services.change(ids["metering"], {"enabled": False})
        assert await shown(home) == {}

    at_home(story)


def test_our_own_part_of_the_catalog() -> None:
    async def story(home: Home) -> None:
        for entry, (type_, name, path) in zip(catalog(home.identity.snapshot, URL), OWN, strict=True):
            ids = {str(one["id"]) for one in own_services() if one["type"] == type_}
            assert (entry["id"] in ids, entry["type"], entry["name"]) == (True, type_, name)
            records: list[Record] = entry["endpoints"]  # type: ignore[assignment]
            assert [(one["interface"], one["url"], one["region"]) for one in records] == [
                (interface, URL + path, REGION) for interface in INTERFACES
            ]

    at_home(story)


@pytest.mark.parametrize("sign", ["$(project_id)s", "$(tenant_id)s", "%(tenant_id)s", "%(project_id)s"])
def test_each_sign_of_a_project_is_filled(sign: str) -> None:
    assert filled(f"http://x/{sign}/{sign}", "p") == "http://x/p/p"
    assert filled(f"http://x/{sign}", "") is None
    assert filled("http://x", "") == filled("http://x", "p") == "http://x"
