"""After a restore each server is recorded and mapped once, as control, placement, ports and volumes say (law 15)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilonova.domain.details import Details
from kilonova.domain.params import ServerSpec
from kilonova.domain.server import LOST, LOST_IN_MOVE, SETTLED, Flavor, flavor_document, to_json
from kilonova.domain.volume import ServerVolume, WantedVolume, server_volumes
from kilonova.engine import restored_records
from kilonova.engine.restored_records import (
    MISSING,
    Whereabouts,
    find_servers,
    map_recorded,
    record_attachments,
    record_missing,
    settle_homes,
)
from kilonova.schema.tables import cell, control
from kilonova.schema.tables.placement import allocations, ledger, resource_classes, resource_providers
from kilonova.schema.tables.quotas import quota_usages
from kilonova.schema.tables.volume import attachments
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.rows_of_one import NOW, play, server
from tests.engine.some_stores import Stores, with_stores

SMALL, LARGE = Flavor("small", 1, 512, 1), Flavor("large", 4, 2048, 1)
FLOOR = 3_000_000
OWNER = {"project_id": "p", "user_id": "u"}


def spec(name: str, **values: Any) -> dict[str, Any]:
    return {"server_id": name, "spec": to_json(ServerSpec(**OWNER, created_at=1.0, name=name, flavor=SMALL, **values))}


def mapping(name: str, in_cell: str | None, **values: Any) -> dict[str, Any]:
    size = {"vcpus": 1, "memory_mb": 512, "counted": 0}
    return {"server_id": name, "cell": in_cell, "queued_for_delete": 0, "created_at": 1.0, **OWNER, **size, **values}


def attachment(name: str, of: str | None, **values: Any) -> dict[str, Any]:
    return {"id": name, "volume_id": f"v{name}", "server_id": of, "turn": 5, "device": "/dev/vdb", **values}


def record(deleted: int = 0, launched: float | None = None) -> Any:
    return {"deleted": deleted, "launched_at": launched}


@pytest.mark.parametrize(
    ("mapped", "records", "home"),
    [
        ("cell1", {"cell1": record()}, "cell1"),
        ("cell0", {"cell1": record(), "cell0": record()}, "cell0"),
        ("cell0", {"cell1": record(launched=1.0), "cell0": record()}, "cell1"),  # it had a guest there
        ("cell0", {"cell1": record(launched=1.0), "cell0": record(launched=1.0)}, "cell0"),
        (None, {"cell1": record(), "cell0": record()}, "cell1"),
        (None, {"cell1": record(), "cell0": record(launched=1.0)}, "cell0"),
        (None, {"cell1": record(deleted=1), "cell0": record()}, "cell0"),
        ("cell1", {"cell1": record(deleted=1, launched=1.0), "cell0": record()}, "cell0"),
        (None, {"cell1": record(), "cell2": record()}, "cell2"),
        ("cell1", {}, None),
    ],
    ids=str,
)
def test_the_home_of_a_server_is_where_it_had_a_guest(mapped: Any, records: Any, home: str | None) -> None:
    by: Any = {"s": {"cell": mapped}} if mapped else {}
    assert Whereabouts(mapped=by, recorded={"s": records}).home_of("s") == home


def test_servers_are_found_where_they_are_mapped_and_recorded(tmp_path: Path) -> None:
    async def body(stores: Stores) -> None:
        mapped = [mapping("both", "cell1"), mapping("lost", "cell1"), mapping("of cell0", "cell0")]
        going = mapping("going", "cell1", queued_for_delete=1)
        await stores.put("control", control.server_mappings, *mapped, going)
        await stores.put("cell1", cell.servers, server(id="both"))
        await stores.put("cell0", cell.servers, server(id="both", hidden=1), server(id="unknown"))
        found = await find_servers(stores)  # type: ignore[arg-type]
        assert set(found.mapped) == {"both", "lost", "of cell0"}
        assert {name: set(records) for name, records in found.recorded.items()} == {
            "both": {"cell0", "cell1"},
            "unknown": {"cell0"},
        }
        assert found.missing_in("cell1") == ["lost"] and found.missing_in("cell0") == ["of cell0"]

    with_stores(tmp_path, body)


async def held_in_placement(stores: Stores) -> None:
    """By the servers, and by moves of two of them: one holds under its own id, one beside the server."""
    names = ("host1", "host2", "pool")
    await stores.put(
        "placement", resource_providers, *({"id": n, "uuid": x, "name": x} for n, x in enumerate(names, 1))
    )
    classes = ("VCPU", "MEMORY_MB", "DISK_GB")
    there = {name for name in await stores.see("placement", resource_classes, "name")}
    missing = [{"id": 900 + n, "name": name} for n, name in enumerate(classes) if name not in there]
    await stores.put("placement", resource_classes, *missing)
    ids = {name: number for number, name in await stores.see("placement", resource_classes, "id", "name")}

    def claims(consumer: str, provider: int, holder: str = "", *, disk_at: int | None = None) -> list[dict[str, Any]]:
        amounts = {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}
        of = {"consumer": consumer, "holder": holder}
        at = {name: disk_at if name == "DISK_GB" and disk_at else provider for name in amounts}
        return [{**of, "class_id": ids[one], "provider_id": at[one], "used": used} for one, used in amounts.items()]

    for some in (claims("plain", 1), claims("moves", 1), claims("m", 2), claims("shares", 2, disk_at=3)):
        await stores.put("placement", allocations, *some)
    await stores.put("placement", allocations, *claims("evacuates", 1), *claims("evacuates", 2, "evacuation"))
    await stores.put("placement", allocations, *claims("two", 1), *claims("two", 2))
    notes = [("moves", "m"), ("plain", "plain"), ("plain", "long ago")]
    await stores.put("placement", ledger, *({"server_id": s, "consumer": c, "verb": "claim"} for s, c in notes))


NAMES = ("plain", "moves", "evacuates", "shares", "two", "none")


@pytest.mark.parametrize("reports_decide", [True, False])
def test_a_lost_record_is_made_again_where_placement_has_its_claim(tmp_path: Path, reports_decide: bool) -> None:
    """In ERROR. A report may say what it is, if a copy that is off can be the newest: not after an open move."""

    async def body(stores: Stores) -> None:
        await held_in_placement(stores)
        await stores.put(
            "control", control.host_mappings, *({"host": one, "cell": "cell1"} for one in ("host1", "host2"))
        )
        await stores.put("control", control.request_specs, *(spec(name) for name in (*NAMES, "known", "of another")))
        await stores.put("cell1", cell.servers, server(id="known", vm_state="active"))
        names = [*NAMES, "known", "without a request"]
        count = await record_missing(stores, "cell1", names, FLOOR, reports_decide=reports_decide)  # type: ignore[arg-type]
        assert count == len(NAMES) + 1
        columns = ("id", "host", "vm_state", "turn", "turn_floor", "unsettled", "hidden")
        found = {row[0]: row[1:] for row in await stores.see("cell1", cell.servers, *columns)}
        assert found.pop("known")[1] == "active"
        places = {
            "plain": "host1",
            "moves": "host1",
            "evacuates": "host1",
            "shares": "host2",
            "two": None,
            "none": None,
        }
        assert {name: row[0] for name, row in found.items()} == places
        assert {row[1:4] + row[5:] for row in found.values()} == {("error", FLOOR, FLOOR, 0)}
        open_moves = {"moves": LOST_IN_MOVE, "evacuates": LOST_IN_MOVE, "two": SETTLED, "none": SETTLED}
        decided = (
            {name: open_moves.get(name, LOST) for name in NAMES} if reports_decide else dict.fromkeys(NAMES, SETTLED)
        )
        assert {name: row[4] for name, row in found.items()} == decided
        claimed = dict(await stores.see("cell1", cell.servers, "id", "claimed"))
        assert {name for name, more in claimed.items() if more} == {"shares"}
        assert msgspec.json.decode(claimed["shares"]) == {
            "host2": {"VCPU": 1, "MEMORY_MB": 512},
            "pool": {"DISK_GB": 1},
        }
        faults = await stores.see("cell1", cell.faults, "server_id", "message")
        assert sorted(faults) == sorted((name, MISSING) for name in NAMES)
        assert await record_missing(stores, "cell1", [], FLOOR) == 0  # type: ignore[arg-type]

    with_stores(tmp_path, body)


def test_a_lost_record_names_the_ports_and_volumes_that_are_attached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to be deleted with it. The first volume is its root disk, if it boots from one."""

    async def vifs(tx: Tx, servers: list[str]) -> dict[str, list[Any]]:
        return {"has": []}

    monkeypatch.setattr(restored_records, "vifs_of", vifs)

    async def body(stores: Stores) -> None:
        wanted = [WantedVolume(volume_id="x")]
        specs = (
            spec("boots", details=Details(volume_backed=True)),
            spec("has"),
            spec("none"),
            spec("lost", volumes=wanted),
        )
        await stores.put("control", control.request_specs, *specs, spec("of another"))
        of_clients = attachment("client", "none", turn=0)
        some = (attachment("b", "boots", created_at=1.0), attachment("a", "boots", created_at=2.0, device=None))
        await stores.put(
            "control", attachments, *some, attachment("c", "has"), of_clients, attachment("d", "of another")
        )
        assert await record_missing(stores, "cell0", ["boots", "has", "none", "lost"], FLOOR) == 4  # type: ignore[arg-type]
        rows_of = await stores.see("cell0", cell.servers, "id", "volume_info", "cell0_failure", "host")
        found = {name: info for name, info, *_ in rows_of}
        ports = dict(await stores.see("cell0", cell.servers, "id", "network_info"))
        assert ports == {"boots": None, "has": "[]", "none": None, "lost": None}
        assert {row[2:] for row in rows_of} == {("not_known", None)}, "in cell0 it may be tried again"
        assert (found.pop("none"), found.pop("lost")) == (None, "[]")
        shown = {
            name: [(one.volume_id, one.device, one.is_root, one.delete_on_termination) for one in server_volumes(info)]
            for name, info in found.items()
        }
        boots = [("vb", "/dev/vdb", True, False), ("va", "", False, False)]
        assert shown == {"boots": boots, "has": [("vc", "/dev/vdb", False, False)]}

    with_stores(tmp_path, body)


