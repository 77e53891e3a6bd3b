"""DELETE of a server that is being deleted: as asked, by the same operation."""

from __future__ import annotations

from tests.unit.api.embedded import Api, run


def test_it_is_the_same_delete() -> None:
    async def story(api: Api) -> None:
        server = await api.created(host="host1")
        await api.post("/simulated/hosts/host1", {"link": "cut"}, 200)
        path = f"/compute/v2.1/servers/{server}"
        first, second = [await api.client.delete(path) for _ in range(2)]
        assert (first.status_code, second.status_code) == (204, 204)
        operation = first.headers["X-Kilonova-Operation"]
        assert second.headers["X-Kilonova-Operation"] == operation
        shown = (await api.client.get(path)).json()["server"]
        assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("ACTIVE", "deleting")
        await api.post("/simulated/hosts/host1", {"link": "up"}, 200)
        await api.ended(operation)
        assert (await api.client.delete(path)).status_code == 404
        asked = (await api.get(f"/operations?server={server}"))["operations"]
        assert [one["operation"] for one in asked] == ["delete", "create"]

    run(story, "DEFAULT.service_down_time=30")
