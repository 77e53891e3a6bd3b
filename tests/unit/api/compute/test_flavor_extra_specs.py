"""/flavors/{id}/os-extra_specs."""

from __future__ import annotations

from tests.unit.api.compute.cloud import LATEST, Cloud, run

SPECS = "/flavors/1/os-extra_specs"


def test_their_whole_life() -> None:
    async def story(cloud: Cloud) -> None:
        assert await cloud.get("reader", SPECS) == {"extra_specs": {}}
        wish = {"extra_specs": {"hw:numa_nodes": 1, "own key": "x", "half": 0.5}}
        assert await cloud.does("admin", "POST", SPECS, wish) == wish
        kept = {"hw:numa_nodes": "1", "own key": "x", "half": "0.5"}  # always texts
        assert await cloud.get("reader", SPECS) == {"extra_specs": kept}
        assert (await cloud.get("reader", "/flavors/1", at="2.61"))["flavor"]["extra_specs"] == kept
        assert await cloud.get("reader", f"{SPECS}/own%20key") == {"own key": "x"}
        changed = await cloud.does("admin", "PUT", f"{SPECS}/own%20key", {"own key": "y"})
        assert changed == {"own key": "y"}
        assert await cloud.does("admin", "PUT", f"{SPECS}/new", {"new": "z"}) == {"new": "z"}
        assert await cloud.does("admin", "DELETE", f"{SPECS}/half") is None
        left = {"hw:numa_nodes": "1", "own key": "y", "new": "z"}
        assert await cloud.get("reader", SPECS) == {"extra_specs": left}
        for method in ("GET", "DELETE"):
            said = await cloud.refuses("admin", method, f"{SPECS}/half", status=404)
            assert said == "Flavor 1 has no extra specs with key half."

    run(story)


def test_bad_ones_are_refused_and_change_nothing() -> None:
    async def story(cloud: Cloud) -> None:
        for wish in (
            *({}, {"extra_specs": []}, {"extra_specs": {"k": None}}, {"extra_specs": {"k": True}}, {"k": "v"}),
            *({"extra_specs": {"": "x"}}, {"extra_specs": {"a/b": "x"}}, {"extra_specs": {"k" * 256: "x"}}),
            *({"extra_specs": {"k": "x" * 256}}, {"extra_specs": {"k": "x"}, "more": 1}, {"extra_specs": {"k": {}}}),
        ):
            assert await cloud.refuses("admin", "POST", SPECS, wish), wish
        for wish in ({}, {"k": "v", "l": "w"}, {"l": "w"}, {"k": []}, []):
            assert await cloud.refuses("admin", "PUT", f"{SPECS}/k", wish), wish
        assert await cloud.refuses("admin", "PUT", f"{SPECS}/k", {"l": "w"}) == "Request body and URI mismatch"
        assert await cloud.get("reader", SPECS) == {"extra_specs": {}}
        gone = "/flavors/none/os-extra_specs"
        for method, path, sent in (
            *(("GET", gone, None), ("GET", f"{gone}/k", None), ("DELETE", f"{gone}/k", None)),
            *(("POST", gone, {"extra_specs": {"k": "v"}}), ("PUT", f"{gone}/k", {"k": "v"})),
        ):
            assert await cloud.refuses("admin", method, path, sent, status=404) == "Flavor none could not be found."

    run(story)


def test_known_ones_are_checked_from_2_86_on() -> None:
    async def story(cloud: Cloud) -> None:
        wrong = {"extra_specs": {"hw:cpu_policy": "pinned"}}
        await cloud.does("admin", "POST", SPECS, wrong, at="2.85")
        said = await cloud.refuses("admin", "POST", SPECS, wrong, at="2.86")
        assert said == "Validation failed; 'pinned' is not one of: dedicated, shared, mixed."
        assert await cloud.refuses("admin", "PUT", f"{SPECS}/hw:nothing", {"hw:nothing": "1"}, at="2.86")
        await cloud.does("admin", "POST", SPECS, {"extra_specs": {"hw:numa_nodes": 2, "own": "x"}}, at=LATEST)

    run(story)


def test_who_may() -> None:
    async def story(cloud: Cloud) -> None:
        await cloud.does("admin", "POST", SPECS, {"extra_specs": {"k": "v"}})
        for who in ("manager", "member", "reader", "stranger"):
            assert await cloud.get(who, f"{SPECS}/k") == {"k": "v"}
        for who in ("manager", "member", "reader", "service"):
            assert await cloud.refuses(who, "POST", SPECS, {"extra_specs": {"k": "w"}}, status=403)
            assert await cloud.refuses(who, "PUT", f"{SPECS}/k", {"k": "w"}, status=403)
            assert await cloud.refuses(who, "DELETE", f"{SPECS}/k", status=403)
        assert await cloud.refuses("service", "GET", SPECS, status=403)
        assert await cloud.refuses("service", "GET", f"{SPECS}/k", status=403)
        assert await cloud.refuses("reader", "GET", f"{SPECS}?x=1", at="2.102")
        assert await cloud.get("reader", SPECS) == {"extra_specs": {"k": "v"}}

    run(story)