def test_a_record_gets_the_volumes_that_it_does_not_name(tmp_path: Path) -> None:
    async def body(stores: Stores) -> None:
        some = [attachment(name, "s") for name in ("known", "same volume", "new", "newer")]
        others = [attachment("client", "s", turn=0), attachment("unused", None), attachment("x", "gone")]
        await stores.put("control", attachments, *some, *others)
        there = [
            ServerVolume(id="1", volume_id="other", attachment_id="known"),
            ServerVolume(id="2", volume_id="vsame volume", attachment_id="of another"),
        ]
        named = server(id="another", volume_info=to_json(there[:1]))
        await stores.put("cell1", cell.servers, named, server(volume_info=to_json(there)), server(id="gone", deleted=1))
        assert await record_attachments(stores, "cell1") == 2  # type: ignore[arg-type]
        assert await record_attachments(stores, "cell1") == 0  # type: ignore[arg-type]
        found = dict(await stores.see("cell1", cell.servers, "id", "volume_info"))
        assert found["gone"] is None and found["another"] == to_json(there[:1])
        shown = [(one.volume_id, one.attachment_id) for one in server_volumes(found["s"])]
        assert shown == [("other", "known"), ("vsame volume", "of another"), ("vnew", "new"), ("vnewer", "newer")]

    with_stores(tmp_path, body)


