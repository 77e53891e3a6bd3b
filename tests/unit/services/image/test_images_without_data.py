"""An active image without a file names snapshots of volumes: nothing is made of its bytes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import pytest

from kilonova.domain.errors import Refused
from kilonova.services.image.image import ACTIVE, DEACTIVATED, QUEUED, SAVING, Image
from kilonova.services.volume.creating import check_image


@pytest.mark.parametrize("status", [QUEUED, SAVING, ACTIVE, DEACTIVATED])
@pytest.mark.parametrize("file", [None, "a file"])
def test_only_an_image_with_a_file_has_data(status: str, file: str | None) -> None:
    image = Image(id="i", status=status, file=file)
    lacks_data = status in (ACTIVE, DEACTIVATED) and file is None
    raises: AbstractContextManager[object] = (
        pytest.raises(Refused, match="names snapshots of volumes; create a new server") if lacks_data else nullcontext()
    )
    with raises:
        image.require_data()


def test_no_volume_is_made_from_it() -> None:
    image = Image(id="i", status=ACTIVE, disk_format="raw", size=0)
    with pytest.raises(Refused) as refused:
        check_image(image, 1)
    assert refused.value.code == "image_without_data"
