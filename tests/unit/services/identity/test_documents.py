"""What identity keeps for others: credentials, sealed, and policies; and the names of records by their ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kilonova.domain.caller import IdentityRef
from kilonova.domain.errors import Refused
from kilonova.services.identity.names import names_of
from tests.unit.services.identity.home import Home, at_home

EC2 = {"access": "key", "secret": "s"}


async def some(home: Home) -> dict[str, str]:
    ids = {"demo": await home.user_id("demo"), "admin": await home.user_id("admin")}
    for user in ("demo", "admin"):
        made = await home.identity.credentials.create({"type": "cert", "blob": f"of {user}", "user_id": ids[user]})
        ids[f"of {user}"] = str(made["id"])
    ec2 = {"type": "ec2", "blob": EC2, "user_id": ids["demo"], "project_id": "p"}
    ids["ec2"] = str((await home.identity.credentials.create(ec2))["id"])
    return ids


def test_a_credential_is_kept_sealed() -> None:
    async def story(home: Home) -> None:
        ids, credentials = await some(home), home.identity.credentials
        record = await credentials.find(ids["of demo"])
        assert record is not None
        expected = {"id": ids["of demo"], "type": "cert", "user_id": ids["demo"], "project_id": None}
        assert credentials.opened(record) == expected | {"blob": "of demo"}
        rows = (await home.everything())["credentials"]
        assert "of demo" not in json.dumps(rows) and '"s"' not in json.dumps(rows)
        other_key = home.another("b3RoZXItc2VhbC1rZXktMzItYnl0ZXMtbG9uZy0wMDA=")
        assert other_key.credentials.opened(record) == expected | {"blob": None}, "its key is gone"

    at_home(story)


def test_an_ec2_credential_is_found_by_its_access_key() -> None:
    async def story(home: Home) -> None:
        ids, credentials = await some(home), home.identity.credentials
        assert ids["ec2"] == hashlib.sha256(b"key").hexdigest()
        record = await credentials.find(ids["ec2"])
        assert record is not None and json.loads(str(credentials.opened(record)["blob"])) == EC2
        as_text = {"type": "ec2", "blob": json.dumps({"access": "b"}), "user_id": ids["demo"], "project_id": "p"}
        assert (await credentials.create(as_text))["id"] == hashlib.sha256(b"b").hexdigest()
        given = await credentials.create({**as_text, "blob": {"access": "c"}}, "mine")
        assert given["id"] == "mine"

    at_home(story)


def test_a_change_is_of_one_credential() -> None:
    async def story(home: Home) -> None:
        ids, credentials = await some(home), home.identity.credentials
        before = await home.everything()
        opened = credentials.opened(await credentials.change(ids["of demo"], {"blob": {"a": 1}, "sealed": "forged"}))
        assert json.loads(str(opened["blob"])) == {"a": 1}
        moved = credentials.opened(await credentials.change(ids["of demo"], {"user_id": ids["admin"], "type": "t"}))
        assert moved == opened | {"user_id": ids["admin"], "type": "t"}
        after = await home.everything()
        changed = [row["id"] for row in after["credentials"] if row not in before["credentials"]]
        assert changed == [ids["of demo"]] and after | {"credentials": before["credentials"]} == before
        await credentials.delete(ids["of demo"])
        left = {row["id"] for row in (await home.everything())["credentials"]}
        assert left == {ids["of admin"], ids["ec2"]}

    at_home(story)


Act = Callable[[Any, dict[str, str]], Awaitable[object]]
REFUSED: dict[str, tuple[Act, str, str]] = {
    "of nobody": (
        lambda it, ids: it.create({"type": "cert", "blob": "", "user_id": "x"}),
        "bad_request",
        "Could not find user: x.",
    ),
    "to nobody": (lambda it, ids: it.change(ids["ec2"], {"user_id": "x"}), "bad_request", "Could not find user: x."),
    "the same key": (
        lambda it, ids: it.create({"type": "ec2", "blob": EC2, "user_id": ids["demo"], "project_id": "q"}),
        "exists",
        "There is already a credential with this access key.",
    ),
    "no project": (
        lambda it, ids: it.create({"type": "ec2", "blob": {"access": "b"}, "user_id": ids["demo"]}),
        "bad_request",
        "An ec2 credential needs a project_id.",
    ),
    "no key": (
        lambda it, ids: it.create({"type": "ec2", "blob": {}, "user_id": ids["demo"], "project_id": "p"}),
        "bad_request",
        "The blob of an ec2 credential must be JSON with an access key.",
    ),
    "no JSON": (
        lambda it, ids: it.create({"type": "ec2", "blob": "x", "user_id": ids["demo"], "project_id": "p"}),
        "bad_request",
        "The blob of an ec2 credential must be JSON with an access key.",
    ),
    "a list": (
        lambda it, ids: it.create({"type": "ec2", "blob": "[]", "user_id": ids["demo"], "project_id": "p"}),
        "bad_request",
        "The blob of an ec2 credential must be JSON with an access key.",
    ),
    "no blob": (
        lambda it, ids: it.create({"type": "ec2", "user_id": ids["demo"], "project_id": "p"}),
        "bad_request",
        "The blob of an ec2 credential must be JSON with an access key.",
    ),
    "change none": (lambda it, ids: it.change("x", {}), "not_found", "Could not find credential: x."),
    "delete none": (lambda it, ids: it.delete("x"), "not_found", "Could not find credential: x."),
}


def test_what_is_refused_changes_nothing() -> None:
    async def story(home: Home) -> None:
        ids = await some(home)
        before = await home.everything()
        for name, (act, code, text) in REFUSED.items():
            with pytest.raises(Refused, match=text) as why:
                await act(home.identity.credentials, ids)
            assert (why.value.code, await home.everything()) == (code, before), name

    at_home(story)


def test_policies_are_only_kept() -> None:
    async def story(home: Home) -> None:
        policies = home.identity.policies
        made = [await policies.create({"type": "application/json", "blob": name}) for name in ("a", "b")]
        assert made[0] == {"id": made[0]["id"], "type": "application/json", "blob": "a"}
        await policies.change(str(made[1]["id"]), {"blob": "c"})
        await policies.delete(str(made[0]["id"]))
        assert [row["blob"] for row in (await home.everything())["policies"]] == ["c"]

    at_home(story)


def test_names_of_all_kinds_with_their_domains() -> None:
    async def story(home: Home) -> None:
        abroad = await home.project("abroad", is_domain=True)
        role = str((await home.identity.roles.create({"name": "x", "domain_id": abroad}))["id"])
        group = str((await home.identity.groups.create({"name": "g"}, domain_id=abroad))["id"])
        demo, project = await home.user_id("demo"), await home.identity.project_named("demo")
        reader = await home.role_id("reader")
        expected = {
            abroad: IdentityRef(abroad, "abroad", "", ""),
            role: IdentityRef(role, "x", abroad, "abroad"),
            group: IdentityRef(group, "g", abroad, "abroad"),
            demo: IdentityRef(demo, "demo", "default", "Default"),
            project: IdentityRef(project, "demo", "default", "Default"),
            reader: IdentityRef(reader, "reader", "", ""),
        }
        assert await names_of(home.identity.records, [*expected, demo, "nothing"]) == expected
        assert await names_of(home.identity.records, []) == {}

    at_home(story)
