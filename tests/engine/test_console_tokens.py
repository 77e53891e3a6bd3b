"""The token of a console opens one copy of a server until its time is over, and nothing else is a token."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kilonova.domain.errors import Refused
from kilonova.engine.console_tokens import LONGEST, ConsoleTicket, issue_console, redeem_console
from kilonova.engine.secrets import Seal
from kilonova.schema.tables.cell import servers
from kilonova.schema.tables.control import server_mappings
from kilonova.store import rows
from tests.engine.desk import SERVER
from tests.support.small_cloud import SmallCloud, put

ANOTHERS = Seal(b"YW5vdGhlci1jbG91ZHMta2V5LTMyLWJ5dGVzLWxvbmc=")


def outcome(cloud: SmallCloud, changes: dict[str, Any], token: Any = None, **ticket: Any) -> str:
    """Why the token is refused; "" if it opens the console."""

    async def story() -> str:
        engine = cloud.engine()
        await put(engine, "control", server_mappings, server_id="s", cell="cell1", project_id="p", user_id="u")
        await put(engine, "cell1", servers, **SERVER)
        if changes:
            await engine.world.db.cell("cell1").write(lambda tx: rows.change(tx, servers, changes, id="s"))
        about = {
            "server": "s",
            "host": "host1",
            "copy": 1,
            "kind": "novnc",
            "expires": cloud.clock.now() + 1.0,
            **ticket,
        }
        issued = issue_console(engine.seal, ConsoleTicket(**about))
        try:
            found, record = await redeem_console(engine, token(issued, engine.seal) if token else issued)
        except Refused as why:
            assert why.code == "bad_console_token"
            return why.message
        assert (found, record.id) == (ConsoleTicket(**about), "s")
        return ""

    return cloud.run(story)


def test_it_opens_the_copy_that_it_was_issued_for(small_cloud: SmallCloud) -> None:
    assert outcome(small_cloud, {}) == ""


@pytest.mark.parametrize(
    "changes", [{"host": "host2"}, {"copy": 2}, {"host": None}, {"deleted": 1}], ids=["moved", "rebuilt", "off", "gone"]
)
def test_not_when_the_server_is_elsewhere(small_cloud: SmallCloud, changes: dict[str, Any]) -> None:
    assert "was moved, rebuilt or deleted" in outcome(small_cloud, changes)


def test_nor_of_a_server_that_nobody_knows(small_cloud: SmallCloud) -> None:
    assert "was moved, rebuilt or deleted" in outcome(small_cloud, {}, server="t")


@pytest.mark.parametrize("late", [0.0, 1.0])
def test_nor_when_its_time_is_over(small_cloud: SmallCloud, late: float) -> None:
    assert "it has expired" in outcome(small_cloud, {}, expires=small_cloud.clock.now() - late)


FORGED = {
    "nothing": lambda issued, seal: "",
    "too long": lambda issued, seal: "a" * (LONGEST + 1),
    "other letters": lambda issued, seal: "ü" + issued[1:],
    "changed": lambda issued, seal: issued[:-4] + "AAAA",
    "another cloud's": lambda issued, seal: issue_console(ANOTHERS, ConsoleTicket("s", "host1", 1, "novnc", 2e9)),
    "sealed for another purpose": lambda issued, seal: seal.close_text(
        msgspec.json.encode(ConsoleTicket("s", "host1", 1, "novnc", 2e9)).decode()
    ),
}


@pytest.mark.parametrize("how", FORGED)
def test_nor_anything_else(small_cloud: SmallCloud, how: str) -> None:
    assert "it is not one of this cloud's" in outcome(small_cloud, {}, FORGED[how])
