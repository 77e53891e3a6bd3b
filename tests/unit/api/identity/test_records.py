"""/domains, /projects, /users, /groups: made, found, changed, deleted, and every way that is refused."""

from __future__ import annotations

from urllib.parse import quote, unquote

from tests.unit.api.identity.asking import URL, Asking, asking


def test_a_project() -> None:
    async def story(it: Asking) -> None:
        made = await it.make("projects", name="lab", description="d", tags=["a", "b"], color="red")
        assert made["domain_id"] == made["parent_id"] == "default" and made["is_domain"] is False
        assert made["enabled"] is True and made["color"] == "red" and made["options"] == {}
        assert made["links"] == {"self": f"{URL}/identity/v3/projects/{made['id']}"}
        assert (await it.get(f"/projects/{made['id']}"))["project"] == made
        assert (await it.get("/projects?name=lab"))["projects"] == [made]
        changed = await it.change("projects", made["id"], name="lab2", description=None, color="blue", id=made["id"])
        assert changed == {**made, "name": "lab2", "description": "", "color": "blue"}
        await it.done("DELETE", f"/projects/{made['id']}")
        for method in ("GET", "DELETE"):
            await it.refused(404, method, f"/projects/{made['id']}")
        await it.refused(404, "PATCH", f"/projects/{made['id']}", {"project": {"name": "x"}})

    asking(story)


def test_lists_are_filtered_and_paged() -> None:
    async def story(it: Asking) -> None:
        home = (await it.make("domains", name="other"))["id"]
        for number in range(5):
            await it.make("projects", name=f"p{number}", domain_id=home, enabled=number % 2 == 0)

        async def names(query: str) -> list[str]:
            return sorted(one["name"] for one in (await it.get(f"/projects?{query}"))["projects"])

        assert await names(f"domain_id={home}") == ["p0", "p1", "p2", "p3", "p4"]
        assert (
            await names(f"domain_id={home}&enabled=false") == await names(f"domain_id={home}&enabled=0") == ["p1", "p3"]
        )
        assert await names(f"domain_id={home}&enabled") == ["p0", "p2", "p4"], "no value is true"
        assert await names("domain_id=nowhere") == await names("name=p%25") == []
        assert await names("is_domain=true") == ["Default", "other"]
        assert await names(f"parent_id={home}&name=p1&unknown=x") == ["p1"]

        seen: list[str] = []
        address = f"/projects?domain_id={home}&limit=2"
        while address:
            page = await it.get(address)
            assert len(page["projects"]) <= 2 and page["links"]["previous"] is None
            seen += [one["name"] for one in page["projects"]]
            following = page["links"]["next"]
            address = following.removeprefix(f"{URL}/identity/v3") if following else ""
        assert sorted(seen) == ["p0", "p1", "p2", "p3", "p4"]
        for limit in ("x", "-1", "1.5", "9" * 30, "%C2%B2"):
            await it.refused(400, "GET", f"/projects?limit={limit}")
        assert len((await it.get("/projects?limit=0"))["projects"]) == 7
        assert (await it.get("/projects?limit=5&marker=~~"))["projects"] == []

    asking(story)


def test_projects_stand_below_each_other() -> None:
    async def story(it: Asking) -> None:
        top = await it.make("projects", name="l1")
        above = top
        for level in range(2, 6):
            above = await it.make("projects", name=f"l{level}", parent_id=above["id"])
            assert above["domain_id"] == "default"
        assert "deep" in await it.refused(
            403, "POST", "/projects", {"project": {"name": "l6", "parent_id": above["id"]}}
        )
        assert "below it" in await it.refused(403, "DELETE", f"/projects/{top['id']}")
        body = {"project": {"enabled": False}}
        assert "enabled projects below" in await it.refused(403, "PATCH", f"/projects/{top['id']}", body)
        other = (await it.make("domains", name="other"))["id"]
        for wish in ({"parent_id": "nowhere"}, {"domain_id": "nowhere"}, {"parent_id": top["id"], "domain_id": other}):
            await it.refused(400, "POST", "/projects", {"project": {"name": "x", **wish}})
        for wish in ({"domain_id": other}, {"parent_id": above["id"]}, {"is_domain": True}, {"id": "other"}):
            await it.refused(400, "PATCH", f"/projects/{top['id']}", {"project": wish})
        await it.change("projects", top["id"], parent_id="default", domain_id="default")
        off = await it.make("projects", name="off", enabled=False)
        await it.refused(403, "POST", "/projects", {"project": {"name": "x", "parent_id": off["id"]}})

    asking(story)


