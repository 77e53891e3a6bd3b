"""A list costs what its page costs, not what was ever there: few rows are decoded, and few are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kilonova.domain.details import Details, details_document
from kilonova.domain.server import Flavor, to_json
from kilonova.schema.tables.cell import servers
from kilonova.services.compute import server_lists
from kilonova.services.compute.server_lists import CHUNK, ServerQuery, page
from kilonova.services.compute.server_order import ServerOrder, ServerPage, SortKey
from kilonova.store import rows
from kilonova.world import Tx

Run = Callable[[Any], None]
COUNT = 2 * CHUNK + 300
NUMBERS = {"turn": 1, "power_state": 1, "recheck": 0, "hidden": 0}
TEXTS = {"project_id": "lab", "user_id": "bob", "vm_state": "active", "image_ref": "", "name": "s"}
FLAVOR = to_json(Flavor("small", 1, 512, 1))


async def fill(stores: Any) -> None:
    """The nth was made and changed n seconds after the first; every second one is deleted."""

    async def body(tx: Tx) -> None:
        for n in range(COUNT):
            details = details_document(Details(description=f"{(n * 7919) % COUNT:05}"))
            times = {"created_at": float(n), "updated_at": float(n), "deleted": n % 2, "details": details}
            await rows.put(tx, servers, id=f"{n:08}", host=None, flavor=FLAVOR, **TEXTS, **NUMBERS, **times)

    await stores.cell("cell1").write(body)


def test_changes_since_a_moment_ago(databases: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stores: Any) -> None:
        await fill(stores)
        decoded = _counted(monkeypatch, server_lists, "from_cell")
        wanted = ServerQuery(project_id="lab", deleted=None, changed_since=COUNT - 3.0)
        found = await page(stores, wanted, ServerOrder(), ServerPage(1000))
        assert [record.id for record in found] == [f"{n:08}" for n in (COUNT - 1, COUNT - 2, COUNT - 3)]
        assert len(decoded) == 3
        both = ServerQuery(deleted=None, changed_since=10.0, changed_before=12.0)
        assert [record.id for record in await page(stores, both, ServerOrder(), ServerPage(2))] == [
            "00000012",
            "00000011",
        ]

    databases(story)


def test_an_order_that_no_cell_knows(databases: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stores: Any) -> None:
        await fill(stores)
        sizes: list[int] = []
        arrange = ServerOrder.arrange

        def measured(order: ServerOrder, records: Any) -> Any:
            sizes.append(len(records))
            return arrange(order, records)

        monkeypatch.setattr(ServerOrder, "arrange", measured)
        order = ServerOrder([SortKey(lambda record: record.details.description, False)])
        wanted, seen = ServerQuery(project_id="lab", deleted=None), []
        marker = None
        for _ in range(3):
            found = await page(stores, wanted, order, ServerPage(10, marker))
            seen += [record.details.description for record in found]
            marker = found[-1]
        assert seen == [f"{n:05}" for n in range(30)]
        assert max(sizes) <= CHUNK + 10 + 1, "a piece, a page and the marker"

    databases(story)


def _counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[Any]:
    calls: list[Any] = []
    function = getattr(module, name)

    def counting(*given: Any) -> Any:
        calls.append(given)
        return function(*given)

    monkeypatch.setattr(module, name, counting)
    return calls
