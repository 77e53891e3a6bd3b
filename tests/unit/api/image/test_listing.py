"""Lists: filters, order, pages, and whose images are in them."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from kilonova.api.image.filters import split_values
from kilonova.domain.errors import Refused
from tests.support.qcow2 import qcow2
from tests.unit.api.image.asking import Glance
from tests.unit.api.image.conftest import Run


async def _some(glance: Glance) -> None:
    """In the order of their names, also by time."""
    await glance.uploaded("alice", b"1" * 10, name="a", visibility="private", tags=["x", "y"], os_distro="cirros")
    await glance.uploaded("alice", qcow2(), name="b", disk_format="qcow2", tags=["x"], os_distro="debian", min_ram=512)
    await glance.create("alice", name="c", container_format="ovf", protected=True, min_disk=4)
    await glance.create("alice", name="d,e", container_format=None, disk_format=None)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", "d,e c b a"),
        ("name=b", "b"),
        ("name=eq:b", "b"),
        ('name=in:a,"d,e",zzz', "d,e a"),
        ("status=active", "b a"),
        ("status=in:queued,active", "d,e c b a"),
        ("visibility=private", "a"),
        ("visibility=all", "d,e c b a"),
        ("owner=acme", "d,e c b a"),
        ("owner=bolt", ""),
        ("container_format=ovf", "c"),
        ("disk_format=qcow2", "b"),
        ("disk_format=in:qcow2,raw", "c b a"),
        ("protected=true", "c"),
        ("protected=false", "d,e b a"),
        ("tag=x", "b a"),
        ("tag=x&tag=y", "a"),
        ("size=10", "a"),
        ("size_min=11", "b"),
        ("size_max=11", "a"),
        ("size_min=10&size_max=200000", "b a"),
        ("min_ram=512", "b"),
        ("min_ram_min=1", "b"),
        ("min_disk_max=3", "d,e b a"),
        ("virtual_size=10", "a"),
        ("os_distro=debian", "b"),
        ("os_distro=debian&tag=x&status=active", "b"),
        ("os_distro=debian&os_distro2=x", ""),
        ("checksum=none", ""),
        ("os_hash_algo=sha512", "b a"),
        ("os_hidden=true", ""),
        ("os_hidden=False", "d,e c b a"),
        ("created_at=gt:2023-11-14T22:13:20Z", "d,e c b a"),
        ("created_at=lt:2023-11-14T22:13:20Z", ""),
        ("created_at=neq:2023-11-14T22:13:21Z", "d,e c b"),
        ("created_at=2023-11-14T22:13:21Z", "a"),
        ("created_at=eq:2023-11-14T22:13:21%2B00:00", "a"),
        ("created_at=lte:2023-11-14T22:13:21", "a"),
        ("created_at=lt:2023-11-14T22:13:21", ""),
        ("created_at=gt:2023-11-14T22:13:21", "d,e c b"),
        ("created_at=gte:2023-11-14T22:13:21", "d,e c b a"),
        ("created_at=eq:2023-11-14T22:13:21.5Z", ""),
        ("created_at=neq:2023-11-14T22:13:21.5Z", "d,e c b a"),
        ("created_at=gt:2023-11-14T23:13:21 01:00", "d,e c b"),
        ("updated_at=lt:2023-11-14", ""),
        ("sort=name:asc", "a b c d,e"),
        ("sort=name", "d,e c b a"),
        ("sort=size:asc,name:desc", "d,e c a b"),
        ("sort=disk_format:asc,name:asc", "d,e b a c"),
        ("sort_key=name&sort_dir=asc", "a b c d,e"),
        ("sort_key=status&sort_key=name&sort_dir=desc&sort_dir=asc", "c d,e a b"),
        ("sort_key=status&sort_key=name&sort_dir=asc", "a b c d,e"),
        ("sort_dir=asc", "a b c d,e"),
        ("sort=name:asc,name:desc", "a b c d,e"),
        ("limit=2", "d,e c"),
        ("limit=0", ""),
        ("limit=99999999999999999999", "d,e c b a"),
        ("deleted=true", "d,e c b a"),
        (f"id=in:{','.join('0' * 36 for _ in range(500))}", ""),
    ],
)
def test_filters_and_order(listed: dict[str, str], query: str, names: str) -> None:
    assert listed[query] == names


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def listed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The names that each query of the table gives, asked in one go: the images are the same for all of them."""
    from tests.unit.api.image import asking

    marks = test_filters_and_order.pytestmark  # type: ignore[attr-defined]
    queries = [query for mark in marks if mark.name == "parametrize" for query, _ in mark.args[1]]
    found: dict[str, str] = {}

    async def story(glance: Glance) -> None:
        await _some(glance)
        for query in queries:
            found[query] = " ".join(await glance.names("alice", query))

    url = f"{request.getfixturevalue('image_database')}?schema=listing" if request.param == "postgres" else ""
    asking.run(story, tmp_path_factory.mktemp("listing"), url)
    return found


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1",
        "limit=x",
        "limit=1.5",
        "limit=",
        "marker=00000000-0000-0000-0000-000000000000",
        "marker=nonsense",
        "sort=owner",
        "sort=name:up",
        "sort=",
        "sort=name&sort_key=size",
        "sort_key=password",
        "sort_dir=sideways",
        "sort_key=name&sort_key=size&sort_key=id&sort_dir=asc&sort_dir=asc",
        "name=like:a",
        "name=in:%22a",
        "name=in:%22a%22b",
        "name=in:a%22b%22",
        "status=gt:a",
        "size=large",
        "size=1e3",
        "size_min=",
        "size_max=99999999999999999999",
        f"size_min={'9' * 5000}",
        "created_at=yesterday",
        "created_at=gt:",
        "created_at=near:2023-11-14T22:13:21Z",
        "protected=maybe",
        "os_hidden=1",
        "visibility=secret",
        "member_status=perhaps",
        "changes-since=2023-11-14",
        "&".join(f"tag=t{number}" for number in range(51)),
        "&".join(f"p{number}=x" for number in range(51)),
        "name=%00",
    ],
)
def test_absurd_questions_are_refused(run: Run, query: str) -> None:
    async def story(glance: Glance) -> None:
        assert (await glance.refused("alice", "GET", f"/v2/images?{query}"))[0] == 400

    run(story)


