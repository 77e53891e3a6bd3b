"""After a restore: hosts that a cell has lost, and hosts that were declared gone since (law 15)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kilonova.engine.restored_gone import FAULT, settle_gone_hosts
from kilonova.engine.restored_hosts import REASON, _record, record_hosts
from kilonova.placement.traits import DISABLED
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.placement import provider_traits, resource_providers, traits
from kilonova.store.hosts import UNKNOWN_IDENTITY
from kilonova.world import Tx
from tests.engine.rows_of_one import NOW, server
from tests.engine.some_stores import Stores, with_stores

WHO = {"user_id": "admin", "reason": "it burnt down", "said_at": 1.0}


def provider(number: int, name: str, **values: Any) -> dict[str, Any]:
    return {"id": number, "uuid": f"uuid of {name}", "name": name, **values}


def host(name: str, **values: Any) -> dict[str, Any]:
    return {"name": name, "id": f"id of {name}", "provider_id": "old", "identity": f"key of {name}", **values}


def test_a_host_that_its_cell_has_lost_is_recorded_with_its_provider(tmp_path: Path) -> None:
    """It reports its guests before anything else happens there. One that was disabled stays so."""

    async def body(stores: Stores) -> None:
        mapped = [{"host": name, "cell": "cell1"} for name in ("known", "lost", "off", "never")]
        await stores.put("control", control.host_mappings, *mapped, {"host": "elsewhere", "cell": "cell0"})
        await stores.put("cell1", cell.hosts, host("known"))
        of_numa = provider(9, "never", parent_id=2, root_id=2)  # a part of another host, which is called so
        named = [provider(number, name) for number, name in enumerate(("known", "lost", "off", "elsewhere"), 1)]
        await stores.put("placement", resource_providers, *named, of_numa)
        await stores.put("placement", traits, {"id": 1, "name": DISABLED}, {"id": 2, "name": "CUSTOM_FAST"})
        has = [(2, 2), (3, 1), (3, 2)]
        await stores.put("placement", provider_traits, *({"provider_id": p, "trait_id": t} for p, t in has))
        assert await record_hosts(stores, "cell1") == 2  # type: ignore[arg-type]
        assert await record_hosts(stores, "cell1") == 0  # type: ignore[arg-type]
        columns = ("name", "provider_id", "identity", "returning", "epoch", "disabled", "disabled_reason", "last_seen")
        found = {row[0]: row[1:] for row in await stores.see("cell1", cell.hosts, *columns)}
        assert set(found) == {"known", "lost", "off"}
        assert found["lost"] == ("uuid of lost", UNKNOWN_IDENTITY, 1, 1, 0, None, pytest.approx(NOW, abs=5.0))
        assert found["off"] == ("uuid of off", UNKNOWN_IDENTITY, 1, 1, 1, REASON, pytest.approx(NOW, abs=5.0))

    with_stores(tmp_path, body)


def test_a_host_that_registers_meanwhile_keeps_its_record(tmp_path: Path) -> None:
    async def body(stores: Stores) -> None:
        for provider_id, is_new in (("first", 1), ("second", 0)):

            async def record(tx: Tx, provider_id: str = provider_id) -> int:
                return await _record(tx, "host1", provider_id, disabled=False, now=NOW)

            assert await stores.cell("cell1").write(record) == is_new
        assert await stores.see("cell1", cell.hosts, "provider_id") == ["first"]

    with_stores(tmp_path, body, ["cell1"])


async def gone_and_recorded(stores: Stores, *names: str) -> None:
    """Hosts that were declared gone, and that the cell records again."""
    for name in names:
        of = {"operation_id": name, "identity": f"key of {name}", "host": name, "cell": "cell1", "proof": "silence"}
        await stores.put("control", control.gone_hosts, of | WHO)
        await stores.put("cell1", cell.hosts, host(name))
    never = {"operation_id": "never", "identity": "", "host": "never", "cell": "cell1", "proof": ""}
    await stores.put("control", control.gone_hosts, never | WHO)
    await stores.put("cell1", cell.hosts, host("never", identity=""), host("stays"))


def test_a_host_that_was_declared_gone_counts_as_dead_until_it_registers(tmp_path: Path) -> None:
    """Its servers are in ERROR, and nobody waits for what a move has left there."""

    async def body(stores: Stores) -> None:
        await gone_and_recorded(stores, "dead")
        of = {"s": {}, "deleted": {"deleted": 1}, "another": {"runner_host": "stays"}}
        for name, values in of.items():
            await stores.put("cell1", cell.servers, server(id=name, **{"runner_host": "dead", **values}))
        moves = {"left": ("dead", 1), "ended": ("dead", 0), "elsewhere": ("stays", 1)}
        for name, (source, is_open) in moves.items():
            move = {"id": name, "server_id": "s", "operation_id": "o", "kind": "migration", "status": "finished"}
            await stores.put("cell1", cell.migrations, move | {"source_host": source, "open": is_open})
        assert await settle_gone_hosts(stores, "cell1") == 1  # type: ignore[arg-type]
        shown = await stores.see("cell1", cell.hosts, "name", "identity", "fenced", "disabled", "disabled_reason")
        text = "declared gone as dead at 1970-01-01 00:00:01 UTC by admin: it burnt down"
        found = {row[0]: row[1:] for row in shown}
        assert found == {
            "dead": (UNKNOWN_IDENTITY, text, 1, text),
            "never": ("", None, 0, None),
            "stays": ("key of stays", None, 0, None),
        }
        states = await stores.see("cell1", cell.servers, "id", "vm_state", "unsettled")
        assert states == [("another", "active", 1), ("deleted", "active", 1), ("s", "error", 0)]
        assert await stores.see("cell1", cell.faults, "server_id", "message") == [("s", FAULT)]
        left = await stores.see("cell1", cell.migrations, "id", "source_gone")
        assert {name for name, is_gone in left if is_gone} == {"left"}
        assert await stores.see("control", control.host_mappings, "host", "cell") == [("dead", "cell1")]

    with_stores(tmp_path, body)


@pytest.mark.parametrize("has_provider", [True, False])
def test_a_name_that_is_in_use_again_gets_the_record(tmp_path: Path, has_provider: bool) -> None:
    """With the provider of today; the host registers with its own key."""

    async def body(stores: Stores) -> None:
        await gone_and_recorded(stores, "new")
        await stores.put("control", control.host_mappings, {"host": "new", "cell": "cell1"})
        names = ("other", "new") if has_provider else ("other",)
        await stores.put("placement", resource_providers, *(provider(n, name) for n, name in enumerate(names)))
        await stores.put("cell1", cell.servers, server(runner_host="new"))
        assert await settle_gone_hosts(stores, "cell1") == 1  # type: ignore[arg-type]
        shown = await stores.see("cell1", cell.hosts, "name", "identity", "provider_id", "fenced")
        provider_id = "uuid of new" if has_provider else "old"
        assert {row[0]: row[1:] for row in shown} == {
            "new": (UNKNOWN_IDENTITY, provider_id, None),
            "never": ("", "old", None),
            "stays": ("key of stays", "old", None),
        }
        assert await stores.see("cell1", cell.servers, "vm_state") == ["active"]

    with_stores(tmp_path, body)


def test_two_hosts_that_are_gone_are_mapped_again(tmp_path: Path) -> None:
    """A run that was cut off is repeated."""

    async def body(stores: Stores) -> None:
        await gone_and_recorded(stores, "a", "b")
        await stores.put("control", control.host_mappings, {"host": "a", "cell": "cell0"})
        assert await settle_gone_hosts(stores, "cell1") == 2  # type: ignore[arg-type]
        assert await stores.see("control", control.host_mappings, "host") == ["a", "b"]

    with_stores(tmp_path, body)
