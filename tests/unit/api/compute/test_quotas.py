"""/os-quota-sets, /os-quota-class-sets and /limits: what each version knows, who may, and that limits hold."""

from __future__ import annotations

from typing import Any

from tests.support.creates import NEWEST, create_body
from tests.unit.api.compute.cloud import LATEST, Cloud, run

BASIC = {"cores", "instances", "key_pairs", "metadata_items", "ram", "server_group_members", "server_groups"}
FILES = {"injected_files", "injected_file_content_bytes", "injected_file_path_bytes"}
NETWORK = {"fixed_ips", "floating_ips", "security_groups", "security_group_rules"}
KNOWN = {"2.1": BASIC | FILES | NETWORK, "2.35": BASIC | FILES | NETWORK, "2.36": BASIC | FILES, "2.57": BASIC}
DEFAULTS = {"instances": 10, "cores": 20, "ram": 51200, "key_pairs": 100, "metadata_items": 128}


def path_of(cloud: Cloud, name: str = "mine", more: str = "") -> str:
    return f"/os-quota-sets/{cloud.projects[name]}{more}"


async def shown(cloud: Cloud, more: str = "", *, who: str = "reader", at: str = "2.1", of: str = "mine") -> Any:
    return (await cloud.get(who, path_of(cloud, of, more), at=at))["quota_set"]


async def set_(cloud: Cloud, wish: Any, more: str = "", *, at: str = "2.1") -> Any:
    return (await cloud.does("admin", "PUT", path_of(cloud, "mine", more), {"quota_set": wish}, at=at))["quota_set"]


def test_each_version_knows_its_resources() -> None:
    async def story(cloud: Cloud) -> None:
        mine = cloud.projects["mine"]
        for at, known in {**KNOWN, LATEST: BASIC}.items():
            for more in ("", "/defaults"):
                found = await shown(cloud, more, at=at)
                assert set(found) == known | {"id"} and found["id"] == mine
                assert found.items() >= DEFAULTS.items()
            detail = await shown(cloud, "/detail", at=at)
            assert set(detail) == known | {"id"} and detail["cores"] == {"limit": 20, "in_use": 0, "reserved": 0}
            assert set(await set_(cloud, {"cores": 20}, at=at)) == known
        assert (await shown(cloud))["floating_ips"] == -1 and (await shown(cloud))["injected_file_path_bytes"] == 255

    run(story)


def test_set_show_and_delete() -> None:
    async def story(cloud: Cloud) -> None:
        after = await set_(cloud, {"ram": "5120", "cores": -1, "force": "True"})
        assert (after["ram"], after["cores"], after["instances"]) == (5120, -1, 10)
        assert (await shown(cloud))["ram"] == 5120 and (await shown(cloud, "/defaults"))["ram"] == 51200
        assert (await shown(cloud, who="stranger", of="theirs"))["ram"] == 51200
        await set_(cloud, {"ram": 2048}, "?user_id=user-member")
        assert (await shown(cloud, "?user_id=user-member"))["ram"] == 2048
        assert (await shown(cloud, "/detail?user_id=user-member"))["ram"]["limit"] == 2048
        assert (await shown(cloud, "?user_id=user-other"))["ram"] == 5120
        said = await cloud.refuses("admin", "PUT", path_of(cloud), {"quota_set": {"ram": 1024}})
        assert said.endswith("must be greater than or equal to already used and reserved 2048.")
        said = await cloud.refuses(
            "admin", "PUT", path_of(cloud, "mine", "?user_id=user-member"), {"quota_set": {"ram": 6000}}
        )
        assert said == "Quota limit 6000 for ram must be less than or equal to 5120."
        await cloud.does("admin", "DELETE", path_of(cloud, "mine", "?user_id=user-member"), status=202)
        assert (await shown(cloud, "?user_id=user-member"))["ram"] == 5120
        assert await cloud.does("admin", "DELETE", path_of(cloud), status=202) is None
        assert (await shown(cloud))["ram"] == 51200

    run(story)


