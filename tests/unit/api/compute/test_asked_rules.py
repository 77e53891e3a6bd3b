"""Rules that are asked where Nova asks them, a pin that does not fit, and hosts whose subjects have a prefix."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.bus import in_cell, question_subject
from tests.unit.api.compute.cloud import LATEST, Cloud, run
from tests.unit.api.compute.test_servers import made


def _without(cloud: Cloud, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    policy = cloud.api.service.policy
    allows = policy.allows

    def judged(asked: str, *given: Any, **more: Any) -> bool:
        return asked != rule and allows(asked, *given, **more)

    monkeypatch.setattr(policy, "allows", judged)


def test_extra_specs_of_a_servers_flavor(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        shown = await cloud.get("member", f"/servers/{server}", at="2.47")
        assert "extra_specs" in shown["server"]["flavor"]
        _without(cloud, monkeypatch, "os_compute_api:servers:show:flavor-extra-specs")
        shown = await cloud.get("member", f"/servers/{server}", at="2.47")
        assert "extra_specs" not in shown["server"]["flavor"]

    run(story, hosts=1)


def test_certificates_of_a_rebuild(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        image = (await cloud.get("member", f"/servers/{server}"))["server"]["image"]["id"]
        wish = {"rebuild": {"imageRef": image, "trusted_image_certificates": ["a"]}}
        _without(cloud, monkeypatch, "os_compute_api:servers:rebuild:trusted_certs")
        text = await cloud.refuses("member", "POST", f"/servers/{server}/action", wish, at="2.63", status=403)
        assert "rebuild:trusted_certs" in text
        del wish["rebuild"]["trusted_image_certificates"]
        await cloud.does("member", "POST", f"/servers/{server}/action", wish, at="2.63", status=202)

    run(story, hosts=1)


def test_a_pin_that_does_not_fit_is_a_conflict() -> None:
    async def story(cloud: Cloud) -> None:
        server = await made(cloud)
        wish = {"server": {"pinned_availability_zone": "elsewhere"}}
        text = await cloud.refuses("member", "PUT", f"/servers/{server}", wish, at=LATEST, status=409)
        assert "is in nova, not in elsewhere" in text

    run(story, hosts=1)


def test_images_are_cached_in_cells_with_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cloud: Cloud) -> None:
        wish = {"aggregate": {"name": "fast"}}
        number = (await cloud.does("admin", "POST", "/os-aggregates", wish))["aggregate"]["id"]
        body = {"add_host": {"host": "host1"}}
        await cloud.does("admin", "POST", f"/os-aggregates/{number}/action", body)
        subjects: list[str] = []

        async def cast(subject: str, message: bytes) -> None:
            subjects.append(subject)

        engine = cloud.api.service.engine
        monkeypatch.setattr(engine.world.db, "bus_prefix", lambda cell: "far" if cell == "cell1" else "")
        monkeypatch.setattr(engine.world.bus, "cast", cast)
        cache = {"cache": [{"id": "70a599e0-31e7-49b7-b260-868f441e862b"}]}
        await cloud.does("admin", "POST", f"/os-aggregates/{number}/images", cache, at="2.81", status=202)
        assert in_cell("far", question_subject("host1")) in subjects

    run(story, hosts=1)
