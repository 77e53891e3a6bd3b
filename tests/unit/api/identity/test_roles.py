"""/roles, what they imply, who has them where, and the list of all that."""

from __future__ import annotations

from typing import Any

from tests.unit.api.identity.asking import URL, Asking, asking


async def roles_of(it: Asking, user_id: str, password: str, scope: Any) -> list[str]:
    answer = await it.log_in({"id": user_id, "password": password}, scope)
    return [role["name"] for role in answer.json()["token"]["roles"]] if answer.status_code == 201 else []


def test_a_role() -> None:
    async def story(it: Asking) -> None:
        made = await it.make("roles", name="pilot", description="d")
        assert made["domain_id"] is None and (await it.get(f"/roles/{made['id']}"))["role"] == made
        assert (await it.get("/roles?name=pilot"))["roles"] == [made]
        home = (await it.make("domains", name="other"))["id"]
        own = await it.make("roles", name="pilot", domain_id=home)
        assert (await it.get(f"/roles?domain_id={home}"))["roles"] == [own]
        assert own not in (await it.get("/roles"))["roles"]
        await it.refused(404, "POST", "/roles", {"role": {"name": "x", "domain_id": "nowhere"}})
        await it.refused(400, "PATCH", f"/roles/{own['id']}", {"role": {"domain_id": "default"}})
        assert (await it.change("roles", made["id"], name="captain"))["name"] == "captain"
        await it.done("DELETE", f"/roles/{made['id']}")
        await it.refused(404, "GET", f"/roles/{made['id']}")

    asking(story)


def test_the_first_roles_are_not_deleted_by_mistake() -> None:
    async def story(it: Asking) -> None:
        member = await it.home.role_id("member")
        assert "immutable" in await it.refused(403, "DELETE", f"/roles/{member}")
        await it.refused(403, "PATCH", f"/roles/{member}", {"role": {"name": "x"}})
        await it.refused(403, "PATCH", f"/roles/{member}", {"role": {"options": {"immutable": False}, "name": "x"}})
        await it.change("roles", member, options={"immutable": False})
        await it.done("DELETE", f"/roles/{member}")
        token = await it.log_in({"name": "demo", "domain": {"id": "default"}, "password": "of demo"})
        assert "roles" not in token.json()["token"], "it was the only one"

    asking(story)


def test_roles_imply_others() -> None:
    async def story(it: Asking) -> None:
        admin, manager = await it.home.role_id("admin"), await it.home.role_id("manager")
        listed = await it.get("/role_inferences")
        priors = {
            one["prior_role"]["name"]: [each["name"] for each in one["implies"]] for one in listed["role_inferences"]
        }
        assert priors == {"admin": ["manager"], "manager": ["member"], "member": ["reader"]}
        shown = (await it.get(f"/roles/{admin}/implies/{manager}"))["role_inference"]
        assert shown["prior_role"]["name"] == "admin" and shown["implies"]["id"] == manager
        assert shown["implies"]["links"]["self"] == f"{URL}/identity/v3/roles/{manager}"
        await it.done("HEAD", f"/roles/{admin}/implies/{manager}")
        pilot, crew = (await it.make("roles", name="pilot"))["id"], (await it.make("roles", name="crew"))["id"]
        path = f"/roles/{pilot}/implies/{crew}"
        await it.refused(404, "GET", path)
        assert (await it.get(f"/roles/{pilot}/implies"))["role_inference"]["implies"] == []
        for _ in range(2):
            assert (await it.ask("PUT", path)).status_code == 201
        assert [one["name"] for one in (await it.get(f"/roles/{pilot}/implies"))["role_inference"]["implies"]] == [
            "crew"
        ]
        await it.refused(400, "PUT", f"/roles/{crew}/implies/{pilot}")
        await it.refused(400, "PUT", f"/roles/{crew}/implies/{crew}")
        assert "admin" in await it.refused(403, "PUT", f"/roles/{crew}/implies/{admin}")
        for wrong in (f"/roles/nothing/implies/{crew}", f"/roles/{crew}/implies/nothing"):
            await it.refused(404, "PUT", wrong)
        await it.done("DELETE", path)
        await it.refused(404, "DELETE", path)

    asking(story)


def test_a_domains_own_role_shows_only_what_it_implies() -> None:
    async def story(it: Asking) -> None:
        home = (await it.make("domains", name="other"))["id"]
        project = (await it.make("projects", name="p", domain_id=home))["id"]
        user = (await it.make("users", name="eve", domain_id=home, password="x"))["id"]
        own, reader = (await it.make("roles", name="own", domain_id=home))["id"], await it.home.role_id("reader")
        scope = {"project": {"id": project}}
        await it.done("PUT", f"/projects/{project}/users/{user}/roles/{own}")
        assert await roles_of(it, user, "x", scope) == []
        assert (await it.ask("PUT", f"/roles/{own}/implies/{reader}")).status_code == 201
        assert await roles_of(it, user, "x", scope) == ["reader"]
        await it.refused(403, "PUT", f"/roles/{reader}/implies/{own}")
        demo = await it.home.identity.project_named("demo")
        assert "only for domain" in await it.refused(403, "PUT", f"/projects/{demo}/users/{user}/roles/{own}")
        await it.refused(403, "PUT", f"/system/users/{user}/roles/{own}")

    asking(story)


