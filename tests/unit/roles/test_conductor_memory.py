"""A conductor remembers marks in a directory of its own (law 15)."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kilonova.domain.errors import WrongStore
from kilonova.roles.stores import claim_memory
from kilonova.store.badges import read_directory_badge


def of(cloud: str) -> Any:
    return SimpleNamespace(cloud=cloud)


def test_a_new_directory_gets_a_badge_and_keeps_it(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "conductor"
    assert claim_memory(of("c1"), folder)
    first = read_directory_badge(folder)
    assert first is not None and (first.cloud, first.name) == ("c1", "conductor")
    assert claim_memory(of("c1"), folder) and read_directory_badge(folder) == first


def test_a_directory_of_another_cloud_is_refused(tmp_path: Path) -> None:
    claim_memory(of("c1"), tmp_path / "conductor")
    with pytest.raises(WrongStore, match="belongs to cloud c1, not to cloud c2"):
        claim_memory(of("c2"), tmp_path / "conductor")


def test_without_a_directory_it_works_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not claim_memory(of("c1"), tmp_path / "file" / "conductor")
