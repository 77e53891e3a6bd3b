"""/ha and the fence of a host, over the API."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.roles.wiring import make_fence
from kilonova.settings import load
from tests.unit.api.embedded import Api, run

pytestmark = pytest.mark.slow

# A machine that stands still for half of service_down_time has not listened: then a dead host is unknown for a while.
FOUR = ("simulated.hosts=4", "DEFAULT.service_down_time=3", "DEFAULT.report_interval=0.1")
AUTOMATIC = (*FOUR, "ha.automatic=true", "conductor.poll_seconds=0.1")


async def states(api: Api) -> list[Any]:
    return [(one["host"], one["state"]) for one in (await api.get("/ha"))["ha"]["records"]]


def test_a_dead_host_is_evacuated_by_itself() -> None:
    async def story(api: Api) -> None:
        server = await api.created(host="host1")
        await api.post("/simulated/hosts/host1", {"power": "off"}, 200)

        async def is_done() -> bool:
            return await states(api) == [("host1", "done")]

        await api.until(is_done)
        (record,) = (await api.get("/ha"))["ha"]["records"]
        assert record["sentence"] == "1 moved; 0 failed; 0 impossible" and "found without power" in record["proof"]
        assert (await api.get(f"/servers/{server}"))["server"]["host"] != "host1"
        shown = (await api.get(f"/operations/{record['operation_id']}"))["operation"]
        assert shown["through"] == "ha" and "silent" in shown["reason"]
        await api.post("/simulated/hosts/host1", {"power": "on"}, 200)

        async def is_back() -> bool:
            return await states(api) == [("host1", "returned")]

        await api.until(is_back)

    run(story, *AUTOMATIC)


def test_by_default_it_only_shows() -> None:
    async def story(api: Api) -> None:
        await api.created(host="host1")
        await api.post("/simulated/hosts/host1", {"power": "off"}, 200)
        await api.host_is("host1", "down")
        shown = (await api.get("/ha"))["ha"]
        assert (shown["automatic"], shown["armed"], shown["records"], shown["cells_away"]) == (False, True, [], [])
        (silent,) = shown["silent"]
        assert (silent["host"], silent["decision"]) == ("host1", "asks") and "silent for" in silent["evidence"]

    run(story, *FOUR)


def test_disarm_and_arm() -> None:
    async def story(api: Api) -> None:
        wish = {"action": "disarm", "seconds": 60, "reason": "the switch is replaced"}
        shown = (await api.post("/ha", wish, 200))["ha"]
        assert not shown["armed"] and shown["disarmed"]["reason"] == "the switch is replaced"
        assert shown["disarmed"]["user_id"] and shown["disarmed"]["until"] - shown["disarmed"]["said_at"] == 60
        assert (await api.post("/ha", {"action": "arm"}, 200))["ha"]["armed"]
        for wrong in (
            {"action": "disarm", "reason": "no time"},
            {"action": "disarm", "seconds": 60},
            {"action": "disarm", "seconds": 60, "reason": " "},
            {"action": "disarm", "seconds": 0, "reason": "x"},
            {"action": "disarm", "seconds": 1e300, "reason": "x"},
            {"action": "disarm", "seconds": "60", "reason": "x"},
            {"action": "sleep"},
            {"action": "arm", "colour": "red"},
            {},
        ):
            assert (await api.refused("POST", "/ha", wrong))[:2] == (400, "bad_request"), wrong
        assert (await api.get("/ha"))["ha"]["armed"]

    run(story, *FOUR)


def test_a_host_is_fenced_by_word() -> None:
    async def story(api: Api) -> None:
        server = await api.created(host="host1")
        status, code, sentence = await api.refused("POST", "/hosts/host1", {"fence": True})
        assert (status, code) == (400, "host_still_up") and "drain it" in sentence
        await api.post("/simulated/hosts/host1", {"link": "cut"}, 200)
        await api.host_is("host1", "down")
        wish = {"operation": "evacuate_host", "host": "host1"}
        assert (await api.refused("POST", "/operations", wish))[:2] == (409, "unfenced")
        host = (await api.post("/hosts/host1", {"fence": True}, 200))["host"]
        assert (host["state"], host["proven_by"], host["sentence"]) == ("down", "fence", "host1 is fenced")
        await api.ended((await api.post("/operations", wish))["operation"])
        assert (await api.get(f"/servers/{server}"))["server"]["host"] != "host1"
        assert (await api.refused("POST", "/hosts/host1", {"fence": False}))[:2] == (400, "bad_request")

    run(story, *FOUR)


def test_a_fence_command_that_fails_is_told() -> None:
    async def story(api: Api) -> None:
        await api.post("/simulated/hosts/host1", {"power": "off"}, 200)
        await api.host_is("host1", "down")
        status, code, sentence = await api.refused("POST", "/hosts/host1", {"fence": True})
        assert (status, code) == (409, "fence_failed") and "could not be fenced: sh ended with 7: no power" in sentence
        assert (await api.get("/hosts/host1"))["host"]["proven_by"] == "silence"

    run(story, *FOUR, "ha.fence_command=sh,-c,echo no power of {host}; exit 7")


def test_a_command_must_say_which_host() -> None:
    with pytest.raises(Refused) as told:
        load(None, None, ["ha.fence_command=ipmitool,power,off"])
    assert "{host}" in told.value.message


def test_without_a_fence_nothing_is_automatic() -> None:
    with pytest.raises(Refused) as told:
        make_fence(load(None, None, ["ha.automatic=true"]))
    assert "needs fence_command" in told.value.message
    assert make_fence(load(None, None, [])) is None