MAPPED = {  # the mapping, the records; its cell, whether it is queued for delete, and whether that was changed
    "as it was": (("cell1", 0), {"cell1": 0}, ("cell1", 0, False)),
    "moved": (("cell0", 0), {"cell1": 0}, ("cell1", 0, True)),
    "in two": (("cell1", 0), {"cell1": 0, "cell0": 0}, ("cell1", 0, False)),
    "unmapped": (None, {"cell0": 0, "cell1": 0}, ("cell1", 0, True)),
    "in cell0": (None, {"cell0": 0}, ("cell0", 0, True)),
    "was going": (("cell1", 1), {"cell1": 0}, ("cell1", 0, True)),
    "deleted": (("cell1", 0), {"cell1": 1}, ("cell1", 1, True)),
    "deleted before": (("cell1", 1), {"cell1": 1}, ("cell1", 1, False)),
    "placed again": ((None, 0), {"cell0": 1}, (None, 0, False)),
    "deleted and forgotten": (None, {"cell1": 1}, None),
}


def test_every_record_is_mapped_to_its_cell(tmp_path: Path) -> None:
    """And a deleted server to none."""

    async def body(tx: Tx) -> None:
        recorded: dict[str, dict[str, Any]] = {}
        for name, (was, records, _) in MAPPED.items():
            if was is not None:
                await rows.put(
                    tx, control.server_mappings, **mapping(name, was[0], queued_for_delete=was[1], counted=1)
                )
            recorded[name] = {one: server(id=name, deleted=deleted, hidden=0) for one, deleted in records.items()}
        changed = await map_recorded(tx, Whereabouts(recorded=recorded), NOW)
        found = {row["server_id"]: row for row in await rows.fetch_all(tx, control.server_mappings)}
        expected = {name: after for name, (*_, after) in MAPPED.items() if after is not None}
        assert {name: (row["cell"], row["queued_for_delete"]) for name, row in found.items()} == {
            name: after[:2] for name, after in expected.items()
        }
        assert changed == sum(is_changed for *_, is_changed in expected.values())

    play(tmp_path, body, "control")


