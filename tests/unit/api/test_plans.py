"""/plans: what would happen, with nothing stored."""

from __future__ import annotations

from tests.unit.api.embedded import Api, run


def test_a_plan_names_the_destination_and_the_steps_and_stores_nothing() -> None:
    async def story(api: Api) -> None:
        server = await api.created(host="host1")
        before = (await api.get("/operations"))["operations"]
        told = (await api.post("/plans", {"operation": "migrate", "server": server, "host": "host3"}, 200))["plan"]
        assert told["facts"]["candidates"][0]["host"] == "host3"
        assert [step["name"] for step in told["steps"]][:3] == ["cold_migrate", "claim", "prep_resize"]
        assert told["problem"] is None
        assert (await api.get("/operations"))["operations"] == before

    run(story)


def test_a_plan_is_refused_as_the_request_would_be() -> None:
    async def story(api: Api) -> None:
        server = await api.created(host="host1")
        asked = {"operation": "evacuate", "server": server}
        refused = await api.refused("POST", "/plans", asked)
        assert refused == await api.refused("POST", "/operations", asked) or refused[:2] == (400, "host_still_up")
        assert (await api.refused("POST", "/plans", {"operation": "migrate", "server": "nobody"}))[0] == 404
        assert (await api.refused("POST", "/plans", {"operation": "fly", "server": server}))[0] == 400

    run(story)
