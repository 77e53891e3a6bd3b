"""POST /operations takes a rebuild as the Compute API does in its newest form; GET /servers finds servers by name."""

from __future__ import annotations

from tests.unit.api.embedded import Api, run

MISSING = "00000000-0000-4000-8000-000000000000"


async def image_of(api: Api, name: str) -> str:
    answer = await api.client.request("GET", f"/image/v2/images?name={name}")
    return str(answer.json()["images"][0]["id"])


def test_a_server_is_rebuilt_from_another_image() -> None:
    async def story(api: Api) -> None:
        server, image = await api.created(), await image_of(api, "cirros-sim-alt")
        made = await api.submit("rebuild", server=server, image=image)
        shown = await api.ended(made["operation"])
        assert shown["operation"] == "rebuild" and made["server"] == server
        assert (await api.get(f"/servers/{server}"))["server"]["image"] == image
        for body, status in (
            ({"server": server, "image": MISSING}, 400),
            ({"server": MISSING, "image": image}, 404),
            ({"server": server}, 400),
            ({"server": server, "image": image, "name": "other"}, 400),
        ):
            refused = await api.ask("POST", "/operations", {"operation": "rebuild", **body})
            assert refused.status_code == status, refused.text

    run(story)


def test_a_server_in_cell0_is_tried_again_with_the_image() -> None:
    async def story(api: Api) -> None:
        for host in ("host1", "host2", "host3"):
            await api.post(f"/hosts/{host}", {"disabled": True}, 200)
        made, image = await api.create("homeless"), await image_of(api, "cirros-sim")
        await api.ended(made["operation"], "undone")
        for host in ("host1", "host2", "host3"):
            await api.post(f"/hosts/{host}", {"disabled": False}, 200)
            await api.host_is(host, "up")
        again = await api.submit("rebuild", server=made["server"], image=image)
        await api.ended(again["operation"])
        shown = (await api.get(f"/servers/{made['server']}"))["server"]
        assert (shown["cell"], shown["vm_state"], shown["image"]) == ("cell1", "active", image)

    run(story)


def test_servers_are_found_by_name_host_and_state() -> None:
    async def story(api: Api) -> None:
        twins = sorted([await api.created(name="twin"), await api.created(name="twin")])
        await api.created(name="twin2")
        assert [one["id"] for one in (await api.get("/servers?name=twin"))["servers"]] == twins
        (second,) = (await api.get(f"/servers?name=twin&limit=5&marker={twins[0]}"))["servers"]
        assert second["id"] == twins[1]
        assert (await api.get("/servers?name=Twin"))["servers"] == []
        assert len((await api.get("/servers"))["servers"]) == 3
        where = {one["host"]: one["id"] for one in (await api.get("/servers"))["servers"]}
        for host, server in where.items():
            assert server in [one["id"] for one in (await api.get(f"/servers?host={host}"))["servers"]]
        assert len((await api.get("/servers?name=twin&vm_state=active"))["servers"]) == 2
        assert (await api.get("/servers?name=twin&vm_state=error"))["servers"] == []
        status, _, message = await api.refused("GET", "/servers?nam=twin")
        assert status == 400 and "nam" in message

    run(story)
