"""/audits and /servers/{id}/ledger: what the books say, and all they ever said."""

from __future__ import annotations

from tests.unit.api.embedded import Api, run


def test_an_audit_is_kept() -> None:
    async def story(api: Api) -> None:
        await api.created()
        made = (await api.post("/audits", {}, 200))["audit"]
        assert (made["consumers"], made["findings"], made["unbalanced"], made["unreachable"]) == (1, [], [], {})
        await api.post("/audits", {"repair": False}, 200)
        kept = (await api.get("/audits"))["audits"]
        assert len(kept) == 2 and kept[1] == made
        assert len((await api.get("/audits?limit=1"))["audits"]) == 1
        status, code, _ = await api.refused("POST", "/audits", {"mend": True})
        assert (status, code) == (400, "bad_request")

    run(story)


def test_the_ledger_tells_every_claim() -> None:
    """Created, moved, moved back, moved for good, deleted."""

    async def story(api: Api) -> None:
        server = await api.created(host="host1")
        for operation in ("migrate", "revert_resize", "migrate", "confirm_resize", "delete"):
            asked = await api.submit(operation, server=server)
            await api.ended(asked["operation"])
        lines = (await api.get(f"/servers/{server}/ledger"))["ledger"]
        told = [(line["operation_kind"], line["verb"], line["consumer"] == server, _hosts(line)) for line in lines]
        there = lines[1]["holds"][0]["provider_name"] if lines[1]["consumer"] == server else _hosts(lines[2])[0]
        assert told[0] == ("build", "claim", True, ["host1"])
        assert sorted(told[1:3]) == [
            ("migrate", "claim_move", False, ["host1"]),
            ("migrate", "claim_move", True, [there]),
        ]
        assert sorted(told[3:5]) == [
            ("revert_resize", "return_move", False, []),
            ("revert_resize", "return_move", True, ["host1"]),
        ]
        assert told[7:] == [("confirm_resize", "drop_move", False, []), ("delete", "release", True, [])]
        assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
        amounts = {share["resource_class"]: share["amount"] for share in lines[0]["holds"]}
        assert amounts == {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
        moving = next(line["consumer"] for line in lines if line["consumer"] != server)
        assert [line["consumer"] for line in (await api.get(f"/servers/{moving}/ledger"))["ledger"]] == [moving, moving]

    run(story)


def _hosts(line: dict[str, list[dict[str, str]]]) -> list[str]:
    return sorted({share["provider_name"] for share in line["holds"]})


def test_who_never_held_anything_has_no_ledger() -> None:
    async def story(api: Api) -> None:
        status, code, sentence = await api.refused("GET", "/servers/nobody/ledger")
        assert (status, code, sentence) == (404, "not_found", "server nobody: it has never had an allocation")

    run(story)