def test_names_are_taken_once() -> None:
    async def story(it: Asking) -> None:
        home = (await it.make("domains", name="other"))["id"]
        for words in ("projects", "users", "groups"):
            word = words.removesuffix("s")
            one = await it.make(words, name="same", domain_id="default")
            await it.make(words, name="same", domain_id=home)
            two = await it.make(words, name="two", domain_id="default")
            await it.refused(409, "POST", f"/{words}", {word: {"name": "same", "domain_id": "default"}})
            await it.refused(409, "PATCH", f"/{words}/{two['id']}", {word: {"name": "same"}})
            assert (await it.change(words, one["id"], name="same"))["name"] == "same", "its own name"
        await it.refused(409, "POST", "/domains", {"domain": {"name": "other"}})
        await it.refused(409, "POST", "/projects", {"project": {"name": "other", "is_domain": True}})
        await it.refused(409, "POST", "/roles", {"role": {"name": "member"}})
        await it.make("roles", name="member", domain_id=home)

    asking(story)


def test_tags_of_projects() -> None:
    async def story(it: Asking) -> None:
        one = (await it.make("projects", name="one", tags=["red", "big"]))["id"]
        await it.make("projects", name="two", tags=["red"])

        async def names(query: str) -> list[str]:
            return sorted(p["name"] for p in (await it.get(f"/projects?{query}"))["projects"] if len(p["name"]) == 3)

        assert await names("tags=red,big") == ["one"] and await names("tags=red") == ["one", "two"]
        assert await names("tags-any=big,small") == ["one"]
        assert await names("not-tags=red,big") == ["two"] and await names("not-tags-any=red") == []
        assert len((await it.get("/projects?tags=red&limit=1"))["projects"]) == 1

        await it.done("PUT", f"/projects/{one}/tags/new", status=201)
        await it.done("GET", f"/projects/{one}/tags/new")
        await it.done("DELETE", f"/projects/{one}/tags/red")
        await it.refused(404, "GET", f"/projects/{one}/tags/red")
        await it.refused(404, "DELETE", f"/projects/{one}/tags/red")
        assert (await it.get(f"/projects/{one}/tags"))["tags"] == ["big", "new"]
        put = await it.ask("PUT", f"/projects/{one}/tags", {"tags": ["x"]})
        assert put.status_code == 200 and put.json()["tags"] == ["x"]
        for tags in ("x", ["a,b"], ["a/b"], [""], ["a", "a"], [1], [str(number) for number in range(81)]):
            await it.refused(400, "PUT", f"/projects/{one}/tags", {"tags": tags})
        await it.refused(400, "PUT", f"/projects/{one}/tags/{'x' * 256}")
        await it.refused(400, "PUT", f"/projects/{one}/tags/a,b")
        for control in ("%0d%0aX-Evil:%201", "%0a", "%0d", "%09", "%1b", "%7f", "%c2%85", "b%0a"):
            await it.refused(400, "PUT", f"/projects/{one}/tags/a{control}")
            await it.refused(400, "PUT", f"/projects/{one}/tags", {"tags": [f"a{unquote(control)}"]})
            await it.refused(400, "PATCH", f"/projects/{one}", {"project": {"tags": [f"a{unquote(control)}"]}})
        await it.refused(400, "POST", "/projects", {"project": {"name": "x", "tags": ["a\r\nX-Evil: 1"]}})
        assert (await it.get(f"/projects/{one}/tags"))["tags"] == ["x"], "nothing changed"
        await it.done("DELETE", f"/projects/{one}/tags")
        assert (await it.get(f"/projects/{one}/tags"))["tags"] == []

    asking(story)


def test_where_a_new_tag_is() -> None:
    """The header leads back to it, whatever its name."""

    async def story(it: Asking) -> None:
        one = (await it.make("projects", name="one"))["id"]
        for tag in ("plain", "two words", "50%", "a?b#c", "\u00fc", "\u6f22\u5b57 \U0001f511"):
            made = await it.ask("PUT", f"/projects/{one}/tags/{quote(tag)}")
            assert made.status_code == 201 and made.headers["Location"].isascii()
            path = made.headers["Location"].removeprefix(f"{URL}/identity/v3")
            assert path == f"/projects/{one}/tags/{quote(tag)}"
            await it.done("GET", path)

    asking(story)