def test_bad_ones_are_refused_and_change_nothing() -> None:
    async def story(cloud: Cloud) -> None:
        path = path_of(cloud)
        for wish, at in (
            *((({}), "2.1"), ([], "2.1"), ({"quota_set": []}, "2.1"), ({"quota_set": {"nix": 1}}, "2.1")),
            *(({"quota_set": {"ram": -2}}, "2.1"), ({"quota_set": {"ram": "-2"}}, "2.1")),
            *(({"quota_set": {"ram": "x"}}, "2.1"), ({"quota_set": {"ram": ""}}, "2.1")),
            *(({"quota_set": {"ram": 1.5}}, "2.1"), ({"quota_set": {"ram": None}}, "2.1")),
            *(({"quota_set": {"ram": 2147483648}}, "2.1"), ({"quota_set": {"ram": "2147483648"}}, "2.1")),
            *(({"quota_set": {"ram": "9" * 300}}, "2.1"), ({"quota_set": {"force": "maybe"}}, "2.1")),
            *(({"quota_set": {"cores": 5, "ram": -2}}, "2.1"), ({"quota_set": {"fixed_ips": 1}}, "2.36")),
            *(({"quota_set": {"injected_files": 1}}, "2.57"), ({"quota_set": {}, "more": 1}, "2.1")),
        ):
            assert await cloud.refuses("admin", "PUT", path, wish, at=at), wish
        assert await shown(cloud, at=LATEST) == {**await shown(cloud, "/defaults", at=LATEST)}
        for more in ("", "/detail", "/defaults"):
            said = await cloud.refuses("admin", "GET", f"/os-quota-sets/nix{more}")
            assert said == "Project ID nix is not a valid project."
        assert await cloud.refuses("admin", "PUT", "/os-quota-sets/nix", {"quota_set": {}})
        for method in ("GET", "PUT", "DELETE"):
            sent = {"quota_set": {}} if method == "PUT" else None
            assert await cloud.refuses("admin", method, f"{path}?unknown=1", sent, at="2.75")

    run(story)


def test_who_may() -> None:
    async def story(cloud: Cloud) -> None:
        for who in ("manager", "member", "reader"):
            for more in ("", "/detail", "/defaults"):
                await cloud.get(who, path_of(cloud, "mine", more))
            assert await cloud.refuses(who, "GET", path_of(cloud, "theirs"), status=403)
            assert await cloud.refuses(who, "GET", path_of(cloud, "theirs", "/detail"), status=403)
            assert await cloud.refuses(who, "PUT", path_of(cloud), {"quota_set": {"ram": 1}}, status=403)
            assert await cloud.refuses(who, "DELETE", path_of(cloud), status=403)
            assert await cloud.refuses(who, "GET", "/os-quota-class-sets/default", status=403)
            wish = {"quota_class_set": {"ram": 1}}
            assert await cloud.refuses(who, "PUT", "/os-quota-class-sets/default", wish, status=403)
            assert await cloud.refuses(who, "GET", f"/limits?tenant_id={cloud.projects['theirs']}", status=403)
        assert await cloud.refuses("service", "GET", path_of(cloud), status=403)
        await cloud.get("admin", path_of(cloud, "theirs"))
        assert (await shown(cloud))["ram"] == 51200

    run(story)


def test_the_default_class() -> None:
    async def story(cloud: Cloud) -> None:
        path = "/os-quota-class-sets/default"
        groups = {"server_groups", "server_group_members"}
        for at, known in (
            *(("2.1", (BASIC | FILES | NETWORK) - groups), ("2.49", (BASIC | FILES | NETWORK) - groups)),
            *(("2.50", BASIC | FILES), ("2.57", BASIC)),
        ):
            found = (await cloud.get("admin", path, at=at))["quota_class_set"]
            assert set(found) == known | {"id"} and found["id"] == "default"
            more = {name: value + 100 for name, value in found.items() if name != "id"}
            changed = await cloud.does("admin", "PUT", path, {"quota_class_set": more}, at=at)
            assert changed == {"quota_class_set": more}
            assert (await cloud.get("admin", path, at=at))["quota_class_set"] == {**more, "id": "default"}
        assert (await shown(cloud))["ram"] == 51600 and (await shown(cloud, "/defaults"))["ram"] == 51600
        assert (await shown(cloud))["floating_ips"] == 199
        gold = "/os-quota-class-sets/gold"
        await cloud.does("admin", "PUT", gold, {"quota_class_set": {"ram": "7"}})
        assert (await cloud.get("admin", gold))["quota_class_set"]["ram"] == 7
        assert (await shown(cloud))["ram"] == 51600
        for wish, at in (
            *(({"quota_class_set": {"ram": -2}}, "2.1"), ({"quota_class_set": {"nix": 1}}, "2.1")),
            *(({"quota_class_set": {"fixed_ips": 1}}, "2.50"), ({"quota_set": {}}, "2.1")),
            *(({"quota_class_set": {"injected_files": 1}}, "2.57"), ({"quota_class_set": {"ram": "9" * 15}}, "2.1")),
        ):
            assert await cloud.refuses("admin", "PUT", path, wish, at=at), wish
        assert await cloud.refuses("admin", "PUT", f"/os-quota-class-sets/{'x' * 256}", {"quota_class_set": {}})
        assert await cloud.refuses("admin", "GET", f"{path}?x=1", at="2.102")

    run(story)


