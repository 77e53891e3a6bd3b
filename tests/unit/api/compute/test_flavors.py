"""/flavors: every version's view, filters and pages, and what is refused."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.unit.api.compute.cloud import LATEST, Cloud, run

BRIEF = {"id", "name", "links"}
FULL = BRIEF | {
    *("ram", "disk", "swap", "vcpus", "OS-FLV-EXT-DATA:ephemeral", "os-flavor-access:is_public"),
    *("OS-FLV-DISABLED:disabled", "rxtx_factor"),
}
GOOD = {"name": "f", "ram": 64, "vcpus": 1, "disk": 1}


def body(**more: Any) -> dict[str, Any]:
    return {"flavor": {**GOOD, **more}}


async def ids(cloud: Cloud, query: str = "", *, who: str = "member", at: str = "2.1") -> list[str]:
    return [flavor["id"] for flavor in (await cloud.get(who, f"/flavors{query}", at=at))["flavors"]]


def test_each_version_shows_its_fields_and_no_others() -> None:
    expected = {
        "2.1": (BRIEF, FULL),
        "2.54": (BRIEF, FULL),
        "2.55": (BRIEF | {"description"}, FULL | {"description"}),
        "2.61": (BRIEF | {"description"}, FULL | {"description", "extra_specs"}),
        "2.101": (BRIEF | {"description"}, FULL | {"description", "extra_specs"}),
        "2.102": (
            BRIEF | {"description"},
            (FULL | {"description", "extra_specs"}) - {"OS-FLV-DISABLED:disabled", "rxtx_factor"},
        ),
    }

    async def story(cloud: Cloud) -> None:
        for at, (brief, full) in expected.items():
            assert {frozenset(one) for one in (await cloud.get("reader", "/flavors", at=at))["flavors"]} == {
                frozenset(brief)
            }
            detailed = (await cloud.get("reader", "/flavors/detail", at=at))["flavors"]
            assert {frozenset(one) for one in detailed} == {frozenset(full)}
            shown = (await cloud.get("reader", "/flavors/3", at=at))["flavor"]
            assert shown == detailed[2] and shown["swap"] == (0 if at in ("2.101", "2.102") else "")
        shown = (await cloud.get("reader", "/flavors/3"))["flavor"]
        assert (shown["name"], shown["vcpus"], shown["ram"], shown["disk"]) == ("m1.medium", 2, 4096, 40)
        assert [link["href"] for link in shown["links"]] == [
            "http://cloud/compute/v2.1/flavors/3",
            "http://cloud/compute/flavors/3",
        ]
        # without a role that may see extra specs
        assert "extra_specs" not in (await cloud.get("service", "/flavors/3", at="2.61"))["flavor"]

    run(story)


def test_create_with_what_clients_send() -> None:
    async def story(cloud: Cloud) -> None:
        async def create(at: str = "2.1", **wish: Any) -> Any:
            return (await cloud.does("admin", "POST", "/flavors", body(**wish), at=at))["flavor"]

        made = await create(name="by number", id=1234, ram="1024", swap=7, **{"OS-FLV-EXT-DATA:ephemeral": "2"})
        assert (made["id"], made["ram"], made["swap"], made["OS-FLV-EXT-DATA:ephemeral"]) == ("1234", 1024, 7, 2)
        assert set(made) == FULL and made["rxtx_factor"] == 1.0 and made["os-flavor-access:is_public"] is True
        assert made == (await cloud.get("reader", "/flavors/1234"))["flavor"]
        made = await create(name="made id", id=None, rxtx_factor="2.5")
        assert len(made["id"]) == 36 and made["rxtx_factor"] == 2.5
        made = await create(name="no id")
        assert len(made["id"]) == 36
        hidden = await create(name="hidden", **{"os-flavor-access:is_public": "False"})
        assert hidden["os-flavor-access:is_public"] is False
        made = await create("2.55", name="told", description="with words")
        assert made["description"] == "with words"
        made = await create("2.61", name="with specs")
        assert made["extra_specs"] == {} and made["description"] is None

    run(story)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "2.1"),
    ({"name": " space"}, "2.1"),
    ({"name": "x" * 256}, "2.1"),
    ({"name": "a\nb"}, "2.1"),
    ({"name": 5}, "2.1"),
    ({"id": " a"}, "2.1"),
    ({"id": "a/b"}, "2.1"),
    ({"id": True}, "2.1"),
    ({"id": "x" * 256}, "2.1"),
    ({"ram": 0}, "2.1"),
    ({"ram": "0"}, "2.1"),
    ({"ram": -1}, "2.1"),
    ({"ram": "many"}, "2.1"),
    ({"ram": 2147483648}, "2.1"),
    ({"ram": "2147483648"}, "2.1"),
    ({"ram": "9" * 200}, "2.1"),
    ({"vcpus": 1.5}, "2.1"),
    ({"disk": None}, "2.1"),
    ({"swap": [1]}, "2.1"),
    ({"rxtx_factor": 0}, "2.1"),
    ({"rxtx_factor": "0.0"}, "2.1"),
    ({"rxtx_factor": "9" * 60}, "2.1"),
    ({"rxtx_factor": 1.0}, "2.102"),
    ({"os-flavor-access:is_public": "maybe"}, "2.1"),
    ({"description": "too early"}, "2.54"),
    ({"description": "a\x07b"}, "2.55"),
    ({"unknown": 1}, "2.1"),
]


def test_bad_ones_are_refused_and_change_nothing() -> None:
    async def story(cloud: Cloud) -> None:
        before = await ids(cloud, who="admin")
        for wish, at in BAD:
            assert await cloud.refuses("admin", "POST", "/flavors", body(**wish), at=at)
        for broken in ({}, [], {"flavor": []}, {"flavour": GOOD}, {"flavor": {"name": "x"}}, body() | {"more": 1}):
            assert await cloud.refuses("admin", "POST", "/flavors", broken)
        assert await ids(cloud, who="admin") == before

    run(story)


def test_names_and_ids_are_unique() -> None:
    async def story(cloud: Cloud) -> None:
        said = await cloud.refuses("admin", "POST", "/flavors", body(name="m1.tiny"), status=409)
        assert said == "Flavor with name m1.tiny already exists."
        said = await cloud.refuses("admin", "POST", "/flavors", body(id=1), status=409)
        assert said == "Flavor with ID 1 already exists."

    run(story)


def test_delete_and_update() -> None:
    async def story(cloud: Cloud) -> None:
        words = {"flavor": {"description": "words"}}
        assert await cloud.refuses("admin", "PUT", "/flavors/1", words, at="2.54", status=404)
        changed = await cloud.does("admin", "PUT", "/flavors/1", words, at="2.55")
        assert changed["flavor"]["description"] == "words" and set(changed["flavor"]) == FULL | {"description"}
        assert "extra_specs" in (await cloud.does("admin", "PUT", "/flavors/1", words, at="2.61"))["flavor"]
        gone = await cloud.does("admin", "PUT", "/flavors/1", {"flavor": {"description": None}}, at="2.55")
        assert gone["flavor"]["description"] is None
        for broken in ({"flavor": {}}, {"flavor": {"description": "x", "name": "y"}}, {"flavor": {"description": 3}}):
            assert await cloud.refuses("admin", "PUT", "/flavors/1", broken, at="2.55")
        assert await cloud.does("admin", "DELETE", "/flavors/1", status=202) is None
        assert await ids(cloud) == ["2", "3", "4", "5"]
        for method, sent in (("GET", None), ("DELETE", None), ("PUT", words)):
            said = await cloud.refuses("admin", method, "/flavors/1", sent, at="2.55", status=404)
            assert said == "Flavor 1 could not be found."

    run(story)


def test_filters_order_and_pages() -> None:
    async def story(cloud: Cloud) -> None:
        assert await ids(cloud) == ["1", "2", "3", "4", "5"]
        assert await ids(cloud, "?minRam=4096") == ["3", "4", "5"]
        assert await ids(cloud, "?minDisk=81&minRam=1") == ["5"]
        assert await ids(cloud, "?sort_key=memory_mb&sort_dir=desc") == ["5", "4", "3", "2", "1"]
        assert await ids(cloud, "?sort_key=name") == ["4", "3", "2", "1", "5"]
        assert await ids(cloud, "?sort_key=vcpus&sort_dir=desc") == ["5", "4", "3", "2", "1"]
        for key in ("description", "disabled", "updated_at", "is_public", "rxtx_factor", "swap", "vcpu_weight"):
            assert await ids(cloud, f"?sort_key={key}") == ["1", "2", "3", "4", "5"]
        assert await ids(cloud, "?limit=0") == [] and await ids(cloud, "?limit=5000") == ["1", "2", "3", "4", "5"]
        assert await ids(cloud, "?marker=3") == ["4", "5"]
        assert await ids(cloud, "?marker=3&sort_dir=desc") == ["2", "1"]
        assert await ids(cloud, "?unknown=1") == ["1", "2", "3", "4", "5"]
        assert await ids(cloud, "?name=la") == ["1", "2", "3", "4", "5"]  # not known yet
        assert await ids(cloud, "?name=la", at="2.102") == ["4", "5"]
        assert await ids(cloud, "?name=^m1%5C.(tiny|large)$", at="2.102") == ["1", "4"]

    run(story)


def test_every_page_is_reached_by_the_links() -> None:
    async def story(cloud: Cloud) -> None:
        for path in ("/flavors", "/flavors/detail"):
            seen, query = [], "?limit=2&sort_key=memory_mb&sort_dir=desc"
            while query:
                page = await cloud.get("reader", path + query)
                seen.append([flavor["id"] for flavor in page["flavors"]])
                links = page.get("flavors_links", [])
                query = ""
                for link in links:
                    assert link["rel"] == "next" and set(page) == {"flavors", "flavors_links"}
                    address = urlsplit(link["href"])
                    assert address.path == f"/compute/v2.1{path}"
                    assert parse_qs(address.query)["marker"] == seen[-1][-1:]
                    query = f"?{address.query}"
            assert seen == [["5", "4"], ["3", "2"], ["1"]]

    run(story)


def test_bad_queries() -> None:
    async def story(cloud: Cloud) -> None:
        for query in (
            *("limit=-1", "limit=x", "limit=", "minRam=x", "minDisk=1.5", "minRam=", "sort_key=colour"),
            *("sort_dir=up", "marker=unknown", "minRam=%C2%B2", "minDisk=" + "9" * 50),
        ):
            assert await cloud.refuses("member", "GET", f"/flavors?{query}"), query
        assert await cloud.refuses("admin", "GET", "/flavors?is_public=maybe") == "Invalid is_public filter [maybe]"
        assert await cloud.refuses("member", "GET", "/flavors?unknown=1", at="2.75")
        assert await cloud.refuses("member", "GET", "/flavors?name=x", at="2.101")
        assert await cloud.refuses("member", "GET", "/flavors?sort_key=rxtx_factor", at="2.102")
        for pattern in ("(", "(a{999}){999}", "(?=a)b", "a%5C1"):
            said = await cloud.refuses("member", "GET", f"/flavors?name={pattern}", at="2.102")
            assert said.startswith("Invalid name filter [")
        assert await ids(cloud, "?name=(a*)*$", at="2.102")  # would take for ever where patterns go back
        assert await cloud.refuses("member", "GET", "/flavors/1?x=1", at="2.102")
        await cloud.get("member", "/flavors/1?x=1", at="2.101")

    run(story)


def test_private_ones_are_shown_to_administrators_who_ask() -> None:
    async def story(cloud: Cloud) -> None:
        wish = body(id="p", **{"os-flavor-access:is_public": False})
        await cloud.does("admin", "POST", "/flavors", wish)
        public = ["1", "2", "3", "4", "5"]
        for word in ("t", "true", "yes", "1", "TRUE"):
            assert await ids(cloud, f"?is_public={word}", who="admin") == public
        for word in ("f", "false", "no", "0"):
            assert await ids(cloud, f"?is_public={word}", who="admin") == ["p"]
            assert await ids(cloud, f"?is_public={word}") == public  # others always see what they may use
        assert await ids(cloud, who="admin") == public
        assert await ids(cloud, "?is_public=None", who="admin") == [*public, "p"]
        assert await ids(cloud, "?is_public=None") == public
        assert (await cloud.get("admin", "/flavors/p"))["flavor"]["id"] == "p"
        assert await cloud.refuses("member", "GET", "/flavors/p", status=404)
        assert await cloud.refuses("member", "GET", "/flavors?marker=p")

    run(story)


def test_only_administrators_make_and_change_them() -> None:
    async def story(cloud: Cloud) -> None:
        for who in ("manager", "member", "reader", "service", "stranger"):
            for method, path, sent in (
                ("POST", "/flavors", body()),
                ("PUT", "/flavors/1", {"flavor": {"description": "x"}}),
                ("DELETE", "/flavors/1", None),
            ):
                said = await cloud.refuses(who, method, path, sent, at=LATEST, status=403)
                assert said.startswith("Policy doesn't allow os_compute_api:os-flavor-manage:")
            assert await ids(cloud, who=who) == ["1", "2", "3", "4", "5"]
        for path in ("/flavors", "/flavors/detail", "/flavors/1"):
            assert await cloud.refuses("nobody", "GET", path, status=401)

    run(story)


def test_they_are_there_below_the_old_version_and_with_the_project_in_the_path() -> None:
    async def story(cloud: Cloud) -> None:
        answer = await cloud.ask("member", "GET", "/flavors/1", at="2.61", prefix="/compute/v2")
        assert answer.status_code == 200 and set(answer.json()["flavor"]) == FULL
        assert (await cloud.get("member", f"/{cloud.projects['mine']}/flavors/1"))["flavor"]["id"] == "1"

    run(story)