def test_a_server_counts_with_the_size_that_it_has_by_its_record(tmp_path: Path) -> None:
    """Also one whose record was made again just now. The request says that size from then on."""
    large = flavor_document(LARGE)

    async def body(tx: Tx) -> None:
        for name in ("resized", "made again", "another"):
            await rows.put(tx, control.server_mappings, **mapping(name, "cell1"))
            await rows.put(tx, control.request_specs, **spec(name))
        mapped: Any = {name: mapping(name, "cell1") for name in ("resized", "made again")}
        whereabouts = Whereabouts(mapped=mapped, recorded={"resized": {"cell1": server(id="resized", flavor=large)}})  # type: ignore[dict-item]
        assert await map_recorded(tx, whereabouts, NOW) == 0
        counted = {row["server_id"]: row["counted"] for row in await rows.fetch_all(tx, control.server_mappings)}
        assert counted == {"resized": 1, "made again": 1, "another": 0}
        (used,) = await rows.fetch_all(tx, quota_usages)
        assert (used["instances"], used["cores"], used["ram"]) == (2, 5, 2560)
        specs = {row["server_id"]: row["spec"] for row in await rows.fetch_all(tx, control.request_specs)}
        assert {name for name, text in specs.items() if '"name":"large"' in text} == {"resized"}

    play(tmp_path, body, "control")


HOMES = {  # by cell: hidden, deleted, whether it had a guest → by cell: whether it is shown, and its state
    "at home": ({"cell1": (0, 0, 1)}, {"cell1": (0, "active")}),
    "on its way": ({"cell1": (1, 0, 0)}, {"cell1": (0, "error")}),
    "waits": ({"cell1": (1, 0, 0)}, {"cell1": (1, "active")}),
    "waits in two": ({"cell0": (0, 0, 0), "cell1": (1, 0, 0)}, {"cell0": (0, "active"), "cell1": (1, "active")}),
    "in two": ({"cell0": (1, 0, 0), "cell1": (0, 0, 1)}, {"cell1": (0, "active")}),
    "buried": ({"cell0": (0, 0, 0), "cell1": (0, 1, 1)}, {"cell0": (0, "active"), "cell1": (0, "active")}),
}


def test_each_server_has_one_home_and_is_seen_there(tmp_path: Path) -> None:
    """Unless it waits for a host: then its build request is seen. A deleted record stays beside the other."""

    async def body(stores: Stores) -> None:
        for name, (records, _) in HOMES.items():
            for one, (hidden, deleted, launched) in records.items():
                values = {"hidden": hidden, "deleted": deleted, "launched_at": 1.0 if launched else None}
                await stores.put(one, cell.servers, server(id=name, **values))
        waiting = [{"server_id": name, "operation_id": "o", "server": "{}"} for name in HOMES if "waits" in name]
        await stores.put("control", control.build_requests, *waiting)
        whereabouts = await find_servers(stores)  # type: ignore[arg-type]
        await settle_homes(stores, whereabouts)  # type: ignore[arg-type]
        found: dict[str, dict[str, Any]] = {}
        for one in stores.cells():
            for name, hidden, state in await stores.see(one, cell.servers, "id", "hidden", "vm_state"):
                found.setdefault(name, {})[one] = (hidden, state)
        assert found == {name: after for name, (_, after) in HOMES.items()}
        assert {name: set(records) for name, records in whereabouts.recorded.items()} == {
            name: set(after) for name, (_, after) in HOMES.items()
        }

    with_stores(tmp_path, body)
