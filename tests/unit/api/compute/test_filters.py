"""Filters of the list of servers that are regular expressions: as Nova's, but none can run for ever."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import pytest

from kilonova.api.compute.patterns import is_pattern, matcher
from kilonova.api.compute.schemas.servers import LIST, PATTERNS, TAG_PATTERNS
from kilonova.domain.errors import Refused
from tests.unit.api.compute.cloud import LATEST, Cloud, run

BAD = ["(((", "[", "*", "a{2,1}", r"(?=a)b", r"(a)\1", "", "(" * 300 + ")" * 300, "((((a{99}){99}){99}){99})"]


@pytest.mark.parametrize("name", [*PATTERNS, *TAG_PATTERNS])
@pytest.mark.parametrize("pattern", BAD[:2])
def test_what_is_none_is_refused_by_every_filter_that_nova_checks(name: str, pattern: str) -> None:
    with pytest.raises(Refused) as refused:
        LIST.check({name: [pattern]}, (2, 26), what="query parameters")
    assert refused.value.status == 400
    assert f"query parameters {name}. Value: {pattern}. '{pattern}' is not a 'regex'" in refused.value.message


@pytest.mark.parametrize("name", ["user_id", "project_id", "image", "host", "status", "uuid", "vm_state"])
def test_other_filters_are_texts(name: str) -> None:
    LIST.check({name: ["((("]}, (2, 26))


@pytest.mark.parametrize("pattern", BAD)
def test_what_cannot_be_matched_is_no_pattern(pattern: str) -> None:
    assert not is_pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*(.*)*(.*)*x", "(x+x+)+y"])
def test_no_pattern_runs_for_ever(pattern: str) -> None:
    began = time.process_time()
    assert not matcher(pattern, "name")("a" * 200 + "!")
    assert time.process_time() - began < 1.0


def test_over_http() -> None:
    async def story(cloud: Cloud) -> None:
        image = (await cloud.api.client.get("/image/v2/images", headers={"X-Auth-Token": "member"})).json()["images"][0]
        for name in ("web-1", "web-2", "db-1"):
            wish = {"name": name, "flavorRef": "1", "imageRef": image["id"], "networks": "none"}
            await cloud.does("member", "POST", "/servers", {"server": wish}, at="2.37", status=202)

        async def named(query: str) -> set[str]:
            found: dict[str, Any] = await cloud.get("member", f"/servers?{query}", at=LATEST)
            return {server["name"] for server in found["servers"]}

        assert await named(f"name={quote('^web-[0-9]$')}") == {"web-1", "web-2"}
        assert await named("name=b-1") == {"web-1", "db-1"}
        assert await named(f"reservation_id={quote('^r-')}") == {"web-1", "web-2", "db-1"}
        assert await named("key_name=.") == set(), "what has no key matches no pattern"
        for query in ("name=(((", "ip=[", "ip6=*", "name=", "hostname=(", "tags=("):
            await cloud.refuses("member", "GET", f"/servers?{query}", at=LATEST)
            await cloud.refuses("member", "GET", f"/servers/detail?{query}", at="2.26")

    run(story, hosts=1)
