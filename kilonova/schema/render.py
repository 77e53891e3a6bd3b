"""Alembic, configured in code: there is no ini file to find or to keep in step."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

from alembic import command
from alembic.config import Config

_HERE = Path(__file__).parent


def versions_of(role: str) -> Path:
    return _HERE / role / "versions"


def configure(role: str, output: TextIO | None = None, **attributes: Any) -> Config:
    config = Config(output_buffer=output)
    for option, path in (("script_location", _HERE), ("version_locations", versions_of(role))):
        config.set_main_option(option, str(path).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes.update(attributes)
    return config


@lru_cache  # every cell has the same
def render_upgrade(role: str, dialect: str, current: str | None) -> str:
    """The SQL that brings a database from `current` to the newest revision."""
    text = io.StringIO()
    config = configure(role, text, dialect=dialect)
    command.upgrade(config, f"{current or 'base'}:head", sql=True)
    return text.getvalue()
