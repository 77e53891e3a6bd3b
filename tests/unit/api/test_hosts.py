"""/hosts and /simulated: the administrator's word, and the switches of machines."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.creates import IMAGE
from tests.unit.api.embedded import Api, run


def test_hosts_are_shown_with_a_sentence() -> None:
    async def story(api: Api) -> None:
        hosts = (await api.get("/hosts"))["hosts"]
        assert [host["name"] for host in hosts] == ["host1", "host2", "host3"]
        assert all(host["state"] == "up" and "answered" in host["sentence"] for host in hosts)
        assert (await api.get("/hosts/host2"))["host"]["cell"] == "cell1"

    run(story)


def test_a_disabled_host_is_no_destination_until_it_is_enabled() -> None:
    async def story(api: Api) -> None:
        for host in ("host1", "host2"):
            shown = await api.post(f"/hosts/{host}", {"disabled": True, "reason": "new disks"}, 200)
            assert (shown["host"]["state"], shown["host"]["disabled_reason"]) == ("disabled", "new disks")
        for _ in range(3):
            server = await api.created()
            assert (await api.get(f"/servers/{server}"))["server"]["host"] == "host3"
        await api.post("/hosts/host1", {"disabled": False}, 200)
        await api.host_is("host1", "up")
        await api.post("/hosts/host3", {"disabled": True}, 200)
        server = await api.created()
        assert (await api.get(f"/servers/{server}"))["server"]["host"] == "host1"
        assert (await api.get("/hosts/host3"))["host"]["disabled_reason"] is None

    run(story)


def test_a_host_that_was_declared_down_comes_back_when_it_owes_nothing() -> None:
    async def story(api: Api) -> None:
        server = await api.created(host="host1")
        await api.post("/simulated/hosts/host1", {"link": "cut"}, 200)
        shown = await api.post("/hosts/host1", {"forced_down": True}, 200)
        assert (shown["host"]["state"], shown["host"]["forced_down"]) == ("down", True)
        moved = await api.submit("evacuate", server=server)
        await api.ended(moved["operation"])

        status, code, sentence = await api.refused("POST", "/hosts/host1", {"forced_down": False})
        assert (status, code) == (409, "unpaid_debts") and "1 stale guest copies" in sentence
        await api.post("/simulated/hosts/host1", {"link": "up"}, 200)

        async def paid() -> bool:
            return bool((await api.get("/hosts/host1"))["host"]["debts"] == 0)

        await api.until(paid)
        assert (await api.get("/hosts/host1"))["host"]["state"] == "down", "still by the administrator's word"
        await api.post("/hosts/host1", {"forced_down": False}, 200)
        await api.host_is("host1", "up")
        await api.created(host="host1")

    run(story)


def test_saying_the_same_twice_changes_nothing() -> None:
    async def story(api: Api) -> None:
        first = await api.post("/hosts/host1", {"forced_down": True}, 200)
        again = await api.post("/hosts/host1", {"forced_down": True}, 200)
        assert first["host"]["epoch"] == again["host"]["epoch"] > 1

    run(story)


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/hosts/host1", {}, 400, "must have forced_down or disabled"),
        ("/hosts/host1", {"forced_down": "yes"}, 400, "forced_down. Value: yes. 'yes' is not"),
        ("/hosts/host1", {"down": True}, 400, "'down' was unexpected"),
        ("/hosts/mars", {"forced_down": True}, 404, "Compute host mars could not be found."),
        ("/simulated/hosts/mars", {"power": "off"}, 404, "Compute host mars could not be found."),
        ("/simulated/hosts/host1", {}, 400, "the body must have power, link, fail, plant, lose or guest"),
        ("/simulated/hosts/host1", {"power": "maybe"}, 400, "'maybe' is not one of ['off', 'on']"),
        ("/simulated/hosts/host1", {"fail": {"verb": "explode"}}, 400, "verb 'explode': unknown"),
        ("/simulated/hosts/host1", {"fail": {"verb": "copies", "times": 0}}, 400, "times=0: must be 1 or more"),
        (
            "/simulated/hosts/host1",
            {"fail": {"verb": "copies", "how": "politely"}},
            400,
            "use error or refuse or crash",
        ),
        ("/simulated/hosts/host1", {"power": "off", "fail": {"verb": "explode"}}, 400, "verb 'explode': unknown"),
    ],
)
def test_orders_that_make_no_sense(path: str, body: dict[str, object], status: int, words: str) -> None:
    async def story(api: Api) -> None:
        answered, _, sentence = await api.refused("POST", path, body)
        assert answered == status and words in sentence
        assert (await api.get("/hosts/host1"))["host"]["state"] == "up"

    run(story, "simulated.hosts=1")


def test_what_a_guest_writes_is_on_its_console_after_the_next_boot() -> None:
    async def story(api: Api) -> None:
        server = await api.created(name="web", host="host1")
        path = f"/simulated/servers/{server}"
        assert (await api.ask("GET", f"{path}/console")).text == (
            f"KILONOVA-GUEST name=web boot=1 root=image:{IMAGE} volumes=\n"
        )
        await api.post(f"{path}/write", {"disk": "root", "text": "note"}, 200)
        for text in ("", "two words"):
            assert (await api.refused("POST", f"{path}/write", {"text": text}))[:2] == (400, "bad_text")
        assert (await api.refused("POST", f"{path}/write", {"disk": "vdb", "text": "x"}))[0] == 400
        elsewhere = {"disk": "00000000-0000-4000-8000-000000000000", "text": "x"}
        assert (await api.refused("POST", f"{path}/write", elsewhere))[0] == 409

        moving = await api.submit("migrate", server=server)
        await api.ended(moving["operation"])
        lines = (await api.ask("GET", f"{path}/console")).text.splitlines()
        assert lines[-1] == f"KILONOVA-GUEST name=web boot=1 root=image:{IMAGE}+note volumes="

        await api.post("/simulated/hosts/host1", {"power": "off"}, 200)
        nowhere = await api.create(flavor=await api.new_flavor("huge", 1000))
        await api.ended(nowhere["operation"], "undone")
        assert (await api.refused("GET", f"/simulated/servers/{nowhere['server']}/console"))[:2] == (409, "not_running")

    run(story, "quota.cores=-1")


def test_power_comes_back_with_an_agent_of_its_own() -> None:
    async def story(api: Api) -> None:
        server = await api.created(host="host1")
        for _ in range(3):
            assert (await api.post("/simulated/hosts/host1", {"power": "off"}, 200))["power"] == "off"
            assert (await api.post("/simulated/hosts/host1", {"power": "on"}, 200))["power"] == "on"
        await api.host_is("host1", "up")

        async def runs() -> bool:
            text = (await api.ask("GET", f"/simulated/servers/{server}/console")).text
            return "boot=2" in text

        await api.until(runs)

    run(story, "simulated.hosts=1")


@pytest.mark.slow
def test_a_crashing_agent_is_started_again_and_completes_its_work() -> None:
    async def story(api: Api) -> None:
        for verb in ("ensure_disk", "ensure_defined", "ensure_power"):
            await api.post("/simulated/hosts/host1", {"fail": {"verb": verb, "how": "crash"}}, 200)
            await api.created()

    run(story, "simulated.hosts=1")


@pytest.mark.slow
def test_a_silent_host_stays_down_while_nobody_is_left_to_be_heard() -> None:
    """It was called unknown every other half second: the observer wrote less often than the judge looked."""

    async def story(api: Api) -> None:
        await api.post("/simulated/hosts/host1", {"link": "cut"}, 200)
        await api.host_is("host1", "down")
        states = []
        for _ in range(50):
            states.append((await api.get("/hosts/host1"))["host"]["state"])
            await asyncio.sleep(0.05)
        assert states.count("down") > 40, states  # a busy machine may stand still for a moment, and knows nothing then

    run(story, "simulated.hosts=1", "DEFAULT.service_down_time=1")