def test_a_domain_goes_with_all_that_is_in_it() -> None:
    async def story(it: Asking) -> None:
        home = (await it.make("domains", name="other", description="d"))["id"]
        shown = (await it.get(f"/domains/{home}"))["domain"]
        assert set(shown) == {"id", "name", "description", "enabled", "tags", "options", "links"}
        assert (await it.get("/domains?name=other"))["domains"] == [shown]
        user = (await it.make("users", name="u", domain_id=home, password="x"))["id"]
        group = (await it.make("groups", name="g", domain_id=home))["id"]
        project = (await it.make("projects", name="p", domain_id=home))["id"]
        role = (await it.make("roles", name="r", domain_id=home))["id"]
        demo = await it.home.user_id("demo")
        await it.done("PUT", f"/projects/{project}/users/{demo}/roles/{role}")
        await it.done("PUT", f"/groups/{group}/users/{demo}")
        assert "disable it first" in await it.refused(403, "DELETE", f"/domains/{home}")
        await it.change("domains", home, enabled=False)
        await it.done("DELETE", f"/domains/{home}")
        for path in (
            f"/domains/{home}",
            f"/users/{user}",
            f"/groups/{group}",
            f"/projects/{project}",
            f"/roles/{role}",
        ):
            await it.refused(404, "GET", path)
        assert len((await it.get(f"/role_assignments?user.id={demo}"))["role_assignments"]) == 1
        assert (await it.get(f"/users/{demo}/groups"))["groups"] == []

    asking(story)


def test_what_a_domain_is_not() -> None:
    async def story(it: Asking) -> None:
        demo = await it.home.identity.project_named("demo")
        for method, body in (("GET", None), ("DELETE", None), ("PATCH", {"domain": {"name": "x"}})):
            await it.refused(404, method, f"/domains/{demo}", body)
        await it.change("domains", "default", enabled=False)
        await it.refused(401, "GET", "/users")
        home = it.home.identity.projects
        from kilonova.services.identity.projects import DOMAIN

        await home.change(DOMAIN, "default", {"enabled": True})
        it.token = (await it.home.log_in("admin")).token
        made = await it.make("domains", name="chosen", explicit_domain_id="0123456789abcdef" * 2)
        assert made["id"] == "0123456789abcdef" * 2
        await it.refused(400, "POST", "/domains", {"domain": {"name": "x", "explicit_domain_id": "../x"}})

    asking(story)


def test_the_default_domain_stays() -> None:
    async def story(it: Asking) -> None:
        system = (await it.home.log_in("admin", scope="system")).token
        other = (await it.make("domains", name="other"))["id"]
        keeper = await it.make("users", name="keeper", domain_id=other, password="of keeper")
        admin = await it.home.role_id("admin")
        await it.done("PUT", f"/system/users/{keeper['id']}/roles/{admin}")
        answer = await it.log_in({"id": keeper["id"], "password": "of keeper"}, {"system": {"all": True}})
        it.token = answer.headers["X-Subject-Token"]
        await it.change("domains", "default", enabled=False)
        await it.refused(401, "GET", "/users", token=system)
        assert "cannot be deleted" in await it.refused(403, "DELETE", "/domains/default")
        await it.change("domains", "default", enabled=True)

    asking(story)


def test_a_user() -> None:
    async def story(it: Asking) -> None:
        made = await it.make("users", name="eve", password="secret", email="eve@example.org", description="d")
        assert made["domain_id"] == "default" and made["enabled"] is True and made["password_expires_at"] is None
        assert made["email"] == "eve@example.org" and "password" not in made and "default_project_id" not in made
        shown = (await it.get(f"/users/{made['id']}"))["user"]
        assert shown == made == (await it.get("/users?name=eve"))["users"][0]
        changed = await it.change("users", made["id"], email="new", default_project_id="p", enabled=False)
        assert changed == {**made, "email": "new", "default_project_id": "p", "enabled": False}
        assert [one["name"] for one in (await it.get("/users?enabled=false"))["users"]] == ["eve"]
        await it.done("DELETE", f"/users/{made['id']}")
        await it.refused(404, "GET", f"/users/{made['id']}")
        await it.refused(404, "GET", f"/users/{made['id']}/projects")
        await it.refused(404, "POST", "/users", {"user": {"name": "x", "domain_id": "nowhere"}})
        await it.refused(400, "POST", "/users", {"user": {"name": "x", "default_project_id": "default"}})
        await it.refused(400, "PATCH", f"/users/{await it.home.user_id('demo')}", {"user": {"domain_id": "other"}})

    asking(story)


