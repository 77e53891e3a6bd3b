"""What a project sees of others, and records found by their tags."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.records.kinds import Kind as RecordKind
from kilonova.records.query import Condition, ListQuery, find
from kilonova.schema.tables import network as tables
from kilonova.services.network import kinds
from tests.unit.services.network.bench import OTHER, PROJECT, Bench, Kind


async def names(bench: Bench, kind: RecordKind, viewer: str | None, *conditions: Condition) -> set[str]:
    found = await bench.store.read(lambda tx: find(tx, kind, viewer, ListQuery(conditions)))
    return {row["name"] for row in found}


@pytest.mark.parametrize(
    ("name", "tags", "expected"),
    [
        ("tags", ["red"], {"red", "both"}),
        ("tags", ["red", "blue"], {"both"}),
        ("tags-any", ["red", "blue"], {"red", "blue", "both"}),
        ("tags-any", ["green"], set()),
        ("not-tags", ["red", "blue"], {"red", "blue", "none"}),
        ("not-tags", ["green"], {"red", "blue", "both", "none"}),
        ("not-tags-any", ["red", "green"], {"blue", "none"}),
    ],
)
def test_records_by_their_tags(bench: Kind, name: str, tags: list[str], expected: set[str]) -> None:
    async def story(bench: Bench) -> None:
        for each, own in (("red", ["red"]), ("blue", ["blue"]), ("both", ["red", "blue"]), ("none", [])):
            await bench.one("router", name=each, tags=own)
        kind = kinds._kind("router", "router", tables.routers, dict(kinds.NAMED))  # its statements are made anew
        assert await names(bench, kind, None, Condition(name, "in", (tags, len(tags)))) == expected

    bench.run(story)


def test_a_project_sees_its_own_and_what_is_visible_besides(bench: Kind) -> None:
    async def story(bench: Bench) -> None:
        for project, name, shared in ((PROJECT, "mine", False), (OTHER, "theirs", False), (OTHER, "shared", True)):
            await bench.one("network", project, name=name, shared=shared)

        def kind(**more: Any) -> RecordKind:
            return kinds._kind("network", "network", tables.networks, dict(kinds.NAMED), **more)

        shared_too = kind(also_visible=tables.networks.c.shared == 1)
        assert await names(bench, kind(), PROJECT) == {"mine"}
        assert await names(bench, shared_too, PROJECT) == {"mine", "shared"}
        assert await names(bench, shared_too, None) == {"mine", "theirs", "shared"}
        called = {"called": lambda param: tables.networks.c.name == kinds.bindparam(param)}
        found = await names(bench, kind(filters=called), None, Condition("called", "in", "theirs"))
        assert found == {"theirs"}

    bench.run(story)


@pytest.mark.parametrize("noun", ["network", "subnet", "port", "router", "security_group"])
def test_what_other_projects_see(bench: Kind, noun: str) -> None:
    """A shared network with its subnets, an external one without them, and the ports in one's own network."""

    async def story(bench: Bench) -> None:
        made: dict[str, dict[str, Any]] = {}
        for name, wish in (("plain", {}), ("shared", {"shared": True}), ("external", {"router:external": True})):
            network = await bench.one("network", name=name, **wish)
            subnet = await bench.one("subnet", network_id=network["id"], cidr="10.0.0.0/24", name=name)
            port = await bench.port(network, name=name)
            made[name] = {"network": network, "subnet": subnet, "port": port}
        for other in ("router", "security_group"):
            await bench.one(other, name="plain")
        theirs = await bench.one("network", OTHER, name="theirs")
        await bench.one("subnet", PROJECT, network_id=theirs["id"], cidr="10.0.0.0/24", name="in theirs")
        await bench.port(theirs, name="in theirs")
        expected = {
            "network": {"shared", "external", "theirs"},
            "subnet": {"shared", "in theirs"},
            "port": {"in theirs"},
        }
        seen = {str(record["name"]) for record in await bench.net.nouns[noun].all(OTHER)}
        assert seen == expected.get(noun, set())

    bench.run(story)
