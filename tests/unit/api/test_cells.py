"""Cells through REST: made, listed, disabled, deleted, and hosts that move between them; in a running cloud."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from kilonova.cli.opening import address_opener
from kilonova.domain.errors import StoreError
from kilonova.engine.secrets import Seal
from kilonova.schema.tables import control
from kilonova.settings import load
from kilonova.store import rows
from tests.support.outages import breakable
from tests.unit.api.embedded import Api, run

TWO = ("simulated.cells=2", "simulated.hosts=2")


async def cells(api: Api) -> dict[str, Any]:
    return {cell["name"]: cell for cell in (await api.get("/cells"))["cells"]}


def test_the_cells_of_a_cloud() -> None:
    async def story(api: Api) -> None:
        await api.created(host="host2")
        found = await cells(api)
        assert list(found) == ["cell0", "cell1", "cell2"]
        assert [(cell["hosts"], cell["servers"]) for cell in found.values()] == [(0, 0), (1, 0), (1, 1)]
        assert all(cell["configured"] and cell["reachable"] and not cell["disabled"] for cell in found.values())
        breakable(api.service, "cell2").begin("cell2", "refuses")
        await api.ask("GET", "/servers")
        away = (await cells(api))["cell2"]
        assert (away["reachable"], away["servers"]) == (False, 1)
        assert away["away_since"] is not None and "refuses" in away["away_because"]

    run(story, *TWO)


def test_a_new_cell_takes_a_host_and_its_servers() -> None:
    async def story(api: Api) -> None:
        made = (await api.post("/cells", {"name": "far"}, 201))["cell"]
        assert made["database"] == f"sqlite:///{api.data / 'far.db'}"
        moved = (await api.post("/cells/far/hosts", {"host": "host2"}, 200))["cell"]
        assert moved["hosts"] == 1
        await _in_cell(api, "host2", "far")
        server = await api.created(host="host2")
        assert (await api.get(f"/servers/{server}"))["server"]["cell"] == "far"
        status, code, text = await api.refused("POST", "/cells/cell1/hosts", {"host": "host2"})
        assert (status, code) == (409, "host_in_use") and "hosting instances" in text
        assert (await api.refused("DELETE", "/cells/far")) == (
            409,
            "cell_in_use",
            "cell far: it has 1 hosts and 1 servers; delete the servers and move the hosts away "
            "(kilonova cell move-host) first",
        )
        await api.ended((await api.submit("delete", server=server))["operation"])
        await api.post("/cells/cell1/hosts", {"host": "host2"}, 200)
        await _in_cell(api, "host2", "cell1")
        assert (await api.ask("DELETE", "/cells/far")).status_code == 200
        assert "far" not in await cells(api)
        assert (await api.refused("GET", "/cells/far"))[0] == 404

    run(story, "simulated.hosts=2")


async def _in_cell(api: Api, host: str, cell: str) -> None:
    async def look() -> bool:
        found = {one["name"]: one for one in (await api.get("/hosts"))["hosts"]}
        return host in found and (found[host]["cell"], found[host]["state"]) == (cell, "up")

    await api.until(look)


def test_a_disabled_cell_takes_no_new_servers() -> None:
    async def story(api: Api) -> None:
        there = await api.created(host="host2")
        assert (await api.post("/cells/cell2", {"disabled": True}, 200))["cell"]["disabled"]
        for _ in range(3):
            assert (await api.get(f"/servers/{await api.created()}"))["server"]["host"] == "host1"
        refused = await api.create(host="host2")
        await api.ended(refused["operation"], "undone")
        await api.ended((await api.submit("delete", server=there))["operation"])
        await api.post("/cells/cell2", {"disabled": False}, 200)
        await api.created(host="host2")
        assert (await api.refused("POST", "/cells/cell0", {"disabled": True}))[0] == 400

    run(story, *TWO)


def test_what_cannot_be_a_cell(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE theirs (a)").connection.close()
    (tmp_path / "text.db").write_text("no database at all, but long enough to look at its first bytes" * 20)
    newer = sqlite3.connect(tmp_path / "newer.db")
    newer.executescript("CREATE TABLE alembic_version (version_num); INSERT INTO alembic_version VALUES ('cell_9999')")
    newer.close()
    wishes: list[tuple[dict[str, str], int, str]] = [
        ({"name": "cell1"}, 409, "of this name exists"),
        ({"name": "control"}, 409, "of this name exists"),
        ({"name": "A cell"}, 400, "not a valid cell name"),
        ({"name": "x", "bus_prefix": "a b"}, 400, "not a valid bus prefix"),
        ({"name": "x", "database": "wrong"}, 400, "not a database address"),
        ({"name": "x", "database": "silent"}, 409, "cannot reach"),
        ({"name": "x", "database": "other"}, 409, "not empty: it has 1 tables"),
        ({"name": "x", "database": "text"}, 409, "text.db"),
        ({"name": "x", "database": "newer"}, 409, "newer Kilonova"),
        ({"name": "x", "database": "control"}, 409, "is the database of control"),
        ({"name": "x", "database": "cell1"}, 409, "is the database of cell1"),
        ({"name": "x", "database": "other2"}, 400, "'other2' (did you mean other?): no such name in [database.spare]"),
        (
            {"name": "x", "database": f"sqlite:///{tmp_path}/planted.db"},
            400,
            "no such name in [database.spare]; it has",
        ),
        ({"name": "x", "database": "postgresql://me:secret@127.0.0.1:1/x"}, 400, "no such name in [database.spare]"),
        ({"name": "../x"}, 400, "not a valid cell name"),
    ]
    spare = {
        "wrong": "mysql://me:secret@db/x",
        "silent": "postgresql://me:secret@127.0.0.1:1/x",
        **{name: f"sqlite:///{tmp_path}/{name}.db" for name in ("other", "text", "newer")},
    }

    async def story(api: Api) -> None:
        own = {name: f"sqlite:///{api.data}/{name}.db" for name in ("control", "cell1")}
        api.service.cells.spare = {**spare, **own}
        before = await cells(api)
        for wish, status, words in wishes:
            answered, _, text = await api.refused("POST", "/cells", wish)
            assert (answered, words in text, "secret" in text) == (status, True, False), text
        assert await cells(api) == before and not (tmp_path / "planted.db").exists()
        assert "is in the configuration" in (await api.refused("DELETE", "/cells/cell1"))[2]
        assert (await api.refused("POST", "/cells/nowhere/hosts", {"host": "host1"}))[0] == 404

    run(story, "simulated.hosts=1")


def test_a_database_of_the_configuration(tmp_path: Path) -> None:
    """Its address is kept sealed, and opened again at the next start."""
    spare = tmp_path / "spare.db"

    async def story(api: Api) -> None:
        made = (await api.post("/cells", {"name": "far", "database": "near"}, 201))["cell"]
        assert made["reachable"] and made["database"] == f"sqlite:///{spare}" and spare.exists()
        (row,) = await api.service.cells.stores.control.read(lambda tx: rows.fetch_all(tx, control.cells, name="far"))
        assert row["sealed_url"] and "spare" not in row["sealed_url"]
        unseal = address_opener(load(None, None, []), api.data)
        assert unseal(row["sealed_url"]) == f"sqlite:///{spare}"
        with pytest.raises(StoreError, match="needs the same key"):
            unseal(Seal(Fernet.generate_key()).close_text("sqlite:///x"))
        assert "is the database of far" in (await api.refused("POST", "/cells", {"name": "x", "database": "near"}))[2]

    run(story, "simulated.hosts=1", f"database.spare.near=sqlite:///{spare}")
