"""Network in a whole cloud: seeded, reached by real tokens below /network."""

from __future__ import annotations

from tests.unit.api.embedded import Api, run


def test_a_new_cloud_has_a_shared_and_a_public_network() -> None:
    async def story(api: Api) -> None:
        answer = await api.client.get("/network/v2.0/networks?sort_key=name&sort_dir=asc")
        assert answer.status_code == 200, answer.text
        public, shared = answer.json()["networks"]
        assert (public["name"], public["router:external"], public["shared"]) == ("public", True, False)
        assert (shared["name"], shared["router:external"], shared["shared"]) == ("shared", False, True)
        made = await api.client.post("/network/v2.0/ports", json={"port": {"network_id": shared["id"]}})
        assert made.status_code == 201 and made.json()["port"]["fixed_ips"][0]["ip_address"] == "10.10.0.2"
        assert (await api.client.get("/network/v2.0/ports", headers={"X-Auth-Token": "forged"})).status_code == 401
        assert (await api.client.get("/network")).json()["versions"][0]["id"] == "v2.0"

    run(story)
