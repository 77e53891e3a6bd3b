"""Servers as their cell records them, made of a few columns; every other one is empty."""

from __future__ import annotations

from typing import Any

from kilonova.domain.server import COLUMNS, Server


def server_record(**columns: Any) -> Server:
    return Server.from_row({**dict.fromkeys(COLUMNS), **columns}.values())
