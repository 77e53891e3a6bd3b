"""What is not offered is not advertised, and what Nova has is not called nonsense."""

from __future__ import annotations

from typing import Any

from kilonova.api.compute.extensions import EXTENSIONS, SHOWN_BY, offered
from kilonova.api.routes import ANY_TOKEN, Route
from tests.unit.api.compute.cloud import LATEST, Cloud, run


async def nothing(call: Any) -> Any: ...


def route(path: str, action: str = "") -> Route:
    return Route(method="POST", path=path, handler=nothing, rule=ANY_TOKEN, action=action)


def test_a_name_appears_with_its_address_or_action() -> None:
    assert set(SHOWN_BY) <= set(EXTENSIONS)
    assert offered([]) == {}
    assert set(offered([route("/servers/{server}/action", "pause")])) > {"os-pause-server", "OS-EXT-STS"}
    assert "os-lock-server" not in offered([route("/servers/{server}/action", "pause")])
    assert set(offered([route("/os-agents")])) == {"os-agents"}


def test_the_list_of_this_cloud() -> None:
    async def story(cloud: Cloud) -> None:
        listed = {one["alias"] for one in (await cloud.get("member", "/extensions"))["extensions"]}
        assert {"OS-EXT-STS", "os-server-start-stop", "os-keypairs", "os-console-output", "os-flavor-access"} <= listed
        assert not listed & {"os-cells", "os-certificates", "os-cloudpipe", "os-fping", "os-baremetal-nodes"}
        for alias in EXTENSIONS:
            answer = await cloud.ask("member", "GET", f"/extensions/{alias}")
            assert answer.status_code == (200 if alias in listed else 404)

    run(story)


def test_an_action_that_is_not_offered_and_one_that_nobody_knows() -> None:
    async def story(cloud: Cloud) -> None:
        path = "/servers/00000000-0000-4000-8000-000000000000/action"
        asked = await cloud.refuses("member", "POST", path, {"trigger_crash_dump": None}, at=LATEST)
        assert asked == "This cloud does not offer 'trigger_crash_dump' yet."
        assert await cloud.refuses("member", "POST", path, {"fly": None}, at=LATEST) == "There is no such action: fly"

    run(story)
