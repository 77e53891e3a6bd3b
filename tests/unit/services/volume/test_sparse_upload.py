"""A large volume with little in it becomes an image without reading its holes and without filling the disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kilonova.services.image.image import Image
from kilonova.services.volume.volume import file_of
from tests.unit.services.volume.shop import ALICE, PROJECT, Story, shop

Control = Callable[[Story], None]
SIZE = 64 * 1024**2


@pytest.mark.parametrize("disk_format", ["raw", "qcow2"])
def test_holes_are_neither_read_nor_written(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk_format: str
) -> None:
    amounts: list[int] = []
    pread = os.pread

    def counted(file: int, amount: int, offset: int) -> bytes:
        content = pread(file, amount, offset)
        amounts.append(len(content))
        return content

    async def story(store: Any) -> None:
        async with shop(store, tmp_path) as here:
            volume = await here.volume(1)
            with here.path(volume).open("r+b") as file:
                file.truncate(SIZE)  # holes are hashed, and this machine may be busy
                file.seek(SIZE // 2)
                file.write(b"data")
            monkeypatch.setattr(os, "pread", counted)
            wanted = Image(id="", owner=PROJECT, container_format="bare", disk_format=disk_format)
            image = await here.images.create(wanted)
            await here.images.upload(image, here.backing.read(file_of(volume), disk_format))
            made = await here.images.find(ALICE, image.id)
            path = (await here.images.file(image.id)).path
            assert made.virtual_size == SIZE and made.size == path.stat().st_size
            assert sum(amounts) < 1024**2 and path.stat().st_blocks * 512 < 2 * 1024**2
            again = await here.volume(1, image=made)
            with here.path(again).open("rb") as file:
                file.seek(SIZE // 2)
                assert file.read(5) == b"data\0"

    control(story)
