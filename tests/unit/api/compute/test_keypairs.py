"""/os-keypairs: every version's codes and fields, whose they are, and what is refused."""

from __future__ import annotations

from typing import Any

from tests.unit.api.compute.cloud import LATEST, Cloud, run
from tests.unit.services.compute.keys import CERTIFICATE, ED25519, FINGERPRINTS

KEYS = "/os-keypairs"
BRIEF = {"name", "public_key", "fingerprint"}
FULL = BRIEF | {"user_id", "id", "created_at", "deleted", "deleted_at", "updated_at"}


def wish(name: str = "work", public_key: str | None = ED25519, **more: Any) -> dict[str, Any]:
    given = {} if public_key is None else {"public_key": public_key}
    return {"keypair": {"name": name, **given, **more}}


async def names(cloud: Cloud, query: str = "", *, who: str = "member", at: str = "2.1") -> list[str]:
    return [one["keypair"]["name"] for one in (await cloud.get(who, KEYS + query, at=at))["keypairs"]]


def test_each_version_has_its_codes_and_fields() -> None:
    async def story(cloud: Cloud) -> None:
        for at, made, gone, more in (
            ("2.1", 200, 202, set[str]()),
            ("2.2", 201, 204, {"type"}),
            ("2.10", 201, 204, {"type"}),
            ("2.92", 201, 204, {"type"}),
            (LATEST, 201, 204, {"type"}),
        ):
            answer = await cloud.does("member", "POST", KEYS, wish(), at=at, status=made)
            keypair = answer["keypair"]
            assert set(keypair) == BRIEF | {"user_id"} | more and keypair["user_id"] == "user-member"
            assert keypair["fingerprint"] == FINGERPRINTS[ED25519] and keypair["public_key"] == ED25519
            listed = await cloud.get("member", KEYS, at=at)
            assert set(listed) == {"keypairs"}
            assert [set(one["keypair"]) for one in listed["keypairs"]] == [BRIEF | more]
            shown = (await cloud.get("member", f"{KEYS}/work", at=at))["keypair"]
            assert set(shown) == FULL | more and isinstance(shown["id"], int)
            assert (shown["deleted"], shown["deleted_at"], shown["updated_at"]) == (False, None, None)
            assert shown.get("type", "ssh") == "ssh"
            assert await cloud.does("member", "DELETE", f"{KEYS}/work", at=at, status=gone) is None

    run(story)


def test_pairs_are_made_here_until_2_91() -> None:
    async def story(cloud: Cloud) -> None:
        made = (await cloud.does("member", "POST", KEYS, wish("a", None)))["keypair"]
        assert made["private_key"].startswith("-----BEGIN RSA PRIVATE KEY-----")
        assert made["public_key"].startswith("ssh-rsa ") and set(made) == BRIEF | {"user_id", "private_key"}
        made = await cloud.does("member", "POST", KEYS, wish("b", None, type="x509"), at="2.2", status=201)
        assert made["keypair"]["type"] == "x509" and "BEGIN CERTIFICATE" in made["keypair"]["public_key"]
        assert len(made["keypair"]["fingerprint"]) == 59 and made["keypair"]["private_key"]
        shown = (await cloud.get("member", f"{KEYS}/b", at="2.2"))["keypair"]
        assert shown["type"] == "x509" and "private_key" not in shown
        assert await cloud.refuses("member", "POST", KEYS, wish("c", None), at="2.92")
        assert await names(cloud) == ["a", "b"]

    run(story)


def test_certificates() -> None:
    async def story(cloud: Cloud) -> None:
        made = await cloud.does("member", "POST", KEYS, wish("c", CERTIFICATE, type="x509"), at="2.2", status=201)
        assert made["keypair"]["fingerprint"] == FINGERPRINTS[CERTIFICATE]
        said = await cloud.refuses("member", "POST", KEYS, wish("d", ED25519, type="x509"), at="2.2")
        assert said.startswith("Keypair data is invalid: failed to generate X509 fingerprint.")

    run(story)


def test_names() -> None:
    async def story(cloud: Cloud) -> None:
        for name in ("a", "with space", "under_score-9", "x" * 255):
            await cloud.does("member", "POST", KEYS, wish(name))
        for name in ("", " a", "a ", "x" * 256, "a/b", "a@b", "a.b", "ä", 5, None):
            assert await cloud.refuses("member", "POST", KEYS, wish(name)), name  # type: ignore[arg-type]
        await cloud.does("member", "POST", KEYS, wish("bob@host.example"), at="2.92", status=201)
        for name in ("a/b", "a:b", " a"):
            assert await cloud.refuses("member", "POST", KEYS, wish(name), at="2.92")
        said = await cloud.refuses("member", "POST", KEYS, wish("a"), status=409)
        assert said == "Key pair 'a' already exists."
        assert (await cloud.get("member", f"{KEYS}/with%20space"))["keypair"]["name"] == "with space"

    run(story)


