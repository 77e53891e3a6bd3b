"""The first page, and the index of Kilonova's own REST that it links to."""

from __future__ import annotations

import re

from kilonova.api.home import SERVICES
from tests.unit.api.embedded import Api, login, run


def test_the_index_has_every_route_and_says_what_you_may() -> None:
    async def story(api: Api) -> None:
        found = await api.get("/")
        assert found == await api.get("")
        routes = {(route["method"], route["address"].partition("/kilonova/v1")[2]): route for route in found["routes"]}
        assert {("GET", ""), ("POST", "/plans"), ("GET", "/operations/{id}")} <= set(routes)
        assert all(route["you_may"] and not re.match(r"\w+: ", route["what"]) for route in found["routes"])
        assert routes["GET", "/hosts"]["rule"] == "kilonova:hosts"

    run(story)


def test_others_may_less_and_nobody_nothing() -> None:
    async def story(api: Api) -> None:
        assert (await api.client.get("/kilonova/v1", headers={"X-Auth-Token": ""})).status_code == 401
        password = (api.data / "demo.password").read_text().strip()
        token = await login(api.service, "demo", password)
        shown = (await api.ask("GET", "", X_Auth_Token=token)).json()["routes"]
        may = {route["address"].rpartition("/")[2] for route in shown if route["you_may"]}
        own = {"operations", "{id}", "cancel", "{image}"}
        assert may == {"v1", "{service}", "plans"} | own, "also the operations on their servers, and hosts' uploads"

    run(story)


def test_the_first_page_names_no_path_and_only_addresses_that_answer() -> None:
    async def story(api: Api) -> None:
        page = (await api.client.get("/")).text
        assert "OS_CLIENT_CONFIG_FILE=<em>DATA</em>/clouds.yaml OS_CLOUD=kilonova" in page and str(api.data) not in page
        linked = re.findall(r'href="([^"]+)"', page)
        assert len(linked) == len(SERVICES)
        for address in linked:
            assert (await api.client.get(address)).status_code in (200, 300), address

    run(story)
