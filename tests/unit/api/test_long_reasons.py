"""The reason that an administrator gives is kept, shown with every list and sent with notifications: it is bounded."""

from __future__ import annotations

from typing import Any

from tests.unit.api.embedded import Api, run

LONG = "r" * 1001
NOWHERE = "/operations/00000000-0000-0000-0000-000000000000"


def test_no_reason_is_longer_than_a_paragraph() -> None:
    async def story(api: Api) -> None:
        asked: list[tuple[str, dict[str, Any]]] = [
            ("/ha", {"action": "disarm", "seconds": 60}),
            ("/hosts/host1", {"disabled": True}),
            ("/operations", {"operation": "host_gone", "host": "host1"}),
            (f"{NOWHERE}/abandon", {}),
            ("/findings/00000000-0000-0000-0000-000000000000/settle", {}),
        ]
        for path, body in asked:
            status, _, sentence = await api.refused("POST", path, {**body, "reason": LONG})
            assert status == 400 and "is longer than" in sentence, path
        assert (await api.get("/ha"))["ha"]["armed"]
        assert (await api.get("/hosts/host1"))["host"]["state"] == "up"

    run(story)