def test_limits_under_their_oldest_names() -> None:
    basic = {
        *("maxServerMeta", "maxServerGroups", "maxServerGroupMembers", "maxTotalCores", "maxTotalInstances"),
        *("maxTotalKeypairs", "maxTotalRAMSize", "totalCoresUsed", "totalInstancesUsed", "totalRAMUsed"),
        "totalServerGroupsUsed",
    }
    files, image = {"maxPersonality", "maxPersonalitySize"}, {"maxImageMeta"}
    network = {
        *("maxSecurityGroups", "maxSecurityGroupRules", "maxTotalFloatingIps", "totalFloatingIpsUsed"),
        "totalSecurityGroupsUsed",
    }

    async def story(cloud: Cloud) -> None:
        for at, known in (
            *(("2.1", basic | files | image | network), ("2.36", basic | files | image)),
            *(("2.39", basic | files), ("2.57", basic), (LATEST, basic)),
        ):
            found = (await cloud.get("reader", "/limits", at=at))["limits"]
            assert set(found) == {"rate", "absolute"} and found["rate"] == [] and set(found["absolute"]) == known
        await set_(cloud, {"cores": 7})
        absolute = (await cloud.get("member", "/limits?reserved=False"))["limits"]["absolute"]
        assert (absolute["maxTotalCores"], absolute["totalCoresUsed"], absolute["maxTotalRAMSize"]) == (7, 0, 51200)
        other = await cloud.get("admin", f"/limits?tenant_id={cloud.projects['theirs']}")
        assert other["limits"]["absolute"]["maxTotalCores"] == 20
        assert await cloud.refuses("member", "GET", "/limits?reserved=False", at="2.75")
        await cloud.get("service", "/limits")  # anybody with a token
        assert await cloud.refuses("nobody", "GET", "/limits", status=401)

    run(story)


def test_servers_are_counted_and_refused() -> None:
    async def story(cloud: Cloud) -> None:
        api, admins = cloud.api, cloud.projects["mine"]
        api.client.headers["X-Auth-Token"] = "admin"
        flavor = await api.new_flavor("two", 2)
        for _ in range(2):
            await api.created(flavor=flavor)
        detail = await shown(cloud, "/detail", who="admin")
        assert [detail[name]["in_use"] for name in ("instances", "cores", "ram", "key_pairs")] == [2, 4, 1024, 0]
        absolute = (await cloud.get("member", "/limits"))["limits"]["absolute"]
        assert (absolute["totalInstancesUsed"], absolute["totalCoresUsed"], absolute["totalRAMUsed"]) == (2, 4, 1024)
        said = await cloud.refuses("admin", "PUT", f"/os-quota-sets/{admins}", {"quota_set": {"cores": 3}})
        assert said == "Quota limit 3 for cores must be greater than or equal to already used and reserved 4."
        answer = await api.ask("POST", "/operations", create_body(flavor=flavor), **NEWEST)
        assert answer.status_code == 403 and "cores: requested 2, used 4 of 5" in answer.text
        await set_(cloud, {"cores": 6})
        await api.created(flavor=flavor)
        assert (await shown(cloud, "/detail"))["cores"] == {"limit": 6, "in_use": 6, "reserved": 0}

    run(story, "quota.cores=5", hosts=1)