def test_bad_bodies_change_nothing() -> None:
    async def story(cloud: Cloud) -> None:
        for key in ("", " ", "ssh-rsa JUNK x", "ssh-rsa " + "A" * 2048 + " x"):
            said = await cloud.refuses("member", "POST", KEYS, wish(public_key=key))
            assert said == "Keypair data is invalid: failed to generate fingerprint"
        for bad, at in (
            *((({}), "2.1"), ([], "2.1"), ({"keypair": []}, "2.1"), ({"keypair": {}}, "2.1")),
            *((wish(public_key=5), "2.1"), (wish(type="ssh"), "2.1"), (wish(user_id="x"), "2.9")),  # type: ignore[arg-type]
            *((wish(type="pgp"), "2.2"), (wish(unknown=1), LATEST), (wish() | {"more": 1}, LATEST)),
        ):
            assert await cloud.refuses("member", "POST", KEYS, bad, at=at), bad
        assert await names(cloud) == []
        for method in ("GET", "DELETE"):
            said = await cloud.refuses("member", method, f"{KEYS}/nix", status=404)
            assert said == "Keypair nix not found for user user-member"

    run(story)


def test_they_are_the_users_own_and_an_administrator_may_help() -> None:
    async def story(cloud: Cloud) -> None:
        await cloud.does("member", "POST", KEYS, wish("mine"))
        for who in ("reader", "manager", "stranger", "admin", "service"):
            assert await names(cloud, who=who) == []
            assert await cloud.refuses(who, "GET", f"{KEYS}/mine", status=404)
        of_member = "?user_id=user-member"
        for who in ("reader", "manager", "stranger"):
            for method, path, sent in (
                *(("GET", KEYS + of_member, None), ("GET", f"{KEYS}/mine{of_member}", None)),
                *(("DELETE", f"{KEYS}/mine{of_member}", None), ("POST", KEYS, wish(user_id="user-member"))),
            ):
                assert await cloud.refuses(who, method, path, sent, at="2.10", status=403)
            assert await names(cloud, of_member, who=who, at="2.9") == []  # not understood yet: one's own
        made = await cloud.does("admin", "POST", KEYS, wish("given", user_id="user-member"), at="2.10", status=201)
        assert made["keypair"]["user_id"] == "user-member"
        assert await names(cloud, of_member, who="admin", at="2.10") == ["given", "mine"]
        shown = (await cloud.get("admin", f"{KEYS}/given{of_member}", at="2.10"))["keypair"]
        assert shown["user_id"] == "user-member"
        await cloud.does("admin", "DELETE", f"{KEYS}/given{of_member}", at="2.10", status=204)
        assert await names(cloud) == ["mine"] and await names(cloud, who="admin") == []
        await cloud.does("member", "POST", KEYS, wish("self", user_id="user-member"), at="2.10", status=201)
        assert await cloud.refuses("nobody", "GET", KEYS, status=401)

    run(story)


def test_pages_from_2_35_on() -> None:
    async def story(cloud: Cloud) -> None:
        for name in ("c", "a", "b"):
            await cloud.does("member", "POST", KEYS, wish(name))
        assert await names(cloud, "?limit=1", at="2.34") == ["a", "b", "c"]
        page = await cloud.get("member", f"{KEYS}?limit=2", at="2.35")
        assert [one["keypair"]["name"] for one in page["keypairs"]] == ["a", "b"]
        assert page["keypairs_links"] == [
            {"rel": "next", "href": "http://cloud/compute/v2.1/os-keypairs?limit=2&marker=b"}
        ]
        page = await cloud.get("member", f"{KEYS}?limit=2&marker=b", at="2.35")
        assert set(page) == {"keypairs"} and [one["keypair"]["name"] for one in page["keypairs"]] == ["c"]
        assert await names(cloud, "?limit=0", at="2.35") == []
        for query in ("limit=x", "limit=-1", "marker=nix"):
            assert await cloud.refuses("member", "GET", f"{KEYS}?{query}", at="2.35")
        assert await names(cloud, "?unknown=1", at="2.74") == ["a", "b", "c"]
        for path in (f"{KEYS}?unknown=1", f"{KEYS}/a?unknown=1"):
            assert await cloud.refuses("member", "GET", path, at="2.75")
        assert await cloud.refuses("member", "DELETE", f"{KEYS}/a?unknown=1", at="2.75")

    run(story)


def test_no_more_than_the_quota() -> None:
    async def story(cloud: Cloud) -> None:
        for number in range(2):
            await cloud.does("member", "POST", KEYS, wish(f"k{number}"))
        for key in (ED25519, None):
            said = await cloud.refuses("member", "POST", KEYS, wish("k2", key), status=403)
            assert said == "Quota exceeded, too many key pairs."
        await cloud.does("reader", "POST", KEYS, wish())
        path = f"/os-quota-sets/{cloud.projects['mine']}"
        await cloud.does("admin", "PUT", path, {"quota_set": {"key_pairs": 3}})
        await cloud.does("member", "POST", KEYS, wish("k2"))
        assert await cloud.refuses("member", "POST", KEYS, wish("k3"), status=403)

    run(story, "quota.key_pairs=2")
