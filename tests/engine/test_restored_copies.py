"""After a restore no second guest is started beside a copy that may be newer: who waits for what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.domain.server import POWER_RUNNING, POWER_SHUTDOWN, Server
from kilonova.engine.restored_copies import refuse_unless_settled
from kilonova.operations import REGISTRY
from kilonova.schema.tables import cell
from kilonova.schema.tables.stores import this_store
from kilonova.store import rows
from kilonova.world import Tx
from tests.engine.rows_of_one import ERA, play, server
from tests.support.neighbours import zeros

RESTORED_AT = 100.0
OFF = {"power_state": POWER_SHUTDOWN}
RUNS = {"power_state": POWER_RUNNING}
LATE = {"reported_at": RESTORED_AT - 1.0}
HELD = {"host": "host2", "server_id": "s", "copy": 5, "reason": "", "power": "on"}
BESIDE = "copy 5 on host2 may be newer; adopt or remove it first"
UNKNOWN = "host2 has not reported its guests since; start its agent, or declare it down"


async def refusal(
    tx: Tx, kind: str, of_server: dict[str, Any], host: dict[str, Any] | None = None, held: dict[str, Any] | None = None
) -> tuple[str, str]:
    await rows.put(tx, this_store, **zeros(this_store, id=1, restored_at=RESTORED_AT))
    await rows.put(tx, cell.servers, **server(**of_server))
    text = {"name": "host2", "id": "i", "provider_id": "p", "identity": "x", "reported_at": RESTORED_AT}
    await rows.put(tx, cell.hosts, **zeros(cell.hosts, **{**text, **(host or {})}))
    if held is not None:
        await rows.put(tx, cell.quarantine, **zeros(cell.quarantine, **{**HELD, **held}))
    row = await rows.fetch(tx, cell.servers, id="s")
    assert row is not None
    try:
        await refuse_unless_settled(tx, REGISTRY[kind], Server.from_row(row))
    except Refused as why:
        return why.code, why.message.partition("the records were restored, and ")[2]
    return "", ""


@pytest.mark.parametrize(
    ("kind", "of_server", "is_held"),
    [
        *((kind, OFF, kind not in ("adopt", "delete", "soft_delete")) for kind in sorted(REGISTRY)),
        ("stop", RUNS, True),
        ("start", {"runner_copy": ERA}, True),
        ("start", {"runner_copy": ERA + 1}, False),  # a copy that was made since
        ("start", {"runner_host": None, "runner_copy": None}, True),
        ("start", {"turn_floor": None}, False),
    ],
    ids=str,
)
def test_a_copy_in_quarantine_is_settled_first(
    tmp_path: Path, kind: str, of_server: dict[str, Any], is_held: bool
) -> None:
    async def body(tx: Tx) -> None:
        code, why = await refusal(tx, kind, {**OFF, **of_server}, held={})
        assert (code, why.partition(" (`")[0]) == (("quarantined", BESIDE) if is_held else ("", ""))

    play(tmp_path, body)


@pytest.mark.parametrize("held", [{"ended_at": 1.0}, {"server_id": "another"}], ids=str)
def test_other_copies_in_quarantine_hold_up_nothing(tmp_path: Path, held: dict[str, Any]) -> None:
    async def body(tx: Tx) -> None:
        assert await refusal(tx, "start", OFF, held=held) == ("", "")

    play(tmp_path, body)


@pytest.mark.parametrize(
    ("kind", "of_server", "host", "waits"),
    [
        ("start", OFF, LATE, True),
        ("start", OFF, {"reported_at": RESTORED_AT}, False),
        ("start", OFF, {**LATE, "forced_down": 1}, False),
        ("start", OFF, {**LATE, "fenced": "by whom"}, False),
        ("start", RUNS, LATE, False),  # its copy is known
        ("stop", OFF, LATE, False),
        ("stop", RUNS, LATE, False),
        ("revert_resize", OFF, LATE, True),
        ("revert_resize", RUNS, LATE, True),
        ("migrate", {"runner_copy": ERA + 1, **OFF}, LATE, False),
        ("delete", OFF, LATE, False),
    ],
    ids=str,
)
def test_each_host_reports_first_unless_it_is_dead(
    tmp_path: Path, kind: str, of_server: dict[str, Any], host: dict[str, Any], waits: bool
) -> None:
    async def body(tx: Tx) -> None:
        assert await refusal(tx, kind, of_server, host) == (("unsettled", UNKNOWN) if waits else ("", ""))

    play(tmp_path, body)


@pytest.mark.parametrize(
    ("kind", "unsettled", "waits"),
    [("confirm_resize", 1, True), ("confirm_resize", 0, False), ("hard_reboot", 1, False)],
)
def test_a_move_is_confirmed_when_its_destination_has_reported(
    tmp_path: Path, kind: str, unsettled: int, waits: bool
) -> None:
    async def body(tx: Tx) -> None:
        text = "host1 has not reported since; start its agent, then confirm"
        answer = await refusal(tx, kind, {**RUNS, "unsettled": unsettled})
        assert answer == (("unsettled", text) if waits else ("", ""))

    play(tmp_path, body)
