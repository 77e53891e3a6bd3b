"""Servers as their cell records them, made of a few columns; every other one is empty."""

from __future__ import annotations

from typing import Any

from kilonova.domain.server import Server
from kilonova.schema.tables import cell


def server_record(**columns: Any) -> Server:
    return Server.from_row({**dict.fromkeys(column.name for column in cell.servers.c), **columns}.values())
