"""Quotas, tags, extensions, zones; and that no route is open."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kilonova.api.network.routes import ROUTES
from kilonova.api.routes import PUBLIC, Route
from kilonova.policy.rules import DEFAULTS
from tests.unit.api.network.asked import Asked, run
from tests.unit.services.network.bench import OTHER, PROJECT

CLOSED = [route for route in ROUTES if route.rule != PUBLIC]


def test_quotas_are_told_set_and_taken_back() -> None:
    async def story(net: Asked) -> None:
        mine = (await net.get(f"/quotas/{PROJECT}"))["quota"]
        assert mine == (await net.get(f"/quotas/{PROJECT}/default"))["quota"]
        assert (mine["network"], mine["port"], mine["floatingip"]) == (100, 500, 50)
        assert (await net.refused("GET", f"/quotas/{OTHER}"))[0] == 403
        assert (await net.refused("PUT", f"/quotas/{PROJECT}", {"quota": {"port": 1}}))[0] == 403
        assert (await net.refused("DELETE", f"/quotas/{PROJECT}"))[0] == 403
        assert (await net.refused("GET", "/quotas"))[0] == 403
        told = await net.put(f"/quotas/{PROJECT}", {"quota": {"port": 1, "router": -1.0}}, "admin")
        assert (told["quota"]["port"], told["quota"]["router"], told["quota"]["network"]) == (1, -1, 100)
        (listed,) = (await net.get("/quotas", "admin"))["quotas"]
        assert listed == {**told["quota"], "project_id": PROJECT, "tenant_id": PROJECT}
        network = await net.network()
        await net.port(network)
        for path in (f"/quotas/{PROJECT}/details", f"/quotas/{PROJECT}/details.json"):
            assert (await net.get(path))["quota"]["port"] == {"limit": 1, "used": 1, "reserved": 0}
        assert await net.refused("POST", "/ports", {"port": {"network_id": network["id"]}}) == (409, "OverQuota")
        below = {"quota": {"port": 0, "check_limit": True}}
        assert await net.refused("PUT", f"/quotas/{PROJECT}", below, "admin") == (400, "InvalidQuotaValue")
        await net.delete(f"/quotas/{PROJECT}", "admin")
        assert (await net.get(f"/quotas/{PROJECT}"))["quota"] == mine
        await net.port(network)

    run(story)


@pytest.mark.parametrize(
    "quota",
    [{"port": -2}, {"port": "five"}, {"port": 2**31}, {"port": 1.5}, {"port": None}, {"magic": 1}, [], None,
     {"check_limit": True, "force": True}],
)  # fmt: skip
def test_wrong_quotas_are_refused(quota: Any) -> None:
    async def story(net: Asked) -> None:
        assert (await net.refused("PUT", f"/quotas/{PROJECT}", {"quota": quota}, "admin"))[0] == 400
        assert (await net.get("/quotas", "admin"))["quotas"] == []

    run(story)


def test_every_kind_of_thing_counts() -> None:
    async def story(net: Asked) -> None:
        network = await net.network()
        await net.subnet(network)
        await net.port(network)
        outside = await net.network("admin", **{"router:external": True})
        await net.subnet(outside, "172.24.4.0/24", "admin")
        await net.post("/routers", {"router": {}})
        await net.post("/floatingips", {"floatingip": {"floating_network_id": outside["id"]}})
        group = (await net.get("/security-groups"))["security_groups"][0]
        used = {name: told["used"] for name, told in (await net.get(f"/quotas/{PROJECT}/details"))["quota"].items()}
        one_of_each = {name: 4 if name == "security_group_rule" else 1 for name in used}
        assert used == one_of_each
        await net.put(f"/quotas/{PROJECT}", {"quota": one_of_each}, "admin")
        rule = {"security_group_id": group["id"], "direction": "ingress"}
        for path, body in {
            "/networks": {"network": {}},
            "/subnets": {"subnet": {"network_id": network["id"], "cidr": "10.2.0.0/24"}},
            "/ports": {"port": {"network_id": network["id"]}},
            "/routers": {"router": {}},
            "/floatingips": {"floatingip": {"floating_network_id": outside["id"]}},
            "/security-groups": {"security_group": {"name": "g"}},
            "/security-group-rules": {"security_group_rule": rule},
        }.items():
            assert await net.refused("POST", path, body) == (409, "OverQuota"), path
        shown = (await net.get(f"/quotas/{PROJECT}/details"))["quota"]
        assert {name: told["used"] for name, told in shown.items()} == one_of_each

    run(story)


def test_tags_of_a_thing() -> None:
    async def story(net: Asked) -> None:
        network = await net.network()
        path = f"/networks/{network['id']}/tags"
        assert await net.get(path) == {"tags": []}
        assert (await net.ask("PUT", f"/v2.0{path}/red")).status_code == 201
        assert (await net.ask("PUT", f"/v2.0{path}/red")).status_code == 201
        assert (await net.ask("PUT", f"/v2.0{path}/a%2Fb%20%C3%BC")).status_code == 201
        assert await net.get(path, "reader") == {"tags": ["a/b ü", "red"]}
        await net.get(f"{path}/red", status=204)
        assert await net.refused("GET", f"{path}/blue") == (404, "TagNotFound")
        assert await net.put(path, {"tags": ["blue", "green", "blue"]}) == {"tags": ["blue", "green"]}
        await net.delete(f"{path}/blue")
        assert await net.refused("DELETE", f"{path}/blue") == (404, "TagNotFound")
        assert (await net.get(f"/networks/{network['id']}"))["network"]["tags"] == ["green"]
        for method, told in (("PUT", {"tags": []}), ("DELETE", None)):
            assert (await net.refused(method, path, told, "reader"))[0] == 403
            assert (await net.refused(method, path, told, "other"))[0] == 404
        for wrong in (
            {"tags": ["a,b"]},
            {"tags": [""]},
            {"tags": ["x" * 256]},
            {"tags": [f"{n}" for n in range(51)]},
            {},
        ):
            assert (await net.refused("PUT", path, wrong))[0] == 400
        assert (await net.refused("PUT", f"{path}/{'x' * 256}"))[0] == 400
        await net.put(path, {"tags": [f"{number}" for number in range(50)]})
        assert (await net.refused("PUT", f"{path}/more"))[0] == 400
        await net.delete(path)
        assert await net.get(path) == {"tags": []}

    run(story)


def test_each_extension_can_be_had_and_only_what_works_is_told() -> None:
    async def story(net: Asked) -> None:
        found = (await net.get("/extensions"))["extensions"]
        for one in found:
            assert (await net.get(f"/extensions/{one['alias']}"))["extension"] == one
            assert set(one) == {"alias", "name", "description", "updated", "links"}
        aliases = {one["alias"] for one in found}
        assert {"security-group", "router", "external-net", "quotas", "binding", "standard-attr-tag"} <= aliases
        assert "agent" not in aliases, "there are none"
        for unknown in ("agent", "Availability%20Zone"):
            assert (await net.refused("GET", f"/extensions/{unknown}"))[0] == 404

    run(story)


def test_zones_and_agents() -> None:
    async def story(net: Asked) -> None:
        zones = (await net.get("/availability_zones"))["availability_zones"]
        assert {(zone["name"], zone["resource"], zone["state"]) for zone in zones} == {
            ("nova", "network", "available"),
            ("nova", "router", "available"),
        }
        for by in ("admin", "me"):
            assert await net.get("/agents", by) == {"agents": []}

    run(story)


def test_no_route_answers_without_a_token_and_none_of_anothers_things_can_be_had() -> None:
    async def story(net: Asked) -> None:
        network = await net.network()
        await net.subnet(network)
        group = await net.post("/security-groups", {"security_group": {"name": "g"}})
        things = {
            "networks": network,
            "subnets": (await net.get("/subnets"))["subnets"][0],
            "ports": await net.port(network),
            "security-groups": group,
            "security-group-rules": group["security_group_rules"][0],
            "routers": await net.post("/routers", {"router": {}}),
        }
        for route in CLOSED:
            collection = route.path.split("/")[2]
            path = route.path.replace("{id}", things.get(collection, {"id": "x"})["id"])
            path = re.sub(r"\{\w+\}", "x", path).removeprefix("/v2.0")
            assert (await net.refused(route.method, path, {}, by=""))[0] == 401, route.path
            if "{id}" in route.path:
                status, _ = await net.refused(route.method, path, _body(route), "other")
                assert status == 404, (route.method, route.path)

    run(story)


def _body(route: Route) -> Any:
    """The least that passes the form."""
    if route.method not in ("PUT", "POST"):
        return None
    if route.path.endswith("/tags"):
        return {"tags": []}
    if route.path.endswith("_interface"):
        return {"subnet_id": "x"}
    name = route.rule.partition("_")[2]
    return {name: {}}


def test_every_route_has_a_rule_that_exists() -> None:
    assert all(route.rule in DEFAULTS or route.rule == "-" for route in CLOSED)
