"""One cloud of local storage and one of shared storage, three hosts each."""

from collections.abc import Iterator

import pytest

from tests.unit.compute.simulated_cloud import Cloud


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud()
    yield cloud
    cloud.close()


@pytest.fixture
def shared() -> Iterator[Cloud]:
    cloud = Cloud(shared_storage="nfs1")
    yield cloud
    cloud.close()