def test_roles_are_given_and_taken() -> None:
    async def story(it: Asking) -> None:
        user = (await it.make("users", name="eve", password="x"))["id"]
        group = (await it.make("groups", name="crew"))["id"]
        project = await it.home.identity.project_named("demo")
        role = await it.home.role_id("reader")
        for place in (f"/projects/{project}", "/domains/default", "/system"):
            for actor in (f"/users/{user}", f"/groups/{group}"):
                path = f"{place}{actor}/roles"
                assert (await it.get(path))["roles"] == []
                for method in ("GET", "HEAD", "DELETE"):
                    assert (await it.ask(method, f"{path}/{role}")).status_code == 404, (method, path)
                for _ in range(2):
                    await it.done("PUT", f"{path}/{role}")
                for method in ("GET", "HEAD"):
                    await it.done(method, f"{path}/{role}")
                assert [one["name"] for one in (await it.get(path))["roles"]] == ["reader"]
                await it.done("DELETE", f"{path}/{role}")
                assert (await it.get(path))["roles"] == []
        for path in (
            f"/projects/nowhere/users/{user}/roles/{role}",
            f"/projects/default/users/{user}/roles/{role}",
            f"/domains/{project}/users/{user}/roles/{role}",
            f"/projects/{project}/users/nobody/roles/{role}",
            f"/projects/{project}/groups/{user}/roles/{role}",
            f"/projects/{project}/users/{user}/roles/nothing",
        ):
            await it.refused(404, "PUT", path)
        assert (await it.get(f"/role_assignments?user.id={user}"))["role_assignments"] == []

    asking(story)


def test_members_have_the_roles_of_their_group() -> None:
    async def story(it: Asking) -> None:
        user = (await it.make("users", name="eve", password="x"))["id"]
        group = (await it.make("groups", name="crew"))["id"]
        project = await it.home.identity.project_named("demo")
        member = await it.home.role_id("member")
        scope = {"project": {"id": project}}
        await it.done("PUT", f"/projects/{project}/groups/{group}/roles/{member}")
        assert await roles_of(it, user, "x", scope) == []
        await it.done("PUT", f"/groups/{group}/users/{user}")
        assert await roles_of(it, user, "x", scope) == ["member", "reader"]
        assert [one["name"] for one in (await it.get(f"/users/{user}/projects"))["projects"]] == ["demo"]

        query = f"/role_assignments?user.id={user}"
        assert (await it.get(query))["role_assignments"] == [], "directly it has none"
        found = (await it.get(f"{query}&effective"))["role_assignments"]
        assert {one["role"]["id"] for one in found} == {member, await it.home.role_id("reader")}
        assert all(one["user"]["id"] == user and one["scope"] == {"project": {"id": project}} for one in found)
        assert all(f"/groups/{group}/users/{user}" in one["links"]["membership"] for one in found)
        implied = next(one for one in found if one["role"]["id"] != member)
        assert implied["links"]["prior_role"].endswith(f"/roles/{member}/implies/{implied['role']['id']}")
        await it.done("DELETE", f"/groups/{group}/users/{user}")
        assert await roles_of(it, user, "x", scope) == []

    asking(story)


def test_all_assignments() -> None:
    async def story(it: Asking) -> None:
        demo, admin = await it.home.user_id("demo"), await it.home.user_id("admin")
        project = await it.home.identity.project_named("demo")

        async def count(query: str) -> int:
            return len((await it.get(f"/role_assignments?{query}"))["role_assignments"])

        assert await count("") == 5
        assert await count(f"user.id={admin}") == 4 and await count(f"user.id={demo}") == 1
        assert await count(f"scope.project.id={project}") == 2
        assert await count("scope.domain.id=default") == await count("scope.system=all") == 1
        assert await count(f"role.id={await it.home.role_id('reader')}") == 0
        assert await count(f"role.id={await it.home.role_id('reader')}&effective") == 5
        assert await count("user.id=nobody&group.id=") == await count("group.id=nothing") == 0
        named = await it.get(f"/role_assignments?include_names=true&user.id={demo}")
        (one,) = named["role_assignments"]
        assert one["user"]["name"] == "demo" and one["user"]["domain"] == {"id": "default", "name": "Default"}
        assert one["role"]["name"] == "member" and "domain" not in one["role"]
        assert one["scope"]["project"]["name"] == "demo" and one["scope"]["project"]["domain"]["name"] == "Default"
        assert one["links"]["assignment"].endswith(f"/projects/{project}/users/{demo}/roles/{one['role']['id']}")
        (system,) = (await it.get("/role_assignments?scope.system=all"))["role_assignments"]
        assert system["scope"] == {"system": {"all": True}} and "/system/users/" in system["links"]["assignment"]
        for query in (
            "scope.project.id=a&scope.domain.id=b",
            "scope.project.id=a&scope.system=all",
            "user.id=a&group.id=b",
            "effective&group.id=b",
        ):
            await it.refused(400, "GET", f"/role_assignments?{query}")

    asking(story)