def test_columns_that_are_ours_are_not_set_from_outside() -> None:
    async def story(it: Asking) -> None:
        sly = {"id": "mine", "tokens_from": 9e9, "extra": "x", "links": {}, "password_expires_at": "never"}
        made = await it.make("users", name="sly", password="of sly", **sly)
        assert made["id"] != "mine" and "tokens_from" not in made and made["links"]["self"].endswith(made["id"])
        assert made["password_expires_at"] is None
        answer = await it.log_in({"id": made["id"], "password": "of sly"})
        assert answer.status_code == 201, "its tokens are not void"
        project = await it.make("projects", name="sly", **{"id": "mine", "tokens_from": 9e9, "extra": 5})
        assert project["id"] != "mine"
        await it.change("projects", project["id"], tokens_from=9e9)
        assert (await it.get(f"/projects/{project['id']}"))["project"] == project

    asking(story)


def test_the_own_password_needs_no_token() -> None:
    async def story(it: Asking) -> None:
        user_id = await it.home.user_id("demo")
        demo = (await it.home.log_in()).token
        it.home.clock.time += 0.1

        def body(old: str, new: str) -> dict[str, dict[str, str]]:
            return {"user": {"original_password": old, "password": new}}

        path = f"/users/{user_id}/password"
        await it.refused(401, "POST", path, body("wrong", "new"), token="")
        await it.refused(401, "POST", "/users/nobody/password", body("of demo", "new"), token="")
        await it.refused(400, "POST", path, body("of demo", "x" * 5000), token="")
        await it.refused(400, "POST", path, {"user": {"password": "new"}}, token="")
        assert (await it.ask("GET", f"/users/{user_id}", token=demo)).status_code == 200
        assert (await it.ask("POST", path, body("of demo", "new"), token="")).status_code == 204
        await it.refused(401, "GET", f"/users/{user_id}", token=demo)
        assert (await it.log_in({"id": user_id, "password": "new"})).status_code == 201

    asking(story)


def test_a_group_and_its_members() -> None:
    async def story(it: Asking) -> None:
        group = await it.make("groups", name="crew", description="d", color="red")
        assert group["domain_id"] == "default" and (await it.get("/groups"))["groups"] == [group]
        demo = await it.home.user_id("demo")
        path = f"/groups/{group['id']}/users/{demo}"
        await it.refused(404, "GET", path)
        for _ in range(2):
            await it.done("PUT", path)
        await it.done("GET", path)
        await it.done("HEAD", path)
        assert [one["name"] for one in (await it.get(f"/groups/{group['id']}/users"))["users"]] == ["demo"]
        assert (await it.get(f"/users/{demo}/groups"))["groups"] == [group]
        await it.refused(404, "PUT", f"/groups/{group['id']}/users/nobody")
        await it.refused(404, "PUT", f"/groups/nowhere/users/{demo}")
        await it.done("DELETE", path)
        await it.refused(404, "DELETE", path)
        await it.change("groups", group["id"], name="crew2", description=None)
        await it.refused(400, "PATCH", f"/groups/{group['id']}", {"group": {"domain_id": "other"}})
        await it.done("DELETE", f"/groups/{group['id']}")
        await it.refused(404, "GET", f"/groups/{group['id']}")

    asking(story)


def test_bodies_that_are_refused_change_nothing() -> None:
    async def story(it: Asking) -> None:
        before = [(await it.get(path)) for path in ("/projects", "/users", "/groups", "/roles", "/domains")]
        long = "x" * 256
        for words, wish in (
            ("projects", {}),
            ("projects", {"name": ""}),
            ("projects", {"name": "  "}),
            ("projects", {"name": "x" * 65}),
            ("projects", {"name": 5}),
            ("projects", {"name": "x", "enabled": "yes"}),
            ("projects", {"name": "x", "tags": "x"}),
            ("projects", {"name": "x", "options": []}),
            ("domains", {"name": "x" * 65}),
            ("domains", {"name": "x", "enabled": None}),
            ("users", {"name": long}),
            ("users", {"name": "x", "password": 5}),
            ("users", {"name": "x", "password": "x" * 5000}),
            ("users", {"name": "x", "domain_id": None}),
            ("groups", {"name": long}),
            ("groups", {"name": "x", "description": 5}),
            ("roles", {"name": long}),
            ("roles", {"name": "x", "options": {"immutable": "yes"}}),
        ):
            await it.refused(400, "POST", f"/{words}", {words.removesuffix("s"): wish})
        for body in (
            None,
            [],
            {},
            {"project": []},
            {"user": {"name": "x"}},
            b"{",
            b"\xff",
            b'{"project":{"name":"\\ud800"}}',
        ):
            await it.refused(400, "POST", "/projects", body)
        await it.refused(415, "POST", "/projects", b"name=x", Content_Type="text/plain")
        await it.refused(413, "POST", "/projects", b" " * 200_000)
        assert [(await it.get(path)) for path in ("/projects", "/users", "/groups", "/roles", "/domains")] == before

    asking(story)
