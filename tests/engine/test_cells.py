"""Hosts and their cells: mapped where they first said, refused elsewhere; conductors learn of new cells."""

from __future__ import annotations

from typing import Any

import pytest

from kilonova.domain.errors import Refused
from kilonova.domain.guest import HostInventory
from kilonova.domain.messages import Register
from kilonova.hosts import forget as forget_host
from kilonova.hosts.forget import move_host
from kilonova.hosts.registration import find_cell
from tests.engine.speaking import Speaker


def registering(host: str, cell: str = "") -> Register:
    return Register(host=host, session="s", key="k", copies=[], inventory=HostInventory(classes={}), cell=cell)


def found(cloud: Any, host: str, cell: str = "") -> str:
    async def ask(engine: Any) -> str:
        return str((await find_cell(engine, registering(host, cell))).name)

    return str(cloud.do(ask))


def test_a_host_stays_where_it_was_first_seen(cloud: Any) -> None:
    two = cloud(hosts=2, cells=2)
    assert (found(two, "host1"), found(two, "host2")) == ("cell1", "cell2")
    assert found(two, "host2", "cell2") == "cell2"
    assert found(two, "new") == "cell1"
    assert found(two, "other", "cell2") == "cell2"
    with pytest.raises(Refused) as caught:
        found(two, "host2", "cell1")
    assert caught.value.message == (
        "host host2 is mapped to cell2, not to cell1; start its agent with --cell cell2, "
        "or move it first: kilonova cell move-host host2 cell1"
    )


@pytest.mark.parametrize("cell", ["cell7", "cell0"])
def test_a_cell_that_cannot_have_hosts(cloud: Any, cell: str) -> None:
    two = cloud(hosts=2, cells=2)
    with pytest.raises(Refused, match=f"belongs to the cell {cell}, which does not exist; known are cell1, cell2"):
        found(two, "new", cell)
    assert found(two, "new") == "cell1", "nothing was mapped"


def test_a_conductor_finds_a_host_again_that_has_changed_its_cell(cloud: Any) -> None:
    """It remembers the cell of each host that it has heard: else it would send this one to register for ever."""
    two = cloud(hosts=2, cells=2)
    speaker = Speaker(two, "host1").join()
    assert not speaker.beat().register_again
    two.do(lambda engine: move_host(engine, "host1", "cell2"))
    assert speaker.beat().register_again
    speaker.join()
    assert not speaker.beat().register_again
    assert {row["name"] for row in two.records().databases["cell2"]["hosts"]} == {"host1", "host2"}


@pytest.mark.parametrize("is_back", [False, True])
def test_a_change_of_cells_that_was_cut_off_is_repeated(cloud: Any, monkeypatch: Any, is_back: bool) -> None:
    """Also after the host has joined its new cell."""
    two = cloud(hosts=2, cells=2)
    speaker = Speaker(two, "host1").join()

    async def cut_off(*_: Any) -> None:
        raise ConnectionError("cut off")

    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        patch.setattr(forget_host, "drop_record", cut_off)
        two.do(lambda engine: move_host(engine, "host1", "cell2"))
    if is_back:
        speaker.join()
    two.do(lambda engine: move_host(engine, "host1", "cell2"))
    if speaker.beat().register_again:
        speaker.join()
    assert not speaker.beat().register_again
    names = {name: {row["name"] for row in two.records().databases[name]["hosts"]} for name in ("cell1", "cell2")}
    assert names == {"cell1": set(), "cell2": {"host1", "host2"}}
    providers = [row["name"] for row in two.records().databases["placement"]["resource_providers"]]
    assert sorted(providers) == ["host1", "host2"]


def test_a_host_that_no_cell_has_is_not_moved(cloud: Any) -> None:
    two = cloud(hosts=2, cells=2)
    with pytest.raises(Refused, match="Compute host nobody could not be found"):
        two.do(lambda engine: move_host(engine, "nobody", "cell2"))
