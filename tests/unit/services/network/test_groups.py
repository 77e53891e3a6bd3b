"""Security groups: what one begins with, whose default group is whose, and what goes with a group."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.schema.tables import network as tables
from kilonova.services.network.groups import groups_of
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind, refusal


def rules_of(group: Any) -> list[tuple[str, str, str | None]]:
    return [(one["direction"], one["ethertype"], one["remote_group_id"]) for one in group["security_group_rules"]]


async def with_tag(bench: Bench, noun: str, **wish: Any) -> Any:
    return await bench.one(noun, tags=[noun], **wish)


def test_what_a_group_begins_with(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        default = await bench.net.groups.show(None, await bench.net.groups.ensure_default(PROJECT))
        named = {name: default[name] for name in ("project_id", "name", "description", "stateful", "revision_number")}
        assert named == {
            "project_id": PROJECT,
            "name": "default",
            "description": "Default security group",
            "stateful": True,
            "revision_number": 1,
        }
        out = [("egress", "IPv4", None), ("egress", "IPv6", None)]
        within = [("ingress", "IPv4", default["id"]), ("ingress", "IPv6", default["id"])]
        assert sorted(rules_of(default), key=str) == sorted(out + within, key=str)
        web = await bench.one("security_group", name="web", stateful=False)
        assert (sorted(rules_of(web)), web["stateful"]) == (out, False)
        assert (await bench.one("security_group"))["stateful"] is True
        assert {rule["project_id"] for rule in (await bench.net.rules.all(None))} == {PROJECT}

    bench.run(story)


def test_every_project_has_one_default_group_and_nobody_none(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        mine, theirs = [await bench.net.groups.ensure_default(project) for project in (PROJECT, OTHER)]
        assert mine != theirs and await bench.net.groups.ensure_default(PROJECT) == mine
        assert await bench.net.groups.ensure_default("") == ""
        assert {row["id"] for row in await bench.rows(tables.security_groups)} == {mine, theirs}
        spare = await bench.one("security_group", name="spare")
        await bench.net.groups.delete(PROJECT, spare["id"])
        assert await bench.net.groups.ensure_default(PROJECT) == mine
        assert await refusal(bench.net.groups.delete(PROJECT, mine)) == "default_group_stays"
        await bench.net.groups.delete(None, mine)  # an administrator may
        assert await bench.net.groups.ensure_default(OTHER) == theirs
        assert await bench.net.groups.ensure_default(PROJECT) != mine

    bench.run(story)


def test_the_name_default_belongs_to_the_default_group(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        default = await bench.net.groups.ensure_default(PROJECT)
        other = await bench.one("security_group", name="other")
        update = bench.net.groups.update
        assert await refusal(bench.one("security_group", name="default")) == "default_group_exists"
        assert await refusal(update(None, other["id"], {"name": "default"})) == "default_group_exists"
        assert await refusal(update(None, default, {"name": "other"})) == "default_group_stays"
        assert (await update(None, default, {"name": "default", "description": "ours"}))["description"] == "ours"
        assert (await update(None, default, {"description": "yours"}))["name"] == "default"
        assert (await update(None, other["id"], {"name": "others"}))["name"] == "others"
        assert await refusal(update(None, "none", {"name": "x"})) == "security_group_not_found"

    bench.run(story)


def test_a_group_that_a_port_has_stays_as_it_is(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        network, _ = await bench.network()
        used, free = [await bench.one("security_group", name=name) for name in ("used", "free")]
        port = await bench.port(network, security_groups=[used["id"]])
        update = bench.net.groups.update
        assert await refusal(update(None, used["id"], {"stateful": False})) == "security_group_in_use"
        assert await refusal(bench.net.groups.delete(None, used["id"])) == "security_group_in_use"
        assert (await update(None, used["id"], {"stateful": True, "name": "renamed"}))["name"] == "renamed"
        assert (await update(None, free["id"], {"stateful": False}))["stateful"] is False
        await bench.net.groups.delete(None, free["id"])
        await bench.net.ports.delete(None, port["id"])
        assert (await update(None, used["id"], {"stateful": False}))["stateful"] is False

    bench.run(story)


def test_a_group_goes_with_its_rules_and_those_that_name_it_and_no_others(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        await bench.one("security_group", OTHER)
        going, kept = [await with_tag(bench, "security_group", name=name) for name in ("going", "kept")]
        of_group: dict[str, list[str]] = {}
        for group, remote in ((going, kept), (kept, going), (kept, kept)):
            wish = {"security_group_id": group["id"], "remote_group_id": remote["id"], "direction": "ingress"}
            rule = await with_tag(bench, "security_group_rule", **wish)
            of_group.setdefault(str((group["name"], remote["name"])), []).append(rule["id"])
        shown = await bench.net.groups.show(None, kept["id"])
        assert [rule["tags"] for rule in shown["security_group_rules"]].count(["security_group_rule"]) == 2
        await bench.net.groups.delete(None, going["id"])
        left = of_group[str(("kept", "kept"))]
        rules = [row["id"] for row in await bench.rows(tables.security_group_rules)]
        assert set(left) < set(rules) and len(rules) == 5, "and the two of every group"
        assert {row["record_id"] for row in await bench.rows(tables.tags)} == {kept["id"], *left}

    bench.run(story)


def test_the_rules_of_a_group_count_against_the_quota(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        await bench.net.quotas.set(PROJECT, {"security_group_rule": 3})
        await bench.one("security_group")
        assert await refusal(bench.one("security_group")) == "over_quota"
        await bench.net.quotas.set(PROJECT, {"security_group_rule": 4})
        await bench.one("security_group")

    bench.run(story)


@pytest.mark.parametrize(("viewer", "names"), [(PROJECT, {"mine"}), (OTHER, {"theirs"}), (None, {"mine", "theirs"})])
def test_a_port_gets_groups_that_its_project_has(bench: Kind, viewer: str | None, names: set[str]) -> None:
    async def story(bench: Bench) -> None:
        ids = {
            "mine": (await bench.one("security_group"))["id"],
            "theirs": (await bench.one("security_group", OTHER))["id"],
            "nobody's": "none",
        }
        for name, group_id in ids.items():
            asked = bench.store.read(lambda tx, group_id=group_id: groups_of(tx, viewer, [group_id, group_id]))
            if name in names:
                assert await asked == [group_id]
            else:
                assert await refusal(asked) == "security_group_not_found"
        assert await bench.store.read(lambda tx: groups_of(tx, viewer, [])) == []

    bench.run(story)