def test_strange_questions_are_answered(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        await glance.create("alice", name="a", emptiness="", **{"emoji😀": "'; --"})
        assert await glance.names("alice", f"{quote('emoji😀')}={quote(chr(39))}%3B+--") == ["a"]
        assert await glance.names("alice", "emptiness=") == ["a"]
        for query in ("name=%FF%FE", "name=%27%20OR%201=1", "x=%25", "name=in:", "name=" + "x" * 10000, "=", "size=-1"):
            assert await glance.names("alice", query) == []

    run_on_each(story)


def test_pages_lead_through_all_images_in_any_order(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        for number in range(7):  # several alike in every column that can be sorted by but id and time
            await glance.create("alice", name=None if number % 3 == 0 else f"n{number % 2}", tags=["t"])
        for query in (
            "tag=t",
            "sort=name:asc",
            "sort=name:desc,size:asc",
            "sort=id:asc",
            "sort=size",
            "sort=created_at:asc",
        ):
            whole = [image["id"] for image in (await glance.done("alice", "GET", f"/v2/images?{query}"))["images"]]
            assert len(whole) == 7
            seen, path, pages = [], f"/v2/images?limit=3&{query}", 0
            while path:
                page = await glance.done("alice", "GET", path)
                assert page["schema"] == "/v2/schemas/images" and "marker" not in page["first"]
                assert page["first"].startswith("/v2/images?limit=3")
                seen += [image["id"] for image in page["images"]]
                path, pages = page.get("next", ""), pages + 1
            assert seen == whole and pages == 3

    run_on_each(story)


def test_a_full_last_page_has_no_next(run: Run) -> None:
    async def story(glance: Glance) -> None:
        for _ in range(2):
            await glance.create("alice")
        assert "next" not in await glance.done("alice", "GET", "/v2/images?limit=2")
        assert "next" not in await glance.done("alice", "GET", "/v2/images?limit=0")
        assert (await glance.done("alice", "GET", "/v2/images"))["first"] == "/v2/images"

    run(story)


def test_a_page_has_25_images_unless_told(run: Run) -> None:
    async def story(glance: Glance) -> None:
        for _ in range(26):
            await glance.create("alice")
        page = await glance.done("alice", "GET", "/v2/images")
        assert len(page["images"]) == 25 and "marker=" in page["next"]
        assert len((await glance.done("alice", "GET", page["next"]))["images"]) == 1

    run(story)


def test_whose_images_are_in_a_list(run_on_each: Run) -> None:
    async def story(glance: Glance) -> None:
        await glance.create("admin", name="public", visibility="public")
        await glance.create("bob", name="private", visibility="private")
        await glance.create("bob", name="shared")
        await glance.create("bob", name="community", visibility="community")
        await glance.create("bob", name="hidden", os_hidden=True)
        expected = {
            ("alice", ""): {"public"},
            ("alice", "visibility=all"): {"public", "community"},
            ("alice", "visibility=community"): {"community"},
            ("alice", "visibility=private"): set(),
            ("alice", "visibility=shared"): set(),
            ("alice", "owner=bolt"): set(),
            ("alice", "os_hidden=true"): set(),
            ("bob", ""): {"public", "private", "shared", "community"},
            ("bob", "visibility=private"): {"private"},
            ("bob", "visibility=public"): {"public"},
            ("bob", "os_hidden=true"): {"hidden"},
            ("rita", "visibility=all"): {"public", "community"},
            ("admin", ""): {"public", "private", "shared"},
            ("admin", "visibility=all"): {"public", "private", "shared", "community"},
            ("admin", "owner=bolt"): {"private", "shared"},
        }
        for (who, query), names in expected.items():
            assert set(await glance.names(who, query)) == names, (who, query)

    run_on_each(story)


def test_a_marker_that_is_anothers_is_none(run: Run) -> None:
    async def story(glance: Glance) -> None:
        image = await glance.create("bob")
        assert (await glance.refused("alice", "GET", f"/v2/images?marker={image['id']}"))[0] == 400
        assert await glance.names("admin", f"marker={image['id']}") == []

    run(story)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ('"a,b",c', ["a,b", "c"]),
        ('c,"a,b"', ["c", "a,b"]),
        (r'"say \"a\"","\\"', ['say "a"', "\\"]),
        ('""', [""]),
        ("", [""]),
        ("a,", ["a", ""]),
    ],
)
def test_values_in_quotes(text: str, values: list[str]) -> None:
    assert split_values(text) == values


@pytest.mark.parametrize("text", ['"', '"a', 'a"b"', '"a"b', '"a",b"', '"\\"'])
def test_quotes_that_do_not_fit(text: str) -> None:
    with pytest.raises(Refused):
        split_values(text)
