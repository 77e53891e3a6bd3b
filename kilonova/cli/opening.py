"""Databases for commands that open them: their addresses, the key of sealed ones, and a log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from kilonova.domain.errors import Failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from kilonova.settings import Settings

SEAL_KEY_NAME = "seal.key"
EMBEDDED = ("control", "placement", "cell0")


def addresses(settings: Settings, data: Path) -> dict[str, str]:
    """Return the addresses by name: the configured ones, else the files of the data directory."""
    database = settings.database
    if database.is_set:
        return {"control": database.control, "placement": database.placement, **database.cells}
    from kilonova.store.open_stores import file_url

    cells = [f"cell{number}" for number in range(1, settings.simulated.cells + 1)]
    return {name: file_url(data, name) for name in (*EMBEDDED, *cells)}


def address_opener(settings: Settings, data: Path) -> Callable[[str], str]:
    """Return a function that decrypts the addresses stored in control; it reads the key on the first call."""

    def unseal(sealed: str) -> str:
        from kilonova.domain.errors import StoreError
        from kilonova.engine.secrets import Seal
        from kilonova.store.data_directory import read_secret

        fleet = settings.database.is_set
        file = Path(settings.secrets.key_file) if fleet and settings.secrets.key_file else data / SEAL_KEY_NAME
        try:
            return Seal(read_secret(file).encode()).open_text(sealed)
        except (Failed, ValueError):
            text = f"its address was sealed with another key than {file}; every process of a cloud needs the same key"
            raise StoreError(text) from None

    return unseal


def with_created(settings: Settings, urls: dict[str, str], data: Path) -> dict[str, str]:
    """Return the configured addresses and those of cells that were added since, which only control knows."""
    import asyncio

    from kilonova.runtime import SystemClock
    from kilonova.store.open_stores import added_cells

    added = added_cells(urls["control"], data, address_opener(settings, data), SystemClock())
    return {**asyncio.run(added), **urls}


def set_up_logs(settings: Settings) -> None:
    """Set up the logs, so that an administrator's declaration is logged even if a command carries it out."""
    from kilonova.logs import set_up

    if not logging.getLogger().hasHandlers():  # a program that calls this has its own
        set_up(settings.default.log_level, use_json=settings.default.use_json)


def refuse_newer(urls: dict[str, str]) -> None:
    """Check all databases before the first one is touched."""
    from kilonova.schema.revisions import role_of
    from kilonova.store.upgrade import status_blocking

    for name, url in urls.items():
        status_blocking(url, role_of(name)).refuse_newer()
