from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.small_cloud import SmallCloud


@pytest.fixture
def small_cloud(tmp_path: Path) -> Iterator[SmallCloud]:
    cloud = SmallCloud(tmp_path)
    yield cloud
    cloud.close()
