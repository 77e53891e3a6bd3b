"""Names that clients look for, and actions that are not offered: what Nova has is not called nonsense."""

from __future__ import annotations

from tests.unit.api.compute.cloud import LATEST, Cloud, run


def test_the_list_is_nova_s_own() -> None:
    """Old clients take a missing name for a missing Nova; Tempest looks for these two."""

    async def story(cloud: Cloud) -> None:
        listed = (await cloud.get("member", "/extensions"))["extensions"]
        assert "Hosts" in {one["name"] for one in listed}
        assert {"OS-EXT-STS", "os-server-start-stop", "os-keypairs"} <= {one["alias"] for one in listed}
        shown = (await cloud.get("member", "/extensions/os-consoles"))["extension"]
        assert shown in listed
        assert (await cloud.ask("member", "GET", "/extensions/os-nonsense")).status_code == 404

    run(story)


def test_an_action_that_is_not_offered_and_one_that_nobody_knows() -> None:
    async def story(cloud: Cloud) -> None:
        path = "/servers/00000000-0000-4000-8000-000000000000/action"
        asked = await cloud.refuses("member", "POST", path, {"trigger_crash_dump": None}, at=LATEST)
        assert asked == "This cloud does not offer 'trigger_crash_dump' yet."
        assert await cloud.refuses("member", "POST", path, {"fly": None}, at=LATEST) == "There is no such action: fly"

    run(story)
