"""The ports that volumes are served at."""

from __future__ import annotations

from pathlib import Path

import pytest

from kilonova.domain.errors import Failed
from kilonova.services.volume.export_files import ExportFiles, Listening
from kilonova.services.volume.nbd import Nbd
from tests.support.servers import free_port


def test_every_port_of_the_range_is_given_and_no_other(tmp_path: Path) -> None:
    port = free_port()
    files = ExportFiles(tmp_path, Nbd(tmp_path), Listening(ports=(port, port)))
    assert files.free_port([]) == port
    with pytest.raises(Failed, match=f"all ports from {port} to {port} are taken"):
        files.free_port([port])
