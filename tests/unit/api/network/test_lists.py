"""Lists: filters, order, pages, fields."""

from __future__ import annotations

import pytest

from tests.unit.api.network.asked import Asked, run
from tests.unit.services.network.bench import OTHER, PROJECT


async def letters(net: Asked) -> None:
    for name, mtu in (("a", 1500), ("b", 1400), ("c", 1500), ("d", 1400), ("e", 1500)):
        await net.network(name=name, mtu=mtu)


def test_filters_may_be_on_any_attribute_and_have_several_values() -> None:
    async def story(net: Asked) -> None:
        await letters(net)
        await net.network("admin", name="s", shared=True, description="d")
        for query, expected in {
            "name=a": "a",
            "name=a&name=d&name=nothing": "ad",
            "mtu=1400": "bd",
            "mtu=1400&name=b": "b",
            "shared=True": "s",
            "shared=false&mtu=1500": "ace",
            "router:external=False&name=s": "s",
            "admin_state_up=true&name=c": "c",
            f"project_id={PROJECT}&mtu=1400": "bd",
            f"tenant_id={OTHER}": "",
            "description=d": "s",
            "description=": "abcde",
            "status=ACTIVE&name=e": "e",
            "revision_number=1&name=e": "e",
            "name=%27%20OR%201%3D1": "",
        }.items():
            assert "".join(sorted(await net.names(f"/networks?{query}"))) == expected, query

    run(story)


@pytest.mark.parametrize(
    "query",
    [
        "unknown=1",
        "admin_state_up=maybe",
        "mtu=many",
        "mtu=99999999999999999999",
        "mtu=1_500",
        "limit=-1",
        "limit=x",
        "limit=1.5",
        "limit=99999999999999999999",
        "limit=1&limit=2",
        "sort_key=name",
        "sort_key=nothing&sort_dir=asc",
        "sort_key=subnets&sort_dir=asc",
        "sort_key=name&sort_dir=up",
        "sort_key=provider:segmentation_id&sort_dir=asc",
        "subnets=x",
        "name=%00",
        "created_at=2020",
    ],
)
def test_absurd_queries_are_refused(query: str) -> None:
    async def story(net: Asked) -> None:
        assert (await net.refused("GET", f"/networks?{query}"))[0] == 400

    run(story)


def test_lists_are_sorted_as_asked() -> None:
    async def story(net: Asked) -> None:
        await letters(net)
        for query, expected in {
            "sort_key=name&sort_dir=asc": "abcde",
            "sort_key=name&sort_dir=desc": "edcba",
            "sort_key=mtu&sort_dir=asc&sort_key=name&sort_dir=desc": "dbeca",
            "sort_key=mtu&sort_dir=desc&sort_key=name&sort_dir=asc": "acebd",
        }.items():
            assert "".join(await net.names(f"/networks?{query}")) == expected

    run(story)


@pytest.mark.parametrize("order", ["", "&sort_key=mtu&sort_dir=desc&sort_key=name&sort_dir=asc"])
def test_pages_forward_and_back_by_the_links(order: str) -> None:
    async def story(net: Asked) -> None:
        await letters(net)
        whole = await net.names(f"/networks?{order}")
        seen: list[str] = []
        page = await net.get(f"/networks?limit=2{order}")
        assert [link["rel"] for link in page["networks_links"]] == ["next"]
        for _ in range(4):
            seen += [one["name"] for one in page["networks"]]
            rels = {link["rel"]: link["href"] for link in page.get("networks_links", [])}
            if "next" not in rels:
                break
            assert rels["next"].startswith("http://cloud/network/v2.0/networks?")
            page = await net.get(rels["next"].removeprefix("http://cloud/network/v2.0"))
        assert seen == whole
        back = await net.get(rels["previous"].removeprefix("http://cloud/network/v2.0"))
        assert [one["name"] for one in back["networks"]] == whole[2:4]
        last = await net.names(f"/networks?limit=2&page_reverse=true{order}")
        assert last == whole[3:]

    run(story)


def test_a_marker_must_be_something_that_the_caller_sees() -> None:
    async def story(net: Asked) -> None:
        await letters(net)
        theirs = await net.network("other")
        for marker in (theirs["id"], "nothing"):
            assert (await net.refused("GET", f"/networks?limit=1&marker={marker}"))[0] == 404
        assert len(await net.names("/networks?limit=0")) == 5

    run(story)


def test_fields_are_those_asked_for_and_unknown_ones_are_passed_over() -> None:
    async def story(net: Asked) -> None:
        await letters(net)
        for one in (await net.get("/networks?fields=id&fields=name&fields=nonsense"))["networks"]:
            assert set(one) == {"id", "name"}
        assert all(set(one) == {"mtu"} for one in (await net.get("/networks?limit=2&fields=mtu"))["networks"])

    run(story)


def test_ports_by_address_subnet_group_and_device() -> None:
    async def story(net: Asked) -> None:
        network = await net.network()
        one, two = await net.subnet(network), await net.subnet(network, "2001:db8::/64")
        group = await net.post("/security-groups", {"security_group": {"name": "g"}})
        fixed = [{"subnet_id": one["id"], "ip_address": "10.0.0.9"}]
        await net.port(network, name="p", fixed_ips=fixed, security_groups=[group["id"]], device_id="d")
        await net.port(network, name="q", fixed_ips=[{"subnet_id": two["id"], "ip_address": "2001:db8::9"}])
        for query, expected in {
            "fixed_ips=ip_address%3D10.0.0.9": ["p"],
            "fixed_ips=ip_address=2001:DB8:0::9": ["q"],
            f"fixed_ips=subnet_id={one['id']}": ["p"],
            f"fixed_ips=subnet_id={one['id']}&fixed_ips=subnet_id={two['id']}": ["p", "q"],
            f"fixed_ips=subnet_id={one['id']}&fixed_ips=ip_address=2001:db8::9": [],
            f"security_groups={group['id']}": ["p"],
            "device_id=d": ["p"],
            "device_id=": ["q"],
        }.items():
            assert sorted(await net.names(f"/ports?{query}")) == expected, query
        for query in ("fixed_ips=10.0.0.9", "fixed_ips=ip_address=x", "fixed_ips=port=1", "binding:host_id=h"):
            assert (await net.refused("GET", f"/ports?{query}"))[0] == 400, query
        assert await net.names("/ports?binding:host_id=h", "admin") == []

    run(story)


def test_tags_can_be_filtered_by_all_or_any_of_them() -> None:
    async def story(net: Asked) -> None:
        for name, tags in (("x", ["red"]), ("y", ["red", "blue"]), ("z", [])):
            await net.network(name=name, tags=tags)
        for query, expected in {
            "tags=red": "xy",
            "tags=red,blue": "y",
            "tags=red,red": "xy",
            "not-tags=red,red": "z",
            "tags-any=red,blue": "xy",
            "not-tags=red,blue": "xz",
            "not-tags-any=red,blue": "z",
            "tags=red&not-tags=blue": "x",
        }.items():
            assert "".join(sorted(await net.names(f"/networks?{query}"))) == expected, query

    run(story)
